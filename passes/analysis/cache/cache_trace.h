// CacheTracer: from an operand of an attention back to the cache it reads, and on to the cache's
// input and output.
#pragma once

#include "passes/analysis/cache/cache_origins.h"
#include "passes/analysis/cache/cache_readers.h"
#include "passes/analysis/cache/site.h"
#include "passes/analysis/movement/axis_map.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::analysis {

/// What feeds the keys or the values of one attention.
struct CacheTrace {
  bool isCross = false; ///< another sequence than the queries' does
  std::optional<SiteCache> cache;
  std::optional<pattern::MatchFailure> failure; ///< why what reads earlier steps is not proved

  /// Nothing but the rows of this step.
  bool isOfThisStep() const { return !isCross && !cache && !failure; }
};

/// Traces operands of one graph. Linear over all operands together: what is found out about a cache
/// is found out once.
class CacheTracer {
public:
  explicit CacheTracer(const ir::Graph& graph);

  /// `operand` is the K or V of `attention`, an ai.kvopt::Sdpa node.
  CacheTrace trace(ir::Value& operand, ir::Node& attention);

  /// A node that reads the extents of what one of the caches' updates made, or of what was moved
  /// from there, for more than to move it to the attention that both belong to; null if none does.
  ir::Node* shapeReader(const SiteCache& key, const SiteCache& value) const;

private:
  /// Where a chain of nodes that only move data begins.
  struct Root {
    ir::Value* value = nullptr;
    std::optional<AxisMap> map;            ///< nullopt: some step cannot be told
    ir::Value* unproved = nullptr;         ///< the result of that step
    const ir::Node* reorder = nullptr;     ///< that step, if it picks batch rows
    llvm::SmallVector<ir::Value*, 4> path; ///< from the operand to `value`
  };
  static Root walkBack(ir::Value& start, std::optional<AxisMap> map);
  CacheTrace traceUpdate(ir::Node& node, const Root& root);
  std::optional<pattern::MatchFailure> checkPast(const Root& past, const ir::Node& update) const;
  /// Sets the present, who reads it and, where it is a window, the update.
  std::optional<pattern::MatchFailure> findPresent(SiteCache& cache, const AxisMap& map);
  const CacheReaders& readersOf(ir::Value& updated, const AxisMap& map);

  /// The first value on the way from the update to `read` that is computed and not only moved.
  const ir::Value& firstChange(const ir::Value& read, const ir::Node& update) const;
  const ir::Value* writtenOutput(const CacheOrigin& origin, ir::Value& read) const;

  CacheOrigins origins;
  llvm::DenseMap<const ir::Node*, CacheReaders> readers;
  /// The output that comes from an input through an update; null: several do.
  llvm::DenseMap<const ir::Value*, ir::Value*> outputOf;
  llvm::StringSet<> inputExtents; ///< of inputs that could be a cache
};

/// A failure at the node that makes `at`.
pattern::MatchFailure failureAt(pattern::ReasonCode code, const ir::Value& at, std::string expected,
                                std::string found, std::string hint = "");

} // namespace kvopt::analysis
