// PaddedQuery: attention in place whose steps append more rows than the query has.
//
// The in-place operators have a query row for each new row. ONNX's Attention need not: its row i is
// at position P + i for a past of P rows, and attention without a past length has its last row at
// the last key. Rows of zeros are added to the query, after its own or before them, and cut off the
// output.
#pragma once

#include "passes/analysis/cache/site.h"
#include "passes/builders/attention_builder.h"

namespace kvopt::targets {

/// Whether rows can be added to the query of `site` without changing its own rows: the query has
/// fewer rows than a step appends, and the position of its first row is known.
bool canPadQuery(const analysis::AttentionSite& site);

class PaddedQuery {
public:
  /// Requires a site that appends one row per query row, or canPadQuery.
  PaddedQuery(const analysis::AttentionSite& site, builders::AttentionBuilder& builder);

  /// [B,H,N,D] for N new rows.
  ir::Value& query();
  /// `mask`, which broadcasts to [B,H,S,T], with rows for the rows of the padded query.
  ir::Value& mask(ir::Value& mask);
  /// The query's own rows of an output [B,H,N,Dv].
  ir::Value& ownRows(ir::Value& output);

private:
  ir::Value& joined(ir::Value& rows, ir::Value& added);

  const analysis::AttentionSite& site;
  builders::AttentionBuilder& build;
  int64_t own = 0;
  int64_t added = 0; ///< number of added rows; 0: no padding
  bool isBefore = false;
};

} // namespace kvopt::targets
