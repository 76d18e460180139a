// Reader of ONNX's textual syntax (github.com/onnx/onnx, docs/Syntax.md) for whole models.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::ir {

/// Parses a model: an optional header `<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1],
/// …>`, a graph, and functions. As in the published syntax, `float` is a scalar, `float[]` is a
/// tensor of unknown rank, a backslash in a string is followed by a literal character,
/// `com.microsoft.Gelu` is operator Gelu of domain com.microsoft, and inf, infinity and nan are
/// numbers.
///
/// Extensions of the published syntax:
///  * every name may be quoted ("past_key_values.0.key"), and so may parts of an operator's name;
///  * quoted dimensions are symbolic expressions ("past + 1");
///  * `//` starts a comment to the end of the line, as `#` does;
///  * absent optional operands and results are written as an empty entry or "";
///  * an element of an attribute list may be a tensor or a graph;
///  * a node's metadata is one of its attributes: `<axis = 1, metadata_props: ["k": "v"]>`;
///  * float16 and bfloat16 tensors hold numbers, not bit patterns; narrower floats hold bit
///    patterns;
///  * `undefined` is an unknown element type, and `dtype_30` is one without a name.
/// Not supported: sequence, map, optional, sparse and opaque types, and external data.
///
/// Errors give the position as "file:line:column" in Diagnostic::file; columns are counted in
/// bytes. Only `opset_import` in the header selects operator definitions. `registry` must outlive
/// the model.
llvm::Expected<std::unique_ptr<Model>> readText(llvm::StringRef text, const OpRegistry& registry,
                                                llvm::StringRef fileName = "<text>");

/// Parses one function in the same syntax and adds it to `model`, which is unchanged on error.
llvm::Expected<Function*> readFunctionText(llvm::StringRef text, Model& model);

} // namespace kvopt::ir
