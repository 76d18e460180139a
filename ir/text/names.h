// Names, operators and the lists of a header in ONNX's textual syntax. Private to the text printer.
#pragma once

#include "ir/graph.h"

namespace kvopt::ir {

/// The name, in quotes if necessary.
std::string nameText(llvm::StringRef name);
/// Operator's name: `MatMul`, `com.microsoft.Gelu`. Parts that are not identifiers are in quotes.
std::string operatorText(OpName op);
/// Metadata as text: `["key": "value", …]`
std::string pairsText(const Metadata& metadata);
/// Opset imports as text: `["" : 17, "ai.kvopt" : 1]`
std::string opsetsText(const OpsetImports& opsets);
/// Text for a comment, which ends with its line: line breaks become spaces.
std::string commentText(std::string text);

} // namespace kvopt::ir
