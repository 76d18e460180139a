// Raising the opset of a whole model: main graph, subgraphs and functions.
#pragma once

#include "ir/model.h"
#include "passes/pattern/reason.h"

#include <optional>

namespace kvopt::opset {

/// Reason why `model` cannot be converted to ONNX's opset `version` (at most `newestKnownOpset`):
/// the first operator that may change its meaning according to the table (op_history.h) and that no
/// adapter converts. nullopt if it can be converted, and for a model of that opset or a newer one.
/// The cost is linear in the nodes.
std::optional<pattern::MatchFailure> opsetObstacle(const ir::Model& model, int64_t version);

/// Converts a model without obstacle. Nodes whose operators did not change remain, and a newer
/// model does not change. Types of new values are not inferred. Returns the number of nodes that an
/// adapter rewrote.
unsigned raiseOpset(ir::Model& model, int64_t version);

} // namespace kvopt::opset
