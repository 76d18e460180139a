// Raising the opset of a whole model: main graph, subgraphs and functions.
#pragma once

#include "ir/model.h"
#include "passes/pattern/reason.h"

#include <optional>

namespace kvopt::opset {

/// Why `model` cannot be brought to ONNX's opset `version` (at most `newestKnownOpset`): the first
/// operator of which the table (op_history.h) does not say that it means the same there, and that
/// no adapter takes there. nullopt if it can, and for a model that is of that opset or a newer one.
/// Linear in the nodes.
std::optional<pattern::MatchFailure> opsetObstacle(const ir::Model& model, int64_t version);

/// Brings a model without obstacle there. Nodes whose operators did not change stay as they are, a
/// newer model stays whole. Types of new values are not inferred. Returns the number of nodes that
/// an adapter rewrote.
unsigned raiseOpset(ir::Model& model, int64_t version);

} // namespace kvopt::opset
