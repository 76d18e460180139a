// Where formulas are stored: each once, and none is ever changed.
#pragma once

#include "meaning/expression/expression.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Allocator.h"
#include <deque>
#include <map>
#include <vector>

namespace kvopt::meaning {

/// Owns nodes. A caller asks for a node by its contents and gets the one that has them; simplifying
/// is not done here.
class Arena {
public:
  /// An arena that makes at most so many nodes. Where it is full, `intern` returns a node of that
  /// sort which is there already and means nothing, and `isFull` holds from then on: whoever asked
  /// a question has no answer.
  explicit Arena(size_t mostNodes = size_t(1) << 22);
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Expr intern(Op op, Sort sort, llvm::ArrayRef<Expr> operands, int64_t value = 0,
              uint16_t detail = 0, llvm::ArrayRef<int64_t> coefficients = {});

  const Node& operator[](Expr expr) const { return nodes_[expr.id()]; }
  llvm::ArrayRef<Expr> operands(Expr expr) const {
    const Node& node = nodes_[expr.id()];
    return {node.operands, node.count};
  }
  /// One for each operand of a polynomial.
  llvm::ArrayRef<int64_t> coefficients(Expr polynomial) const;

  /// The free indices of a formula (nodes `Index` and `Bound`), ordered.
  llvm::ArrayRef<Expr> variables(Expr expr) const { return sets_[nodes_[expr.id()].variables]; }
  bool reads(Expr expr, Expr index) const;
  /// Calls `use` with each node of a formula, once.
  void forEachPart(Expr root, llvm::function_ref<void(Expr)> use) const;

  bool isFull() const { return isFull_; }
  /// Number of nodes, which are 1 to this number.
  size_t size() const { return nodes_.size() - 1; }
  /// What nodes, operands and sets take.
  size_t bytes() const;

private:
  uint32_t variablesOf(Op op, Expr self, llvm::ArrayRef<Expr> operands, int64_t value);
  uint32_t setOf(llvm::SmallVector<Expr> indices);
  uint32_t united(uint32_t a, uint32_t b);
  void grow();

  size_t most_;
  bool isFull_ = false;
  std::deque<Node> nodes_;
  std::vector<uint32_t> table_; ///< open addressing: numbers of nodes, 0 where it is free
  llvm::BumpPtrAllocator memory_;
  std::vector<llvm::SmallVector<Expr>> sets_;
  std::map<llvm::SmallVector<Expr>, uint32_t> setNumbers_;
  llvm::DenseMap<std::pair<uint32_t, uint32_t>, uint32_t> unions_;
};

} // namespace kvopt::meaning
