// Binding of symbolic extents to the extents of concrete inputs.
#include "runtime/input_binding.h"

#include "ir/diagnostic.h"

#include <fmt/ranges.h>

namespace kvopt {

namespace {

struct BoundSymbol {
  int64_t value = 0;
  std::string input;
};

llvm::Error checkView(const Value& input, const TensorView& view) {
  const TensorType& type = input.type();
  if (type.elementType() != ElementType::Undefined && view.element != type.elementType())
    return invalid("input '{}' is {}, but the graph declares {}", input.name(),
                   onnxName(view.element), onnxName(type.elementType()));
  if (!byteWidth(view.element))
    return unsupported("input '{}' has element type {}, which has no form in memory", input.name(),
                       onnxName(view.element));
  if (view.strides.size() != view.shape.size())
    return invalid("input '{}' has {} extents and {} strides", input.name(), view.shape.size(),
                   view.strides.size());
  if (llvm::Expected<int64_t> count = checkedElementCount(view.shape); !count)
    return withNode(count.takeError(), input.name());
  if (!view.data && view.elementCount() != 0)
    return invalid("input '{}' has no data", input.name());
  if (type.hasRank() && type.rank() != view.rank())
    return invalid("input '{}' has shape {}, but the graph declares {}", input.name(),
                   extentsText(view.shape), type.str());
  return llvm::Error::success();
}

} // namespace

std::string extentsText(llvm::ArrayRef<int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

llvm::Expected<SymbolValues> bindInputs(const Graph& graph,
                                        llvm::ArrayRef<const TensorView*> views) {
  assert(views.size() == graph.inputs().size());
  llvm::StringMap<BoundSymbol> bound;
  for (size_t i = 0; i < views.size(); ++i) {
    const Value& input = *graph.inputs()[i];
    if (!views[i])
      continue;
    if (llvm::Error error = checkView(input, *views[i]))
      return error;
    if (!input.type().hasRank())
      continue;
    for (unsigned axis = 0; axis < views[i]->rank(); ++axis) {
      const Dim& declared = input.type().shape()[axis];
      int64_t extent = views[i]->shape[axis];
      if (std::optional<int64_t> fixed = declared.value(); fixed && *fixed != extent)
        return invalid("input '{}' has {} elements along axis {}, but the graph declares {}",
                       input.name(), extent, axis, *fixed);
      llvm::SmallVector<std::string> symbols = declared.symbols();
      if (symbols.size() != 1 || !(declared == Dim::symbol(symbols.front())))
        continue;
      auto [entry, isNew] = bound.try_emplace(symbols.front());
      if (isNew)
        entry->second = {extent, input.name().str()};
      else if (entry->second.value != extent)
        return invalid("input '{}' makes '{}' {} (axis {}), but input '{}' makes it {}",
                       input.name(), symbols.front(), extent, axis, entry->second.input,
                       entry->second.value);
    }
  }
  SymbolValues values;
  for (const auto& entry : bound)
    values[entry.getKey()] = entry.getValue().value;
  for (size_t i = 0; i < views.size(); ++i) {
    const Value& input = *graph.inputs()[i];
    if (!views[i] || !input.type().hasRank())
      continue;
    for (unsigned axis = 0; axis < views[i]->rank(); ++axis) {
      const Dim& declared = input.type().shape()[axis];
      std::optional<int64_t> expected =
          declared.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
            auto found = values.find(symbol);
            if (found == values.end())
              return std::nullopt;
            return found->second;
          });
      if (expected && *expected != views[i]->shape[axis])
        return invalid("input '{}' has {} elements along axis {}, but {} is {}", input.name(),
                       views[i]->shape[axis], axis, declared.str(), *expected);
    }
  }
  return values;
}

} // namespace kvopt
