// CacheTracer: from an operand of an attention back to the cache that it reads, and forward to the
// cache's input and output.
#pragma once

#include "passes/analysis/cache/cache_origins.h"
#include "passes/analysis/cache/cache_readers.h"
#include "passes/analysis/cache/site.h"
#include "passes/analysis/movement/axis_map.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::analysis {

/// Source of the keys or the values of one attention.
struct CacheTrace {
  bool isCross = false; ///< whether keys or values are of another sequence than the queries
  std::optional<SiteCache> cache;
  std::optional<pattern::MatchFailure> failure; ///< reason why the source is not proved

  /// Whether the operand consists of rows of this step only.
  bool isOfThisStep() const { return !isCross && !cache && !failure; }
};

/// Traces operands of one graph. The cost is linear over all operands together, because results for
/// each cache are kept.
class CacheTracer {
public:
  explicit CacheTracer(const ir::Graph& graph);

  /// `operand` is K or V of `attention`, an ai.kvopt::Sdpa node.
  CacheTrace trace(ir::Value& operand, ir::Node& attention);

  /// A node that reads the extents of the result of a cache's update, or of a movement of it, for
  /// other purposes than moving it to the attention of both caches; null if there is none.
  ir::Node* shapeReader(const SiteCache& key, const SiteCache& value) const;

private:
  /// Start of a chain of nodes that only move data.
  struct Root {
    ir::Value* value = nullptr;
    std::optional<AxisMap> map;            ///< nullopt: a step could not be followed
    ir::Value* unproved = nullptr;         ///< the result of that step
    const ir::Node* reorder = nullptr;     ///< that step, if it selects batch rows
    llvm::SmallVector<ir::Value*, 4> path; ///< from the operand to `value`
  };
  static Root walkBack(ir::Value& start, std::optional<AxisMap> map);
  std::optional<pattern::MatchFailure> unkeptRows(ir::Value& joined, const ir::Value& rows);
  CacheTrace traceUpdate(ir::Node& node, const Root& root);
  std::optional<pattern::MatchFailure> checkPast(const Root& past, const ir::Node& update) const;
  /// Sets the present, its readers and, for a window, the update.
  std::optional<pattern::MatchFailure> findPresent(SiteCache& cache, const AxisMap& map);
  const CacheReaders& readersOf(ir::Value& updated, const AxisMap& map);

  /// The first value on the way from the update to `read` that is computed and not only moved.
  const ir::Value& firstChange(const ir::Value& read, const ir::Node& update) const;
  const ir::Value* writtenOutput(const CacheOrigin& origin, ir::Value& read) const;

  CacheOrigins origins;
  llvm::DenseMap<const ir::Node*, CacheReaders> readers;
  /// The output that comes from an input through an update; null if there are several.
  llvm::DenseMap<const ir::Value*, ir::Value*> outputOf;
  llvm::StringSet<> inputExtents; ///< extents of inputs that could be caches
};

/// A failure at the node that produces `at`.
pattern::MatchFailure failureAt(pattern::ReasonCode code, const ir::Value& at, std::string expected,
                                std::string found, std::string hint = "");

} // namespace kvopt::analysis
