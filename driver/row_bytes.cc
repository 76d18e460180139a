// Size of rows in bytes.
#include "driver/row_bytes.h"

#include "ir/element_type.h"

namespace kvopt::driver {
using namespace ir;

std::optional<int64_t> rowBytes(const ManifestCache& cache) {
  std::optional<unsigned> width = byteWidth(cache.dtype);
  if (!width)
    return std::nullopt;
  int64_t bytes = *width;
  for (size_t axis = 1; axis < cache.shape.size(); ++axis) {
    if (static_cast<int64_t>(axis) == cache.sequenceAxis)
      continue;
    const auto* extent = std::get_if<int64_t>(&cache.shape[axis]);
    if (!extent || __builtin_mul_overflow(bytes, *extent, &bytes))
      return std::nullopt;
  }
  return bytes;
}

} // namespace kvopt::driver
