// LengthInputs: inputs with the number of tokens in the caches.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/cache/cache_set.h"

#include <string>
#include <vector>

namespace kvopt::runtime {

/// Tensors of a manifest's lengths. They are kept between steps and filled for each step.
class LengthInputs {
public:
  /// The manifest must outlive this object.
  LengthInputs(const ir::Manifest& described, std::shared_ptr<Allocator> memory)
      : manifest(described), allocator(std::move(memory)) {}

  /// Creates the tensors for `batch` batch rows, unless they exist.
  llvm::Error resize(int64_t batch);
  /// Fills them for a step of `newTokens` tokens after those in the caches.
  llvm::Error fill(const CacheSet& caches, int64_t newTokens);

  /// Number of the manifest's lengths, whose order the tensors have.
  size_t size() const { return tensors.size(); }
  llvm::StringRef name(size_t index) const { return manifest.lengths[index].input; }
  const TensorView& view(size_t index) const { return tensors[index].view; }
  bool contain(llvm::StringRef input) const;

private:
  llvm::Error fillNumbers(size_t index, const CacheSet& caches, int64_t newTokens);
  llvm::Error fillBlockTable(size_t index, const CacheSet& caches);

  const ir::Manifest& manifest;
  std::shared_ptr<Allocator> allocator;
  std::vector<Tensor> tensors;
  int64_t madeFor = -1; ///< number of batch rows
};

/// Reason that batch rows must have equal lengths. Empty if every cache is a shared buffer, and
/// every length is fed per row (or is the longest row's total).
std::string lengthPerRowObstacle(const ir::Manifest& manifest, const CacheSet& caches);

} // namespace kvopt::runtime
