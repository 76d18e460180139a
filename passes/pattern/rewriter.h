// Rewriter: the only way a rule edits the graph. Every edit is journaled.
#pragma once

#include "ir/attribute_list.h"
#include "ir/graph.h"
#include "passes/pattern/match.h"
#include "passes/pattern/reason.h"

#include "llvm/ADT/StringMap.h"

#include <functional>

namespace kvopt::pattern {

/// One application of a rule.
struct JournalEntry {
  std::string rule;
  std::string root;
  std::vector<std::string> created;  ///< operators and results of new nodes
  std::vector<std::string> replaced; ///< names of the values that were replaced
};

struct Journal {
  std::vector<JournalEntry> entries;
  unsigned applications(llvm::StringRef rule) const;
};

/// Map from the name of each node that results from a raising rule, also if other rules replaced it
/// later, to the root at which the first of those rules was applied. The cost is linear in the
/// journal.
llvm::StringMap<std::string> raisedRoots(const Journal& journal,
                                         llvm::function_ref<bool(llvm::StringRef rule)> isRaising);

/// Metadata keys of nodes that rules create.
inline constexpr const char* ruleMetadataKey = "kvopt.rule";
inline constexpr const char* sourceMetadataKey = "kvopt.from";
/// Metadata key of an ai.kvopt::Sdpa that says how evaluation contradicts it.
inline constexpr const char* contradictionMetadataKey = "kvopt.contradiction";

/// Edits the graph for one match of one rule, or for one site of one target.
class Rewriter {
public:
  /// `rootName` is the name of the root in the journal.
  Rewriter(ir::Graph& graph, std::string ruleName, Journal& journal, llvm::StringRef rootName = "");
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;
  ~Rewriter();

  ir::Graph& graph() const { return edited; }

  /// Creates a node after the last producer of its operands and infers its result types. Its
  /// results get fresh names from `hint`.
  ir::Node& create(ir::OpName op, llvm::ArrayRef<ir::Value*> operands,
                   std::vector<ir::NamedAttribute> attributes = {}, unsigned resultCount = 1,
                   llvm::StringRef hint = "");
  /// Creates a node with the operator and copies of the attributes of `like`.
  ir::Node& createLike(const ir::Node& like, llvm::ArrayRef<ir::Value*> operands,
                       llvm::StringRef hint = "");
  /// Creates a constant.
  ir::Value& constant(llvm::StringRef hint, ir::TensorRef data);

  /// Records the rule and the names of the nodes that `fused` replaces in the metadata of `fused`.
  void recordSources(ir::Node& fused, llvm::ArrayRef<ir::Node*> sources);

  struct Replacement {
    ir::Value* before;
    ir::Value* after;
  };
  /// Makes all readers of each `before` read its `after`. If a new value would depend on a replaced
  /// one, it refuses without an edit and gives the reason `would-create-cycle` with the path.
  /// Readers that come too early in the node list are moved. The known type of `before` is kept
  /// where the type of `after` is less specific; outputs keep their declared type.
  std::optional<MatchFailure> replace(llvm::ArrayRef<Replacement> replacements);
  std::optional<MatchFailure> replace(ir::Value& before, ir::Value& after) {
    return replace({{&before, &after}});
  }

  /// Erases the unused nodes and constants that this rewriter created, for a rewrite that gives up.
  void discard();

  /// Nodes created by this rewriter, and readers of the values it replaced: rules may match there
  /// again.
  llvm::ArrayRef<ir::Node*> touched() const { return touchedNodes; }
  /// Producers of the values that this rewriter replaced. They are dead if they have no other
  /// readers.
  llvm::ArrayRef<ir::Node*> outdated() const { return outdatedNodes; }

private:
  ir::Graph& edited;
  Journal& journal;
  JournalEntry entry;
  llvm::SmallVector<ir::Node*, 8> createdNodes;
  llvm::SmallVector<ir::Value*, 4> createdConstants;
  llvm::SmallVector<ir::Node*, 16> touchedNodes;
  llvm::SmallVector<ir::Node*, 4> outdatedNodes;
  bool replacedAny = false;
};

/// A path of values from `from` back to any of `goals` along operands, including captures of
/// subgraphs; empty if `from` does not depend on them. The cost is linear in the number of nodes
/// between the first of the goals and `from` in the node list.
std::vector<const ir::Value*> dependencyPath(const ir::Value& from,
                                             llvm::ArrayRef<const ir::Value*> goals);

/// Restores the order "operands before readers". Nodes keep their relative order where dependencies
/// allow. The graph must be acyclic.
void restoreOrder(ir::Graph& graph);

/// The same for a graph in which only readers from `first` on precede their operands, and only
/// nodes up to `last` are read too early. The cost is linear in the number of nodes between the
/// two.
void restoreOrder(ir::Node& first, ir::Node& last);

} // namespace kvopt::pattern
