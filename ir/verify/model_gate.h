// Checks that establish everything that the rest of kvopt assumes about a model.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::ir {

/// Newest version of ONNX's operator set that kvopt knows. Operators of a later version may have a
/// different meaning.
inline constexpr int64_t newestOnnxOpset = 28;

/// Maximum number of nodes of an expanded model, whatever its limits allow.
inline constexpr uint64_t maxExpandedNodes = uint64_t{1} << 24;

/// Limits of the size of a model.
struct ModelLimits {
  /// Maximum number of nodes after every call of a function is replaced by the function's body.
  /// Does not apply to a model without functions, whose nodes are all in the file.
  uint64_t maxNodes = 200'000;
  /// Whether a function with the name of one of kvopt's operators must be the body that kvopt
  /// writes for it (OpDef::checkBody).
  bool checksBodies = true;

  /// For a copy of a model that was admitted, and may have changed since.
  static ModelLimits none() { return {UINT64_MAX, false}; }
};

/// Checks a model that was just read. importModel() and importModelBytes() call it; a program that
/// opens models in text form calls it after readText(). These properties are not checked again:
/// * operator sets: versions are positive, "" and "ai.onnx" agree, and ONNX's own is imported if
///   its operators are used and is not newer than `newestOnnxOpset`;
/// * nodes: they fit their operators' definitions (checkDefinition, checkBodies), do not overwrite
///   one value as two operands, and refer to attributes of a function only within a function;
/// * functions with a rule (OpDef::checkBody): they satisfy it, because kvopt runs the operator,
///   and engines run the function;
/// * functions do not redefine operators of ONNX;
/// * functions: they do not call themselves, directly or through others, and do not expand to more
///   nodes than `limits` allows;
/// * declared extents: they describe a tensor that fits into a process's address space.
/// Operators without a definition pass; an engine that executes one reports it. Shape inference
/// reports contradictory types, and manifestOf() checks the manifest. Linear in the size of the
/// model. The error names the node, the value or the function.
llvm::Error admit(const Model& model, const ModelLimits& limits = {});

/// Checks the functions of kvopt's operators as admit() does, with the types that are known now;
/// some types of a model are known only after shape inference. Does nothing for a model without
/// such functions.
llvm::Error checkFunctionBodies(const Model& model);

/// Checks that every type in `graph` and in the graphs nested in it describes a tensor that fits
/// into a process's address space, as admit() does for a new model. Inference may find extents that
/// the file did not declare, so models are checked again before they are written: kvopt must be
/// able to read every model that it writes. The error names the value.
llvm::Error checkExtents(const Graph& graph);

} // namespace kvopt::ir
