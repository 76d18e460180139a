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

/// From the name of each node that exists thanks to a raising rule, also when other rules replaced
/// it since, to the root that the first of those rules was applied at. Linear in the journal.
llvm::StringMap<std::string> raisedRoots(const Journal& journal,
                                         llvm::function_ref<bool(llvm::StringRef rule)> isRaising);

/// Metadata keys of nodes that rules create.
inline constexpr const char* ruleMetadataKey = "kvopt.rule";
inline constexpr const char* sourceMetadataKey = "kvopt.from";
/// Of an ai.kvopt::Sdpa: how evaluation contradicts it.
inline constexpr const char* contradictionMetadataKey = "kvopt.contradiction";

/// Edits the graph for one match of one rule (or one site of one target).
class Rewriter {
public:
  /// `rootName` is what the journal calls the place.
  Rewriter(ir::Graph& graph, std::string ruleName, Journal& journal, llvm::StringRef rootName = "");
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;
  ~Rewriter();

  ir::Graph& graph() const { return edited; }

  /// A new node after the last of its operands' producers, with inferred result types. Its results
  /// get fresh names from `hint`.
  ir::Node& create(ir::OpName op, llvm::ArrayRef<ir::Value*> operands,
                   std::vector<ir::NamedAttribute> attributes = {}, unsigned resultCount = 1,
                   llvm::StringRef hint = "");
  /// A new node with the operator and copies of the attributes of `like`.
  ir::Node& createLike(const ir::Node& like, llvm::ArrayRef<ir::Value*> operands,
                       llvm::StringRef hint = "");
  /// A new constant.
  ir::Value& constant(llvm::StringRef hint, ir::TensorRef data);

  /// Names the nodes that `fused` stands for in its metadata, with the rule.
  void recordSources(ir::Node& fused, llvm::ArrayRef<ir::Node*> sources);

  struct Replacement {
    ir::Value* before;
    ir::Value* after;
  };
  /// Makes all readers of each `before` read its `after`. Refuses, without an edit, if a value that
  /// is to come in would depend on one that goes out: the reason is `would-create-cycle` with the
  /// path. Readers that stand too early in the node list are moved. What is known of the type of
  /// `before` is kept where the type of `after` says less; outputs keep their declared type.
  std::optional<MatchFailure> replace(llvm::ArrayRef<Replacement> replacements);
  std::optional<MatchFailure> replace(ir::Value& before, ir::Value& after) {
    return replace({{&before, &after}});
  }

  /// Takes back the nodes and constants this rewriter created that nobody reads; for a rewrite that
  /// gives up.
  void discard();

  /// Nodes created by this rewriter, and readers of what it replaced: where rules may match anew.
  llvm::ArrayRef<ir::Node*> touched() const { return touchedNodes; }
  /// Producers of what this rewriter replaced: dead where nobody else reads them.
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

/// A path of values from `from` back to any of `goals` along operands (captures of subgraphs
/// included); empty when `from` does not depend on them. Costs what stands between the first of the
/// goals and `from` in the node list.
std::vector<const ir::Value*> dependencyPath(const ir::Value& from,
                                             llvm::ArrayRef<const ir::Value*> goals);

/// Restores "operands before readers" with the fewest surprises: nodes keep their relative order
/// where dependencies allow. Requires an acyclic graph.
void restoreOrder(ir::Graph& graph);

/// The same where only readers from `first` on stand before what they read, and only what stands up
/// to `last` is read too early. Costs what stands between the two.
void restoreOrder(ir::Node& first, ir::Node& last);

} // namespace kvopt::pattern
