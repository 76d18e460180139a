// Caches of fixed extents, which the model overwrites itself, as codes with a scale for each row.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/pattern/rewriter.h"

namespace kvopt::targets {

/// Why the caches of a site that are overwritten (AttentionSite::isOverwritten) cannot hold int8
/// codes: nullopt where new rows are placed as rows, in [B,H,C,D], and only this attention reads
/// them.
std::optional<pattern::MatchFailure> overwrittenCodesObstacle(const analysis::AttentionSite& site);

/// What has come to be in the place of a cache's input and output.
struct OverwrittenCodes {
  ir::Value* codes;     ///< int8 [B,H,C,D]: the present
  ir::Value* scales;    ///< float [B,H,C,1]: the present of the scales
  ir::Value* scalePast; ///< their past, a new input
};

/// Writes codes and scales of the new rows, each where the model writes the rows; the past becomes
/// int8. Must be called only where overwrittenCodesObstacle finds nothing.
OverwrittenCodes overwriteWithCodes(const analysis::SiteCache& update, pattern::Rewriter& rewriter);

} // namespace kvopt::targets
