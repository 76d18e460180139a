// Products of many rows: W is packed strip by strip, in memory that stays in the caches, and
// multiplied with oneDNN.
#pragma once

#include "runtime/kernels/support/linear.h"
#include "runtime/kernels/support/packed_product.h"

#include <optional>

namespace kvopt::kernels {

/// A part of a result.
struct Region {
  int64_t rowBegin = 0, rowEnd = 0;
  int64_t columnBegin = 0, columnEnd = 0;
};

/// Plan for all products with the extents of a LinearProduct. The bits of a result depend on the
/// inner extent and on the operands of the result only.
class StripProduct {
public:
  /// nullopt if the product is too small, if extents do not fit into 32 bits, or if the library
  /// does not read strips on this CPU. `matrices` is the number of products and `threads` the
  /// number of threads, for which there are enough regions. A must not be transposed.
  static std::optional<StripProduct> create(const LinearProduct& product, int64_t matrices,
                                            int64_t threads);

  /// Extents of a region; those at the end may be smaller.
  int64_t regionRows() const { return tileRows * tilesOfRegion; }
  int64_t regionColumns() const { return width; }
  /// Lets products read all strips of W, which is the same for all of them.
  void useStrips(const float* allStrips) { kept = allStrips; }
  /// Size in bytes of the working memory for one region, aligned to 64 bytes.
  int64_t scratchBytes() const { return stripBytes() + sumBytes() + libraryBytes; }

  /// Computes the sums of a region without scale and addend. False if the library reports an error.
  bool compute(const LinearProduct& product, const Region& region, std::byte* scratch) const;

private:
  int64_t stripBytes() const;
  int64_t sumBytes() const { return tileRows * width * int64_t{sizeof(float)}; }

  int64_t inner = 0;
  int64_t width = 0;     ///< columns of a region, in whole strips
  int64_t lastWidth = 0; ///< columns of the last region
  int64_t tileRows = 0, lastTileRows = 0, tilesOfRegion = 1;
  int64_t libraryBytes = 0;
  const float* kept = nullptr;
  /// For whole and last tiles of rows, and whole and last regions of columns.
  std::shared_ptr<const PackedProduct> tiles[2][2];
};

/// Packs columns [begin,end) of W in strips.
void packStripsOf(const LinearProduct& product, int64_t begin, int64_t end, float* strips);

} // namespace kvopt::kernels
