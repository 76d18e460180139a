// The claim of a manifest that rows can be moved to other positions, and by which rotations.
#pragma once

#include "driver/verify/claims.h"

namespace kvopt::driver {

/// Computes the rotations of the cached rows from the graph, and compares width, first column,
/// pairs, angles, and the caches that hold them with the manifest. Where the form of the caches
/// keeps the graph from showing them, those of `original` count, if there is one; where it has none
/// either, those that queries, keys and values hold, without a proof that masks depend on
/// distances. Rotations that neither shows are accepted of caches in blocks and rings, whose rows
/// no session moves. Returns an empty text where they are proved, and otherwise a sentence with the
/// reason. Fails where the graph holds other rotations.
llvm::Expected<std::string> checkRotations(const ClaimedModel& claimed,
                                           const ClaimedModel* original, const Toolkit& toolkit);

} // namespace kvopt::driver
