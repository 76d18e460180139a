// What carries a token's row to other tokens without attention.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/cache/site.h"

#include "llvm/ADT/DenseSet.h"

#include <optional>
#include <string>

namespace kvopt::analysis {

/// The first node or output through which what attention computes for one token reaches another
/// token's row other than as a key or a value.
struct RowCarrier {
  /// The name of the node or of the output.
  std::string name;
  std::string why;
};

/// Follows the rows that the attention of `sites` computes to the outputs. A row of a token that
/// its mask hides stays without effect on others where attention is all that reads other tokens'
/// rows: attention does not read hidden ones. `states` are outputs that a later step reads and that
/// are not caches of `sites`. What is not known to keep rows apart carries them.
std::optional<RowCarrier> findRowCarrier(const ir::Graph& graph,
                                         llvm::ArrayRef<AttentionSite> sites,
                                         const llvm::DenseSet<const ir::Value*>& states);

} // namespace kvopt::analysis
