// Manifests read from JSON, which may come from anyone.
#include "ir/manifest/field_table.h"
#include "ir/manifest/manifest_check.h"
#include "ir/manifest/manifest_consistency.h"
#include "ir/model.h"

namespace kvopt::ir {

llvm::Expected<Manifest> parseManifest(llvm::StringRef json) {
  const OrderedJson root =
      OrderedJson::parse(json.begin(), json.end(), nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded())
    return invalid("manifest: not valid JSON");
  Manifest manifest;
  ManifestProblem problem;
  readObject(root, "", problem, manifest);
  if (problem)
    return problem.takeError();
  if (llvm::Error error = checkConsistency(manifest))
    return error;
  return manifest;
}

llvm::Expected<std::optional<Manifest>> manifestOf(const Model& model) {
  const std::string* text = model.findMetadata(manifestKey);
  if (!text)
    return std::optional<Manifest>();
  llvm::Expected<Manifest> manifest = parseManifest(*text);
  if (!manifest)
    return withFile(manifest.takeError(), model.path);
  if (llvm::Error error = checkManifest(*manifest, model.graph()))
    return withFile(std::move(error), model.path);
  return std::optional<Manifest>(std::move(*manifest));
}

} // namespace kvopt::ir
