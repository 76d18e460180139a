// Caches with fixed extents that the model itself overwrites, quantized with one scale per row.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/pattern/rewriter.h"

namespace kvopt::targets {

/// Reason why the caches of a site that are overwritten (AttentionSite::isOverwritten) cannot hold
/// int8 codes; nullopt if new rows are placed as rows, in [B,H,C,D], and only this attention reads
/// them.
std::optional<pattern::MatchFailure> overwrittenCodesObstacle(const analysis::AttentionSite& site);

/// Values that replace a cache's input and output.
struct OverwrittenCodes {
  ir::Value* codes;     ///< int8 [B,H,C,D]: the present
  ir::Value* scales;    ///< float [B,H,C,1]: the present of the scales
  ir::Value* scalePast; ///< past of the scales, a new input
};

/// Writes codes and scales of the new rows at the places where the model writes the rows; the past
/// becomes int8. Requires that overwrittenCodesObstacle returns nullopt.
OverwrittenCodes overwriteWithCodes(const analysis::SiteCache& update, pattern::Rewriter& rewriter);

} // namespace kvopt::targets
