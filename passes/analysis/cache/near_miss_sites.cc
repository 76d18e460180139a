// Assigns near misses to attention sites, by data flow from the site to the rules' roots.
#include "passes/analysis/cache/site.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

/// Maximum number of nodes through which a result is followed; attention has few between its two
/// products.
constexpr size_t mostNodes = 64;

bool isProduct(const Node& node) {
  return node.op() == "MatMul" || node.op() == "Gemm" || node.op() == "Einsum";
}

/// The node, and the nodes that its results pass through, up to and including the next matrix
/// products.
llvm::SmallVector<const Node*, 16> nodesUpToProducts(const Node& start) {
  llvm::SmallVector<const Node*, 16> reached{&start};
  llvm::DenseSet<const Node*> seen{&start};
  for (size_t next = 0; next < reached.size() && reached.size() < mostNodes; ++next) {
    if (next != 0 && isProduct(*reached[next]))
      continue;
    for (const Value& result : reached[next]->results())
      for (const Use& use : result.uses()) {
        if (reached.size() == mostNodes)
          return reached;
        if (use.user().op() != "Shape" && seen.insert(&use.user()).second)
          reached.push_back(&use.user());
      }
  }
  return reached;
}

class Attribution {
public:
  Attribution(std::vector<NearMiss> ranked, llvm::function_ref<bool(llvm::StringRef)> counts)
      : misses(std::move(ranked)) {
    for (size_t i = 0; i < misses.size(); ++i) {
      if (!counts(misses[i].rule))
        continue;
      byRoot.try_emplace(misses[i].root, i);
      for (const std::string& node : misses[i].nodes)
        byNode.try_emplace(node, i);
    }
  }

  /// The furthest near miss at the site; null if no rule tried anything there.
  const NearMiss* furthest(const Node& site) const {
    if (const NearMiss* through = at(byNode, site))
      return through;
    // Nodes after a fused operator or a product belong to other attention.
    if (site.op() != "Softmax" && site.op() != "LogSoftmax")
      return nullptr;
    const NearMiss* best = nullptr;
    for (const Node* node : nodesUpToProducts(site)) {
      const NearMiss* miss = at(byRoot, *node);
      if (miss && (!best || miss->matched > best->matched))
        best = miss;
    }
    return best;
  }

private:
  const NearMiss* at(const llvm::StringMap<size_t>& index, const Node& node) const {
    auto found = index.find(labelOf(node));
    return found == index.end() ? nullptr : &misses[found->second];
  }

  std::vector<NearMiss> misses; // furthest first, so the first entry with a name is the furthest
  llvm::StringMap<size_t> byRoot;
  llvm::StringMap<size_t> byNode;
};

} // namespace

void attributeNearMisses(SiteList& sites, const NearMissList& misses,
                         llvm::function_ref<bool(llvm::StringRef rule)> counts) {
  bool anyOpen = false;
  auto isOpen = [](const AttentionSite& site) {
    return site.failure && site.failure->code == ReasonCode::PatternMismatch && site.node &&
           site.node->op() != OpName("ai.kvopt::Sdpa");
  };
  for (const AttentionSite& site : sites)
    anyOpen |= isOpen(site);
  if (!anyOpen)
    return;
  Attribution attribution(misses.ranked(), counts);
  for (AttentionSite& site : sites) {
    if (!isOpen(site))
      continue;
    const NearMiss* miss = attribution.furthest(*site.node);
    if (!miss)
      continue;
    site.nearMiss = *miss;
    site.failure = miss->failure;
    if (site.failure->node.empty())
      site.failure->node = miss->root;
  }
}

} // namespace kvopt::analysis
