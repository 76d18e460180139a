// Pyramid: which of a model's variants, each for caches of another size, takes a step.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

#include <memory>
#include <vector>

namespace kvopt::runtime {

/// The variants of a model in blocks of fixed extents, smallest first. Empty for other models.
class Pyramid {
public:
  Pyramid() = default;
  /// Fails unless the variants have more blocks and more rows from one to the next, and the last
  /// one has room for the manifest's capacity in all blocks of each cache.
  static llvm::Expected<Pyramid> create(const ir::Manifest& manifest);

  bool empty() const { return variants.empty(); }
  size_t size() const { return variants.size(); }
  const ir::ManifestVariant& operator[](size_t index) const { return variants[index]; }

  /// The smallest variant that has rows for `past` tokens, of which there are no more than the last
  /// one has.
  size_t variantFor(int64_t past) const;

private:
  std::vector<ir::ManifestVariant> variants;
};

/// Where sessions get the variants of a model from, and its pieces. Several sessions may ask at the
/// same time. Models have their shapes inferred and live as long as the source; each is opened
/// once.
class VariantSource {
public:
  virtual ~VariantSource() = default;
  /// The model of a variant that is not the last one.
  virtual llvm::Expected<const ir::Model*> open(const ir::ManifestVariant& variant) = 0;
  /// The part, or tile, with that index.
  virtual llvm::Expected<const ir::Model*> openPart(const ir::ManifestTiles& tiles,
                                                    size_t index) = 0;
  virtual llvm::Expected<const ir::Model*> openTile(const ir::ManifestTiles& tiles,
                                                    size_t index) = 0;
};

/// The files that variants and pieces are named after, in `folder`, which no name leads out of.
/// `ops` must outlive it.
std::shared_ptr<VariantSource> variantFiles(ConfinedFolder folder, const ir::OpRegistry& ops);

} // namespace kvopt::runtime
