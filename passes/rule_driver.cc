// The work list behind applyRules.
#include "passes/rule_driver.h"

#include "ir/diagnostic.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt {
namespace {

class Driver {
public:
  Driver(Graph& rewritten, llvm::ArrayRef<const RuleRegistry::Entry*> rules, Journal& fullJournal,
         const RuleDriverOptions& driverOptions)
      : graph(rewritten), journal(fullJournal), options(driverOptions) {
    for (const RuleRegistry::Entry* entry : rules)
      for (OpName root : entry->pattern->rootOps())
        byRoot[root].push_back(entry);
  }

  llvm::Expected<RuleDriverResult> run() {
    for (Node& node : graph.nodes())
      enqueue(node);
    uint64_t bound = uint64_t{options.applicationsPerNode} * (queue.size() + 1);
    RuleDriverResult result;
    // Indexed, because the queue grows while it is worked off.
    for (size_t next = 0; next < queue.size(); ++next) {
      Node* node = queue[next];
      if (!node)
        continue;
      queue[next] = nullptr;
      queued.erase(node);
      const RuleRegistry::Entry* applied = tryNode(*node);
      if (!applied)
        continue;
      if (++result.applications > bound)
        return doesNotEnd(*applied);
      if (lastApplied != applied)
        previousApplied = lastApplied;
      lastApplied = applied;
    }
    return result;
  }

private:
  void enqueue(Node& node) {
    if (&node.graph() != &graph || !byRoot.count(node.op()))
      return;
    if (queued.try_emplace(&node, queue.size()).second)
      queue.push_back(&node);
  }

  const RuleRegistry::Entry* tryNode(Node& node) {
    for (const RuleRegistry::Entry* entry : byRoot.find(node.op())->second) {
      NearMiss miss;
      NearMiss* listener = options.nearMisses ? &miss : nullptr;
      std::optional<Match> match = matchAt(*entry->pattern, node, options.matcher, listener);
      if (match && apply(*entry, *match, miss))
        return entry;
      if (listener && miss.isSet) {
        miss.rule = entry->rule->name().str();
        options.nearMisses->add(std::move(miss));
      }
    }
    return nullptr;
  }

  bool apply(const RuleRegistry::Entry& entry, const Match& match, NearMiss& miss) {
    llvm::SmallVector<Node*, 16> around;
    {
      Rewriter rewriter(graph, entry.rule->name().str(), journal);
      std::optional<MatchFailure> failure = entry.rule->rewrite(match, rewriter);
      if (failure) {
        rewriter.discard();
        miss.isSet = true;
        miss.matched = static_cast<unsigned>(match.nodes().size());
        miss.failure = std::move(*failure);
        return false;
      }
      around.assign(rewriter.touched().begin(), rewriter.touched().end());
    }
    for (Node* node : around)
      enqueue(*node);
    eraseDead(match);
    return true;
  }

  /// Erases the matched nodes that nobody reads, and what only they read.
  void eraseDead(const Match& match) {
    llvm::SmallVector<Node*, 16> candidates(match.nodes().begin(), match.nodes().end());
    llvm::DenseMap<Node*, bool> erased;
    while (!candidates.empty()) {
      Node* node = candidates.pop_back_val();
      if (erased.count(node) || !node->isUnused())
        continue;
      for (const Use& use : node->operands())
        if (Node* producer = use.value() ? use.value()->producer() : nullptr)
          if (&producer->graph() == &graph)
            candidates.push_back(producer);
      auto position = queued.find(node);
      if (position != queued.end()) {
        queue[position->second] = nullptr;
        queued.erase(position);
      }
      erased[node] = true;
      graph.erase(*node);
    }
  }

  llvm::Error doesNotEnd(const RuleRegistry::Entry& last) {
    std::string names = "'" + last.rule->name().str() + "'";
    const RuleRegistry::Entry* other = lastApplied != &last ? lastApplied : previousApplied;
    if (other)
      names += " and '" + other->rule->name().str() + "' undo each other";
    else
      names += " undoes itself";
    return unsupported("rules {}: the rewriting does not end", names)
        .hint("leave one of the rules out with --disable");
  }

  Graph& graph;
  Journal& journal;
  const RuleDriverOptions& options;
  llvm::DenseMap<OpName, llvm::SmallVector<const RuleRegistry::Entry*, 4>> byRoot;
  std::vector<Node*> queue;
  llvm::DenseMap<Node*, size_t> queued; // node → its place in the queue
  const RuleRegistry::Entry* lastApplied = nullptr;
  const RuleRegistry::Entry* previousApplied = nullptr;
};

} // namespace

llvm::Expected<RuleDriverResult> applyRules(Graph& graph,
                                            llvm::ArrayRef<const RuleRegistry::Entry*> rules,
                                            Journal& journal, const RuleDriverOptions& options) {
  return Driver(graph, rules, journal, options).run();
}

} // namespace kvopt
