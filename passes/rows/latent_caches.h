// Caches of compressed rows that replace keys and values.
#pragma once

#include "ir/manifest/manifest.h"
#include "passes/pattern/rewriter.h"
#include "passes/rows/latent_rows.h"

namespace kvopt::rows {

/// Makes attention read its values from the keys' cache, whose columns they are, and removes their
/// own cache from the interface. Returns false, with no change except unread nodes, if the model
/// reads extents of that past that no other input has.
bool readValuesFromKeys(const analysis::AttentionSite& site, const ValueColumns& columns,
                        pattern::Journal& journal);

/// Caches the compressed rows of a site, with the columns that its heads share, and makes attention
/// read them: queries are multiplied by the weights of the keys, and the result of attention by the
/// weights of the values.
///
///   before   k = Concat<3>(c Wk, e), v = c Wv
///            present_key = Concat<2>(past_key, k)                              value likewise
///            o = Sdpa(q, present_key, present_value)
///   after    present = Concat<2>(past, Concat<3>(c, e))       [B,1,P + S,N + width of e]
///            o = Sdpa(Concat<3>(q Wk', q), present, columns of c) Wv
///
/// The pasts are removed from the inputs, the presents from the outputs. Returns the new past.
/// Returns null, with no change except unread nodes, if the model reads extents of a past that no
/// other input has.
ir::Value* cacheCompressedRows(const analysis::AttentionSite& site, const LatentRows& rows,
                               pattern::Journal& journal);

} // namespace kvopt::rows
