// Attention over strided memory, vectorized for the widest SIMD target of the running CPU.
#pragma once

#include "runtime/simd/code_form.h"
#include "runtime/simd/float_storage.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace kvopt::simd {

enum class MaskKind : uint8_t { none, additive, boolean };

/// Distances in elements. A row is one sequence position; the axis within a row is contiguous.
struct RowStrides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
};

/// Distances in elements over a mask seen as [B,H,S,T]; 0 broadcasts along the axis.
struct MaskStrides {
  int64_t batch = 0;
  int64_t head = 0;
  int64_t row = 0;
  int64_t column = 0;
};

/// Neighboring positions whose keys and values lie in one piece of memory.
struct KeyValueSegment {
  int64_t begin = 0;         ///< the first position
  const void* key = nullptr; ///< [B,G,·,D], or [B,G,D,·] when the keys are transposed
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
/// A row that sees nothing is zero. Scores are clamped to the finite range of f32 before the
/// exponential, so finite inputs give no NaN unless a partial sum of a dot product, or the sum of
/// the weighted values, overflows f32. Positions at and beyond T(b) are never read. Keys and values
/// outside the causal and windowed range of all query rows of a unit may hold anything; a position
/// inside it that only the mask, or another row's range, hides takes part with weight 0, so its V
/// must be finite.
struct AttentionView {
  int64_t batches = 0;
  int64_t queryHeads = 0; ///< H, a multiple of kvHeads
  int64_t kvHeads = 0;    ///< G
  int64_t queryRows = 0;  ///< S
  int64_t keyWidth = 0;   ///< of Q and K rows, >= 1
  int64_t valueWidth = 0; ///< of V and O rows

  /// T: valid keys, for every batch row or, when totalLengths is not null, one per batch row.
  int64_t totalLength = 0;
  const int64_t* totalLengths = nullptr;

  FloatStorage queryStorage = FloatStorage::f32;
  FloatStorage cacheStorage = FloatStorage::f32; ///< of K and V, unless they are quantized
  FloatStorage outputStorage = FloatStorage::f32;
  const void* query = nullptr; ///< [B,H,S,D]
  const void* key = nullptr;   ///< [B,G,T,D], or [B,G,D,capacity] when keyTransposed
  const void* value = nullptr; ///< [B,G,T,Dv]
  void* output = nullptr;      ///< [B,H,S,Dv]
  RowStrides queryStrides;
  RowStrides keyStrides; ///< keyTransposed: `row` is the capacity, positions are contiguous
  RowStrides valueStrides;
  RowStrides outputStrides;
  bool keyTransposed = false;
  /// Where not empty, keys and values lie in segments instead, in order: the first begins at 0,
  /// each ends where the next begins, and the last at T, which is the same for all batch rows.
  /// `key`, `value` and their strides then mean nothing. The result has the same bits, however the
  /// positions are divided. Not for quantized caches.
  std::span<const KeyValueSegment> segments;
  /// Quantized caches, where not null: K and V are int8, and row j stands for keyScales[b,g,j] or
  /// valueScales[b,g,j] times its elements. Both or neither; scales at and beyond T are never read.
  const float* keyScales = nullptr;   ///< [B,G,T]
  const float* valueScales = nullptr; ///< [B,G,T]
  /// Of quantized caches: how K and V are stored. Rows of four-bit codes stand for their products
  /// with the multipliers or, where they have none, for themselves; strides are in bytes. Other
  /// forms than bytes not with keyTransposed.
  CodeForm codeForm = CodeForm::bytes;
  RowStrides keyScaleStrides;
  RowStrides valueScaleStrides;
  /// Where the CPU multiplies bytes, a kernel may multiply codes as whole numbers
  /// (code_products.h).
  bool byteProducts = true;

  float scale = 1.0f;
  bool causal = false;
  int64_t window = 0; ///< 0: none
  float softcap = 0;  ///< 0: none
  MaskKind maskKind = MaskKind::none;
  FloatStorage maskStorage = FloatStorage::f32; ///< of an additive mask; a boolean one is uint8
  const void* mask = nullptr;
  MaskStrides maskStrides;
  const float* sinks = nullptr; ///< [H] or null

  bool isQuantized() const { return keyScales != nullptr; }
  /// Whether rows are not all read where they are: some, or all, are first put into scratch memory.
  bool isGathered() const { return !segments.empty() || isPacked(); }
  /// Whether K and V are rows of four-bit codes.
  bool isPacked() const { return codeForm != CodeForm::bytes; }
  int64_t totalLengthOf(int64_t batch) const {
    return totalLengths ? totalLengths[batch] : totalLength;
  }
};

struct AttentionKernel;

/// One attention divided into units of work, which may run in any order and at the same time. Units
/// write disjoint rows of O. The bits of a row depend on its query and on the keys and values it
/// sees: not on strides, capacity or alignment, not on the order of units or on how many workers
/// there are. Where the CPU multiplies bytes (code_products.h), those of a row that attends to a
/// quantized cache also depend on whether its unit has other queries, and whether all are finite.
class AttentionJob {
public:
  /// Computed by the kernel of the highest rank that takes the view.
  explicit AttentionJob(const AttentionView& view);
  /// Computed by `kernel`, which must take the view.
  AttentionJob(const AttentionView& view, const AttentionKernel& kernel);

  const AttentionKernel& kernel() const { return *kernel_; }
  int64_t units() const { return units_; }

  /// Bytes of scratch for `workers` units at the same time; no alignment is asked for. Bounded for
  /// every T; none on overflow.
  std::optional<size_t> scratchBytes(int64_t workers) const;

  /// To be called once, before the first unit, with as much memory as scratchBytes says.
  void start(std::span<std::byte> scratch);

  /// Computes unit 0 <= unit < units(). No two units may run at the same time as the same worker.
  /// `upcoming` is the unit that the worker probably runs next: towards the end, the kernel may ask
  /// for what that reads first. units() or more: none.
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
