// Joins products of the probabilities of several sets of keys with their values, which are summed,
// into one product with all values.
//
//   before   o = Add(MatMul(Slice<-1>(p, 0, n), past), MatMul(Slice<-1>(p, n), v))
//   after    o = MatMul(p, Concat<-2>(past, v))
//
// Any number of parts of p, in any order, may come from a Slice or a Split; together they are p. A
// part of one column may be multiplied by its row elementwise instead. If the scores of the parts
// are joined in the same order, and those of a cache do not come first, they are joined again with
// those of the cache first: p is then the softmax of the same scores in another order.
#include "ir/movement.h"
#include "passes/analysis/movement/data_movement.h"
#include "passes/analysis/movement/uniform_value.h"
#include "passes/analysis/scores/probability_columns.h"
#include "passes/builders/attention_builder.h"
#include "passes/pattern/rule.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rules {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

/// Columns [start, end) of the probabilities, and the values that they are multiplied by.
struct PartialProduct {
  Value* values = nullptr;
  ColumnRange columns;

  Dim width() const { return columns.end - columns.start; }
};

/// A sum of partial products that covers the probabilities' columns in order.
struct PartialSum {
  Value* probabilities = nullptr;
  std::vector<PartialProduct> parts;
};

/// Whether an elementwise product is an outer product of one column and one row.
bool isOuterProduct(const Value& column, const Value& row) {
  const TensorType& left = column.type();
  const TensorType& right = row.type();
  return left.hasRank() && right.hasRank() && left.rank() == right.rank() && left.rank() > 1 &&
         left.dim(-1).value() == 1 && right.dim(-2).value() == 1;
}

/// One term of a sum, with the probabilities whose columns it uses.
std::optional<std::pair<Value*, PartialProduct>> partialProduct(Value& term) {
  Node* node = term.producer();
  if (!node || !(node->is("MatMul") || node->is("Mul")))
    return std::nullopt;
  for (unsigned operand : {0U, 1U}) {
    if (node->is("MatMul") && operand == 1)
      break;
    Value& columns = *node->operand(operand);
    Value& values = *node->operand(1 - operand);
    auto range = columnRange(columns);
    if (!range || !values.type().hasRank() || values.type().rank() != columns.type().rank() ||
        (node->is("Mul") && !isOuterProduct(columns, values)))
      continue;
    return std::pair(movedOperand(*columns.producer()), PartialProduct{&values, std::move(*range)});
  }
  return std::nullopt;
}

/// Collects the terms of nested sums.
void addTerms(Value& sum, llvm::SmallVectorImpl<Value*>& terms) {
  constexpr size_t mostTerms = 64;
  Node* node = sum.producer();
  const bool isSum = node && (node->is("Add") || node->is("Sum")) && terms.size() < mostTerms;
  if (!isSum)
    return terms.push_back(&sum);
  for (const Use& use : node->operands())
    addTerms(*use.value(), terms);
}

/// Sorts parts by their columns; false unless every column occurs exactly once.
bool sortByColumns(std::vector<PartialProduct>& parts, const Dim& extent) {
  Dim place = Dim::fixed(0);
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto next = std::find_if(
        parts.begin() + static_cast<std::ptrdiff_t>(i), parts.end(),
        [&](const PartialProduct& part) { return part.columns.start.isKnownEqual(place); });
    if (next == parts.end())
      return false;
    std::iter_swap(parts.begin() + static_cast<std::ptrdiff_t>(i), next);
    place = parts[i].columns.end;
  }
  return place.isKnownEqual(extent);
}

/// Whether values can be joined along their rows, each set for the columns of its part.
bool areOfOneForm(llvm::ArrayRef<PartialProduct> parts) {
  const TensorType& first = parts.front().values->type();
  const auto rank = static_cast<int64_t>(first.rank());
  return rank >= 2 && llvm::all_of(parts, [&](const PartialProduct& part) {
           const TensorType& type = part.values->type();
           for (int64_t axis = 1; axis <= rank; ++axis)
             if (!type.dim(-axis).isKnownEqual(axis == 2 ? part.width() : first.dim(-axis)))
               return false;
           return true;
         });
}

std::optional<PartialSum> partialSum(Value& sum) {
  llvm::SmallVector<Value*, 4> terms;
  addTerms(sum, terms);
  PartialSum found;
  for (Value* term : terms) {
    auto part = partialProduct(*term);
    if (!part || (found.probabilities && found.probabilities != part->first))
      return std::nullopt;
    found.probabilities = part->first;
    found.parts.push_back(std::move(part->second));
  }
  if (found.parts.size() < 2 || !sortByColumns(found.parts, found.probabilities->type().dim(-1)) ||
      !areOfOneForm(found.parts))
    return std::nullopt;
  return found;
}

/// The operand with the scores of an operator between joined scores and probabilities; null if
/// another operand differs between keys.
Value* scoresBefore(const Node& node) {
  if (node.is("Softmax"))
    return node.intAttr("axis", -1) == -1 ? node.operand(0) : nullptr;
  if (!node.is("Mul") && !node.is("Div"))
    return nullptr;
  for (unsigned operand : {1U, 0U})
    if (uniformValue(*node.operand(operand)) && !(node.is("Div") && operand == 0))
      return node.operand(1 - operand);
  return nullptr;
}

/// Operators from joined scores to their probabilities.
struct JoinedScores {
  Node* join = nullptr;
  llvm::SmallVector<Node*, 4> after; ///< from the probabilities back to the join
};

std::optional<JoinedScores> joinedScores(const PartialSum& sum) {
  constexpr size_t mostAfter = 8;
  JoinedScores scores;
  Value* value = sum.probabilities;
  while (Node* node = value->producer()) {
    if (movementKind(*node) == MovementKind::Concat) {
      scores.join = node;
      break;
    }
    value = scores.after.size() < mostAfter ? scoresBefore(*node) : nullptr;
    if (!value)
      return std::nullopt;
    scores.after.push_back(node);
  }
  const auto along = scores.join ? movementOf(scores.join->result())->axis() : std::nullopt;
  if (!along || *along + 1 != value->type().rank() ||
      scores.join->operands().size() != sum.parts.size())
    return std::nullopt;
  for (size_t i = 0; i < sum.parts.size(); ++i)
    if (!scores.join->operand(static_cast<unsigned>(i))
             ->type()
             .dim(-1)
             .isKnownEqual(sum.parts[i].width()))
      return std::nullopt;
  return scores;
}

/// The order of the parts with those of caches first.
llvm::SmallVector<size_t, 4> cachedFirst(const PartialSum& sum) {
  llvm::SmallVector<size_t, 4> order;
  for (size_t i = 0; i < sum.parts.size(); ++i)
    order.push_back(i);
  llvm::stable_sort(order, [&](size_t a, size_t b) {
    return isMovedFromInput(*sum.parts[a].values) && !isMovedFromInput(*sum.parts[b].values);
  });
  return order;
}

class JoinPartialProducts final : public Rule {
  Payload<PartialSum> sum;

public:
  llvm::StringRef name() const override { return "join-partial-products"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    P term = oneOf("term", {{"MatMul", escaping(op("MatMul", {any(), any()}))},
                            {"Mul", escaping(op("Mul", {any(), any()}))}});
    return oneOf("sum", {{"Add", commutative("Add", {term, any()})},
                         {"Sum of two", op("Sum", {term, any()})},
                         {"Sum of three", op("Sum", {term, any(), any()})}});
  }

  void constraints(Constraints& c) const override {
    c.plan(sum, "products with parts of the same probabilities, which are all of them",
           [](const Match& match) { return partialSum(match.root().result()); });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    AttentionBuilder build(rewriter);
    const PartialSum& found = match[sum];
    Value* probabilities = found.probabilities;
    llvm::SmallVector<size_t, 4> order = cachedFirst(found);
    if (!llvm::is_sorted(order)) {
      if (const auto scores = joinedScores(found))
        probabilities = &reordered(*scores, order, rewriter);
      else
        llvm::sort(order);
    }
    llvm::SmallVector<BuilderOperand, 4> values;
    for (size_t part : order)
      values.emplace_back(*found.parts[part].values);
    const auto rows = static_cast<int64_t>(values.front().value->type().rank()) - 2;
    Value* joined = values.size() == 2 ? &build.concat(*values[0].value, *values[1].value, rows)
                                       : &build.node("Concat", values, attrs({{"axis", rows}}));
    Value& product = build.node("MatMul", {*probabilities, *joined}, {}, "context");
    return rewriter.replace(match.root().result(), product);
  }

private:
  static Value& reordered(const JoinedScores& scores, llvm::ArrayRef<size_t> order,
                          Rewriter& rewriter) {
    llvm::SmallVector<Value*, 4> parts;
    for (size_t part : order)
      parts.push_back(scores.join->operand(static_cast<unsigned>(part)));
    Value* value = &rewriter.createLike(*scores.join, parts, "scores").result();
    for (Node* node : llvm::reverse(scores.after)) {
      const Value* before = scoresBefore(*node);
      llvm::SmallVector<Value*, 2> operands;
      for (const Use& use : node->operands())
        operands.push_back(use.value() == before ? value : use.value());
      value = &rewriter.createLike(*node, operands).result();
    }
    return *value;
  }
};

} // namespace

void register_join_partial_products(RuleRegistry& registry) {
  registry.add(std::make_unique<JoinPartialProducts>());
}

} // namespace kvopt::rules
