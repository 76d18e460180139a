// Operators that choose elements and whose definitions do not describe the choice.
#include "passes/analysis/evaluation/selection.h"

#include "passes/analysis/evaluation/selected_result.h"

#include "llvm/ADT/STLExtras.h"

#include <numeric>
#include <vector>

namespace kvopt::analysis {
using namespace ir;

namespace {

ElementSelection where(const SelectedResult& selected) {
  const Extents* after = selected.extents();
  const NumberTensor* condition = selected.numbersOf(0);
  if (!after || !condition)
    return nullptr;
  ElementSelection yes = broadcastElements(selected, 1), no = broadcastElements(selected, 2);
  if (!yes || !no)
    return nullptr;
  return [chosen = condition->numbers, read = BroadcastElements(*after, condition->extents),
          yes = std::move(yes), no = std::move(no)](int64_t element) mutable {
    return chosen[static_cast<size_t>(read(element))] != 0 ? yes(element) : no(element);
  };
}

/// Selection of operand 0 with some elements replaced by elements of `operand`.
ElementSelection overwritten(unsigned operand, llvm::DenseMap<int64_t, int64_t> replaced) {
  return [operand, replaced = std::move(replaced)](int64_t element) {
    const auto found = replaced.find(element);
    return found == replaced.end() ? SelectedElement{0, element}
                                   : SelectedElement{operand, found->second};
  };
}

bool replacesOnly(const Node& node) { return node.stringAttr("reduction", "none") == "none"; }

ElementSelection scatteredElements(const SelectedResult& selected) {
  const Extents* data = selected.extentsOf(0);
  const NumberTensor* indices = selected.numbersOf(1);
  const Extents* updates = selected.extentsOf(2);
  if (!data || !indices || !updates || *updates != indices->extents ||
      data->size() != updates->size() || !replacesOnly(selected.node))
    return nullptr;
  const auto axis = normalizedAxis(selected.node.intAttr("axis", 0), unsigned(data->size()));
  const auto rows = axis ? entriesOf(indices, (*data)[*axis]) : std::nullopt;
  if (!rows)
    return nullptr;
  llvm::DenseMap<int64_t, int64_t> replaced;
  for (size_t i = 0; i < rows->size(); ++i) {
    Extents index = indexOf(static_cast<int64_t>(i), *updates);
    index[*axis] = (*rows)[i];
    if (!replaced.try_emplace(elementAt(index, *data), static_cast<int64_t>(i)).second)
      return nullptr; // The order of duplicates is unspecified.
  }
  return overwritten(2, std::move(replaced));
}

ElementSelection scatteredPoints(const SelectedResult& selected) {
  const Extents* data = selected.extentsOf(0);
  const auto sections =
      data && replacesOnly(selected.node) ? sectionsOf(selected.numbersOf(1), *data) : std::nullopt;
  if (!sections)
    return nullptr;
  llvm::DenseMap<int64_t, int64_t> replaced;
  for (size_t section = 0; section < sections->starts.size(); ++section)
    for (int64_t i = 0; i < sections->size; ++i)
      if (!replaced
               .try_emplace(sections->starts[section] + i,
                            static_cast<int64_t>(section) * sections->size + i)
               .second)
        return nullptr; // The order of duplicates is unspecified.
  return overwritten(2, std::move(replaced));
}

ElementSelection scatteredTensor(const SelectedResult& selected) {
  const Extents* data = selected.extentsOf(0);
  const Extents* updates = selected.extentsOf(1);
  if (!data || !updates || data->size() != updates->size() ||
      selected.node.stringAttr("mode", "linear") != "linear")
    return nullptr;
  const auto axis = normalizedAxis(selected.node.intAttr("axis", -2), unsigned(data->size()));
  const NumberTensor* starts = selected.numbersOf(2);
  if (!axis || *axis == 0 || (selected.node.operand(2) && !starts))
    return nullptr;
  llvm::DenseMap<int64_t, int64_t> replaced;
  const auto count = countOf(*updates);
  for (int64_t i = 0; count && i < *count; ++i) {
    Extents index = indexOf(i, *updates);
    if (starts)
      index[*axis] += integerOf(starts->numbers[static_cast<size_t>(index[0])]);
    if (index[*axis] < 0 || index[*axis] >= (*data)[*axis])
      return nullptr;
    replaced.try_emplace(elementAt(index, *data), i);
  }
  return overwritten(1, std::move(replaced));
}

ElementSelection gatheredElements(const SelectedResult& selected) {
  const Extents* data = selected.extentsOf(0);
  const NumberTensor* indices = selected.numbersOf(1);
  if (!data || !indices || data->size() != indices->extents.size())
    return nullptr;
  const auto axis = normalizedAxis(selected.node.intAttr("axis", 0), unsigned(data->size()));
  auto rows = axis ? entriesOf(indices, (*data)[*axis]) : std::nullopt;
  if (!rows)
    return nullptr;
  return [rows = std::move(*rows), extents = indices->extents, source = *data,
          along = *axis](int64_t element) {
    Extents index = indexOf(element, extents);
    index[along] = rows[static_cast<size_t>(element)];
    return SelectedElement{0, elementAt(index, source)};
  };
}

/// Axes that the numbers of a Pad apply to: those of its last operand, or all.
std::optional<std::vector<int64_t>> paddedAxes(const SelectedResult& selected, size_t rank) {
  if (selected.node.operand(3))
    return entriesOf(selected.numbersOf(3), static_cast<int64_t>(rank));
  std::vector<int64_t> all(rank);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

ElementSelection padded(const SelectedResult& selected) {
  const Extents* data = selected.extentsOf(0);
  const Extents* after = selected.extents();
  const NumberTensor* pads = selected.numbersOf(1);
  const auto axes = data ? paddedAxes(selected, data->size()) : std::nullopt;
  if (!axes || !after || !pads || pads->numbers.size() != 2 * axes->size() ||
      selected.node.stringAttr("mode", "constant") != "constant")
    return nullptr;
  Extents before(data->size(), 0);
  for (size_t i = 0; i < axes->size(); ++i)
    before[static_cast<size_t>((*axes)[i])] = integerOf(pads->numbers[i]);
  double fill = 0;
  if (const Value* given = selected.node.operand(2)) {
    const auto number = selected.evaluation.numberAt(*given, 0);
    if (!number)
      return nullptr;
    fill = *number;
  }
  return [extents = *after, source = *data, before, fill](int64_t element) {
    Extents index = indexOf(element, extents);
    for (size_t axis = 0; axis < index.size(); ++axis) {
      index[axis] -= before[axis];
      if (index[axis] < 0 || index[axis] >= source[axis])
        return SelectedElement{SelectedElement::filled, 0, fill};
    }
    return SelectedElement{0, elementAt(index, source)};
  };
}

ElementSelection triangle(const SelectedResult& selected) {
  const Extents* extents = selected.extents();
  if (!extents || extents->size() < 2)
    return nullptr;
  int64_t diagonal = 0;
  if (const Value* given = selected.node.operand(1)) {
    const auto number = integerAt(given, 0, selected.evaluation);
    if (!number)
      return nullptr;
    diagonal = *number;
  }
  return [columns = extents->back(), rows = (*extents)[extents->size() - 2], diagonal,
          upper = selected.node.intAttr("upper", 1) != 0](int64_t element) {
    const int64_t offset = element % columns - element / columns % rows;
    const bool kept = upper ? offset >= diagonal : offset <= diagonal;
    return kept ? SelectedElement{0, element} : SelectedElement{SelectedElement::filled, 0, 0};
  };
}

ElementSelection appended(const SelectedResult& selected) {
  const Extents* past = selected.extentsOf(0);
  const Extents* fresh = selected.extentsOf(1);
  const NumberTensor* lengths = selected.numbersOf(2);
  const Extents* after = selected.extents();
  if (!past || !fresh || !lengths || !after || past->size() != 4 || fresh->size() != 4)
    return nullptr;
  return
      [past = *past, fresh = *fresh, after = *after, lengths = lengths->numbers](int64_t element) {
        Extents index = indexOf(element, after);
        const size_t row = lengths.size() == 1 ? 0 : static_cast<size_t>(index[0]);
        const int64_t length = integerOf(lengths[row]);
        if (index[2] < length)
          return SelectedElement{0, elementAt(index, past)};
        index[2] -= length;
        if (index[2] < fresh[2])
          return SelectedElement{1, elementAt(index, fresh)};
        return SelectedElement{SelectedElement::filled, 0, 0};
      };
}

/// Operators that select elements and whose definitions do not describe it.
struct SelectingOperator {
  const char* name;
  ElementSelection (*select)(const SelectedResult&);
};

constexpr SelectingOperator selectingOperators[] = {
    {"Where", where},
    {"ScatterElements", scatteredElements},
    {"ScatterND", scatteredPoints},
    {"TensorScatter", scatteredTensor},
    {"GatherElements", gatheredElements},
    {"Pad", padded},
    {"Trilu", triangle},
    {"ai.kvopt::AppendRows", appended},
};

const SelectingOperator* selectingOperator(const Node& node) {
  const auto* found = llvm::find_if(selectingOperators, [&](const SelectingOperator& entry) {
    return node.op() == OpName(entry.name);
  });
  return found == std::end(selectingOperators) ? nullptr : found;
}

} // namespace

bool isSelecting(const Node& node) {
  return movementKind(node).has_value() || selectingOperator(node) != nullptr;
}

ElementSelection selectionOf(const Value& result, Evaluation& evaluation) {
  const Node* node = result.producer();
  if (!node)
    return nullptr;
  const SelectedResult selected{result, *node, evaluation};
  if (const std::optional<Movement> movement = movementOf(result))
    return movedElements(selected, *movement);
  const SelectingOperator* known = selectingOperator(*node);
  return known && result.resultIndex() == 0 ? known->select(selected) : nullptr;
}

} // namespace kvopt::analysis
