// NearMissList: storage and ranking.
#include "passes/pattern/explain.h"

#include "ir/node.h"
#include "ir/value.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::pattern {
using namespace ir;

std::string labelOf(const Node& node) {
  if (!node.name().empty() || node.results().empty())
    return node.name().str();
  return node.result().name().str();
}

NearMissList::NearMissList(llvm::ArrayRef<std::string> rules) : all(false) {
  for (const std::string& rule : rules)
    wanted.insert(rule);
}

void NearMissList::add(NearMiss miss) {
  miss.isSet = true;
  llvm::SmallVector<size_t, 2>& atRoot = byRoot[miss.root];
  for (size_t place : atRoot) {
    NearMiss& known = misses[place];
    if (known.rule != miss.rule)
      continue;
    if (miss.matched >= known.matched)
      known = std::move(miss);
    return;
  }
  atRoot.push_back(misses.size());
  misses.push_back(std::move(miss));
}

std::vector<NearMiss> NearMissList::ranked() const {
  std::vector<NearMiss> sorted;
  for (const NearMiss& miss : misses)
    if (miss.isSet)
      sorted.push_back(miss);
  llvm::stable_sort(sorted,
                    [](const NearMiss& a, const NearMiss& b) { return a.matched > b.matched; });
  return sorted;
}

const NearMiss* NearMissList::furthestAt(const std::string& root) const {
  const NearMiss* best = nullptr;
  auto found = byRoot.find(root);
  if (found == byRoot.end())
    return nullptr;
  for (size_t place : found->second)
    if (!best || misses[place].matched > best->matched)
      best = &misses[place];
  return best;
}

void NearMissList::forget(const std::string& root) {
  auto found = byRoot.find(root);
  if (found == byRoot.end())
    return;
  for (size_t place : found->second)
    misses[place] = {};
  byRoot.erase(found);
}

} // namespace kvopt::pattern
