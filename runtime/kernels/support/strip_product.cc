// Strips of weights and tiles of rows.
#include "runtime/kernels/support/strip_product.h"

#include "runtime/linear/pack_strips.h"

#include <algorithm>
#include <climits>

namespace kvopt::kernels {
using namespace linear;

namespace {

constexpr int64_t mostTileRows = 256;
constexpr int64_t mostColumns = 256;
/// Number of floats of W in a region that a second-level cache holds together with activations.
constexpr int64_t stripBudget = 1 << 17;
/// Number of multiply-adds from which preparing the library is worth its time.
constexpr int64_t leastWork = 1 << 23;

int64_t roundedUp(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}
int64_t pieces(int64_t total, int64_t each) { return (total + each - 1) / each; }

} // namespace

std::optional<StripProduct> StripProduct::create(const LinearProduct& p, int64_t matrices,
                                                 int64_t threads) {
  if (std::max({p.rows, p.inner, p.columns}) > INT_MAX / 2 || p.inner == 0 ||
      p.rows * p.columns < leastWork / p.inner)
    return std::nullopt;
  StripProduct plan;
  plan.inner = p.inner;
  const int64_t fitting = stripBudget / stripFloats(p.inner, 1) * stripColumns;
  const int64_t shared = pieces(p.columns * matrices, 2 * threads);
  plan.width =
      roundedUp(std::min(std::clamp(fitting, stripColumns, mostColumns), shared), stripColumns);
  const int64_t across = pieces(p.columns, plan.width);
  plan.lastWidth = roundedUp(p.columns - (across - 1) * plan.width, stripColumns);
  const int64_t tileCount = pieces(p.rows, mostTileRows);
  plan.tileRows = pieces(p.rows, tileCount);
  plan.lastTileRows = p.rows - plan.tileRows * (pieces(p.rows, plan.tileRows) - 1);
  const int64_t wantedRegions = std::max<int64_t>(1, 2 * threads / (across * matrices));
  plan.tilesOfRegion = pieces(tileCount, wantedRegions);
  for (int64_t row = 0; row < 2; ++row)
    for (int64_t column = 0; column < 2; ++column) {
      const bool isSame = (row == 0 || plan.lastTileRows == plan.tileRows) &&
                          (column == 0 || plan.lastWidth == plan.width);
      const int64_t tileRows = row == 0 ? plan.tileRows : plan.lastTileRows;
      const int64_t columns = column == 0 ? plan.width : plan.lastWidth;
      plan.tiles[row][column] =
          isSame && row + column != 0
              ? plan.tiles[0][0]
              : PackedProduct::create(PackedProduct::Kind::Floats, tileRows, p.inner, columns);
      if (!plan.tiles[row][column])
        return std::nullopt;
      plan.libraryBytes = std::max(plan.libraryBytes,
                                   static_cast<int64_t>(plan.tiles[row][column]->scratchBytes()));
    }
  return plan;
}

int64_t StripProduct::stripBytes() const {
  return kept ? 0 : stripFloats(inner, width) * int64_t{sizeof(float)};
}

void packStripsOf(const LinearProduct& p, int64_t begin, int64_t end, float* strips) {
  if (p.blocks)
    packStrips(*p.blocks, begin, end, strips);
  else
    packStrips(p.weights, p.storage, p.transposeWeights, p.transposeWeights ? p.inner : p.columns,
               p.inner, begin, end, strips);
}

bool StripProduct::compute(const LinearProduct& p, const Region& region, std::byte* scratch) const {
  auto* packed = reinterpret_cast<float*>(scratch);
  auto* sums = reinterpret_cast<float*>(scratch + stripBytes());
  std::byte* library = scratch + stripBytes() + sumBytes();
  const float* strips = kept ? kept + stripFloats(inner, region.columnBegin) : packed;
  if (!kept)
    packStripsOf(p, region.columnBegin, region.columnEnd, packed);
  const int64_t columns = region.columnEnd - region.columnBegin;
  const int64_t computed = roundedUp(columns, stripColumns);
  for (int64_t row = region.rowBegin; row < region.rowEnd; row += tileRows) {
    const int64_t count = std::min(tileRows, region.rowEnd - row);
    const auto& tile = tiles[count == tileRows ? 0 : 1][computed == width ? 0 : 1];
    float* to = p.out + row * p.columns + region.columnBegin;
    float* written = computed == p.columns ? to : sums;
    if (!tile->run(p.a + row * p.inner, strips, written, library))
      return false;
    for (int64_t m = 0; written == sums && m < count; ++m)
      std::copy_n(sums + m * computed, columns, to + m * p.columns);
  }
  return true;
}

} // namespace kvopt::kernels
