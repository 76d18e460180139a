// LengthInputs: tells a model how many tokens its caches hold.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/cache/cache_set.h"

#include <string>
#include <vector>

namespace kvopt::runtime {

/// The tensors of a manifest's lengths. They are kept from step to step, and filled for each.
class LengthInputs {
public:
  /// The manifest must outlive them.
  LengthInputs(const ir::Manifest& described, std::shared_ptr<Allocator> memory)
      : manifest(described), allocator(std::move(memory)) {}

  /// Makes the tensors for so many batch rows, unless they are.
  llvm::Error resize(int64_t batch);
  /// Fills them for a step of `newTokens` tokens after those that the caches hold.
  llvm::Error fill(const CacheSet& caches, int64_t newTokens);

  /// One per length of the manifest, in its order.
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
  int64_t madeFor = -1; ///< batch rows
};

/// Why batch rows cannot be of different lengths; empty where they can: every cache is a shared
/// buffer, and every length is fed to the model per row (or is the longest row's total).
std::string lengthPerRowObstacle(const ir::Manifest& manifest, const CacheSet& caches);

} // namespace kvopt::runtime
