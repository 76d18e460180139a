// Decode attention over the rows of a cache, by the type of its rows. Each type is a file of its
// own, which takes long to compile.
#pragma once

#include "runtime/simd/attention/attention_block.h"

namespace kvopt::simd {

/// Attends to the keys of `range`. The block's queries are packed, and its sums started; a
/// quantized block that is read in turns has its digits. `following` is probably read next.
using AttendKeys = void(const AttentionBlock& block, KeyRange range, const LocatedKeys& following);

AttendKeys attendF32Keys;
AttendKeys attendF16Keys;
AttendKeys attendBf16Keys;
AttendKeys attendInt8Keys;
/// Rows of four-bit codes with separate keys and values, which are not gathered and have whole
/// groups in each run.
AttendKeys attendFourBitKeys;

} // namespace kvopt::simd
