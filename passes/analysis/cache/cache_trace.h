// CacheTracer: from an operand of an attention back to the cache it reads, and on to the cache's
// input and output.
#pragma once

#include "passes/analysis/cache/cache_origins.h"
#include "passes/analysis/cache/site.h"
#include "passes/analysis/movement/axis_map.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt {

/// What feeds the keys or the values of one attention.
struct CacheTrace {
  SiteKind kind = SiteKind::None;
  std::optional<CacheUpdate> update;
  std::optional<MatchFailure> failure;
  /// The other attention that reads the cache, where that is the failure.
  const Node* otherReader = nullptr;
};

/// Traces operands of one graph. Linear over all operands together: what is found out about a cache
/// is found out once.
class CacheTracer {
public:
  explicit CacheTracer(const Graph& graph);

  /// `operand` is the K or V of `attention`, an ai.kvopt::Sdpa node.
  CacheTrace trace(Value& operand, Node& attention);

  /// A node that reads the extents of what one of the caches' updates made, or of what was moved
  /// from there, for more than to move it to the attention that both belong to; null if none does.
  Node* shapeReader(const CacheUpdate& key, const CacheUpdate& value) const;

private:
  /// Where a chain of nodes that only move data begins.
  struct Root {
    Value* value = nullptr;
    std::optional<AxisMap> map;        ///< nullopt: some step cannot be told
    Value* unproved = nullptr;         ///< the result of that step
    const Node* reorder = nullptr;     ///< that step, if it picks batch rows
    llvm::SmallVector<Value*, 4> path; ///< from the operand to `value`
  };
  /// Everything that reads what an update made.
  struct Readers {
    struct Output {
      Value* value;
      std::optional<AxisMap> map;
      bool windowed;
    };
    llvm::SmallVector<Output, 2> outputs;
    Node* attention = nullptr;      ///< one that reads it
    Node* otherAttention = nullptr; ///< another one
    Node* escape = nullptr;         ///< one that reads it as data
    llvm::SmallVector<Node*, 4> shapeReaders;
    llvm::SmallVector<Node*, 4> movers; ///< that carry it to its attention and its output
  };

  static Root walkBack(Value& start, std::optional<AxisMap> map);
  CacheTrace traceUpdate(Node& node, const Root& root, Node& attention);
  std::optional<MatchFailure> checkPast(const Root& past, const Node& update) const;
  /// Sets the present and, where it is a window, the policy.
  std::optional<MatchFailure> findPresent(CacheUpdate& update, const AxisMap& map,
                                          const Node& attention, const Node*& otherReader);
  const Readers& readersOf(Value& updated, const AxisMap& map);
  static void collect(Readers& readers, Value& updated, const AxisMap& map);

  /// The first value on the way from the update to `read` that is computed and not only moved.
  const Value& firstChange(const Value& read, const Node& update) const;
  const Value* writtenOutput(const CacheOrigin& origin, Value& read) const;

  CacheOrigins origins;
  llvm::DenseMap<const Node*, Readers> readers;
  /// The output that comes from an input through an update; null: several do.
  llvm::DenseMap<const Value*, Value*> outputOf;
  llvm::StringSet<> inputExtents; ///< of inputs that could be a cache
};

/// A failure at the node that makes `at`.
MatchFailure failureAt(ReasonCode code, const Value& at, std::string expected, std::string found,
                       std::string hint = "");

} // namespace kvopt
