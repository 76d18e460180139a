// VariantSource: the models of the variants and pieces that a manifest describes.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"

namespace kvopt::ir {

/// Source of the variants and pieces of a model. Several sessions may use it simultaneously. Models
/// have inferred shapes and live as long as the source; each is opened once.
class VariantSource {
public:
  virtual ~VariantSource() = default;
  /// Model of a variant other than the last one.
  virtual llvm::Expected<const Model*> open(const ManifestVariant& variant) = 0;
  /// The part or tile with that index.
  virtual llvm::Expected<const Model*> openPart(const ManifestTiles& tiles, size_t index) = 0;
  virtual llvm::Expected<const Model*> openTile(const ManifestTiles& tiles, size_t index) = 0;
};

} // namespace kvopt::ir
