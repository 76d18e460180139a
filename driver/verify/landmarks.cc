// Landmarks from manifests and graphs.
#include "driver/verify/landmarks.h"

#include "driver/variants.h"
#include "ir/manifest/documented_inputs.h"
#include "passes/analysis/mask/compared_lengths.h"
#include "runtime/session/pyramid.h"

#include <algorithm>
#include <utility>

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace runtime;

namespace {

/// Upper limit of landmarks: no session reaches more tokens, and a larger window hides nothing.
constexpr int64_t mostTokens = int64_t{1} << 40;

class FormLandmarks {
public:
  explicit FormLandmarks(const Manifest& described) : manifest(described) {}

  std::vector<Landmark> take() {
    for (const ManifestCache& cache : manifest.caches)
      addCache(cache);
    addBlocks();
    for (const ManifestVariant& variant : manifest.variants)
      add(variant.pastRows, LandmarkKind::Variant);
    if (manifest.capacityValue)
      add(*manifest.capacityValue, LandmarkKind::Capacity);
    return std::move(found);
  }

private:
  void add(int64_t tokens, LandmarkKind kind) {
    if (tokens > 0 && tokens <= mostTokens)
      found.push_back({tokens, kind});
  }

  void addCache(const ManifestCache& cache) {
    add(cache.window, LandmarkKind::Window);
    const std::optional<int64_t> rows = cache.fixedRows();
    if (!rows)
      return;
    if (cache.update() == CacheUpdate::Ring) {
      add(*rows, LandmarkKind::Ring);
      if (*rows < mostTokens)
        add(2 * *rows, LandmarkKind::Ring);
    } else if (cache.update() == CacheUpdate::Static) {
      add(*rows, LandmarkKind::Capacity);
    }
  }

  void addBlocks() {
    const int64_t size = manifest.blockSize;
    if (size < 1 || size > mostTokens)
      return;
    add(size, LandmarkKind::Block);
    const int64_t capacity = manifest.capacityValue.value_or(0);
    if (capacity > size)
      add(std::min(2 * size, capacity), LandmarkKind::Block);
    if (capacity > 0)
      add((capacity - 1) / size * size, LandmarkKind::Block);
  }

  const Manifest& manifest;
  std::vector<Landmark> found;
};

} // namespace

std::string Landmark::what() const {
  switch (kind) {
  case LandmarkKind::Window:
    return "window";
  case LandmarkKind::Ring:
    return "ring";
  case LandmarkKind::Block:
    return "block";
  case LandmarkKind::Variant:
    return "variant";
  case LandmarkKind::Capacity:
    return "capacity";
  case LandmarkKind::Compared:
    return node;
  }
  return "";
}

std::vector<Landmark> joinedLandmarks(std::vector<Landmark> one, std::vector<Landmark> other) {
  one.insert(one.end(), std::make_move_iterator(other.begin()),
             std::make_move_iterator(other.end()));
  std::stable_sort(one.begin(), one.end(), [](const Landmark& a, const Landmark& b) {
    return std::pair(a.tokens, a.kind) < std::pair(b.tokens, b.kind);
  });
  one.erase(std::unique(one.begin(), one.end(),
                        [](const Landmark& a, const Landmark& b) { return a.tokens == b.tokens; }),
            one.end());
  return one;
}

std::vector<Landmark> landmarksOf(const Model& model, const Manifest& manifest) {
  std::vector<std::string> tokens;
  for (const Value* input : tokenInputs(model.graph(), manifest.inputs))
    tokens.push_back(input->name().str());
  std::vector<Landmark> compared;
  for (ComparedLength& length : comparedLengths(model, tokens))
    compared.push_back({length.tokens, LandmarkKind::Compared, std::move(length.where)});
  return joinedLandmarks(FormLandmarks(manifest).take(), std::move(compared));
}

std::vector<Landmark> landmarksOfFiles(const Model& model, const Manifest& manifest,
                                       const OpRegistry& operators) {
  std::vector<Landmark> landmarks = landmarksOf(model, manifest);
  // Variants in memory compare with the same numbers as the model.
  if (manifest.variants.empty() || variantsInMemory(model, manifest))
    return landmarks;
  const std::shared_ptr<VariantSource> files = variantFiles(model.folder, operators);
  const auto add = [&](llvm::Expected<const Model*> opened) {
    if (opened)
      landmarks = joinedLandmarks(std::move(landmarks), landmarksOf(**opened, manifest));
    else
      llvm::consumeError(opened.takeError());
  };
  for (size_t i = 0; i + 1 < manifest.variants.size(); ++i)
    add(files->open(manifest.variants[i]));
  if (!manifest.tiles)
    return landmarks;
  for (size_t i = 0; i < manifest.tiles->parts.size(); ++i)
    add(files->openPart(*manifest.tiles, i));
  for (size_t i = 0; i < manifest.tiles->tiles.size(); ++i)
    add(files->openTile(*manifest.tiles, i));
  return landmarks;
}

} // namespace kvopt::driver
