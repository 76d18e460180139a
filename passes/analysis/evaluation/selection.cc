// Movements of elements at concrete extents, and operators that choose elements.
#include "passes/analysis/evaluation/selection.h"

#include "ir/movement.h"
#include "passes/analysis/evaluation/evaluation.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace kvopt::analysis {
using namespace ir;

namespace {

std::optional<int64_t> extentAt(const Dim& dim, const Evaluation& evaluation) {
  return dim.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
    const auto found = evaluation.point().extents.find(symbol);
    return found == evaluation.point().extents.end() ? std::nullopt : std::optional(found->second);
  });
}

std::optional<int64_t> integerAt(const Value* value, int64_t element, Evaluation& evaluation) {
  const std::optional<double> number = value ? evaluation.numberAt(*value, element) : std::nullopt;
  if (!number || std::isnan(*number))
    return std::nullopt;
  constexpr double most = 4e18;
  return static_cast<int64_t>(std::clamp(*number, -most, most));
}

std::optional<int64_t> numberOf(const MovementNumber& number, Evaluation& evaluation) {
  if (const std::optional<int64_t> known = extentAt(number.known, evaluation))
    return known;
  return number.list ? integerAt(number.list, number.entry, evaluation) : std::nullopt;
}

/// A number as an extent, or as -1; nullopt for what no tensor has.
std::optional<int64_t> extentFrom(double number) {
  constexpr double most = 1e12;
  return number >= -1 && number <= most ? std::optional(static_cast<int64_t>(number))
                                        : std::nullopt;
}

/// A range of an axis: `count` indices from `start` on, `step` apart.
struct PlacedRange {
  int64_t start = 0;
  int64_t step = 1;
  int64_t count = 0;
};

std::optional<PlacedRange> placed(const MovementRange& range, int64_t extent,
                                  Evaluation& evaluation) {
  auto start = numberOf(range.start, evaluation);
  auto end = numberOf(range.end, evaluation);
  const auto step = numberOf(range.step, evaluation);
  if (!start || !end || !step || *step == 0)
    return std::nullopt;
  for (std::optional<int64_t>* bound : {&start, &end})
    if (**bound < 0)
      **bound = std::max<int64_t>(**bound + extent, -1 - extent);
  if (*step > 0) {
    *start = std::clamp<int64_t>(*start, 0, extent);
    *end = std::clamp<int64_t>(*end, 0, extent);
    return PlacedRange{*start, *step, std::max<int64_t>(0, (*end - *start + *step - 1) / *step)};
  }
  *start = std::clamp<int64_t>(*start, 0, extent - 1);
  *end = std::clamp<int64_t>(*end, -1, extent - 1);
  return PlacedRange{*start, *step, std::max<int64_t>(0, (*start - *end - *step - 1) / -*step)};
}

/// What selecting code works on.
struct Selected {
  const Value& result;
  const Node& node;
  Evaluation& evaluation;

  const Extents* extents() const { return evaluation.extents(result); }
  const Extents* extentsOf(unsigned operand) const {
    const Value* value = node.operand(operand);
    return value ? evaluation.extents(*value) : nullptr;
  }
  const NumberTensor* numbersOf(unsigned operand) const {
    const Value* value = node.operand(operand);
    return value ? evaluation.numbers(*value) : nullptr;
  }
};

ElementSelection sameElements(unsigned operand) {
  return [operand](int64_t element) { return SelectedElement{operand, element}; };
}

ElementSelection permuted(const Selected& selected, const Movement& movement) {
  const Extents* after = selected.extents();
  const Extents* before = selected.extentsOf(movement.data);
  if (!after || !before || !movement.axes || movement.axes->size() != before->size())
    return nullptr;
  const Extents strides = rowMajorStrides(*before);
  Extents ordered;
  for (unsigned axis : *movement.axes)
    ordered.push_back(strides[axis]);
  return [extents = *after, ordered, operand = movement.data](int64_t element) {
    int64_t source = 0;
    for (size_t axis = extents.size(); axis-- > 0;) {
      source += element % extents[axis] * ordered[axis];
      element /= extents[axis];
    }
    return SelectedElement{operand, source};
  };
}

ElementSelection broadcast(const Selected& selected, unsigned operand) {
  const Extents* after = selected.extents();
  const Extents* before = selected.extentsOf(operand);
  if (!after || !before || before->size() > after->size())
    return nullptr;
  return [read = BroadcastElements(*after, *before), operand](int64_t element) {
    return SelectedElement{operand, read(element)};
  };
}

ElementSelection repeated(const Selected& selected, const Movement& movement) {
  const Extents* after = selected.extents();
  const Extents* before = selected.extentsOf(movement.data);
  if (!after || !before || before->size() != after->size())
    return nullptr;
  return [extents = *after, source = *before, operand = movement.data](int64_t element) {
    Extents index = indexOf(element, extents);
    for (size_t axis = 0; axis < index.size(); ++axis)
      index[axis] %= source[axis];
    return SelectedElement{operand, elementAt(index, source)};
  };
}

ElementSelection sliced(const Selected& selected, const Movement& movement) {
  const Extents* after = selected.extents();
  const Extents* before = selected.extentsOf(movement.data);
  if (!after || !before || !movement.axes || movement.axes->size() != movement.ranges.size())
    return nullptr;
  Extents starts(before->size(), 0), steps(before->size(), 1);
  for (auto [axis, range] : llvm::zip(*movement.axes, movement.ranges)) {
    const auto place = placed(range, (*before)[axis], selected.evaluation);
    if (!place)
      return nullptr;
    starts[axis] = place->start;
    steps[axis] = place->step;
  }
  return [extents = *after, source = *before, starts, steps,
          operand = movement.data](int64_t element) {
    Extents index = indexOf(element, extents);
    for (size_t axis = 0; axis < index.size(); ++axis)
      index[axis] = starts[axis] + index[axis] * steps[axis];
    return SelectedElement{operand, elementAt(index, source)};
  };
}

/// The entries of an axis that indices name, each in [0, extent); null where one is outside.
std::optional<std::vector<int64_t>> entries(const NumberTensor* indices, int64_t extent) {
  if (!indices)
    return std::nullopt;
  std::vector<int64_t> result;
  for (double number : indices->numbers) {
    const auto entry =
        static_cast<int64_t>(number < 0 ? number + static_cast<double>(extent) : number);
    if (std::isnan(number) || entry < 0 || entry >= extent)
      return std::nullopt;
    result.push_back(entry);
  }
  return result;
}

ElementSelection gathered(const Selected& selected, const Movement& movement) {
  const Extents* before = selected.extentsOf(movement.data);
  const std::optional<unsigned> axis = movement.axis();
  if (!before || !axis || *axis >= before->size())
    return nullptr;
  const int64_t extent = (*before)[*axis];
  auto rows = entries(selected.numbersOf(movement.indices), extent);
  if (!rows)
    return nullptr;
  int64_t inner = 1;
  for (size_t i = *axis + 1; i < before->size(); ++i)
    inner *= (*before)[i];
  return [rows = std::move(*rows), inner, extent, operand = movement.data](int64_t element) {
    const auto count = static_cast<int64_t>(rows.size());
    const int64_t outer = element / (inner * count);
    const int64_t row = rows[static_cast<size_t>(element / inner % count)];
    return SelectedElement{operand, (outer * extent + row) * inner + element % inner};
  };
}

ElementSelection gatheredPoints(const Selected& selected, const Movement& movement) {
  const Extents* before = selected.extentsOf(movement.data);
  const NumberTensor* points = selected.numbersOf(movement.indices);
  if (!before || !points || points->extents.empty() || selected.node.intAttr("batch_dims", 0) != 0)
    return nullptr;
  const auto width = static_cast<size_t>(points->extents.back());
  if (width == 0 || width > before->size())
    return nullptr;
  const Extents strides = rowMajorStrides(*before);
  std::vector<int64_t> starts;
  for (size_t first = 0; first < points->numbers.size(); first += width) {
    int64_t start = 0;
    for (size_t i = 0; i < width; ++i) {
      const double number = points->numbers[first + i];
      const auto index =
          static_cast<int64_t>(number < 0 ? number + static_cast<double>((*before)[i]) : number);
      if (std::isnan(number) || index < 0 || index >= (*before)[i])
        return nullptr;
      start += index * strides[i];
    }
    starts.push_back(start);
  }
  const int64_t inner = strides[width - 1];
  return [starts, inner, operand = movement.data](int64_t element) {
    return SelectedElement{operand, starts[static_cast<size_t>(element / inner)] + element % inner};
  };
}

ElementSelection joined(const Selected& selected, const Movement& movement) {
  const Extents* after = selected.extents();
  const std::optional<unsigned> axis = movement.axis();
  if (!after || !axis || *axis >= after->size())
    return nullptr;
  std::vector<Extents> parts;
  for (unsigned i = 0; i < selected.node.operands().size(); ++i) {
    const Extents* part = selected.extentsOf(i);
    if (!part || part->size() != after->size())
      return nullptr;
    parts.push_back(*part);
  }
  int64_t total = 0;
  for (const Extents& part : parts)
    total += part[*axis];
  if (total != (*after)[*axis])
    return nullptr;
  return [extents = *after, parts = std::move(parts), along = *axis](int64_t element) {
    Extents index = indexOf(element, extents);
    unsigned operand = 0;
    while (index[along] >= parts[operand][along]) {
      index[along] -= parts[operand][along];
      ++operand;
    }
    return SelectedElement{operand, elementAt(index, parts[operand])};
  };
}

ElementSelection moved(const Selected& selected, const Movement& movement) {
  switch (movement.kind) {
  case MovementKind::Same:
  case MovementKind::Convert:
  case MovementKind::Reshape:
  case MovementKind::InsertAxes:
  case MovementKind::RemoveAxes:
    return sameElements(movement.data);
  case MovementKind::Permutation:
    return permuted(selected, movement);
  case MovementKind::Broadcast:
    return broadcast(selected, movement.data);
  case MovementKind::Repeat:
    return repeated(selected, movement);
  case MovementKind::Slice:
    return sliced(selected, movement);
  case MovementKind::Gather:
    return gathered(selected, movement);
  case MovementKind::PointGather:
    return gatheredPoints(selected, movement);
  case MovementKind::Concat:
    return joined(selected, movement);
  }
  return nullptr;
}

ElementSelection where(const Selected& selected) {
  const Extents* after = selected.extents();
  const NumberTensor* condition = selected.numbersOf(0);
  if (!after || !condition)
    return nullptr;
  ElementSelection yes = broadcast(selected, 1), no = broadcast(selected, 2);
  if (!yes || !no)
    return nullptr;
  return [chosen = condition->numbers, read = BroadcastElements(*after, condition->extents),
          yes = std::move(yes), no = std::move(no)](int64_t element) mutable {
    return chosen[static_cast<size_t>(read(element))] != 0 ? yes(element) : no(element);
  };
}

/// Results that are operand 0 with some elements replaced: by those of `operand`.
ElementSelection overwritten(unsigned operand, llvm::DenseMap<int64_t, int64_t> replaced) {
  return [operand, replaced = std::move(replaced)](int64_t element) {
    const auto found = replaced.find(element);
    return found == replaced.end() ? SelectedElement{0, element}
                                   : SelectedElement{operand, found->second};
  };
}

bool replacesOnly(const Node& node) { return node.stringAttr("reduction", "none") == "none"; }

ElementSelection scatteredElements(const Selected& selected) {
  const Extents* data = selected.extentsOf(0);
  const NumberTensor* indices = selected.numbersOf(1);
  const Extents* updates = selected.extentsOf(2);
  if (!data || !indices || !updates || *updates != indices->extents ||
      data->size() != updates->size() || !replacesOnly(selected.node))
    return nullptr;
  const auto axis = normalizedAxis(selected.node.intAttr("axis", 0), unsigned(data->size()));
  const auto rows = axis ? entries(indices, (*data)[*axis]) : std::nullopt;
  if (!rows)
    return nullptr;
  llvm::DenseMap<int64_t, int64_t> replaced;
  for (size_t i = 0; i < rows->size(); ++i) {
    Extents index = indexOf(static_cast<int64_t>(i), *updates);
    index[*axis] = (*rows)[i];
    if (!replaced.try_emplace(elementAt(index, *data), static_cast<int64_t>(i)).second)
      return nullptr; // Which of two comes last is not said.
  }
  return overwritten(2, std::move(replaced));
}

ElementSelection scatteredPoints(const Selected& selected) {
  const Extents* data = selected.extentsOf(0);
  const NumberTensor* points = selected.numbersOf(1);
  if (!data || !points || points->extents.empty() || !replacesOnly(selected.node))
    return nullptr;
  const auto width = static_cast<size_t>(points->extents.back());
  if (width == 0 || width > data->size())
    return nullptr;
  const Extents strides = rowMajorStrides(*data);
  const int64_t inner = strides[width - 1];
  llvm::DenseMap<int64_t, int64_t> replaced;
  for (size_t first = 0; first < points->numbers.size(); first += width) {
    int64_t start = 0;
    for (size_t i = 0; i < width; ++i) {
      const double number = points->numbers[first + i];
      const auto index =
          static_cast<int64_t>(number < 0 ? number + static_cast<double>((*data)[i]) : number);
      if (std::isnan(number) || index < 0 || index >= (*data)[i])
        return nullptr;
      start += index * strides[i];
    }
    for (int64_t i = 0; i < inner; ++i)
      if (!replaced.try_emplace(start + i, static_cast<int64_t>(first / width) * inner + i).second)
        return nullptr;
  }
  return overwritten(2, std::move(replaced));
}

ElementSelection scatteredTensor(const Selected& selected) {
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
      index[*axis] += static_cast<int64_t>(starts->numbers[static_cast<size_t>(index[0])]);
    if (index[*axis] < 0 || index[*axis] >= (*data)[*axis])
      return nullptr;
    replaced.try_emplace(elementAt(index, *data), i);
  }
  return overwritten(1, std::move(replaced));
}

ElementSelection gatheredElements(const Selected& selected) {
  const Extents* data = selected.extentsOf(0);
  const NumberTensor* indices = selected.numbersOf(1);
  if (!data || !indices || data->size() != indices->extents.size())
    return nullptr;
  const auto axis = normalizedAxis(selected.node.intAttr("axis", 0), unsigned(data->size()));
  auto rows = axis ? entries(indices, (*data)[*axis]) : std::nullopt;
  if (!rows)
    return nullptr;
  return [rows = std::move(*rows), extents = indices->extents, source = *data,
          along = *axis](int64_t element) {
    Extents index = indexOf(element, extents);
    index[along] = rows[static_cast<size_t>(element)];
    return SelectedElement{0, elementAt(index, source)};
  };
}

ElementSelection padded(const Selected& selected) {
  const Extents* data = selected.extentsOf(0);
  const Extents* after = selected.extents();
  const NumberTensor* pads = selected.numbersOf(1);
  if (!data || !after || !pads || selected.node.operand(3) ||
      pads->numbers.size() != 2 * data->size() ||
      selected.node.stringAttr("mode", "constant") != "constant")
    return nullptr;
  double fill = 0;
  if (const Value* given = selected.node.operand(2)) {
    const auto number = selected.evaluation.numberAt(*given, 0);
    if (!number)
      return nullptr;
    fill = *number;
  }
  return [extents = *after, source = *data, before = pads->numbers, fill](int64_t element) {
    Extents index = indexOf(element, extents);
    for (size_t axis = 0; axis < index.size(); ++axis) {
      index[axis] -= static_cast<int64_t>(before[axis]);
      if (index[axis] < 0 || index[axis] >= source[axis])
        return SelectedElement{SelectedElement::filled, 0, fill};
    }
    return SelectedElement{0, elementAt(index, source)};
  };
}

ElementSelection triangle(const Selected& selected) {
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

ElementSelection appended(const Selected& selected) {
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
        const auto length = static_cast<int64_t>(lengths[row]);
        if (index[2] < length)
          return SelectedElement{0, elementAt(index, past)};
        index[2] -= length;
        if (index[2] < fresh[2])
          return SelectedElement{1, elementAt(index, fresh)};
        return SelectedElement{SelectedElement::filled, 0, 0};
      };
}

/// Operators that select and whose definitions do not say so.
struct SelectingOperator {
  const char* name;
  ElementSelection (*select)(const Selected&);
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

std::optional<Extents> reshaped(const Selected& selected, const Movement& movement) {
  const Extents* before = selected.extentsOf(movement.data);
  const NumberTensor* target = selected.numbersOf(1);
  if (!before || !target)
    return std::nullopt;
  const auto count = countOf(*before);
  Extents after;
  std::optional<size_t> open;
  for (size_t axis = 0; axis < target->numbers.size(); ++axis) {
    const std::optional<int64_t> given = extentFrom(target->numbers[axis]);
    if (!given)
      return std::nullopt;
    int64_t extent = *given;
    if (extent == 0 && selected.node.intAttr("allowzero", 0) == 0) {
      if (axis >= before->size())
        return std::nullopt;
      extent = (*before)[axis];
    }
    if (extent == -1)
      open = axis;
    after.push_back(extent == -1 ? 1 : extent);
  }
  const std::optional<int64_t> known = countOf(after);
  if (!known)
    return std::nullopt;
  if (open) {
    if (*known == 0 || !count || *count % *known != 0)
      return std::nullopt;
    after[*open] = *count / *known;
  }
  return countOf(after) == count ? std::optional(after) : std::nullopt;
}

std::optional<Extents> flattened(const Selected& selected, const Movement& movement) {
  const Extents* before = selected.extentsOf(movement.data);
  if (!before)
    return std::nullopt;
  int64_t axis = selected.node.intAttr("axis", 1);
  if (axis < 0)
    axis += static_cast<int64_t>(before->size());
  Extents after{1, 1};
  for (size_t i = 0; i < before->size(); ++i)
    after[static_cast<int64_t>(i) < axis ? 0 : 1] *= (*before)[i];
  return after;
}

std::optional<Extents> joinedExtents(const Selected& selected, const Movement& movement) {
  const std::optional<unsigned> axis = movement.axis();
  std::optional<Extents> after;
  for (unsigned i = 0; i < selected.node.operands().size(); ++i) {
    const Extents* part = selected.extentsOf(i);
    if (!part || !axis || *axis >= part->size() || (after && after->size() != part->size()))
      return std::nullopt;
    if (!after)
      after = *part;
    else
      (*after)[*axis] += (*part)[*axis];
  }
  return after;
}

} // namespace

bool isSelecting(const Node& node) {
  return movementKind(node).has_value() || selectingOperator(node) != nullptr;
}

ElementSelection selectionOf(const Value& result, Evaluation& evaluation) {
  const Node* node = result.producer();
  if (!node)
    return nullptr;
  const Selected selected{result, *node, evaluation};
  if (const std::optional<Movement> movement = movementOf(result))
    return moved(selected, *movement);
  const SelectingOperator* known = selectingOperator(*node);
  return known && result.resultIndex() == 0 ? known->select(selected) : nullptr;
}

std::optional<Extents> movedExtents(const Value& result, Evaluation& evaluation) {
  const Node& node = *result.producer();
  const Selected selected{result, node, evaluation};
  const std::optional<Movement> movement = movementOf(result);
  if (!movement)
    return std::nullopt;
  const Extents* data = selected.extentsOf(movement->data);
  if (!data)
    return std::nullopt;
  Extents after = *data;
  switch (movement->kind) {
  case MovementKind::Same:
  case MovementKind::Convert:
    return after;
  case MovementKind::Permutation:
    if (!movement->axes || movement->axes->size() != data->size())
      return std::nullopt;
    for (size_t i = 0; i < after.size(); ++i)
      after[i] = (*data)[(*movement->axes)[i]];
    return after;
  case MovementKind::Reshape:
    return node.is("Flatten") ? flattened(selected, *movement) : reshaped(selected, *movement);
  case MovementKind::InsertAxes:
    if (!movement->axes)
      return std::nullopt;
    for (unsigned axis : *movement->axes) {
      if (axis > after.size())
        return std::nullopt;
      after.insert(after.begin() + axis, 1);
    }
    return after;
  case MovementKind::RemoveAxes:
    if (!movement->axes)
      return std::nullopt;
    for (unsigned axis : llvm::reverse(*movement->axes)) {
      if (axis >= after.size() || after[axis] != 1)
        return std::nullopt;
      after.erase(after.begin() + axis);
    }
    return after;
  case MovementKind::Broadcast: {
    const NumberTensor* target = selected.numbersOf(1);
    if (!target)
      return std::nullopt;
    Extents wanted;
    for (double number : target->numbers) {
      const std::optional<int64_t> extent = extentFrom(number);
      if (!extent)
        return std::nullopt;
      wanted.push_back(*extent);
    }
    return broadcastOf(*data, wanted);
  }
  case MovementKind::Repeat: {
    const NumberTensor* counts = selected.numbersOf(1);
    if (!counts || counts->numbers.size() != after.size())
      return std::nullopt;
    for (size_t i = 0; i < after.size(); ++i) {
      const std::optional<int64_t> times = extentFrom(counts->numbers[i]);
      const auto extent = times ? countOf({after[i], *times}) : std::nullopt;
      if (!extent)
        return std::nullopt;
      after[i] = *extent;
    }
    return after;
  }
  case MovementKind::Slice:
    if (!movement->axes || movement->axes->size() != movement->ranges.size())
      return std::nullopt;
    for (auto [axis, range] : llvm::zip(*movement->axes, movement->ranges)) {
      const auto place = placed(range, (*data)[axis], evaluation);
      if (!place)
        return std::nullopt;
      after[axis] = place->count;
    }
    return after;
  case MovementKind::Gather: {
    const std::optional<unsigned> axis = movement->axis();
    const Extents* indices = selected.extentsOf(movement->indices);
    if (!axis || !indices || *axis >= after.size())
      return std::nullopt;
    after.erase(after.begin() + *axis);
    after.insert(after.begin() + *axis, indices->begin(), indices->end());
    return after;
  }
  case MovementKind::PointGather: {
    const Extents* indices = selected.extentsOf(movement->indices);
    if (!indices || indices->empty() || node.intAttr("batch_dims", 0) != 0)
      return std::nullopt;
    Extents points(indices->begin(), indices->end() - 1);
    points.append(after.begin() + indices->back(), after.end());
    return points;
  }
  case MovementKind::Concat:
    return joinedExtents(selected, *movement);
  }
  return std::nullopt;
}

} // namespace kvopt::analysis
