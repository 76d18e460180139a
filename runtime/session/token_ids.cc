// Traces token ids to the tables that they index.
#include "runtime/session/token_ids.h"

#include "ir/movement.h"
#include "ir/tensor.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

namespace {

constexpr size_t mostValues = 256;
constexpr size_t mostCodebooks = 1024;

/// A value that holds factor * id + offset for ids of the input.
struct Held {
  const Value* value;
  int64_t factor = 1;
  /// One offset for all elements, or one for each index of the input's `axis`.
  std::vector<int64_t> offsets = {0};
  std::optional<unsigned> axis;
  /// Set if the ids are those of a single index of the axis.
  std::optional<int64_t> index;
  /// Whether the axes differ from those of the input.
  bool isMoved = false;
};

/// A known index from a list with one element, or a scalar.
std::optional<int64_t> singleInteger(const Value* value) {
  const auto known = value ? value->knownIntegers() : std::nullopt;
  return known && known->size() == 1 ? known->front().value() : std::nullopt;
}

class TableSearch {
public:
  explicit TableSearch(const Value& tokens) : input(tokens) {}

  TokenIds run() {
    pending.push_back({&input, 1, {0}, std::nullopt, std::nullopt, false});
    for (size_t i = 0; i < pending.size() && i < mostValues; ++i) {
      const Held held = pending[i]; // the list grows
      for (const Use& use : held.value->uses())
        visit(use, held);
    }
    return std::move(found);
  }

private:
  void visit(const Use& use, const Held& held) {
    const Node& reader = use.user();
    if ((reader.is("Gather") || reader.is("GatherND")) && use.operandIndex() == 1)
      return noteTable(reader, held);
    if (reader.is("Add") || reader.is("Sub") || reader.is("Mul"))
      return visitArithmetic(reader, use.operandIndex(), held);
    if (reader.is("Where") && use.operandIndex() > 0) {
      found.areReplaced = true;
      return follow(reader, held);
    }
    if (reader.is("Gather") && use.operandIndex() == 0)
      return visitPick(reader, held);
    const std::optional<MovementKind> kind = movementKind(reader);
    if (!kind || !isMoved(use))
      return;
    if (*kind == MovementKind::Slice)
      return visitSlice(reader, held);
    if (*kind == MovementKind::Reshape)
      noteRowsPerBatch(reader, held);
    if (*kind == MovementKind::Same || *kind == MovementKind::Convert)
      return follow(reader, held);
    if (keepsOrder(*kind) || *kind == MovementKind::Permutation || *kind == MovementKind::Broadcast)
      followMoved(reader, held);
  }

  void follow(const Node& reader, Held held) {
    held.value = &reader.result();
    pending.push_back(std::move(held));
  }
  /// Offsets of single codebooks are not traced to other positions.
  void followMoved(const Node& reader, Held held) {
    held.isMoved = true;
    follow(reader, std::move(held));
  }

  void visitArithmetic(const Node& reader, unsigned operand, Held held) {
    const Value* other = reader.operand(1 - operand);
    const TensorData* data = other ? other->constant() : nullptr;
    const auto numbers = data ? integerValues(*data, mostCodebooks) : std::nullopt;
    if (!numbers || numbers->empty() || (reader.is("Sub") && operand == 1))
      return;
    if (reader.is("Mul")) {
      if (numbers->size() != 1 || numbers->front() < 1)
        return;
      held.factor *= numbers->front();
      for (int64_t& offset : held.offsets)
        offset *= numbers->front();
      return follow(reader, std::move(held));
    }
    const int64_t sign = reader.is("Sub") ? -1 : 1;
    if (numbers->size() == 1) {
      for (int64_t& offset : held.offsets)
        offset += sign * numbers->front();
      return follow(reader, std::move(held));
    }
    addOffsets(reader, *data, *numbers, sign, std::move(held));
  }

  /// Adds a constant with one number for each index of an axis.
  void addOffsets(const Node& reader, const TensorData& data, llvm::ArrayRef<int64_t> numbers,
                  int64_t sign, Held held) {
    const TensorType& type = input.type();
    const llvm::ArrayRef<int64_t> shape = data.shape();
    const auto along = llvm::find(shape, static_cast<int64_t>(numbers.size()));
    if (held.isMoved || held.index || !type.hasRank() || along == shape.end() ||
        shape.size() > type.rank()) {
      // Every element may have any of them.
      const int64_t most = *std::max_element(numbers.begin(), numbers.end());
      for (int64_t& offset : held.offsets)
        offset += std::max(sign * numbers.front(), sign * most);
      return follow(reader, std::move(held));
    }
    const auto axis = static_cast<unsigned>(type.rank() - static_cast<size_t>(shape.end() - along));
    if (held.axis && held.axis != axis)
      return;
    if (held.offsets.size() != numbers.size())
      held.offsets.assign(numbers.size(), held.offsets.front());
    held.axis = axis;
    for (size_t i = 0; i < numbers.size(); ++i)
      held.offsets[i] += sign * numbers[i];
    follow(reader, std::move(held));
  }

  /// Selects the ids of one codebook.
  void pick(const Value& result, unsigned axis, std::optional<int64_t> index, Held held) {
    const TensorType& type = input.type();
    const bool isKnown = index && !held.isMoved && !held.index && type.hasRank() &&
                         axis < type.rank() && type.dim(axis).value().has_value();
    if (isKnown) {
      const int64_t extent = *type.dim(axis).value();
      const int64_t place = *index < 0 ? *index + extent : *index;
      if (held.axis == axis && place >= 0 && place < static_cast<int64_t>(held.offsets.size()))
        held.offsets = {held.offsets[static_cast<size_t>(place)]};
      held.axis = axis;
      held.index = place;
    }
    held.isMoved = true;
    held.value = &result;
    pending.push_back(std::move(held));
  }

  void visitPick(const Node& reader, const Held& held) {
    const auto movement = movementOf(reader.result());
    if (movement && movement->axis())
      pick(reader.result(), *movement->axis(), singleInteger(reader.operand(1)), held);
  }

  void visitSlice(const Node& reader, const Held& held) {
    for (const Value& result : reader.results()) {
      const auto movement = result.isAbsent() ? std::nullopt : movementOf(result);
      if (!movement)
        continue;
      const auto axis = movement->axis();
      const bool isSingle = axis && result.type().hasRank() && *axis < result.type().rank() &&
                            result.type().dim(*axis).value() == 1;
      pick(result, axis.value_or(0),
           isSingle ? movement->ranges.front().start.known.value() : std::nullopt, held);
    }
  }

  void noteTable(const Node& reader, const Held& held) {
    const auto axis = static_cast<int64_t>(reader.is("Gather") ? reader.intAttr("axis", 0) : 0);
    const TensorType& table = reader.operand(0)->type();
    if (!table.hasRank() || axis < 0 || axis >= static_cast<int64_t>(table.rank()))
      return;
    const std::optional<int64_t> rows = table.dim(axis).value();
    if (!rows || *rows < 1)
      return;
    std::vector<int64_t> counts;
    for (const int64_t offset : held.offsets)
      counts.push_back(std::max<int64_t>(1, (*rows - 1 - offset) / held.factor + 1));
    const bool isOfAxis = held.axis && (counts.size() > 1 || held.index);
    limit(counts, isOfAxis ? held.axis : std::nullopt, held.index);
  }

  /// Notes the numbers of entries of tables for the ids.
  void limit(llvm::ArrayRef<int64_t> counts, std::optional<unsigned> axis,
             std::optional<int64_t> index) {
    constexpr int64_t any = INT64_MAX;
    if (!axis) {
      if (found.counts.empty())
        found.counts = {any};
      for (int64_t& count : found.counts)
        count = std::min(count, counts.front());
      return;
    }
    if (found.axis && found.axis != axis)
      return limit({*std::min_element(counts.begin(), counts.end())}, std::nullopt, std::nullopt);
    const auto extent = static_cast<size_t>(
        input.type().dim(*axis).value().value_or(static_cast<int64_t>(counts.size())));
    if (!found.axis)
      found.counts.resize(std::max(extent, counts.size()),
                          found.counts.empty() ? any : found.counts.front());
    found.axis = axis;
    for (size_t i = 0; i < found.counts.size(); ++i) {
      const bool concerns = !index || *index == static_cast<int64_t>(i);
      if (concerns && (index || i < counts.size()))
        found.counts[i] = std::min(found.counts[i], counts[index ? 0 : i]);
    }
  }

  /// Reshape(ids [B*K, S], [-1, K, S]).
  void noteRowsPerBatch(const Node& reader, const Held& held) {
    const TensorType& type = held.value->type();
    const TensorType& split = reader.result().type();
    if (held.value != &input || !type.hasRank() || !split.hasRank() || type.rank() != 2 ||
        split.rank() != 3 || type.dim(0).value())
      return;
    const std::optional<int64_t> codebooks = split.dim(1).value();
    if (codebooks && *codebooks > 1 && split.dim(2).isKnownEqual(type.dim(1)))
      found.rowsPerBatch = *codebooks;
  }

  const Value& input;
  std::vector<Held> pending;
  TokenIds found;
};

} // namespace

int64_t TokenIds::most() const {
  int64_t most = 0;
  for (const int64_t count : counts)
    if (count != INT64_MAX)
      most = std::max(most, count);
  return most;
}

int64_t TokenIds::countAt(llvm::ArrayRef<int64_t> index) const {
  if (counts.empty())
    return INT64_MAX;
  if (!axis || *axis >= index.size())
    return *std::min_element(counts.begin(), counts.end());
  const auto place = static_cast<size_t>(index[*axis]);
  return counts[std::min(place, counts.size() - 1)];
}

TokenIds tokenIdsOf(const Value& input) { return TableSearch(input).run(); }

} // namespace kvopt::runtime
