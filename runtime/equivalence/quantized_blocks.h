// Attention over blocks of codes taken apart, for quantized_model.h.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "runtime/equivalence/removed_scales.h"

#include <string>

namespace kvopt::runtime {

/// Whether it is an operator over caches of codes in blocks.
bool isBlockAttention(const ir::Node& node);

/// What is wrong with the blocks of codes and scales that such a node reads, or with the new rows
/// that the model hands out for them: a sentence, or empty.
std::string miswiredBlocks(const ir::Node& node, const ir::Manifest& manifest);

/// Makes it the operator over numbers, whose blocks and new rows are numbers, in the manifest, too.
/// Scales are no longer outputs; the nodes that computed the new ones are left unused. The inputs
/// that hold scales are noted in `removed`. Fails where the new codes are not made by
/// ai.kvopt::QuantizeRows, or are read by anything but what hands them out.
llvm::Error unquantizeBlocks(ir::Node& node, ir::Manifest& manifest, RemovedScales& removed);

/// The output of the model that hands out the scales of its new values, or empty.
std::string newValueScales(const ir::Node& node);

} // namespace kvopt::runtime
