// Operators other than attention that carry a token's row to other tokens.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/cache/site.h"

#include "llvm/ADT/DenseSet.h"

#include <optional>
#include <string>

namespace kvopt::analysis {

/// The first node or output through which the result of attention for one token reaches another
/// token's row other than as a key or a value.
struct RowCarrier {
  /// Name of the node or of the output.
  std::string name;
  std::string why;
};

/// Follows the rows that the attention of `sites` computes to the outputs. If only attention reads
/// other tokens' rows, a hidden token has no effect on others, because attention does not read
/// hidden rows. `states` are outputs that a later step reads and that are not caches of `sites`. An
/// operator that is not known to keep rows separate is a carrier.
std::optional<RowCarrier> findRowCarrier(const ir::Graph& graph,
                                         llvm::ArrayRef<AttentionSite> sites,
                                         const llvm::DenseSet<const ir::Value*>& states);

} // namespace kvopt::analysis
