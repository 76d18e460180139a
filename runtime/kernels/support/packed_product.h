// Matrix products with oneDNN, for weights that were packed in strips of columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kvopt::kernels {

/// One product of matrices with these extents: out[m,n] = sum_k a[m,k] W[k,n]. Calls run only on
/// the calling thread and may be made from several threads simultaneously. The bits of a row depend
/// neither on the thread nor on the other rows and columns.
class PackedProduct {
public:
  enum class Kind {
    Floats, ///< f32, in the strips of linear/pack_strips.h
    Codes,  ///< a uint8, W int8, sums int32 modulo 2^32, exact; W in the strips of packCodeStrips
  };
  /// Null unless the CPU has instructions for which the library reads these strips: AVX-512, and
  /// VNNI for codes. Other instructions saturate sums of products of codes.
  static std::unique_ptr<const PackedProduct> create(Kind kind, int64_t rows, int64_t inner,
                                                     int64_t columns);
  PackedProduct(const PackedProduct&) = delete;
  PackedProduct& operator=(const PackedProduct&) = delete;
  ~PackedProduct();

  /// Size in bytes of the working memory of one `run`, aligned to 64 bytes.
  size_t scratchBytes() const;

  /// Computes out [rows,columns] from a [rows,inner], both contiguous. False if the library reports
  /// an error.
  bool run(const void* a, const void* strips, void* out, std::byte* scratch) const;

private:
  struct Prepared;
  explicit PackedProduct(std::unique_ptr<Prepared> library);
  std::unique_ptr<Prepared> prepared;
};

} // namespace kvopt::kernels
