// Reader of ONNX's textual syntax (github.com/onnx/onnx, docs/Syntax.md) for whole models.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt {

/// Parses a model: optional `<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1], …>` header, a
/// graph, and functions. Beyond the published syntax: identifiers may contain dots and slashes when
/// quoted ("past_key_values.0.key"), dimensions may be quoted symbolic expressions, `//` and `#`
/// start comments, optional operands and results are written as an empty place or "".
/// Errors name line and column.
llvm::Expected<std::unique_ptr<Model>> readText(llvm::StringRef text, const OpRegistry& registry,
                                                llvm::StringRef fileName = "<text>");

/// Parses one function in the same syntax and adds it to `model`.
llvm::Expected<Function*> readFunctionText(llvm::StringRef text, Model& model);

} // namespace kvopt
