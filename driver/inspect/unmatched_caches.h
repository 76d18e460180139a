// Caches that no matched attention reads, found by data flow alone.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/cache/site.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::driver {

/// Caches of tokens that a program has to hand from step to step although no matched attention
/// reads them, all of one element type and of the same extents.
struct UnmatchedCaches {
  size_t count = 0;
  ir::ElementType element = ir::ElementType::Undefined;
  std::string extents; ///< `[batch, 2, past, 16]`
  /// Of all of them together, for one sequence; nullopt where an extent is not known.
  std::optional<int64_t> bytesPerToken;
};

std::vector<UnmatchedCaches> unmatchedCaches(const ir::Graph& graph,
                                             llvm::ArrayRef<analysis::AttentionSite> sites);

} // namespace kvopt::driver
