// Grouping of caches that no matched attention layer reads.
#include "driver/inspect/unmatched_caches.h"

#include "driver/row_bytes.h"
#include "passes/targets/target.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace targets;

namespace {

std::string extentsOf(const ManifestCache& cache) {
  std::string text;
  for (const ManifestExtent& extent : cache.shape) {
    const auto* fixed = std::get_if<int64_t>(&extent);
    text += (text.empty() ? "[" : ", ") +
            (fixed ? std::to_string(*fixed) : std::get<std::string>(extent));
  }
  return text + "]";
}

} // namespace

std::vector<UnmatchedCaches> unmatchedCaches(const Graph& graph,
                                             llvm::ArrayRef<AttentionSite> sites) {
  llvm::StringSet<> read;
  for (const AttentionSite& site : sites)
    for (const auto* cache : {&site.key, &site.value})
      if (site.isMatched() && *cache)
        read.insert((*cache)->past->name());
  std::vector<UnmatchedCaches> groups;
  for (const ManifestCache& cache : exportedManifest(graph, sites, {}).caches) {
    if (cache.update() == CacheUpdate::State || read.contains(cache.past))
      continue;
    const std::string extents = extentsOf(cache);
    auto group = llvm::find_if(groups, [&](const UnmatchedCaches& known) {
      return known.element == cache.dtype && known.extents == extents;
    });
    if (group == groups.end())
      group = groups.insert(group, {0, cache.dtype, extents, 0});
    ++group->count;
    const std::optional<int64_t> bytes = rowBytes(cache);
    if (group->bytesPerToken && bytes)
      *group->bytesPerToken += *bytes;
    else
      group->bytesPerToken.reset();
  }
  return groups;
}

} // namespace kvopt::driver
