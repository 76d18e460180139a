// Caches of compressed rows in the place of keys and values.
#pragma once

#include "ir/manifest/manifest.h"
#include "passes/pattern/rewriter.h"
#include "passes/rows/latent_rows.h"

namespace kvopt::rows {

/// Lets attention read its values from the keys' cache, of which they are columns, and takes their
/// own cache out of the interface. False, and nothing changed but for unread nodes, where extents
/// of that past that the model reads are those of no other input.
bool readValuesFromKeys(const analysis::AttentionSite& site, const ValueColumns& columns,
                        pattern::Journal& journal);

/// Caches the compressed rows of a site, with the columns that its heads share, and lets attention
/// read them: queries are multiplied by the weights that keys are products with, and what is
/// attended to by those of the values.
///
///   before   k = Concat<3>(c Wk, e), v = c Wv        present_key = Concat<2>(past_key, k)   value
///   likewise
///            o = Sdpa(q, present_key, present_value)
///   after    present = Concat<2>(past, Concat<3>(c, e))                     [B,1,P + S,N + width
///   of e]
///            o = Sdpa(Concat<3>(q Wk', q), present, columns of c) Wv
///
/// The pasts leave the inputs, the presents the outputs. Returns the new past; null, and nothing
/// changed but for unread nodes, where extents of a past that the model reads are those of no other
/// input.
ir::Value* cacheCompressedRows(const analysis::AttentionSite& site, const LatentRows& rows,
                               pattern::Journal& journal);

} // namespace kvopt::rows
