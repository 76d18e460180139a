// Presents: caches after a step, in the memory of the past where the caller bound one buffer.
#pragma once

#include "engines/onnxruntime/call.h"

#include <atomic>

namespace kvopt::onnxruntime {

/// Memory of a cache after the step.
struct Present {
  Tensor tensor;
  /// Whether the memory is that of the past, so that only new rows are written.
  bool isInPlace = false;
};

/// Says once per node that pasts are copied.
class CopyNotice {
public:
  /// How the operator's presents relate to its pasts.
  enum class Presents {
    capacity, ///< of the same shape if the past has room for the new rows
    longer,   ///< always longer by the new rows
  };
  explicit CopyNotice(Presents ofOperator = Presents::capacity) : presents(ofOperator) {}

  /// `isWholeBuffer`: the past has room for the new rows, so that binding one buffer would suffice.
  void say(const Call& call, bool isWholeBuffer) const;

private:
  Presents presents;
  mutable std::atomic<bool> isSaid{false};
};

/// Memory of result `result` with the shape [B,G,C,W]. `past` is null without a past; fails if it
/// shares the result's memory, but its rows have other places there.
Present presentOf(Call& call, unsigned result, const Tensor* past, ElementType type,
                  const Shape& shape, const CopyNotice& notice);

/// Sets the rows of one head from `first` on to zero.
void clearRows(const HeadRows& present, int64_t batch, int64_t head, int64_t first);

/// Completes one head of a present that is not in place: copies the first `valid` rows of the past,
/// and sets the rows from `valid + fresh` on to zero.
void fillHead(const HeadRows& past, const HeadRows& present, int64_t batch, int64_t head,
              int64_t valid, int64_t fresh);

} // namespace kvopt::onnxruntime
