// Creation of variants in memory and in files.
#include "driver/variants.h"

#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "passes/targets/blocks/attention_cut.h"
#include "passes/targets/blocks/block_variant.h"
#include "support/diagnostic.h"

#include "llvm/Support/Path.h"

#include <map>
#include <mutex>

namespace kvopt::driver {
using namespace ir;
using namespace targets;

namespace {

/// The cut of a model according to its manifest.
llvm::Expected<AttentionCut> cutOf(const Model& model, const Manifest& manifest) {
  auto cut = AttentionCut::create(model, manifest, manifest.tiles->state);
  if (!cut)
    return cut;
  ManifestTiles described = *manifest.tiles;
  described.parts.assign(described.parts.size(), "");
  described.tiles.assign(described.tiles.size(), "");
  if (described != cut->description())
    return invalid("the manifest describes other pieces than those that the model is cut into");
  return cut;
}

/// The cut of a model, and the cutter that extracts its pieces.
struct Pieces {
  AttentionCut cut;
  SubmodelCutter cutter;

  static llvm::Expected<Pieces> create(const Model& model, const Manifest& manifest) {
    auto cut = cutOf(model, manifest);
    if (!cut)
      return cut.takeError();
    auto cutter = SubmodelCutter::create(model);
    if (!cutter)
      return cutter.takeError();
    return Pieces{std::move(*cut), std::move(*cutter)};
  }
};

class VariantsInMemory final : public VariantSource {
public:
  VariantsInMemory(const Model& largestModel, const Manifest& itsManifest)
      : largest(largestModel), manifest(itsManifest) {}

  llvm::Expected<const Model*> open(const ManifestVariant& variant) override {
    std::lock_guard lock(guard);
    std::unique_ptr<Model>& model = models[variant.pastBlocks];
    if (model)
      return model.get();
    auto copy = copySharingConstants(largest);
    if (!copy)
      return copy.takeError();
    if (llvm::Error error = inferShapes((*copy)->graph()))
      return error;
    if (llvm::Error error = keepPastBlocks(**copy, manifest, variant.pastBlocks))
      return error;
    model = std::move(*copy);
    return model.get();
  }

  llvm::Expected<const Model*> openPart(const ManifestTiles&, size_t index) override {
    return openPiece(parts[index], [&](const AttentionCut& cut) { return cut.part(index); });
  }

  llvm::Expected<const Model*> openTile(const ManifestTiles&, size_t index) override {
    return openPiece(tiles[index], [&](const AttentionCut& cut) { return cut.tile(index); });
  }

private:
  llvm::Expected<const Model*>
  openPiece(std::unique_ptr<Model>& model,
            llvm::function_ref<SubmodelBoundary(const AttentionCut&)> boundaryIn) {
    std::lock_guard lock(guard);
    if (model)
      return model.get();
    if (!pieces) {
      auto made = Pieces::create(largest, manifest);
      if (!made)
        return made.takeError();
      pieces.emplace(std::move(*made));
    }
    auto made = pieces->cutter.cut(boundaryIn(pieces->cut));
    if (!made)
      return made.takeError();
    model = std::move(*made);
    return model.get();
  }

  const Model& largest;
  Manifest manifest;
  std::mutex guard;
  std::optional<Pieces> pieces;
  std::map<int64_t, std::unique_ptr<Model>> models;
  std::map<size_t, std::unique_ptr<Model>> parts;
  std::map<size_t, std::unique_ptr<Model>> tiles;
};

} // namespace

std::shared_ptr<VariantSource> variantsInMemory(const Model& model, const Manifest& manifest) {
  if (manifest.variants.empty() || !manifest.variants.back().file.empty())
    return nullptr;
  return std::make_shared<VariantsInMemory>(model, manifest);
}

void nameVariants(Manifest& manifest, const std::string& output) {
  const llvm::StringRef name = llvm::sys::path::filename(output);
  llvm::StringRef stem = name;
  stem.consume_back(".onnx");
  for (ManifestVariant& variant : manifest.variants)
    variant.file = formatted("{}.past{}.onnx", stem.str(), variant.pastBlocks);
  if (!manifest.variants.empty())
    manifest.variants.back().file = name.str();
  if (!manifest.tiles)
    return;
  for (size_t i = 0; i < manifest.tiles->parts.size(); ++i)
    manifest.tiles->parts[i] = formatted("{}.part{}.onnx", stem.str(), i);
  for (size_t i = 0; i < manifest.tiles->tiles.size(); ++i)
    manifest.tiles->tiles[i] = formatted("{}.tile{}.onnx", stem.str(), i);
}

std::vector<std::string> variantPaths(const Manifest& manifest, const std::string& output) {
  std::vector<std::string> paths;
  for (size_t i = 0; i + 1 < manifest.variants.size(); ++i)
    paths.push_back(pathBeside(output, manifest.variants[i].file));
  return paths;
}

std::vector<std::string> piecePaths(const Manifest& manifest, const std::string& output) {
  std::vector<std::string> paths;
  if (!manifest.tiles)
    return paths;
  for (const std::vector<std::string>* files : {&manifest.tiles->parts, &manifest.tiles->tiles})
    for (const std::string& file : *files)
      paths.push_back(pathBeside(output, file));
  return paths;
}

namespace {

/// Adds the pieces that the manifest describes to the files of the whole model.
llvm::Error addPieces(const Model& model, const Manifest& manifest, const std::string& output,
                      FamilyExport& family) {
  auto pieces = Pieces::create(model, manifest);
  if (!pieces)
    return pieces.takeError();
  const auto addPiece = [&](const SubmodelBoundary& boundary,
                            const std::string& file) -> llvm::Error {
    auto piece = pieces->cutter.cut(boundary);
    if (!piece)
      return piece.takeError();
    return family.addSubmodel(**piece, pathBeside(output, file));
  };
  for (size_t i = 0; i < manifest.tiles->parts.size(); ++i)
    if (llvm::Error error = addPiece(pieces->cut.part(i), manifest.tiles->parts[i]))
      return error;
  for (size_t i = 0; i < manifest.tiles->tiles.size(); ++i)
    if (llvm::Error error = addPiece(pieces->cut.tile(i), manifest.tiles->tiles[i]))
      return error;
  return llvm::Error::success();
}

} // namespace

llvm::Error prepareVariants(Model& model, const Manifest& manifest, const std::string& output,
                            ExportOptions options, OutputFiles& files) {
  options.externalFile = llvm::sys::path::filename(output).str() + ".data";
  FamilyExport family(std::move(options), files);
  if (llvm::Error error = family.add(model, output))
    return error;
  if (manifest.tiles)
    if (llvm::Error error = addPieces(model, manifest, output, family))
      return error;
  for (size_t i = manifest.variants.size() - 1; i-- > 0;) {
    const ManifestVariant& variant = manifest.variants[i];
    if (llvm::Error error = keepPastBlocks(model, manifest, variant.pastBlocks))
      return error;
    if (llvm::Error error = family.add(model, pathBeside(output, variant.file)))
      return error;
  }
  return family.finish();
}

} // namespace kvopt::driver
