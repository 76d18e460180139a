// Ranges of axes, and axes that parts do not have.
#include "runtime/session/cache_part.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::runtime {
using namespace ir;

std::optional<TensorView> viewOfPart(const TensorView& whole, const ManifestCache& cache) {
  const ManifestPart& part = *cache.part;
  if (whole.rank() != part.first.size())
    return std::nullopt;
  TensorView view = whole;
  for (unsigned axis = whole.rank(), inner = static_cast<unsigned>(cache.shape.size());
       axis-- > 0;) {
    const int64_t first = part.first[axis];
    int64_t count = 1;
    const bool isDropped = llvm::is_contained(part.dropped, static_cast<int64_t>(axis));
    if (!isDropped) {
      --inner;
      const auto own =
          cache.permutation.empty()
              ? inner
              : static_cast<unsigned>(llvm::find(cache.permutation, static_cast<int64_t>(inner)) -
                                      cache.permutation.begin());
      const auto* fixed = own == static_cast<unsigned>(cache.sequenceAxis)
                              ? nullptr
                              : std::get_if<int64_t>(&cache.shape[own]);
      count = fixed ? *fixed : view.shape[axis];
    }
    if (count > view.shape[axis] || first > view.shape[axis] - count)
      return std::nullopt;
    view = sliceAxis(view, axis, first, first + count);
    if (isDropped) {
      view.shape.erase(view.shape.begin() + axis);
      view.strides.erase(view.strides.begin() + axis);
    }
  }
  return view;
}

} // namespace kvopt::runtime
