// Caches that no matched attention reads, found by data flow alone.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/cache/site.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::driver {

/// Caches that a program must pass from step to step although no matched attention reads them. All
/// have the same element type and extents.
struct UnmatchedCaches {
  size_t count = 0;
  ir::ElementType element = ir::ElementType::Undefined;
  std::string extents; ///< `[batch, 2, past, 16]`
  /// Total bytes per token over all caches, for one sequence; nullopt if an extent is unknown.
  std::optional<int64_t> bytesPerToken;
};

std::vector<UnmatchedCaches> unmatchedCaches(const ir::Graph& graph,
                                             llvm::ArrayRef<analysis::AttentionSite> sites);

} // namespace kvopt::driver
