// The work list of applyRules.
#include "passes/pattern/rule_driver.h"

#include "support/diagnostic.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::pattern {
using namespace ir;

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
    uint64_t bound = 0;
    size_t before = 0;
    // An edit can make a rule match several nodes away, so only a sweep without matches ends the
    // loop.
    do {
      before = applied.size();
      for (Node& node : graph.nodes())
        enqueue(node);
      if (bound == 0)
        bound = uint64_t{options.applicationsPerNode} * (queue.size() + 1);
      if (llvm::Error error = workOff(bound))
        return error;
    } while (applied.size() != before);
    result.applications = static_cast<unsigned>(applied.size());
    return result;
  }

private:
  llvm::Error workOff(uint64_t bound) {
    // Indexed, because the queue grows during the loop.
    for (size_t next = 0; next < queue.size(); ++next) {
      Node* node = queue[next];
      if (!node)
        continue;
      queue[next] = nullptr;
      queued.erase(node);
      const RuleRegistry::Entry* entry = tryNode(*node);
      if (!entry)
        continue;
      applied.push_back(entry);
      if (applied.size() > bound)
        return doesNotEnd();
    }
    queue.clear();
    return llvm::Error::success();
  }

  void enqueue(Node& node) {
    if (&node.graph() != &graph || !byRoot.count(node.op()))
      return;
    if (queued.try_emplace(&node, queue.size()).second)
      queue.push_back(&node);
  }

  bool isLeftAlone(const Node& root, const Rule& rule) const {
    return options.leftAlone && rule.group() == RuleGroup::Raise &&
           options.leftAlone->contains(labelOf(root));
  }

  const RuleRegistry::Entry* tryNode(Node& node) {
    for (const RuleRegistry::Entry* entry : byRoot.find(node.op())->second) {
      if (isLeftAlone(node, *entry->rule))
        continue;
      NearMiss miss;
      bool isWanted = options.nearMisses && options.nearMisses->listensTo(entry->rule->name());
      NearMiss* listener = isWanted ? &miss : nullptr;
      bool gaveUp = false;
      std::optional<Match> match =
          matchAt(*entry->pattern, node, options.matcher, listener, &gaveUp);
      result.gaveUp += gaveUp;
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
    llvm::SmallVector<Node*, 16> candidates(match.nodes().begin(), match.nodes().end());
    Node& root = match.root();
    std::string rootName = labelOf(root);
    {
      Rewriter rewriter(graph, entry.rule->name().str(), journal, rootName);
      std::optional<MatchFailure> failure = entry.rule->rewrite(match, rewriter);
      if (failure) {
        rewriter.discard();
        miss.isSet = true;
        miss.root = rootName;
        miss.matched = static_cast<unsigned>(match.nodes().size());
        miss.path.clear();
        miss.nodes.clear();
        for (const Node* node : match.nodes())
          miss.nodes.push_back(labelOf(*node));
        miss.failure = std::move(*failure);
        return false;
      }
      around.assign(rewriter.touched().begin(), rewriter.touched().end());
      candidates.append(rewriter.outdated().begin(), rewriter.outdated().end());
    }
    if (options.nearMisses)
      options.nearMisses->forget(rootName);
    for (Node* node : around)
      enqueue(*node);
    eraseDeadChains(std::move(candidates), [&](Node& node) { dequeue(node); });
    return true;
  }

  void dequeue(Node& node) {
    auto position = queued.find(&node);
    if (position == queued.end())
      return;
    queue[position->second] = nullptr;
    queued.erase(position);
  }

  llvm::Error doesNotEnd() const {
    // Rules that terminated were applied only in the first half.
    llvm::SmallVector<const RuleRegistry::Entry*, 4> turning;
    for (size_t i = applied.size() / 2; i < applied.size(); ++i)
      if (!llvm::is_contained(turning, applied[i]))
        turning.push_back(applied[i]);
    std::string names;
    for (size_t i = 0; i < turning.size(); ++i) {
      if (i != 0)
        names += i + 1 == turning.size() ? " and " : ", ";
      names += "'" + turning[i]->rule->name().str() + "'";
    }
    return unsupported("{}: rewriting does not terminate",
                       turning.size() == 1 ? "rule " + names + " undoes itself"
                                           : "rules " + names + " undo each other")
        .hint("leave one of the rules out with --disable");
  }

  Graph& graph;
  Journal& journal;
  const RuleDriverOptions& options;
  llvm::DenseMap<OpName, llvm::SmallVector<const RuleRegistry::Entry*, 4>> byRoot;
  std::vector<Node*> queue;
  llvm::DenseMap<Node*, size_t> queued;            // node → its index in the queue
  std::vector<const RuleRegistry::Entry*> applied; // in order of application
  RuleDriverResult result;
};

} // namespace

llvm::Expected<RuleDriverResult> applyRules(Graph& graph,
                                            llvm::ArrayRef<const RuleRegistry::Entry*> rules,
                                            Journal& journal, const RuleDriverOptions& options) {
  return Driver(graph, rules, journal, options).run();
}

llvm::Expected<RuleDriverResult>
applyRulesWithSubgraphs(Graph& graph, llvm::ArrayRef<const RuleRegistry::Entry*> rules,
                        Journal& journal, const RuleDriverOptions& options) {
  llvm::Expected<RuleDriverResult> result = applyRules(graph, rules, journal, options);
  if (!result)
    return result;
  // Rules erase nodes of the current graph and of enclosing graphs, never the node that holds it.
  if (!graph.hasSubgraphs())
    return result;
  for (Node& node : graph.nodes())
    for (Graph* nested : node.subgraphs()) {
      auto inner = applyRulesWithSubgraphs(*nested, rules, journal, options);
      if (!inner)
        return inner;
      result->applications += inner->applications;
      result->gaveUp += inner->gaveUp;
    }
  return result;
}

} // namespace kvopt::pattern
