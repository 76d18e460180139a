// Pyramid: variants of a model for caches of different sizes.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/manifest/variant_source.h"

#include <memory>
#include <vector>

namespace kvopt::runtime {

/// Variants of a model with blocks of fixed extents, smallest first. Empty for other models.
class Pyramid {
public:
  Pyramid() = default;
  /// Fails unless the numbers of blocks and rows increase from one variant to the next, and the
  /// last one has room for the manifest's capacity in all blocks of each cache.
  static llvm::Expected<Pyramid> create(const ir::Manifest& manifest);

  bool empty() const { return variants.empty(); }
  size_t size() const { return variants.size(); }
  const ir::ManifestVariant& operator[](size_t index) const { return variants[index]; }

  /// The smallest variant with rows for `past` tokens. `past` must not exceed the rows of the last
  /// one.
  size_t variantFor(int64_t past) const;

private:
  std::vector<ir::ManifestVariant> variants;
};

/// Opens variants and pieces by their file names in `folder`. Names cannot lead out of the folder.
/// `ops` must outlive it.
std::shared_ptr<ir::VariantSource> variantFiles(ConfinedFolder folder, const ir::OpRegistry& ops);

} // namespace kvopt::runtime
