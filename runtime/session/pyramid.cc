// Selection and files of variants.
#include "runtime/session/pyramid.h"

#include "ir/onnx/external_check.h"
#include "ir/onnx/import.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"
#include "support/mapped_file.h"

#include "llvm/ADT/StringMap.h"

#include <algorithm>
#include <mutex>

namespace kvopt::runtime {
using namespace ir;

llvm::Expected<Pyramid> Pyramid::create(const Manifest& manifest) {
  Pyramid pyramid;
  pyramid.variants = manifest.variants;
  if (pyramid.empty())
    return pyramid;
  int64_t blocks = -1;
  int64_t rows = -1;
  for (const ManifestVariant& variant : pyramid.variants) {
    if (variant.pastBlocks <= blocks || variant.pastRows <= rows)
      return invalid("the manifest's variants are not in the order of their blocks");
    blocks = variant.pastBlocks;
    rows = variant.pastRows;
  }
  if (!manifest.capacityValue || rows < *manifest.capacityValue)
    return invalid("the manifest's last variant has room for {} tokens only", rows);
  for (const ManifestCache& cache : manifest.caches)
    if (!cache.blocks().empty() && static_cast<int64_t>(cache.blocks().size()) != blocks)
      return invalid("the manifest's last variant has {} blocks, but cache '{}' has {}", blocks,
                     cache.past, cache.blocks().size());
  return pyramid;
}

size_t Pyramid::variantFor(int64_t past) const {
  const auto found =
      std::partition_point(variants.begin(), variants.end(),
                           [&](const ManifestVariant& each) { return each.pastRows < past; });
  assert(found != variants.end() && "more tokens than the largest variant has rows for");
  return static_cast<size_t>(found - variants.begin());
}

namespace {

class VariantFiles final : public VariantSource {
public:
  VariantFiles(ConfinedFolder where, const OpRegistry& known)
      : folder(std::move(where)), ops(known) {}

  llvm::Expected<const Model*> open(const ManifestVariant& variant) override {
    if (variant.file.empty())
      return usageError("the manifest names no file of the variant with {} blocks",
                        variant.pastBlocks);
    return openFile(variant.file);
  }

  llvm::Expected<const Model*> openPart(const ManifestTiles& tiles, size_t index) override {
    if (tiles.parts[index].empty())
      return usageError("the manifest names no file of part {}", index);
    return openFile(tiles.parts[index]);
  }

  llvm::Expected<const Model*> openTile(const ManifestTiles& tiles, size_t index) override {
    if (tiles.tiles[index].empty())
      return usageError("the manifest names no file of tile {}", index);
    return openFile(tiles.tiles[index]);
  }

private:
  llvm::Expected<const Model*> openFile(const std::string& name) {
    std::lock_guard lock(guard);
    std::unique_ptr<Model>& model = models[name];
    if (model)
      return model.get();
    auto file = MappedFile::openBeneath(folder, name);
    if (!file)
      return file.takeError();
    auto read = importModelBytes((*file)->bytes(), folder, ops);
    if (!read)
      return withFile(read.takeError(), (*file)->path());
    (*read)->path = (*file)->path();
    if (llvm::Error error = checkExternalData(**read))
      return withFile(std::move(error), (*file)->path());
    if (llvm::Error error = inferShapes((*read)->graph()))
      return withFile(std::move(error), (*file)->path());
    model = std::move(*read);
    return model.get();
  }

  ConfinedFolder folder;
  const OpRegistry& ops;
  std::mutex guard;
  llvm::StringMap<std::unique_ptr<Model>> models;
};

} // namespace

std::shared_ptr<VariantSource> variantFiles(ConfinedFolder folder, const OpRegistry& ops) {
  return std::make_shared<VariantFiles>(std::move(folder), ops);
}

} // namespace kvopt::runtime
