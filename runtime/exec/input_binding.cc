// Binding of symbolic extents to the extents of concrete inputs.
#include "runtime/exec/input_binding.h"

#include "support/diagnostic.h"

#include "llvm/ADT/StringMap.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

llvm::Error checkView(const Value& input, const TensorView& view) {
  const TensorType& type = input.type();
  if (type.elementType() != ElementType::Undefined && view.element != type.elementType())
    return invalid("input '{}' is {}, but the graph declares {}", input.name(),
                   onnxName(view.element), onnxName(type.elementType()));
  if (!memoryWidth(view.element))
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
  return formatted("[{}]", joinedText(shape, ", "));
}

std::optional<int64_t> SymbolValues::find(llvm::StringRef name) const {
  // A graph has only a few symbols.
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name)
      return values[i];
  return std::nullopt;
}

std::optional<int64_t> SymbolValues::evaluate(const Dim& dim) const {
  return dim.evaluate([this](llvm::StringRef name) { return find(name); });
}

InputBinding::InputBinding(const Graph& declared) : graph(declared) {
  llvm::StringMap<unsigned> indices;
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    std::vector<Axis>& declaredAxes = axes.emplace_back();
    if (!input->type().hasRank())
      continue;
    for (const Dim& dim : input->type().shape()) {
      Axis& axis = declaredAxes.emplace_back();
      axis.fixed = dim.value();
      llvm::SmallVector<std::string> symbols = dim.symbols();
      if (symbols.size() != 1 || !(dim == Dim::symbol(symbols.front())))
        continue;
      auto [entry, isNew] =
          indices.try_emplace(symbols.front(), static_cast<unsigned>(bound.names.size()));
      if (isNew)
        bound.names.push_back(symbols.front());
      axis.symbol = entry->second;
    }
  }
  bound.values.resize(bound.names.size());
  fresh.resize(bound.names.size());
  binders.resize(bound.names.size());
}

llvm::Error InputBinding::bindSymbol(unsigned symbol, size_t input, unsigned axis, int64_t extent) {
  if (!fresh[symbol]) {
    fresh[symbol] = extent;
    binders[symbol] = input;
  } else if (*fresh[symbol] != extent) {
    return invalid("input '{}' makes '{}' {} (axis {}), but input '{}' makes it {}",
                   graph.inputs()[input]->name(), bound.names[symbol], extent, axis,
                   graph.inputs()[binders[symbol]]->name(), *fresh[symbol]);
  }
  return llvm::Error::success();
}

llvm::Error InputBinding::bind(llvm::ArrayRef<const TensorView*> views) {
  assert(views.size() == graph.inputs().size());
  fresh.assign(fresh.size(), std::nullopt);
  for (size_t i = 0; i < views.size(); ++i) {
    const Value& input = *graph.inputs()[i];
    if (!views[i])
      continue;
    if (llvm::Error error = checkView(input, *views[i]))
      return error;
    for (unsigned axis = 0; axis < axes[i].size(); ++axis) {
      int64_t extent = views[i]->shape[axis];
      if (axes[i][axis].fixed && *axes[i][axis].fixed != extent)
        return invalid("input '{}' has {} elements along axis {}, but the graph declares {}",
                       input.name(), extent, axis, *axes[i][axis].fixed);
      if (axes[i][axis].symbol == none)
        continue;
      if (llvm::Error error = bindSymbol(axes[i][axis].symbol, i, axis, extent))
        return error;
    }
  }
  if (fresh != bound.values) {
    bound.values = fresh;
    ++bound.changes;
  }
  for (size_t i = 0; i < views.size(); ++i) {
    for (unsigned axis = 0; views[i] && axis < axes[i].size(); ++axis) {
      if (axes[i][axis].fixed || axes[i][axis].symbol != none)
        continue;
      const Value& input = *graph.inputs()[i];
      const Dim& declared = input.type().shape()[axis];
      std::optional<int64_t> expected = bound.evaluate(declared);
      if (expected && *expected != views[i]->shape[axis])
        return invalid("input '{}' has {} elements along axis {}, but {} is {}", input.name(),
                       views[i]->shape[axis], axis, declared.str(), *expected);
    }
  }
  return llvm::Error::success();
}

} // namespace kvopt::runtime
