// The gate for models: what the rest of kvopt takes for granted about a model that was opened.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

namespace kvopt::ir {

/// The newest version of ONNX's own operator set whose operators kvopt knows. Operators of a later
/// one may mean something else.
inline constexpr int64_t newestOnnxOpset = 28;

/// No model is expanded to more nodes than this, whatever its limits say.
inline constexpr uint64_t maxExpandedNodes = uint64_t{1} << 24;

/// What a model may cost.
struct ModelLimits {
  /// The most nodes that the model has once every call of its functions is replaced by the
  /// function's body. Does not apply to a model without functions, whose nodes are all in the file.
  uint64_t maxNodes = 200'000;
  /// Whether a function under the name of one of kvopt's operators must be the body that kvopt
  /// writes for it (OpDef::checkBody).
  bool checksBodies = true;

  /// For a copy of a model that was admitted, and may have been changed since.
  static ModelLimits none() { return {UINT64_MAX, false}; }
};

/// Checks a model that was just read. importModel() and importModelBytes() call it; a program that
/// opens models in text form calls it after readText(). Nothing after it checks these things again:
/// * operator sets: versions are positive, "" and "ai.onnx" agree, ONNX's own is imported where its
///   operators are used, and is not newer than `newestOnnxOpset`;
/// * nodes fit their operators' definitions (checkDefinition, checkBodies), overwrite no value as
///   two operands, and refer to attributes of a function only inside of one;
/// * a function that an operator's definition has a rule for (OpDef::checkBody) satisfies that
/// rule:
///   kvopt runs the operator, and engines run the function;
/// * functions do not call themselves, directly or through others, and do not expand to more nodes
///   than `limits` allows;
/// * declared extents describe a tensor that a process can address.
/// Operators without a definition pass: whatever executes one reports it. Contradictory types are
/// left to shape inference, and the manifest to manifestOf(). The cost is linear in the model.
/// The error names the node, the value or the function.
llvm::Error admit(const Model& model, const ModelLimits& limits = {});

/// Checks the functions of kvopt's operators as admit() does, with the types that are known by now:
/// of a model that was read, some are known only after shape inference. Costs nothing for a model
/// without such functions.
llvm::Error checkFunctionBodies(const Model& model);

/// Checks that every type in `graph` and in the graphs nested in it describes a tensor that a
/// process can address, as admit() does for a model that was read. Inference may find extents that
/// the file did not declare, so a model is checked again before it is written: what kvopt writes it
/// must be able to read. The error names the value.
llvm::Error checkExtents(const Graph& graph);

} // namespace kvopt::ir
