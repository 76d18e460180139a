// NearMissList: keeping and ranking.
#include "passes/explain.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {

void NearMissList::add(NearMiss miss) {
  for (NearMiss& known : misses)
    if (known.rule == miss.rule && known.root == miss.root) {
      if (miss.matched >= known.matched)
        known = std::move(miss);
      return;
    }
  misses.push_back(std::move(miss));
}

std::vector<NearMiss> NearMissList::ranked() const {
  std::vector<NearMiss> sorted = misses;
  llvm::stable_sort(sorted,
                    [](const NearMiss& a, const NearMiss& b) { return a.matched > b.matched; });
  return sorted;
}

const NearMiss* NearMissList::furthestAt(const std::string& root) const {
  const NearMiss* best = nullptr;
  for (const NearMiss& miss : misses)
    if (miss.root == root && (!best || miss.matched > best->matched))
      best = &miss;
  return best;
}

void NearMissList::forget(const std::string& root) {
  llvm::erase_if(misses, [&](const NearMiss& miss) { return miss.root == root; });
}

} // namespace kvopt
