// Finds tables of keys, and rewrites them as comparisons and grids of indices.
#include "passes/extents/freed_tables.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "passes/analysis/mask/constant_table.h"
#include "passes/analysis/movement/uniform_value.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::extents {
using namespace analysis;
using namespace builders;
using namespace ir;

namespace {

/// The keys that a token sees according to a table: those with a difference of key and token below
/// `end`, and from `begin` on if earlier keys are hidden.
struct SeenKeys {
  std::optional<int64_t> begin;
  int64_t end = 0;
  double shown = 1;
  double hidden = 0;
};

std::optional<SeenKeys> seenKeys(const ConstantTable& table, unsigned rank) {
  if (table.form != ConstantTable::Form::Banded || table.rowAxis + 2 != rank ||
      table.columnAxis + 1 != rank)
    return std::nullopt;
  SeenKeys seen;
  if (table.bands.size() == 2) {
    seen.end = table.bands[1].first;
    seen.shown = table.bands[0].value;
    seen.hidden = table.bands[1].value;
    return seen;
  }
  if (table.bands.size() != 3 || table.bands[0].value != table.bands[2].value)
    return std::nullopt;
  seen.begin = table.bands[1].first;
  seen.end = table.bands[2].first;
  seen.shown = table.bands[1].value;
  seen.hidden = table.bands[2].value;
  return seen;
}

bool isMaskReader(const Use& use) {
  return elementFunction(use.user()) || isMoved(use) ||
         (use.operandIndex() == 3 && use.user().op().type() == "Attention");
}

} // namespace

const Value* pickedInput(const Use& use) {
  const Node& reader = use.user();
  if ((!reader.is("Gather") && !reader.is("GatherND")) || use.operandIndex() != 1)
    return nullptr;
  const Value* data = reader.operand(0);
  while (data->producer() && !data->constant() && movementKind(*data->producer()) &&
         (keepsOrder(*movementKind(*data->producer())) ||
          movementKind(*data->producer()) == MovementKind::Convert))
    data = movedOperand(*data->producer());
  return data->isGraphInput() ? data : nullptr;
}

void FreedTables::free(Value& constant) {
  const TensorType& type = constant.type();
  const auto keys = symbols.exported().keys().value();
  if (!keys || *keys < 2 || !symbols.exported().hasPast() || !type.hasRank() || type.rank() < 2)
    return;
  if (!freeSeenKeys(constant) && !freeListedPlaces(constant))
    freePlaces(constant);
}

/// Frees tables [..., S, keys] whose row i sees the keys up to i + P. Such a table cannot contain a
/// window that is wider than itself.
bool FreedTables::freeSeenKeys(Value& constant) {
  const TensorType& type = constant.type();
  const auto rank = type.rank();
  if (!type.dim(rank - 1).isKnownEqual(symbols.exported().keys()) ||
      !type.dim(rank - 2).isKnownEqual(symbols.exported().tokens) ||
      !llvm::all_of(type.shape().drop_back(2),
                    [](const Dim& extent) { return extent.value() == 1; }))
    return false;
  const auto past = symbols.exported().past.value();
  const auto table = recognizeTable(*constant.constant());
  auto seen = table ? seenKeys(*table, static_cast<unsigned>(rank)) : std::nullopt;
  if (past && showsAllKeys(constant) && isOnlyMask(constant))
    seen = SeenKeys{std::nullopt, *past + 1};
  if (!seen || !past || seen->end != *past + 1)
    return false;
  Value* keys = rowOfKeys();
  Value* tokens = columnOfTokens();
  if (!keys || !tokens)
    return false;
  AttentionBuilder& build = symbols.builder();
  Value* shown = &build.node("LessOrEqual", {*keys, *tokens}, {}, "freed_mask");
  if (seen->begin) {
    Value& first = build.node("Add", {*tokens, ints({*seen->begin - *past})}, {}, "freed_first");
    shown =
        &build.node("And", {*shown, build.node("LessOrEqual", {first, *keys})}, {}, "freed_mask");
  }
  const ElementType element = type.elementType();
  if (element == ElementType::Bool && seen->shown == 0)
    shown = &build.node("Not", {*shown});
  else if (element != ElementType::Bool && !isFloatingPoint(element))
    return false;
  else if (element != ElementType::Bool)
    shown = &build.node(
        "Where", {*shown, floatScalar(element, seen->shown), floatScalar(element, seen->hidden)});
  for (int64_t axis = rank - 2; axis > 0; --axis)
    shown = &build.unsqueeze(*shown, 0);
  symbols.assumeCausal(type);
  replace(constant, *shown, isMaskReader);
  return true;
}

/// Whether the only token of an export, the last one, sees all keys.
bool FreedTables::showsAllKeys(const Value& table) const {
  const TensorType& type = table.type();
  return symbols.exported().tokens.value() == 1 && type.elementType() == ElementType::Bool &&
         type.hasRank() && type.rank() > 1 &&
         type.dim(-1).isKnownEqual(symbols.exported().keys()) && uniformValue(table) == 1.0;
}

/// Whether no other table shows all keys. If two tables show the same to one token, they were
/// stored separately because they differ for other tokens, for example if some layers have a
/// window.
bool FreedTables::isOnlyMask(const Value& table) const {
  const auto isOther = [&](const Value& value) {
    return &value != &table && value.constant() && value.hasUses() && showsAllKeys(value);
  };
  return llvm::none_of(graph.initializers(),
                       [&](const std::unique_ptr<Value>& value) { return isOther(*value); }) &&
         llvm::none_of(graph.nodes(), [&](const Node& node) {
           return node.is("Constant") && isOther(node.result());
         });
}

/// int64 [keys]: the position of each key.
Value* FreedTables::rowOfKeys() {
  Value* end = symbols.scalar(symbols.freed().keys(), ElementType::Int64);
  return end ? &symbols.builder().node("Range", {int64Scalar(0), *end, int64Scalar(1)}, {},
                                       "freed_range")
             : nullptr;
}

/// int64 [S, 1]: the position of each token.
Value* FreedTables::columnOfTokens() {
  Value* first = symbols.scalar(symbols.freed().past, ElementType::Int64);
  Value* end = symbols.scalar(symbols.freed().keys(), ElementType::Int64);
  if (!first || !end)
    return nullptr;
  Value& places =
      symbols.builder().node("Range", {*first, *end, int64Scalar(1)}, {}, "freed_range");
  return &symbols.builder().unsqueeze(places, 1);
}

/// Frees indices [1, ..., keys] into an input [1, keys] that is read as one list: batch row b
/// begins at b times the number of keys.
bool FreedTables::freeListedPlaces(Value& constant) {
  const auto rank = constant.type().rank();
  const Dim& keys = symbols.exported().keys();
  const auto readsList = [&](const Use& use) {
    const Value* input = pickedInput(use);
    return input && use.user().is("Gather") && use.user().intAttr("axis", 0) == 0 &&
           use.user().operand(0)->type().dim(0).isKnownEqual(keys) && input->type().rank() == 2 &&
           input->type().dim(0).isKnownEqual(symbols.freed().batch);
  };
  const auto numbers = integerValues(*constant.constant());
  if (!numbers || symbols.exported().batch.value() != 1 || symbols.freed().batch.value() ||
      constant.type().dim(rank - 1) != keys ||
      constant.constant()->elementCount() != keys.value() ||
      constant.type().elementType() != ElementType::Int64 || constant.uses().empty() ||
      !llvm::all_of(constant.uses(), readsList))
    return false;
  for (size_t key = 0; key < numbers->size(); ++key)
    if ((*numbers)[key] != static_cast<int64_t>(key))
      return false;
  AttentionBuilder& build = symbols.builder();
  Value* batch = symbols.scalar(symbols.freed().batch, ElementType::Int64);
  Value* count = symbols.value(symbols.freed().keys());
  Value* row = rowOfKeys();
  if (!batch || !count || !row)
    return false;
  llvm::SmallVector<int64_t, 4> others;
  for (unsigned axis = 1; axis < rank; ++axis)
    others.push_back(axis);
  Value& rows = build.node("Range", {int64Scalar(0), *batch, int64Scalar(1)}, {}, "freed_range");
  Value& first =
      build.node("Mul", {build.node("Unsqueeze", {rows, ints(others)}), *count}, {}, "freed_first");
  replace(constant, build.node("Add", {first, *row}, {}, "freed_places"), readsList);
  return true;
}

/// Frees tables [..., keys, n] of indices into an input: batch rows and keys.
bool FreedTables::freePlaces(Value& constant) {
  const TensorData& places = *constant.constant();
  const llvm::ArrayRef<int64_t> extents = places.shape();
  const auto readsAll = [](const Use& use) {
    return use.user().is("GatherND") && pickedInput(use) &&
           use.user().intAttr("batch_dims", 0) == 0;
  };
  if (extents.size() < 2 || extents.back() > 4 || constant.uses().empty() ||
      !llvm::all_of(constant.uses(), readsAll))
    return false;
  Shape shape;
  for (const int64_t extent : extents.drop_back()) {
    const Dim number = Dim::fixed(extent);
    if (number == symbols.exported().keys())
      shape.push_back(symbols.freed().keys());
    else if (shape.empty() && number == symbols.exported().batch)
      shape.push_back(symbols.freed().batch);
    else if (extent != 1 && number == symbols.exported().tokens)
      shape.push_back(symbols.freed().tokens);
    else
      shape.push_back(number);
  }
  Value* target = symbols.list(shape);
  llvm::SmallVector<BuilderOperand, 3> components;
  for (int64_t component = 0; target && component < extents.back(); ++component) {
    Value* along = placesAlong(places, component);
    if (!along)
      return false;
    AttentionBuilder& build = symbols.builder();
    Value& all = build.node("Expand", {*along, *target}, {}, "freed_places");
    components.push_back(build.unsqueeze(all, static_cast<int64_t>(shape.size())));
  }
  if (!target)
    return false;
  replace(constant,
          symbols.builder().node("Concat", components,
                                 attrs({{"axis", static_cast<int64_t>(shape.size())}}),
                                 "freed_places"),
          readsAll);
  return true;
}

/// One component of each index, which counts along one axis; all other axes have one element. A
/// component that is always 0 is that of the only batch row.
Value* FreedTables::placesAlong(const TensorData& places, int64_t component) {
  const auto numbers = integerValues(places);
  const llvm::ArrayRef<int64_t> extents = places.shape();
  if (!numbers)
    return nullptr;
  std::optional<unsigned> along;
  int64_t stride = extents.back();
  for (size_t axis = extents.size() - 1; axis-- > 0; stride *= extents[axis])
    if (extents[axis] > 1 && (*numbers)[static_cast<size_t>(stride + component)] !=
                                 (*numbers)[static_cast<size_t>(component)]) {
      if (along)
        return nullptr;
      along = static_cast<unsigned>(axis);
    }
  stride = extents.back();
  for (size_t axis = extents.size() - 1; along && axis-- > *along + 1;)
    stride *= extents[axis];
  const int64_t count = places.elementCount() / extents.back();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t at = i * extents.back() + component;
    if ((*numbers)[static_cast<size_t>(at)] != (along ? at / stride % extents[*along] : 0))
      return nullptr;
  }
  if (!along && (component != 0 || symbols.exported().batch.value() != 1 || extents.front() != 1))
    return nullptr;
  const unsigned axis = along.value_or(0);
  const Dim counted = Dim::fixed(extents[axis]);
  const Dim& symbol = along && counted == symbols.exported().keys()      ? symbols.freed().keys()
                      : axis == 0 && counted == symbols.exported().batch ? symbols.freed().batch
                                                                         : counted;
  Value* end = symbols.scalar(symbol, ElementType::Int64);
  if (!end)
    return nullptr;
  AttentionBuilder& build = symbols.builder();
  Value& range = build.node("Range", {int64Scalar(0), *end, int64Scalar(1)}, {}, "freed_range");
  llvm::SmallVector<int64_t, 4> ones;
  for (unsigned other = 0; other + 1 < extents.size(); ++other)
    if (other != axis)
      ones.push_back(other);
  return ones.empty() ? &range : &build.node("Unsqueeze", {range, ints(ones)}, {}, "freed_range");
}

void FreedTables::replace(Value& constant, Value& computed,
                          llvm::function_ref<bool(const Use&)> isMeant) {
  llvm::SmallVector<Use*, 4> readers;
  for (Use& use : constant.uses())
    if (&use.user().graph() == &graph && isMeant(use))
      readers.push_back(&use);
  for (Use* use : readers)
    use->user().setOperand(use->operandIndex(), &computed);
}

} // namespace kvopt::extents
