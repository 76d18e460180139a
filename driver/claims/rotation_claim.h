// The claim of a manifest that rows can be moved to other positions by certain rotations.
#pragma once

#include "driver/claims/claims.h"

namespace kvopt::driver {

/// Computes the rotations of the cached rows from the graph, and compares width, first column,
/// pairs, angles and caches with the manifest. If the form of the caches hides the rotations, those
/// of `original` count, if it is given. If the original does not show them either, the rotations of
/// queries, keys and values count, without a proof that masks depend on distances. Caches in blocks
/// and rings, whose rows no session moves, need no proof. Returns an empty text for proved
/// rotations, otherwise a sentence with the reason. Fails if the graph has other rotations.
llvm::Expected<std::string> checkRotations(const ClaimedModel& claimed,
                                           const ClaimedModel* original, const Toolkit& toolkit);

} // namespace kvopt::driver
