// Folds floating-point arithmetic on a few known numbers.
//
//   before   s = Sqrt(Cast<float>(n))     (n is a constant, or an integer tensor whose elements
//                                          shape inference knows, as Slice(Shape(q)) of a fixed
//                                          width)
//   after    s = a constant
//
// Computed by the operators' definitions and rounded to the element type, one operator at a time.
// Reshapes of the numbers are folded as well.
#include "meaning/numbers/element_access.h"
#include "meaning/numbers/node_numbers.h"
#include "passes/pattern/rule.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::rules {
using namespace ir;
using namespace pattern;

namespace {

constexpr int64_t mostElements = 16;

/// A known tensor of at most 16 numbers. Without data if it is not.
meaning::StoredArray known(const Value& value) {
  const TensorType& type = value.type();
  meaning::StoredArray unknown;
  unknown.type = type.elementType();
  if (const TensorData* tensor = value.constant(); tensor && isFloatingPoint(unknown.type)) {
    const auto numbers = floatValues(*tensor, mostElements);
    if (!numbers || numbers->empty())
      return unknown;
    meaning::StoredArray array(unknown.type, tensor->shape());
    meaning::storeReals(array.type, array.bytes.data(), 0, numbers->data(), array.count);
    return array;
  }
  const auto integers = value.knownIntegers();
  if (!integers || integers->empty() || integers->size() > mostElements || !type.hasRank() ||
      type.rank() > 1)
    return unknown;
  llvm::SmallVector<int64_t, 4> numbers;
  for (const Dim& element : *integers)
    if (const std::optional<int64_t> number = element.value())
      numbers.push_back(*number);
  if (numbers.size() < integers->size())
    return unknown;
  const auto count = static_cast<int64_t>(numbers.size());
  meaning::StoredArray array(unknown.type,
                             type.rank() == 0 ? llvm::ArrayRef<int64_t>() : llvm::ArrayRef(count));
  meaning::storeIntegers(array.type, array.bytes.data(), 0, numbers.data(), numbers.size());
  return array;
}

std::optional<TensorRef> folded(const Node& node) {
  const ElementType type = node.result().type().elementType();
  if (!isFloatingPoint(type) || meaning::widthInMemory(type) == 0)
    return std::nullopt;
  std::vector<meaning::StoredArray> operands;
  for (const Use& use : node.operands()) {
    operands.push_back(known(*use.value()));
    if (!operands.back().data && !node.is("CastLike"))
      return std::nullopt;
  }
  std::vector<const meaning::Array*> arrays;
  for (const meaning::StoredArray& operand : operands)
    arrays.push_back(&operand);
  auto result = meaning::computeResult(node, 0, arrays, mostElements);
  if (!result)
    return std::nullopt;
  TensorRef tensor = llvm::cantFail(makeTensor(type, result->extents, std::move(result->bytes)));
  const auto numbers = floatValues(*tensor, mostElements);
  if (!numbers || llvm::any_of(*numbers, [](double x) { return std::isnan(x); }))
    return std::nullopt;
  return tensor;
}

class FoldScalarArithmetic final : public Rule {
  Payload<TensorRef> result;

public:
  llvm::StringRef name() const override { return "fold-scalar-arithmetic"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    std::vector<Alternative> alternatives;
    for (const char* name : {"Cast", "Sqrt", "Reciprocal", "Neg"})
      alternatives.push_back({name, op(name, {any()})});
    for (const char* name :
         {"Add", "Sub", "Mul", "Div", "Pow", "CastLike", "Reshape", "Unsqueeze", "Squeeze"})
      alternatives.push_back({name, op(name, {any(), any()})});
    return oneOf("operator", std::move(alternatives));
  }

  void constraints(Constraints& c) const override {
    c.plan(result, "operands of at most 16 known numbers",
           [](const Match& match) { return folded(match.root()); });
    c.require("a result inside of the graph",
              [](const Match& match) { return !match.root().result().isGraphOutput(); });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Value& after = rewriter.constant("folded", match[result]);
    return rewriter.replace(match.root().result(), after);
  }
};

} // namespace

void register_fold_scalar_arithmetic(RuleRegistry& registry) {
  registry.add(std::make_unique<FoldScalarArithmetic>());
}

} // namespace kvopt::rules
