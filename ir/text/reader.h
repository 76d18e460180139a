// Reader of ONNX's textual syntax (github.com/onnx/onnx, docs/Syntax.md) for whole models.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::ir {

/// Parses a model: optional `<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1], …>` header, a
/// graph, and functions. As published, `float` is a scalar and `float[]` a tensor of unknown rank,
/// a backslash in a string takes the next character as it is, `com.microsoft.Gelu` is operator Gelu
/// of domain com.microsoft, and inf, infinity and nan are numbers.
///
/// Beyond the published syntax:
///  * every name may be quoted ("past_key_values.0.key"), and so may parts of an operator's name;
///  * quoted dimensions are symbolic expressions ("past + 1");
///  * `//` starts a comment to the end of the line, as `#` does;
///  * optional operands and results are written as an empty place or "";
///  * an element of an attribute list may be a tensor or a graph;
///  * a node's metadata stands among its attributes: `<axis = 1, metadata_props: ["k": "v"]>`;
///  * float16 and bfloat16 tensors hold numbers, not bit patterns; narrower floats hold patterns;
///  * `undefined` stands for an unknown element type, `dtype_30` for one that has no name.
/// Not read: sequence, map, optional, sparse and opaque types, external data.
///
/// Errors name the place as "file:line:column" in Diagnostic::file, columns counted in bytes.
/// Nothing but the header's `opset_import` selects operator definitions. `registry` must outlive
/// the model.
llvm::Expected<std::unique_ptr<Model>> readText(llvm::StringRef text, const OpRegistry& registry,
                                                llvm::StringRef fileName = "<text>");

/// Parses one function in the same syntax and adds it to `model`, which stays as it was on error.
llvm::Expected<Function*> readFunctionText(llvm::StringRef text, Model& model);

} // namespace kvopt::ir
