// Products of matrices and of other tensors.
#include "tests/differential/operators.h"

#include <map>

namespace kvopt::differential {
using namespace ir;

namespace {

ElementType productType(Dice& dice) {
  using enum ElementType;
  return dice.anyOf({Float, Float, Double});
}

Numbers factors(Dice& dice, Wanted wanted) { return integers(dice, std::move(wanted), -3, 3); }

Instance matMul(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({9, 13}));
  const ElementType type = productType(dice);
  const int64_t depth = dice.extent(), rows = dice.extent(), columns = dice.extent();
  auto batches = broadcastExtents(dice, 2);
  Extents left = batches[0], right = batches[1];
  left.insert(left.end(), {rows, depth});
  right.insert(right.end(), {depth, columns});
  if (dice.oneIn(5))
    left = {depth};
  if (dice.oneIn(5))
    right = {depth};
  instance.in(factors(dice, {type, left})).in(factors(dice, {type, right}));
  return instance;
}

Instance gemm(const char* name, Dice& dice) {
  Instance instance(name, dice.anyOf<int64_t>({11, 13}));
  const ElementType type = ElementType::Float;
  const int64_t depth = dice.extent(), rows = dice.extent(), columns = dice.extent();
  const bool turnsLeft = dice.oneIn(2), turnsRight = dice.oneIn(2);
  instance.in(factors(dice, {type, turnsLeft ? Extents{depth, rows} : Extents{rows, depth}}));
  instance.in(
      factors(dice, {type, turnsRight ? Extents{columns, depth} : Extents{depth, columns}}));
  if (!dice.oneIn(3))
    instance.in(factors(
        dice, {type, dice.anyOf({Extents{}, Extents{1}, Extents{columns}, Extents{1, columns},
                                 Extents{rows, 1}, Extents{rows, columns}})}));
  if (turnsLeft || dice.oneIn(3))
    instance.attr("transA", int64_t{turnsLeft});
  if (turnsRight || dice.oneIn(3))
    instance.attr("transB", int64_t{turnsRight});
  for (const char* factor : {"alpha", "beta"})
    if (dice.oneIn(3))
      instance.attr(factor, dice.anyOf({0.5f, 2.0f, 0.0f, -1.0f}));
  return instance;
}

Instance einsum(const char* name, Dice& dice) {
  Instance instance(name, 12);
  const ElementType type = productType(dice);
  std::map<char, int64_t> extents;
  for (char letter : {'a', 'b', 'c', 'd'})
    extents[letter] = dice.extent();
  static const std::vector<std::string> equations = {
      "ab,bc->ac",    "abc,acd->abd", "abcd,abdc->abc",
      "ab,cb->ac",    "abc,cd->abd",  "a,b->ab",
      "ab->ba",       "ab->a",        "abc->b",
      "aa->a",        "ab,ab->",      "abc,abd->cd",
      "ab,bc",        "ba",           "abc,bd->dac",
      "ab, bc -> ca", "ab,b,c->ac",   "...ab,...bc->...ac",
      "a...->...a",   "ab,a->b",      "abc,ab->abc",
      "ab,cd->abcd",  "aab->b",       "ab,ab->ab",
      "...a->...",
  };
  const std::string& equation = dice.anyOf(equations);
  const Extents batches = dice.extents(0, 2);
  std::string operands = equation.substr(0, equation.find("->"));
  for (size_t start = 0; start <= operands.size();) {
    const size_t end = std::min(operands.find(',', start), operands.size());
    Extents own;
    for (size_t i = start; i < end; ++i)
      if (operands[i] == '.') {
        own.insert(own.end(), batches.begin(), batches.end());
        i += 2;
      } else if (operands[i] != ' ') {
        own.push_back(extents[operands[i]]);
      }
    instance.in(factors(dice, {type, std::move(own)}));
    start = end + 1;
  }
  return instance.attr("equation", equation.c_str());
}

constexpr Operator operators[] = {{"MatMul", matMul}, {"Gemm", gemm}, {"Einsum", einsum}};

} // namespace

llvm::ArrayRef<Operator> productOperators() { return operators; }

} // namespace kvopt::differential
