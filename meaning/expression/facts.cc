// A set of facts is the list of those of its parent and its own.
#include "meaning/expression/facts.h"

namespace kvopt::meaning {

Facts::Path Facts::with(Path path, Expr condition, bool holds) {
  const uint64_t key = 2 * uint64_t(condition.id()) + (holds ? 1 : 0);
  if (auto known = numbers_.find({path, key}); known != numbers_.end())
    return known->second;
  Set set;
  set.parent = path;
  note(set, condition, holds);
  sets_.push_back(std::move(set));
  return numbers_[{path, key}] = static_cast<Path>(sets_.size()) - 1;
}

void Facts::note(Set& set, Expr condition, bool holds) {
  llvm::SmallVector<Truth> open{{condition, holds}};
  while (!open.empty()) {
    const Truth truth = open.pop_back_val();
    const Op op = arena_[truth.condition].op;
    const llvm::ArrayRef<Expr> operands = arena_.operands(truth.condition);
    if (op == Op::Not) {
      open.push_back({operands[0], !truth.holds});
      continue;
    }
    set.truths.push_back(truth);
    if (op == Op::NonNegative) {
      // Not at least 0: at most -1.
      set.nonNegative.push_back(
          truth.holds ? operands[0] : polynomials_.sum(polynomials_.number(-1), operands[0], -1));
    } else if (op == Op::Zero && truth.holds) {
      set.nonNegative.push_back(operands[0]);
      set.nonNegative.push_back(polynomials_.scaled(operands[0], -1));
    } else if (op == (truth.holds ? Op::And : Op::Or)) {
      for (Expr operand : operands)
        open.push_back({operand, truth.holds});
    }
  }
}

llvm::SmallVector<Expr> Facts::nonNegative(Path path) const {
  llvm::SmallVector<Expr> all;
  for (; path != 0; path = sets_[path].parent)
    llvm::append_range(all, sets_[path].nonNegative);
  return all;
}

std::optional<bool> Facts::truthOf(Path path, Expr condition) const {
  for (; path != 0; path = sets_[path].parent)
    for (const Truth& truth : sets_[path].truths)
      if (truth.condition == condition)
        return truth.holds;
  return std::nullopt;
}

} // namespace kvopt::meaning
