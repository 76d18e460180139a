// Extents computed from the shapes of inputs.
#include "passes/extents/extent_symbols.h"

#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

namespace kvopt::extents {
using namespace analysis;
using namespace builders;
using namespace ir;

ExtentSymbols::ExtentSymbols(const DecoderExtents& exported, const DecoderExtents& freed,
                             llvm::ArrayRef<FreedInput> inputs, pattern::Rewriter& rewriter)
    : before(exported), after(freed), build(rewriter) {
  for (const FreedInput& input : inputs)
    for (unsigned axis = 0; axis < input.shape.size(); ++axis)
      if (!input.shape[axis].value())
        sources.push_back({input.shape[axis], input.input, axis});
}

Dim ExtentSymbols::was(const Dim& extent) const {
  return extent.substitute([&](llvm::StringRef name) -> std::optional<Dim> {
    const Dim symbol = Dim::symbol(name);
    if (symbol == after.batch)
      return before.batch;
    if (symbol == after.tokens)
      return before.tokens;
    return symbol == after.past ? std::optional(before.past) : std::nullopt;
  });
}

bool ExtentSymbols::isFreed(const Dim& extent) const {
  return !extent.isUnknown() && was(extent) != extent;
}

bool ExtentSymbols::isFreed(const Value& value) const {
  const auto any = [&](llvm::ArrayRef<Dim> extents) {
    return llvm::any_of(extents, [&](const Dim& extent) { return isFreed(extent); });
  };
  if (value.type().hasRank() && any(value.type().shape()))
    return true;
  const auto known = value.knownIntegers();
  return known && any(*known);
}

std::optional<std::pair<Dim, Dim>> ExtentSymbols::counted(const Dim& start, const Dim& end) const {
  if (before.hasPast() && start.isKnownEqual(before.past) && end.isKnownEqual(before.keys()))
    return std::pair(after.past, after.keys());
  if (start.value() != 0 || end.value() == 1)
    return std::nullopt;
  for (const auto& [count, symbol] :
       {std::pair(before.keys(), after.keys()), std::pair(before.tokens, after.tokens),
        std::pair(before.batch, after.batch)})
    if (end.isKnownEqual(count))
      return std::pair(Dim::fixed(0), symbol);
  return std::nullopt;
}

std::optional<Shape> ExtentSymbols::freedList(llvm::ArrayRef<Dim> list) const {
  const size_t rank = list.size();
  if (rank < 2 || !list[rank - 1].isKnownEqual(before.keys()) || before.keys().value() == 1)
    return std::nullopt;
  Shape shape(list.begin(), list.end());
  shape[rank - 1] = after.keys();
  if (list[rank - 2].isKnownEqual(before.tokens))
    shape[rank - 2] = after.tokens;
  if (rank > 2 && before.batch.value() != 1 && list[0].isKnownEqual(before.batch))
    shape[0] = after.batch;
  return shape;
}

void ExtentSymbols::assumeCausal(const TensorType& mask) {
  assumed.insert(
      formatted("the stored mask {} has the same form for other numbers of tokens", mask.str()));
}

Value* ExtentSymbols::value(const Dim& extent) {
  if (const auto number = extent.value())
    return &build.value(ints({*number}));
  for (const Source& source : sources)
    if (source.extent.isKnownEqual(extent))
      return &build.node(
          "Gather", {build.node("Shape", {*source.input}, {}, "input_shape"), ints({source.axis})},
          {}, "extent");
  if (after.hasPast() && extent.isKnownEqual(after.keys()))
    return combined("Add", after.past, after.tokens);
  for (const std::string& symbol : extent.symbols())
    if (const auto rest = extent.dividedBy(Dim::symbol(symbol)); rest && rest->value() != 1)
      return combined("Mul", Dim::symbol(symbol), *rest);
  return nullptr;
}

Value* ExtentSymbols::combined(const char* op, const Dim& first, const Dim& second) {
  Value* one = value(first);
  Value* other = one ? value(second) : nullptr;
  return other ? &build.node(op, {*one, *other}, {}, "extent") : nullptr;
}

Value* ExtentSymbols::scalar(const Dim& extent, ElementType type) {
  Value* list = value(extent);
  return list ? &build.castTo(build.node("Squeeze", {*list, ints({0})}, {}, "freed_count"), type)
              : nullptr;
}

Value* ExtentSymbols::list(llvm::ArrayRef<Dim> shape) {
  llvm::SmallVector<BuilderOperand, 6> entries;
  for (const Dim& extent : shape) {
    Value* entry = value(extent);
    if (!entry)
      return nullptr;
    entries.emplace_back(*entry);
  }
  return entries.size() == 1 ? entries.front().value
                             : &build.node("Concat", entries, attrs({{"axis", 0}}), "freed_shape");
}

std::string listText(llvm::ArrayRef<Dim> extents) {
  llvm::SmallVector<std::string, 6> texts;
  for (const Dim& extent : extents)
    texts.push_back(extent.str());
  return "[" + llvm::join(texts, ", ") + "]";
}

} // namespace kvopt::extents
