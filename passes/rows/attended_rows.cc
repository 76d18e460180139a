// Search from the operands of attention back to caches.
#include "passes/rows/attended_rows.h"

#include "ir/attribute_list.h"
#include "ir/movement.h"
#include "ir/op_name.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rows {
using namespace analysis;
using namespace ir;

namespace {

/// The input that holds the rows, converted or not; null if the rows are not an input's.
Value* inputBehind(Value& rows) {
  Node* cast = rows.producer();
  Value* input = cast && cast->is("Cast") ? cast->operand(0) : &rows;
  return input && input->isGraphInput() && !input->constant() && !input->graph().parentNode()
             ? input
             : nullptr;
}

/// Whether the use converts a value to an output.
bool isConvertedOutput(const Use& use) {
  return use.user().is("Cast") && use.user().result().isGraphOutput() &&
         !use.user().result().hasUses();
}

/// The axis along which the node joins new rows to a past without other readers, if the model
/// returns the result; nullopt for other nodes. Converters to float16 that keep the types of inputs
/// and outputs convert both.
std::optional<unsigned> cacheAxis(const Node& node) {
  if (!node.is("Concat") || node.operands().size() != 2 || !node.operand(0) || !node.operand(1))
    return std::nullopt;
  Value& past = *node.operand(0);
  const Value* input = inputBehind(past);
  const Value& present = node.result();
  const TensorType& type = present.type();
  const auto axis =
      type.hasRank() ? normalizedAxis(node.intAttr("axis", 0), type.rank()) : std::nullopt;
  if (!axis || !input || !isFloatingPoint(type.elementType()) || past.type().dim(*axis).value() ||
      !(present.isGraphOutput() || llvm::any_of(present.uses(), isConvertedOutput)))
    return std::nullopt;
  const auto isOnlyRead = [](const Value& value, const Node* reader) {
    return llvm::all_of(value.uses(), [&](const Use& use) {
      return &use.user() == reader || use.user().is("Shape");
    });
  };
  const auto open = llvm::count_if(type.shape(), [](const Dim& extent) { return !extent.value(); });
  const bool isOpen = open <= 2; // number of rows, and batch
  return isOpen && isOnlyRead(past, &node) &&
                 (input == &past || isOnlyRead(*input, past.producer()))
             ? axis
             : std::nullopt;
}

/// Index of the one output that returns the joined rows, converted or not; nullopt if there are
/// several.
std::optional<unsigned> outputSlot(const Node& join) {
  llvm::SmallVector<const Value*, 2> presents;
  if (join.result().isGraphOutput())
    presents.push_back(&join.result());
  for (const Use& use : join.result().uses())
    if (isConvertedOutput(use))
      presents.push_back(&use.user().result());
  const auto outputs = join.graph().outputs();
  if (presents.size() != 1 || llvm::count(outputs, presents.front()) != 1)
    return std::nullopt;
  return static_cast<unsigned>(llvm::find(outputs, presents.front()) - outputs.begin());
}

/// The one cache that a value is computed from; null if there is none, or if a search among the
/// nearest nodes does not find it.
Node* joinBehind(Value& value) {
  constexpr size_t mostNodes = 512;
  Node* cache = nullptr;
  llvm::SmallVector<Node*, 16> pending;
  llvm::DenseSet<Node*> seen;
  const auto visit = [&](Value* operand) {
    if (operand && operand->producer() && seen.insert(operand->producer()).second)
      pending.push_back(operand->producer());
  };
  visit(&value);
  while (!pending.empty() && seen.size() < mostNodes) {
    Node* node = pending.pop_back_val();
    if (cacheAxis(*node)) {
      if (cache)
        return nullptr;
      cache = node;
      continue;
    }
    if (!node->is("Shape"))
      for (const Use& use : node->operands())
        visit(use.value());
  }
  return pending.empty() ? cache : nullptr;
}

/// An operand of attention, and the values that it is moved from; the last of them is computed.
struct OperandRead {
  llvm::SmallVector<Value*, 4> moved;
  bool isComputed = false;
  bool areKeys = false;
};

OperandRead readOf(const Use& operand) {
  OperandRead read;
  read.areKeys = operand.operandIndex() == 1;
  read.moved.push_back(operand.value());
  while (Node* producer = read.moved.back()->producer()) {
    const std::optional<MovementKind> kind = movementKind(*producer);
    const bool isMoved = kind && *kind != MovementKind::Concat &&
                         (picksElements(*kind) || *kind == MovementKind::Convert);
    if (!isMoved || cacheAxis(*producer))
      break;
    read.moved.push_back(movedOperand(*producer));
  }
  const Node* last = read.moved.back()->producer();
  read.isComputed = last && !cacheAxis(*last);
  return read;
}

/// Number of elements of a value per row and batch row; nullopt for values that cannot be cached.
std::optional<int64_t> rowSize(const Value& value, const Dim& rowCount) {
  const TensorType& type = value.type();
  if (!type.hasRank() || type.rank() < 3 || type.rank() > 4 || !isFloatingPoint(type.elementType()))
    return std::nullopt;
  int64_t size = 1;
  bool hasRows = false;
  unsigned open = 0;
  for (const Dim& extent : type.shape()) {
    if (extent.isUnknown() || (hasRows && extent.isKnownEqual(rowCount)))
      return std::nullopt;
    hasRows |= extent.isKnownEqual(rowCount);
    open += extent.value() ? 0 : 1;
    size *= extent.value().value_or(1);
  }
  return hasRows && open <= 2 ? std::optional(size) : std::nullopt; // number of rows, and batch
}

std::optional<AttendedRows> rowsFrom(const AttendedCache& cache, Value& value, bool areKeys) {
  Value& joined = cache.join->result();
  auto found = findRowFunction(joined, cache.axis, value);
  auto* function = std::get_if<RowFunction>(&found);
  if (!function)
    return std::nullopt;
  const Dim& rowCount = joined.type().dim(cache.axis);
  const auto* place = llvm::find_if(
      value.type().shape(), [&](const Dim& extent) { return extent.isKnownEqual(rowCount); });
  const auto axis = static_cast<unsigned>(place - value.type().shape().begin());
  return AttendedRows{&value, std::move(*function), axis, areKeys};
}

/// The first value, from the cache on, that has the cache's own form.
bool findInOwnForm(AttendedCache& cache, const OperandRead& read) {
  for (Value* value : llvm::reverse(read.moved)) {
    auto rows = rowsFrom(cache, *value, read.areKeys);
    auto order = rows ? orderLikeRows(rows->function) : std::nullopt;
    if (!order)
      continue;
    cache.order = std::move(order);
    cache.reads.push_back(std::move(*rows));
    return true;
  }
  return false;
}

/// The smallest rows that the operand is moved from; among equal ones, those next to attention. The
/// operand itself must be a function of rows, or no target could read the cache.
bool findSmallestRows(AttendedCache& cache, const OperandRead& read) {
  if (!rowsFrom(cache, *read.moved.front(), read.areKeys))
    return false;
  const Dim& rowCount = cache.join->result().type().dim(cache.axis);
  std::vector<std::pair<int64_t, Value*>> candidates;
  for (Value* value : read.moved)
    if (const auto size = rowSize(*value, rowCount))
      candidates.emplace_back(*size, value);
  llvm::stable_sort(candidates, [](const auto& a, const auto& b) { return a.first < b.first; });
  for (const auto& [size, value] : candidates) {
    if (llvm::any_of(cache.reads, [candidate = value](const AttendedRows& rows) {
          return rows.value == candidate;
        }))
      return true;
    if (auto rows = rowsFrom(cache, *value, read.areKeys)) {
      cache.reads.push_back(std::move(*rows));
      return true;
    }
  }
  return false;
}

/// Whether values computed from a cache are used only for the rows that attention reads.
bool isReadOnlyThrough(const AttendedCache& cache) {
  llvm::SmallVector<const Value*, 16> pending(1, &cache.join->result());
  llvm::DenseSet<const Value*> seen;
  while (!pending.empty()) {
    const Value* value = pending.pop_back_val();
    if (llvm::any_of(
            cache.reads,
            [candidate = value](const AttendedRows& rows) { return rows.value == candidate; }) ||
        !seen.insert(value).second)
      continue;
    if (value->isGraphOutput() && value->producer() != cache.join)
      return false;
    for (const Use& use : value->uses()) {
      if (use.user().is("Shape") || (value->producer() == cache.join && isConvertedOutput(use)))
        continue;
      if (llvm::none_of(cache.reads, [&](const AttendedRows& rows) {
            return rows.function.region.contains(&use.user());
          }))
        return false;
      for (const Value& result : use.user().results())
        pending.push_back(&result);
    }
  }
  return true;
}

} // namespace

OperandsByJoin attentionOperandsByJoin(Graph& graph) {
  OperandsByJoin operands;
  llvm::DenseSet<const Value*> seen;
  for (Node& node : graph.nodes()) {
    if (node.op() != OpName(kvoptDomain, "Sdpa"))
      continue;
    for (const Use& use : node.operands().slice(1, 2)) {
      if (!seen.insert(use.value()).second)
        continue;
      if (Node* join = joinBehind(*use.value()))
        operands[join].push_back(&use);
    }
  }
  return operands;
}

std::optional<AttendedCache> findAttendedCache(Node& join, llvm::ArrayRef<const Use*> operands) {
  llvm::SmallVector<OperandRead, 2> reads;
  for (const Use* use : operands)
    reads.push_back(readOf(*use));
  if (llvm::none_of(reads, [](const OperandRead& read) { return read.isComputed; }))
    return std::nullopt;
  const auto slot = outputSlot(join);
  if (!slot)
    return std::nullopt;
  AttendedCache cache;
  cache.join = &join;
  cache.axis = *cacheAxis(join);
  cache.input = inputBehind(*join.operand(0));
  cache.output = *slot;
  const bool isFound =
      (reads.size() == 1 && findInOwnForm(cache, reads.front())) ||
      llvm::all_of(reads, [&](const OperandRead& read) { return findSmallestRows(cache, read); });
  return isFound && isReadOnlyThrough(cache) ? std::optional(std::move(cache)) : std::nullopt;
}

} // namespace kvopt::rows
