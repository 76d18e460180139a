// Comparisons, boolean operators and selection, including proofs about symbolic extents.
#include "ir/elementwise_definition.h"
#include "ir/ops/dim_combination.h"
#include "ir/shapes/shape_rules.h"

namespace kvopt::ir {
namespace {

Dim truth(bool value) { return Dim::fixed(value ? 1 : 0); }
bool isFalse(const Dim& a) { return a.value() == int64_t{0}; }
bool isTrue(const Dim& a) { return a.value() && *a.value() != 0; }
Dim decided(bool yes, bool no) { return yes ? truth(true) : no ? truth(false) : Dim::unknown(); }

Dim equal(const Dim& a, const Dim& b) { return decided(a.isKnownEqual(b), a.isKnownDifferent(b)); }
Dim less(const Dim& a, const Dim& b) { return decided(a.isKnownLess(b), b.isKnownLessEqual(a)); }
Dim lessOrEqual(const Dim& a, const Dim& b) {
  return decided(a.isKnownLessEqual(b), b.isKnownLess(a));
}
Dim greater(const Dim& a, const Dim& b) { return less(b, a); }
Dim greaterOrEqual(const Dim& a, const Dim& b) { return lessOrEqual(b, a); }
Dim both(const Dim& a, const Dim& b) {
  return decided(isTrue(a) && isTrue(b), isFalse(a) || isFalse(b));
}
Dim either(const Dim& a, const Dim& b) {
  return decided(isTrue(a) || isTrue(b), isFalse(a) && isFalse(b));
}
Dim exactlyOne(const Dim& a, const Dim& b) {
  bool known = a.value() && b.value();
  return decided(known && isTrue(a) != isTrue(b), known && isTrue(a) == isTrue(b));
}

const Dim& elementAt(const Integers& list, size_t index) {
  return list[list.size() == 1 ? 0 : index];
}

// Common length of lists under broadcasting; nullopt if they do not match.
std::optional<size_t> commonLength(llvm::ArrayRef<const Integers*> lists) {
  size_t length = 1;
  for (const Integers* list : lists) {
    if (list->size() == 1)
      continue;
    if (length != 1 && length != list->size())
      return std::nullopt;
    length = list->size();
  }
  return length;
}

template <Combine operation> llvm::Error inferPredicate(ShapeContext& context) {
  llvm::Expected<std::optional<Shape>> shape = broadcastOperands(context, 0, 2);
  if (!shape)
    return shape.takeError();
  context.setResult(0, typeOf(ElementType::Bool, std::move(*shape)));
  std::optional<Integers> a = context.integers(0);
  std::optional<Integers> b = context.integers(1);
  if (!a || !b)
    return llvm::Error::success();
  std::optional<size_t> length = commonLength({&*a, &*b});
  if (!length)
    return llvm::Error::success();
  Integers elements;
  for (size_t i = 0; i < *length; ++i)
    elements.push_back(operation(elementAt(*a, i), elementAt(*b, i)));
  context.setIntegers(0, std::move(elements));
  return llvm::Error::success();
}

llvm::Error inferNot(ShapeContext& context) {
  TensorType type = context.type(0);
  type.setElementType(ElementType::Bool);
  context.setResult(0, std::move(type));
  std::optional<Integers> elements = context.integers(0);
  if (elements)
    for (Dim& element : *elements)
      element = decided(isFalse(element), isTrue(element));
  context.setIntegers(0, std::move(elements));
  return llvm::Error::success();
}

llvm::Error inferIsNumber(ShapeContext& context) {
  TensorType type = context.type(0);
  type.setElementType(ElementType::Bool);
  context.setResult(0, std::move(type));
  return llvm::Error::success();
}

Dim selected(const Dim& condition, const Dim& yes, const Dim& no) {
  if (isTrue(condition))
    return yes;
  return isFalse(condition) || yes.isKnownEqual(no) ? no : Dim::unknown();
}

llvm::Error inferWhere(ShapeContext& context) {
  llvm::Expected<std::optional<Shape>> shape = broadcastOperands(context, 0, 3);
  if (!shape)
    return shape.takeError();
  ElementType element = context.element(1);
  if (element == ElementType::Undefined)
    element = context.element(2);
  context.setResult(0, typeOf(element, std::move(*shape)));
  std::optional<Integers> condition = context.integers(0);
  std::optional<Integers> yes = context.integers(1);
  std::optional<Integers> no = context.integers(2);
  if (!yes || !no)
    return llvm::Error::success();
  if (!condition) // the length may still be known
    if (std::optional<int64_t> count = context.type(0).elementCount().value();
        count && *count >= 0 && *count <= maxTrackedIntegers)
      condition = Integers(static_cast<size_t>(*count), Dim::unknown());
  if (!condition)
    return llvm::Error::success();
  std::optional<size_t> length = commonLength({&*condition, &*yes, &*no});
  if (!length)
    return llvm::Error::success();
  Integers elements;
  for (size_t i = 0; i < *length; ++i)
    elements.push_back(selected(elementAt(*condition, i), elementAt(*yes, i), elementAt(*no, i)));
  context.setIntegers(0, std::move(elements));
  return llvm::Error::success();
}

} // namespace

void register_logic(OpRegistry& registry) {
  using enum ElementFunction;
  const auto compare = [&](const char* name, int64_t since, ShapeRule rule) {
    defineElementwise(registry, name, since, {"A", "B"}, "C", Comparison, rule);
  };
  compare("Equal", 7, inferPredicate<equal>);
  compare("Less", 7, inferPredicate<less>);
  compare("LessOrEqual", 12, inferPredicate<lessOrEqual>);
  compare("Greater", 7, inferPredicate<greater>);
  compare("GreaterOrEqual", 12, inferPredicate<greaterOrEqual>);
  defineElementwise(registry, "And", 7, {"A", "B"}, "C", Logic, inferPredicate<both>);
  defineElementwise(registry, "Or", 7, {"A", "B"}, "C", Logic, inferPredicate<either>);
  defineElementwise(registry, "Xor", 7, {"A", "B"}, "C", Logic, inferPredicate<exactlyOne>);
  defineElementwise(registry, "Not", 1, {"X"}, "Y", Logic, inferNot);
  for (const char* name : {"BitwiseAnd", "BitwiseOr", "BitwiseXor"})
    defineElementwise(registry, name, 18, {"A", "B"}, "C", Bits, inferBroadcast);
  defineElementwise(registry, "BitwiseNot", 18, {"X"}, "Y", Bits, inferSameAsFirst);
  defineElementwise(registry, "BitShift", 11, {"X", "Y"}, "Z", Bits, inferBroadcast)
      .requiredAttr("direction", AttributeKind::String);
  defineElementwise(registry, "IsNaN", 9, {"X"}, "Y", Test, inferIsNumber);
  defineElementwise(registry, "IsInf", 10, {"X"}, "Y", Test, inferIsNumber)
      .attr("detect_negative", int64_t{1})
      .attr("detect_positive", int64_t{1});
  defineElementwise(registry, "Where", 9, {"condition", "X", "Y"}, "output", Choice, inferWhere);
}

} // namespace kvopt::ir
