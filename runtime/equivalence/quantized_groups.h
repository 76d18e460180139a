// Attention of com.microsoft::GroupQueryAttention over caches of codes taken apart, for
// quantized_model.h.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

namespace kvopt::runtime {

/// The bits of the codes that the node keeps: 8 or 4; 0 for other nodes, and where its caches hold
/// numbers.
int64_t codeBits(const ir::Node& node);

/// The same of the first node of the model that keeps codes.
int64_t groupCodeBits(const ir::Model& model);

/// Makes the caches of such nodes hold numbers of the query's type, in the manifest, too. Types
/// must have been inferred.
void unquantizeGroups(ir::Model& model, ir::Manifest& manifest);

/// What such a node computes beside what it is defined to.
struct DefinedGroup {
  ir::Node* definition = nullptr;
  /// The largest number that a code of the values stands for.
  double largestValue = 0;
};

/// Adds, before such a node, a call of a function that computes the same of the numbers that codes
/// stand for, by a GroupQueryAttention over numbers, and rounds the presents. Fails where the node
/// rotates what it caches, where keys are in the query's operand, and where scales are not
/// constants.
llvm::Expected<DefinedGroup> defineGroup(ir::Model& model, ir::Node& node);

} // namespace kvopt::runtime
