// Removal of codes from com.microsoft::GroupQueryAttention, for quantized_model.h.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include <string>

namespace kvopt::unrounding {

/// Number of bits, 8 or 4, of the codes in the node's caches; 0 for other nodes, and if the caches
/// hold numbers.
int64_t codeBits(const ir::Node& node);

/// The same for the first node of the model with caches of codes.
int64_t groupCodeBits(const ir::Model& model);

/// Makes the caches of such nodes hold numbers of the query's type, in the manifest, too. Types
/// must have been inferred. Fails for nodes with codes on only one side, and if there are no such
/// nodes.
llvm::Error unquantizeGroups(ir::Model& model, ir::Manifest& manifest);

/// Definition with which such a node is compared.
struct DefinedGroup {
  ir::Node* definition = nullptr;
  /// Largest number that a code of the values represents.
  double largestValue = 0;
};

/// Reason that such a node cannot be compared with a definition: it changes keys before it rounds
/// them, or its scales are not constant. Empty if it can.
std::string groupObstacle(const ir::Node& node);

/// Whether all constant scales of such a node are finite.
bool hasFiniteScales(const ir::Node& node);

/// Adds, before such a node, a call of a function that computes the same with the numbers that
/// codes represent, with a GroupQueryAttention over numbers, and rounds the presents. Fails if
/// there is a groupObstacle.
llvm::Expected<DefinedGroup> defineGroup(ir::Model& model, ir::Node& node);

} // namespace kvopt::unrounding
