// Spellings that are not recognized yet, and masks that are not proved.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace kvopt::generated {

/// Decoders with one spelling, or with several of them, that are missed.
struct MissedSpelling {
  llvm::StringLiteral names; ///< separated by spaces
  /// Reason codes that a decoder gives whose other spellings are common; `mask-unproven` where the
  /// attention is recognized and its mask is not proved to be causal.
  llvm::StringLiteral found;
  /// For decoders that are missed at some sizes only: the seed of a random one. 0 for others.
  uint64_t seed = 0;
};

inline constexpr MissedSpelling missedSpellings[] = {
    {"append/ByHead", "cache-transformed"},
    {"append/GatheredRows", "axis-unproven"},
    {"append/LastSlice", "axis-unproven"},
    {"append/PaddedChoice", "not-a-cache-concat"},
    {"append/PaddedSum", "not-a-cache-concat"},
    {"append/Products", "no-cache"},
    {"append/ScatteredElements", "past-not-input"},
    {"append/ScatteredRows", "past-not-input"},
    {"append/Sequence", "pattern-mismatch"},
    {"groups/FoldedQueries", "pattern-mismatch"},
    {"hide/Logarithm", "mask-unproven"},
    {"repeat/Einsum", "no-cache"},
    {"repeat/Matrix", "no-cache"},
    {"repeat/OneHot", "no-cache"},
    {"repeat/Ones", "cache-transformed"},
    {"repeat/OuterProduct", "no-cache"},
    {"repeat/Zeros", "cache-transformed"},
    {"result/Sum", "pattern-mismatch"},
    {"scores/Sum", "other-sites"},
    {"scores/Transposed", "pattern-mismatch"},
    {"seen/Maximum", "mask-unproven"},
    {"seen/SignOfDifference", "mask-unproven"},
    {"softmax/LogSumExp", "not-softmax"},
    {"softmax/Reciprocal", "not-softmax"},
    {"write/Blend", "not-a-cache-concat"},
    {"write/ChosenProduct", "not-a-cache-concat"},
    {"write/FlatRows", "axis-unproven"},
    {"write/GatheredRows", "axis-unproven"},
    {"write/PaddedChoice", "pattern-mismatch"},
    {"write/Roll", "past-not-input"},
    {"groups/Broadcast softmax/Exponentials", "pattern-mismatch"},
    {"groups/Broadcast softmax/ShiftedExponentials", "pattern-mismatch"},
    {"groups/Broadcast write/Splice", "pattern-mismatch"},
    {"pair/Heads write/ScatteredElements", "axis-unproven"},
    {"pair/Heads write/ScatteredPoints", "axis-unproven"},
    {"pair/Heads write/ScatteredRows", "axis-unproven"},
    {"pair/Heads write/Splice", "axis-unproven"},
    {"result/OneBatch softmax/Exponentials", "pattern-mismatch"},
    {"result/OneBatch softmax/ShiftedExponentials", "pattern-mismatch"},
    {"result/OneBatch write/Splice", "pattern-mismatch"},
    {"result/Transposed softmax/Exponentials", "other-sites"},
    {"result/Transposed softmax/ShiftedExponentials", "other-sites"},
    {"scores/OneBatch softmax/Exponentials", "pattern-mismatch"},
    {"scores/OneBatch softmax/ShiftedExponentials", "pattern-mismatch"},
    {"scores/OneBatch write/Splice", "pattern-mismatch"},
    {"repeat/Concat scale/Both", "cache-transformed", 1252},
    {"repeat/Concat scale/Keys", "cache-transformed", 3061},
    {"repeat/Gather scale/Both", "cache-transformed", 4567},
    {"repeat/Gather scale/Keys", "cache-transformed", 3381},
    {"seen/PositionIds window/FirstKey write/ScatteredElements", "mask-unproven"},
};

} // namespace kvopt::generated
