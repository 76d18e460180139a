// Variants in memory and in files.
#include "driver/variants.h"

#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "passes/targets/blocks/block_variant.h"
#include "support/diagnostic.h"

#include "llvm/Support/Path.h"

#include <map>
#include <mutex>

namespace kvopt::driver {
using namespace ir;
using namespace runtime;
using namespace targets;

namespace {

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

private:
  const Model& largest;
  Manifest manifest;
  std::mutex guard;
  std::map<int64_t, std::unique_ptr<Model>> models;
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
    variant.file = fmt::format("{}.past{}.onnx", stem.str(), variant.pastBlocks);
  if (!manifest.variants.empty())
    manifest.variants.back().file = name.str();
}

std::vector<std::string> variantPaths(const Manifest& manifest, const std::string& output) {
  std::vector<std::string> paths;
  for (size_t i = 0; i + 1 < manifest.variants.size(); ++i)
    paths.push_back(pathBeside(output, manifest.variants[i].file));
  return paths;
}

llvm::Error prepareVariants(Model& model, const Manifest& manifest, const std::string& output,
                            ExportOptions options, OutputFiles& files) {
  options.externalFile = llvm::sys::path::filename(output).str() + ".data";
  FamilyExport family(std::move(options));
  if (llvm::Error error = family.add(model, output))
    return error;
  for (size_t i = manifest.variants.size() - 1; i-- > 0;) {
    const ManifestVariant& variant = manifest.variants[i];
    if (llvm::Error error = keepPastBlocks(model, manifest, variant.pastBlocks))
      return error;
    if (llvm::Error error = family.add(model, pathBeside(output, variant.file)))
      return error;
  }
  return family.finish(files);
}

} // namespace kvopt::driver
