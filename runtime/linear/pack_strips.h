// Conversion of weights to strips of f32 columns, which a matrix product reads in order.
#pragma once

#include "runtime/linear/block_product.h"
#include "runtime/simd/float_storage.h"

#include <cstdint>

namespace kvopt::linear {

/// Number of columns of a strip.
inline constexpr int64_t stripColumns = 64;
/// The inner extent of a strip is padded to a multiple of this number.
inline constexpr int64_t stripInner = 16;

/// Number of floats of the strips for `columns` columns.
int64_t stripFloats(int64_t inner, int64_t columns);

/// Writes columns [begin,end) of W as strips. Strip s holds the columns from begin + 64 s on as
/// f32 [padded inner,64]; missing rows and columns are zero. W is stored as [inner,columns] or, if
/// `transposed`, as [columns,inner], with `stride` elements from row to row.
void packStrips(const void* weights, simd::FloatStorage storage, bool transposed, int64_t stride,
                int64_t inner, int64_t begin, int64_t end, float* strips);

/// The same for weights in blocks: W[n,k] = (q[n,k] - z[n,b]) * s[n,b], each operation rounded
/// once.
void packStrips(const BlockWeights& weights, int64_t begin, int64_t end, float* strips);

} // namespace kvopt::linear
