// Products of few rows of activations with a matrix of floating-point weights, vectorized for the
// widest SIMD target of the running CPU.
#pragma once

#include "runtime/simd/float_storage.h"

#include <cstdint>

namespace kvopt::linear {

/// out[m,n] = sum_k a[m,k] W[k,n] for 0 <= m < rows <= fewRows, 0 <= k < inner, 0 <= n < columns.
/// Row strides are in elements; elements within a row are contiguous.
struct FloatProduct {
  int64_t rows = 0;
  int64_t inner = 0;
  int64_t columns = 0;
  const float* a = nullptr; ///< [rows,inner]
  int64_t aStride = 0;
  simd::FloatStorage storage = simd::FloatStorage::f32;
  const void* weights = nullptr; ///< [inner,columns] or [columns,inner]
  int64_t weightStride = 0;
  float* out = nullptr; ///< [rows,columns]; does not overlap the operands
  int64_t outStride = 0;
};

/// Maximum number of rows that these kernels support.
inline constexpr int64_t fewRows = 16;

/// Number of values of k whose products multiplyColumns sums before it adds them to the result.
inline constexpr int64_t sumBlock = 256;

/// Columns [begin,end) of the product with W stored as [inner,columns], in one pass over these
/// columns of W. Other elements are not read.
///
/// An element is sum_b p(b), from left to right in f32, where p(b) = sum_k a[m,k] W[k,n] over the
/// b-th sumBlock values of k. The first 4 * (c / 4) of the c values of a block are taken
/// alternately from four quarters: the first value of each, the second of each, and so on. An
/// element's bits depend neither on other rows or columns nor on [begin,end).
void multiplyColumns(const FloatProduct& product, int64_t begin, int64_t end);

/// The same with W stored as [columns,inner], in one pass over rows [begin,end) of W.
///
/// An element is sum_b p(b) over blocks of 1024 values of k, where p(b) is a sum over the lanes of
/// a vector, each summed from left to right in f32. Again, its bits are independent of other
/// elements.
void multiplyRows(const FloatProduct& product, int64_t begin, int64_t end);

} // namespace kvopt::linear
