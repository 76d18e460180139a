// One site after the other.
#include "passes/transforms/compressed_caches.h"

#include "ir/shapes/shape_inference.h"
#include "passes/rows/latent_caches.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace rows;
using namespace ir;
using namespace passes;
using namespace pattern;

llvm::Error compressCaches(Model& model, PassContext& context) {
  Graph& graph = model.graph();
  const SiteList sites = findSites(graph);
  int64_t count = 0;
  for (const AttentionSite& site : sites) {
    const auto found = findLatentRows(site);
    const auto* rows = std::get_if<LatentRows>(&found);
    if (!rows)
      continue;
    std::vector<ManifestCache> originals{
        targets::describeCache(*site.key, site.layer, CacheRole::Key),
        targets::describeCache(*site.value, site.layer, CacheRole::Value)};
    const Value* past = cacheCompressedRows(site, *rows, context.journal);
    if (!past)
      continue;
    context.replacedCaches[past->name().str()] = std::move(originals);
    ++count;
  }
  if (count == 0)
    return llvm::Error::success();
  context.count("compress-caches", "caches", count);
  restoreOrder(graph);
  model.markEdited();
  return inferShapes(graph);
}

} // namespace kvopt::transforms
