// Attention of com.microsoft::GroupQueryAttention over caches of codes taken apart, for
// quantized_model.h.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include <string>

namespace kvopt::runtime {

/// The bits of the codes that the node keeps: 8 or 4; 0 for other nodes, and where its caches hold
/// numbers.
int64_t codeBits(const ir::Node& node);

/// The same of the first node of the model that keeps codes.
int64_t groupCodeBits(const ir::Model& model);

/// Makes the caches of such nodes hold numbers of the query's type, in the manifest, too. Types
/// must have been inferred. Fails for nodes that keep codes of only one of the two, or none at all.
llvm::Error unquantizeGroups(ir::Model& model, ir::Manifest& manifest);

/// The definition that such a node is compared with.
struct DefinedGroup {
  ir::Node* definition = nullptr;
  /// The largest number that a code of the values stands for.
  double largestValue = 0;
};

/// Why such a node cannot be compared with a definition: it does something to keys before it rounds
/// them, or its scales are not constants. Empty where it can.
std::string groupObstacle(const ir::Node& node);

/// Whether all scales of such a node that are constants are numbers: codes stand for something.
bool hasFiniteScales(const ir::Node& node);

/// Adds, before such a node, a call of a function that computes the same of the numbers that codes
/// stand for, by a GroupQueryAttention over numbers, and rounds the presents. Fails where there is
/// a groupObstacle.
llvm::Expected<DefinedGroup> defineGroup(ir::Model& model, ir::Node& node);

} // namespace kvopt::runtime
