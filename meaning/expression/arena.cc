// A hash table of nodes, and the sets of indices that they read.
#include "meaning/expression/arena.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <memory>

namespace kvopt::meaning {

namespace {

uint32_t hashOf(Op op, Sort sort, llvm::ArrayRef<Expr> operands, int64_t value, uint16_t detail,
                llvm::ArrayRef<int64_t> coefficients) {
  // Most nodes are small, and this is what takes most of the time.
  auto mixed = [hash = uint64_t(0)](uint64_t part) mutable {
    hash = (hash ^ part) * 0x9e3779b97f4a7c15u;
    return hash ^= hash >> 29;
  };
  mixed(uint64_t(op) | uint64_t(sort) << 8 | uint64_t(detail) << 16 | operands.size() << 32);
  uint64_t hash = mixed(static_cast<uint64_t>(value));
  for (Expr operand : operands)
    hash = mixed(operand.id());
  for (int64_t coefficient : coefficients)
    hash = mixed(static_cast<uint64_t>(coefficient));
  return static_cast<uint32_t>(hash ^ hash >> 32);
}

} // namespace

Arena::Arena(size_t mostNodes) : most_(std::max<size_t>(mostNodes, 16)), table_(1 << 10) {
  sets_.emplace_back();
  setNumbers_[{}] = 0;
  nodes_.emplace_back(); // no formula
  // What a full arena returns: unknown values, numbers 1 to 3.
  for (Sort sort : {Sort::Integer, Sort::Boolean, Sort::Real})
    intern(Op::Unknown, sort, {});
}

llvm::ArrayRef<int64_t> Arena::coefficients(Expr polynomial) const {
  const Node& node = nodes_[polynomial.id()];
  if (node.op != Op::Polynomial)
    return {};
  const size_t bytes = llvm::alignTo(node.count * sizeof(Expr), alignof(int64_t));
  const char* after = reinterpret_cast<const char*>(node.operands) + bytes;
  return {reinterpret_cast<const int64_t*>(after), node.count};
}

Expr Arena::intern(Op op, Sort sort, llvm::ArrayRef<Expr> operands, int64_t value, uint16_t detail,
                   llvm::ArrayRef<int64_t> coefficients) {
  const uint32_t hash = hashOf(op, sort, operands, value, detail, coefficients);
  const size_t mask = table_.size() - 1;
  size_t place = hash & mask;
  for (; table_[place] != 0; place = (place + 1) & mask) {
    const Expr candidate(table_[place]);
    const Node& node = nodes_[candidate.id()];
    if (node.hash == hash && node.op == op && node.sort == sort && node.value == value &&
        node.detail == detail && this->operands(candidate) == operands &&
        this->coefficients(candidate) == coefficients)
      return candidate;
  }
  if (nodes_.size() > most_) {
    isFull_ = true;
    return Expr(1 + static_cast<uint32_t>(sort));
  }
  const Expr self(static_cast<uint32_t>(nodes_.size()));
  Node node{op, sort, detail, static_cast<uint32_t>(operands.size()), 0, hash, 0, value, nullptr};
  node.variables = variablesOf(op, self, operands, value);
  for (Expr operand : operands)
    node.level = std::max(node.level, nodes_[operand.id()].level);
  if (op == Op::Reduce || op == Op::Last)
    node.level = std::max(node.level, static_cast<uint32_t>(value));
  if (!operands.empty()) {
    const size_t bytes = llvm::alignTo(operands.size() * sizeof(Expr), alignof(int64_t));
    char* memory = static_cast<char*>(
        memory_.Allocate(bytes + coefficients.size() * sizeof(int64_t), alignof(int64_t)));
    std::uninitialized_copy(operands.begin(), operands.end(), reinterpret_cast<Expr*>(memory));
    std::uninitialized_copy(coefficients.begin(), coefficients.end(),
                            reinterpret_cast<int64_t*>(memory + bytes));
    node.operands = reinterpret_cast<const Expr*>(memory);
  }
  nodes_.push_back(node);
  table_[place] = self.id();
  if (2 * nodes_.size() > table_.size())
    grow();
  return self;
}

void Arena::grow() {
  table_.assign(2 * table_.size(), 0);
  const size_t mask = table_.size() - 1;
  for (uint32_t id = 1; id < nodes_.size(); ++id) {
    size_t place = nodes_[id].hash & mask;
    while (table_[place] != 0)
      place = (place + 1) & mask;
    table_[place] = id;
  }
}

void Arena::forEachPart(Expr root, llvm::function_ref<void(Expr)> use) const {
  llvm::DenseSet<uint32_t> seen;
  llvm::SmallVector<Expr> open{root};
  while (!open.empty()) {
    const Expr part = open.pop_back_val();
    if (!seen.insert(part.id()).second)
      continue;
    use(part);
    open.append(operands(part).begin(), operands(part).end());
  }
}

bool Arena::reads(Expr expr, Expr index) const {
  const llvm::ArrayRef<Expr> all = variables(expr);
  return std::binary_search(all.begin(), all.end(), index);
}

uint32_t Arena::setOf(llvm::SmallVector<Expr> indices) {
  auto [at, isNew] = setNumbers_.try_emplace(indices, static_cast<uint32_t>(sets_.size()));
  if (isNew)
    sets_.push_back(std::move(indices));
  return at->second;
}

uint32_t Arena::united(uint32_t a, uint32_t b) {
  if (a == b || b == 0)
    return a;
  if (a == 0)
    return b;
  auto [at, isNew] = unions_.try_emplace({std::min(a, b), std::max(a, b)}, 0);
  if (isNew) {
    llvm::SmallVector<Expr> both;
    std::set_union(sets_[a].begin(), sets_[a].end(), sets_[b].begin(), sets_[b].end(),
                   std::back_inserter(both));
    const uint32_t number = setOf(std::move(both));
    return unions_[{std::min(a, b), std::max(a, b)}] = number;
  }
  return at->second;
}

uint32_t Arena::variablesOf(Op op, Expr self, llvm::ArrayRef<Expr> operands, int64_t value) {
  // The extent of an index is not a part of formulas that read it.
  if (op == Op::Index || op == Op::Bound)
    return setOf({self});
  uint32_t all = 0;
  const bool binds = op == Op::Reduce || op == Op::Last;
  for (size_t place = 0; place < operands.size(); ++place) {
    uint32_t set = nodes_[operands[place].id()].variables;
    // A reduction binds its index in all operands but the extent, and a last update not in what is
    // there without it.
    if (binds && (place == 1 || place == 2)) {
      llvm::SmallVector<Expr> rest;
      for (Expr index : sets_[set]) {
        const Node& node = nodes_[index.id()];
        if (node.op != Op::Bound || node.value != value)
          rest.push_back(index);
      }
      set = setOf(std::move(rest));
    }
    all = united(all, set);
  }
  return all;
}

size_t Arena::bytes() const {
  return nodes_.size() * sizeof(Node) + table_.size() * sizeof(uint32_t) +
         memory_.getTotalMemory() + sets_.size() * sizeof(llvm::SmallVector<Expr>);
}

} // namespace kvopt::meaning
