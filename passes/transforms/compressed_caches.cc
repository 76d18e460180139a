// Compresses one site after another.
#include "passes/transforms/compressed_caches.h"

#include "ir/shapes/shape_inference.h"
#include "passes/rows/latent_caches.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace rows;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

/// Input of the one cache that replaces the site's two; null if they remain.
const Value* compressed(const AttentionSite& site, Journal& journal) {
  if (const auto columns = findValueColumns(site)) {
    const Value* past = site.key->past;
    return readValuesFromKeys(site, *columns, journal) ? past : nullptr;
  }
  const auto found = findLatentRows(site);
  const auto* rows = std::get_if<LatentRows>(&found);
  return rows ? cacheCompressedRows(site, *rows, journal) : nullptr;
}

} // namespace

llvm::Error compressCaches(Model& model, PassContext& context) {
  Graph& graph = model.graph();
  const SiteList sites = findSites(graph);
  int64_t count = 0;
  for (const AttentionSite& site : sites) {
    if (!site.hasCache() || site.failure)
      continue;
    std::vector<ManifestCache> originals{
        targets::describeCache(*site.key, site.layer, CacheRole::Key),
        targets::describeCache(*site.value, site.layer, CacheRole::Value)};
    const Value* past = compressed(site, context.journal);
    if (!past)
      continue;
    context.history.addReplacement(past->name(), originals);
    ++count;
  }
  if (count == 0)
    return llvm::Error::success();
  context.count("compress-caches", "caches", count);
  graph.eraseDeadNodes();
  restoreOrder(graph);
  model.markEdited();
  return inferShapes(graph);
}

} // namespace kvopt::transforms
