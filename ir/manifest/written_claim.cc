// Comparisons are left out of the manifests of edited models.
#include "ir/manifest/written_claim.h"

#include "ir/manifest/field_table.h"
#include "ir/manifest/manifest.h"

namespace kvopt::ir {

std::optional<std::string> withoutComparison(llvm::StringRef manifest) {
  OrderedJson json =
      OrderedJson::parse(manifest.begin(), manifest.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || json.erase(tableOf<ManifestComparison>().info.name) == 0)
    return std::nullopt;
  return manifestText(json);
}

Metadata writtenMetadata(const Model& model) {
  Metadata metadata = model.metadata;
  if (!model.isOlderThanEdits(manifestKey))
    return metadata;
  for (auto& [key, value] : metadata)
    if (key == manifestKey)
      if (std::optional<std::string> text = withoutComparison(value))
        value = std::move(*text);
  return metadata;
}

} // namespace kvopt::ir
