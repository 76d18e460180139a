// Conditions on sites with quantized rows.
#include "passes/targets/kvopt/quantized_support.h"

#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/kvopt/overwritten_codes.h"
#include "passes/targets/support/cache_rows.h"
#include "support/format.h"
#include "support/four_bit_row.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// Reason why one element cannot hold several columns of a cache row.
std::optional<MatchFailure> packingObstacle(const AttentionSite& site, const SiteCache& cache,
                                            const RowCode& code) {
  auto refuse = [&](ReasonCode reason, std::string expected, std::string found) {
    return MatchFailure{reason, cache.past->name().str(), std::move(expected), std::move(found),
                        "--to int8 takes any layout and width"};
  };
  if (const auto layout = attendedLayout(cache.layout, true); layout && layout->isTransposed())
    return refuse(ReasonCode::LayoutUnsupported, "rows whose columns are adjacent",
                  cache.layout.text());
  const Dim& width = site.node->operand(&cache == &*site.key ? 1 : 2)->type().dim(3);
  if (!width.value() || code.elementsOf(*width.value()) >= *width.value())
    return refuse(ReasonCode::ShapeMismatch, "a fixed width that four-bit codes make shorter",
                  width.str());
  return std::nullopt;
}

/// Whether the values of a latent cache begin and end at boundaries of four-bit groups.
bool hasWholeValueGroups(const AttentionSite& site) {
  const std::optional<int64_t> columns = site.node->operand(1)->type().dim(3).value();
  const std::optional<int64_t> width = site.value->columns.value();
  if (!columns || !width)
    return false;
  const int64_t half = FourBitRow{*columns}.halfGroup();
  const int64_t first = site.value->firstColumn;
  return FourBitRow{*width}.halfGroup() == half && first % (2 * half) == 0 &&
         (*width % (2 * half) == 0 || first + *width == *columns);
}

} // namespace

std::optional<MatchFailure> supportsQuantizedSite(const AttentionSite& site,
                                                  const CacheForm& form) {
  if (std::optional<MatchFailure> failure = supportsKvoptSite(site, form.asRings()))
    return failure;
  const bool isRing = form.asRings() && ringSlots(site) != 0;
  if (site.isOverwritten() && !site.sharesCaches()) {
    if (form.code == &int8Rows)
      return overwrittenCodesObstacle(site);
    return MatchFailure{ReasonCode::TargetLacksFeature, site.key->past->name().str(),
                        "a cache that grows by the new rows",
                        "one of fixed extents that new rows are scattered into",
                        "--to int8 keeps its rows as codes"};
  }
  if (!isRing)
    if (std::optional<MatchFailure> failure = doesNotGrow(site))
      return failure;
  auto refuse = [&](ReasonCode code, std::string expected, std::string found) {
    return MatchFailure{code, site.node->name().str(), std::move(expected), std::move(found),
                        "--to kvopt keeps the cache as it is declared"};
  };
  const bool appends = site.grows() || isRing;
  if (appends)
    if (std::optional<MatchFailure> failure = standsInBranch(site))
      return failure;
  for (const auto* cache : {&site.key, &site.value})
    if (*cache && unflattened((*cache)->layout))
      return refuse(ReasonCode::LayoutUnsupported, "an axis for the heads",
                    (*cache)->layout.text());
  if (site.owner && !site.node->result().type().dim(3).value())
    return refuse(ReasonCode::ShapeMismatch, "values of a fixed width",
                  site.node->result().type().str());
  if (form.code->isPacked() && appends)
    for (const auto* cache : {&site.key, &site.value})
      if (std::optional<MatchFailure> failure = packingObstacle(site, **cache, *form.code))
        return failure;
  if (form.code == &fourBitRows && appends && site.isLatent() && !hasWholeValueGroups(site))
    return refuse(
        ReasonCode::LayoutUnsupported, "values in whole groups of columns of the latent rows",
        formatted("{} columns from {} on", site.value->columns.str(), site.value->firstColumn));
  return std::nullopt;
}

} // namespace kvopt::targets
