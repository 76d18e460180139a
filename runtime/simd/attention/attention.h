// Attention over strided memory, vectorized for the widest SIMD target of the running CPU.
#pragma once

#include "runtime/simd/code_form.h"
#include "runtime/simd/float_storage.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>

namespace kvopt::simd {

enum class MaskKind : uint8_t { none, additive, boolean };

/// Distances in elements. A row is one position of the sequence; the axis within a row is
/// contiguous.
struct RowStrides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
};

/// Distances in elements for a mask with the shape [B,H,S,T]; 0 broadcasts along the axis.
struct MaskStrides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
  int64_t column = 0;
};

/// Adjacent positions whose keys and values are contiguous in memory.
struct KeyValueSegment {
  int64_t begin = 0;         ///< first position
  const void* key = nullptr; ///< [B,G,·,D], or [B,G,D,·] if the keys are transposed
  const void* value = nullptr;
  RowStrides keyStrides;
  RowStrides valueStrides;
};

/// One call of attention, with B batch rows, H query heads, G key/value heads, S query rows:
///
///   s[j] = scale * sum_d Q[b,h,i,d] * K[b,g,j,d]           g = h / (H/G),  0 <= j < T(b)
///   s[j] = softcap * tanh(s[j] / softcap)                  unless softcap is 0
///   s[j] = s[j] + mask[b,h,i,j]                            additive mask
///   j is visible iff s[j] is not -inf, the boolean mask holds, and with offset = T(b) - S
///       causal: j <= i + offset,     window w > 0: i + offset - j < w
///   O[b,h,i,:] = sum_j exp(s[j]) V[b,g,j,:] / (exp(sinks[h]) + sum_j exp(s[j]))   over visible j
///
/// A row that sees nothing is zero. Scores are clamped to the finite range of f32, and from below
/// to lowestScore, before the exponential, so finite inputs give no NaN unless a partial sum of a
/// dot product, or the sum of the weighted values, overflows f32. Positions from T(b) on are never
/// read. Keys and values outside the causal and windowed range of all query rows of a unit may
/// contain anything. A position inside it that only the mask, or another row's range, hides has
/// weight 0, so its V must be finite.
struct AttentionView {
  int64_t batches = 0;
  int64_t queryHeads = 0; ///< H, a multiple of kvHeads
  int64_t kvHeads = 0;    ///< G
  int64_t queryRows = 0;  ///< S
  int64_t keyWidth = 0;   ///< columns of Q and K rows, >= 1
  int64_t valueWidth = 0; ///< columns of V and O rows

  /// T, the number of valid keys: for every batch row or, if totalLengths is not null, one number
  /// per batch row.
  int64_t totalLength = 0;
  const int64_t* totalLengths = nullptr;

  FloatStorage queryStorage = FloatStorage::f32;
  FloatStorage cacheStorage = FloatStorage::f32; ///< storage of K and V, unless they are quantized
  FloatStorage outputStorage = FloatStorage::f32;
  const void* query = nullptr; ///< [B,H,S,D]
  const void* key = nullptr;   ///< [B,G,T,D], or [B,G,D,capacity] when keyTransposed
  const void* value = nullptr; ///< [B,G,T,Dv]
  void* output = nullptr;      ///< [B,H,S,Dv]
  RowStrides queryStrides;
  RowStrides keyStrides; ///< keyTransposed: `row` is the capacity, and positions are contiguous
  RowStrides valueStrides;
  RowStrides outputStrides;
  bool keyTransposed = false;
  /// If not empty, keys and values are in segments, in order: the first begins at 0, each ends
  /// where the next begins, and the last one ends at T, which is the same for all batch rows.
  /// `key`, `value` and their strides are then unused. The division into segments does not change
  /// the bits of the result. Not for quantized caches.
  std::span<const KeyValueSegment> segments;
  /// Scales of quantized caches; both or neither are null. K and V are int8, and the elements of
  /// row j are multiplied by keyScales[b,g,j] or valueScales[b,g,j]. Scales from T on are never
  /// read.
  const float* keyScales = nullptr;   ///< [B,G,T]
  const float* valueScales = nullptr; ///< [B,G,T]
  /// Storage of K and V in quantized caches. Rows of four-bit codes represent their products with
  /// the multipliers or, without multipliers, the codes; strides are in bytes. With keyTransposed,
  /// only `bytes` is supported.
  CodeForm codeForm = CodeForm::bytes;
  RowStrides keyScaleStrides;
  RowStrides valueScaleStrides;
  /// Whether a kernel may multiply codes as integers (code_products.h) if the CPU multiplies bytes.
  bool byteProducts = true;

  float scale = 1.0f;
  bool causal = false;
  int64_t window = 0; ///< 0 for none
  float softcap = 0;  ///< 0 for none
  MaskKind maskKind = MaskKind::none;
  FloatStorage maskStorage =
      FloatStorage::f32; ///< storage of an additive mask; a boolean one is uint8
  const void* mask = nullptr;
  MaskStrides maskStrides;
  const float* sinks = nullptr; ///< [H] or null
  /// Scores below it are raised to it, except those of hidden keys.
  float lowestScore = -std::numeric_limits<float>::max();
  /// [B,H,S] or null: receives the largest score of each row, or a number of at most lowestScore if
  /// the row sees nothing.
  float* maxima = nullptr;
  /// [B,H,S] or null: receives the sum of exp(score - maximum) of each row.
  float* sums = nullptr;

  bool isQuantized() const { return keyScales != nullptr; }
  /// Whether some or all rows are first copied to scratch memory.
  bool isGathered() const { return !segments.empty() || isPacked(); }
  /// Whether K and V are rows of four-bit codes.
  bool isPacked() const { return codeForm != CodeForm::bytes; }
  int64_t totalLengthOf(int64_t batch) const {
    return totalLengths ? totalLengths[batch] : totalLength;
  }
  /// Writes the largest score and the sum of weights of a row, where they are wanted.
  void storeWeights(int64_t batch, int64_t head, int64_t row, float maximum, float sum) const {
    const int64_t index = (batch * queryHeads + head) * queryRows + row;
    if (maxima)
      maxima[index] = maximum;
    if (sums)
      sums[index] = sum;
  }
};

struct AttentionKernel;

/// One attention, divided into units of work, which may run in any order and simultaneously. Units
/// write disjoint rows of O. The bits of a row depend on its query and on the keys and values that
/// it sees, but not on strides, capacity or alignment, on the order of units, or on the number of
/// workers. If the CPU multiplies bytes (code_products.h), the bits of a row that attends to a
/// quantized cache also depend on whether its unit has other queries, and whether all of them are
/// finite.
class AttentionJob {
public:
  /// Uses the kernel of the highest rank that supports the view.
  explicit AttentionJob(const AttentionView& view);
  /// Uses `kernel`, which must support the view.
  AttentionJob(const AttentionView& view, const AttentionKernel& kernel);

  const AttentionKernel& kernel() const { return *kernel_; }
  int64_t units() const { return units_; }

  /// Scratch memory for `workers` simultaneous units, in bytes, without alignment. Bounded for
  /// every T; nullopt on overflow.
  std::optional<size_t> scratchBytes(int64_t workers) const;

  /// Must be called once before the first unit, with scratchBytes bytes of memory.
  void start(std::span<std::byte> scratch);

  /// Computes unit 0 <= unit < units(). Two units must not run at the same time for the same
  /// worker. `upcoming` is the unit that the worker probably runs next: near the end, the kernel
  /// may prefetch its data. units() or more means none.
  void run(int64_t unit, int64_t worker, int64_t upcoming);

private:
  AttentionView view_;
  const AttentionKernel* kernel_;
  int64_t units_;
  size_t unitBytes_;
  size_t sharedBytes_;
  std::span<std::byte> scratch_;
};

} // namespace kvopt::simd
