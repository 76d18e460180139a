// Removal of codes from attention over blocks, for quantized_model.h.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/unrounding/removed_scales.h"

#include <string>

namespace kvopt::unrounding {

/// Whether the node is an operator over caches of codes in blocks.
bool isBlockAttention(const ir::Node& node);

/// Error in the blocks of codes and scales that such a node reads, or in the new rows that the
/// model returns for them: a sentence, or empty.
std::string miswiredBlocks(const ir::Node& node, const ir::Manifest& manifest);

/// Replaces the operator by the one over numbers, whose blocks and new rows are numbers, in the
/// manifest, too. Scales are no longer outputs; nodes that computed new ones become unused. Inputs
/// that hold scales are added to `removed`. Fails if the new codes are not computed by
/// ai.kvopt::QuantizeRows, or have readers other than the outputs.
llvm::Error unquantizeBlocks(ir::Node& node, ir::Manifest& manifest, RemovedScales& removed);

/// Output of the model that returns the scales of the node's new values, or empty.
std::string newValueScales(const ir::Node& node);

} // namespace kvopt::unrounding
