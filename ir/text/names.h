// Names, operators and the lists of a header in ONNX's textual syntax. Private to the text printer.
#pragma once

#include "ir/graph.h"

namespace kvopt::ir {

/// The name, quoted where it cannot stand bare.
std::string nameText(llvm::StringRef name);
/// `MatMul`, `com.microsoft.Gelu`; parts that are no identifiers in quotes.
std::string operatorText(OpName op);
/// `["key": "value", …]`
std::string pairsText(const Metadata& metadata);
/// `["" : 17, "ai.kvopt" : 1]`
std::string opsetsText(const OpsetImports& opsets);
/// For a comment, which must not contain the end of its line: line breaks become spaces.
std::string commentText(std::string text);

} // namespace kvopt::ir
