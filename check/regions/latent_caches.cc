// From latent rows to keys and values.
#include "check/regions/latent_caches.h"

#include "check/regions/forms.h"
#include "ir/ops/kvopt/cache_operator.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {
namespace {

/// The new rows that a model appends to a cache; null if it is not known how it does.
const ir::Value* newRowsOf(const ir::Graph& graph, const ir::ManifestCache& cache) {
  const ir::Value* present = graph.findValue(cache.present);
  const ir::Node* node = present ? present->producer() : nullptr;
  if (!node)
    return nullptr;
  if (node->op().isOnnx() && node->is("Concat") && node->operands().size() == 2)
    return node->operand(0) && node->operand(0)->name() == cache.past ? node->operand(1) : nullptr;
  const auto op = ir::CacheOperator::of(*node);
  return op && op->isLatent() && !op->hasCodes() && !op->isInBlocks() &&
                 present->resultIndex() == op->present(0)
             ? node->operand(op->fresh(0))
             : nullptr;
}

/// The declared shape of a value of floating-point numbers without them; null if it is unknown.
Ref declaredShape(const Feeding& feeding, const ir::Value& value, const Step& step) {
  if (!value.type().hasRank() || !ir::isFloatingPoint(value.type().elementType()))
    return nullptr;
  Extents shape;
  for (const ir::Dim& dim : value.type().shape())
    shape.push_back(feeding.extentOf(dim, step).value_or(-1));
  return elementCount(shape) < 0 ? nullptr : hollowTensor(shape, false, value.type().elementType());
}

} // namespace

bool LatentCaches::fail(const std::string& why) {
  reason = "the cache '" + cache + "': " + why;
  return false;
}

/// Values of the first model that rows are moved from; false if there are others.
bool LatentCaches::collect(const ir::Value& rows, const IsOfBefore& isOfBefore,
                           llvm::SmallVectorImpl<const ir::Value*>& sources) {
  llvm::SmallVector<const ir::Value*, 8> pending{&rows};
  while (!pending.empty()) {
    const ir::Value* value = pending.pop_back_val();
    if (llvm::is_contained(sources, value))
      continue;
    if (isOfBefore(after.of(*value))) {
      sources.push_back(value);
      continue;
    }
    const ir::Node* node = value->producer();
    const meaning::NodeFacts facts = node ? operators.of(*node) : meaning::NodeFacts();
    if (!facts.onlyMoves())
      return false;
    for (unsigned i = 0; i < node->operands().size(); ++i)
      if (node->operand(i) && facts.makesOf(i))
        pending.push_back(node->operand(i));
  }
  return true;
}

/// A value of the second model without its numbers: as it is declared, or else computed.
Ref LatentCaches::shapeOf(const ir::Value& value, const Step& step) {
  if (const Ref declared = declaredShape(feeding, value, step))
    return declared;
  Evaluation::Hooks hooks;
  hooks.given = [](const ir::Value& constant) -> Ref {
    const auto data = constant.constantRef();
    return data && isWeightData(*data)
               ? hollowTensor(Extents(data->shape().begin(), data->shape().end()), false)
               : nullptr;
  };
  hooks.input = [&](const ir::Value& input) {
    return hollowed(feeding.afterInput(input, step, math));
  };
  return Evaluation(feeding.after().model, rules, math, hooks).evaluate(value);
}

std::optional<LatentCaches::Columns> LatentCaches::columnsOf(const ir::Value& rows,
                                                             const Ref& latent, const Step& step,
                                                             const IsOfBefore& isOfBefore) {
  llvm::SmallVector<const ir::Value*, 4> sources;
  if (!collect(rows, isOfBefore, sources)) {
    fail("the first model does not have the values that make up its rows");
    return std::nullopt;
  }
  // Each element of a source is its number.
  llvm::DenseMap<const ir::Value*, Ref> numbered;
  int64_t count = 0;
  for (const ir::Value* source : sources) {
    const Ref shape = shapeOf(*source, step);
    if (!shape) {
      fail("the shape of '" + source->name().str() + "' is unknown");
      return std::nullopt;
    }
    std::vector<int64_t> numbers(static_cast<size_t>(shape->count()));
    for (int64_t& number : numbers)
      number = count++;
    numbered[source] = integerTensor(shape->shape, std::move(numbers));
  }
  Evaluation::Hooks hooks;
  hooks.given = [&](const ir::Value& value) { return numbered.lookup(&value); };
  hooks.input = [&](const ir::Value& input) {
    return hollowed(feeding.afterInput(input, step, math));
  };
  Evaluation evaluation(feeding.after().model, rules, math, hooks);
  const Ref moved = evaluation.evaluate(rows);
  if (!moved || !moved->isInteger() || moved->shape != latent->shape) {
    fail("the places of its columns are unknown");
    return std::nullopt;
  }
  std::vector<int64_t> places(static_cast<size_t>(count), -1);
  for (size_t i = 0; i < moved->integers.size(); ++i)
    if (const int64_t number = moved->integers[i]; number >= 0 && number < count)
      places[static_cast<size_t>(number)] = static_cast<int64_t>(i);
  if (llvm::is_contained(places, -1)) {
    fail("its rows leave out a part of the values that make them up");
    return std::nullopt;
  }
  Columns columns;
  for (const ir::Value* source : sources) {
    const Ref own = numbered.lookup(source);
    size_t next = 0;
    columns.push_back(
        {after.of(*source), rearranged(latent, own->shape, [&](llvm::ArrayRef<int64_t>) {
           return places[static_cast<size_t>(own->integers[next++])];
         })});
  }
  return columns;
}

const llvm::DenseSet<const ir::Value*>& LatentCaches::dependents(const CachePair& pair,
                                                                 const Columns& columns) {
  Dependents& found = known[&pair];
  std::vector<ValueClass> classes;
  for (const auto& column : columns)
    classes.push_back(column.first);
  if (found.ofClasses == classes)
    return found.values;
  found = {classes, {}};
  for (const ir::Node& node : feeding.before().model.graph().nodes()) {
    const bool depends = llvm::any_of(node.operands(), [&](const ir::Use& use) {
      return use.value() && (found.values.count(use.value()) ||
                             llvm::is_contained(classes, before.of(*use.value())));
    });
    for (const ir::Value& result : node.results())
      if (depends)
        found.values.insert(&result);
  }
  return found.values;
}

Ref LatentCaches::rowsOf(const CachePair& pair, const Ref& latent, const Step& step,
                         const ConstantOf& constant, const IsOfBefore& isOfBefore) {
  cache = pair.after->past;
  const ir::Value* ofBefore = newRowsOf(feeding.before().model.graph(), *pair.before);
  const ir::Value* ofAfter = newRowsOf(feeding.after().model.graph(), *pair.after);
  constexpr unsigned sequence = 2;
  if (!ofBefore || !ofAfter || latent->rank() != 4 || pair.after->sequenceAxis != sequence) {
    fail("it is not known how new rows are appended to it");
    return nullptr;
  }
  const NotesApart notes(math);
  // All rows are new ones in a step from empty caches.
  const Step whole{step.batch, 0, latent->shape[sequence]};
  const auto columns = columnsOf(*ofAfter, latent, whole, isOfBefore);
  if (!columns)
    return nullptr;
  const auto& depending = dependents(pair, *columns);
  Evaluation::Hooks hooks;
  hooks.given = [&](const ir::Value& value) -> Ref {
    if (value.constantRef())
      return constant(value);
    const ValueClass own = before.of(value);
    const auto found =
        llvm::find_if(*columns, [&](const auto& column) { return column.first == own; });
    if (found != columns->end())
      return found->second;
    // Other values may only give shapes.
    return value.producer() && !depending.count(&value) ? declaredShape(feeding, value, whole)
                                                        : nullptr;
  };
  hooks.input = [&](const ir::Value& input) -> Ref {
    const Ref contents = feeding.beforeInput(input, whole, math);
    return contents ? hollowTensor(contents->shape, false, contents->type, contents->extentGrowths)
                    : nullptr;
  };
  Evaluation evaluation(feeding.before().model, rules, math, hooks);
  const Ref rows = evaluation.evaluate(*ofBefore);
  if (!rows || rows->isHollow || !rows->isReal()) {
    fail("the first model's rows depend on more than latent rows" +
         (evaluation.failure().empty() ? "" : ": " + evaluation.failure()));
    return nullptr;
  }
  return rows;
}

} // namespace kvopt::check
