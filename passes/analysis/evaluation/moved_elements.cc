// Movements of elements at concrete extents.
#include "passes/analysis/evaluation/selected_result.h"

#include "ir/movement.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>

namespace kvopt::analysis {
using namespace ir;

std::optional<int64_t> integerAt(const Value* value, int64_t element, Evaluation& evaluation) {
  const std::optional<double> number = value ? evaluation.numberAt(*value, element) : std::nullopt;
  if (!number || std::isnan(*number))
    return std::nullopt;
  return integerOf(*number);
}

ElementSelection broadcastElements(const SelectedResult& selected, unsigned operand) {
  const Extents* after = selected.extents();
  const Extents* before = selected.extentsOf(operand);
  if (!after || !before || before->size() > after->size())
    return nullptr;
  return [read = BroadcastElements(*after, *before), operand](int64_t element) {
    return SelectedElement{operand, read(element)};
  };
}

std::optional<std::vector<int64_t>> entriesOf(const NumberTensor* indices, int64_t extent) {
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

std::optional<PointedSections> sectionsOf(const NumberTensor* points,
                                          llvm::ArrayRef<int64_t> extents) {
  if (!points || points->extents.empty())
    return std::nullopt;
  const auto width = static_cast<size_t>(points->extents.back());
  if (width == 0 || width > extents.size())
    return std::nullopt;
  const Extents strides = rowMajorStrides(extents);
  PointedSections sections;
  sections.size = strides[width - 1];
  for (size_t first = 0; first < points->numbers.size(); first += width) {
    int64_t start = 0;
    for (size_t i = 0; i < width; ++i) {
      const double number = points->numbers[first + i];
      const auto index =
          static_cast<int64_t>(number < 0 ? number + static_cast<double>(extents[i]) : number);
      if (std::isnan(number) || index < 0 || index >= extents[i])
        return std::nullopt;
      start += index * strides[i];
    }
    sections.starts.push_back(start);
  }
  return sections;
}

namespace {

std::optional<int64_t> extentAt(const Dim& dim, const Evaluation& evaluation) {
  return dim.evaluate([&](llvm::StringRef symbol) -> std::optional<int64_t> {
    const auto found = evaluation.point().extents.find(symbol);
    return found == evaluation.point().extents.end() ? std::nullopt : std::optional(found->second);
  });
}

std::optional<int64_t> numberOf(const MovementNumber& number, Evaluation& evaluation) {
  if (const std::optional<int64_t> known = extentAt(number.known, evaluation))
    return known;
  return number.list ? integerAt(number.list, number.entry, evaluation) : std::nullopt;
}

/// The start and the step of a range of an axis.
std::optional<std::pair<int64_t, int64_t>> placed(const MovementRange& range, int64_t extent,
                                                  Evaluation& evaluation) {
  auto start = numberOf(range.start, evaluation);
  const auto step = numberOf(range.step, evaluation);
  if (!start || !step || *step == 0)
    return std::nullopt;
  if (*start < 0)
    *start = std::max<int64_t>(*start + extent, -1 - extent);
  if (extent != 0)
    *start = std::clamp<int64_t>(*start, 0, *step > 0 ? extent : extent - 1);
  return std::pair(*start, *step);
}

ElementSelection sameElements(unsigned operand) {
  return [operand](int64_t element) { return SelectedElement{operand, element}; };
}

ElementSelection permuted(const SelectedResult& selected, const Movement& movement) {
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

ElementSelection repeated(const SelectedResult& selected, const Movement& movement) {
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

ElementSelection sliced(const SelectedResult& selected, const Movement& movement) {
  const Extents* after = selected.extents();
  const Extents* before = selected.extentsOf(movement.data);
  if (!after || !before || !movement.axes || movement.axes->size() != movement.ranges.size())
    return nullptr;
  Extents starts(before->size(), 0), steps(before->size(), 1);
  for (auto [axis, range] : llvm::zip(*movement.axes, movement.ranges)) {
    const auto place = placed(range, (*before)[axis], selected.evaluation);
    if (!place)
      return nullptr;
    std::tie(starts[axis], steps[axis]) = *place;
  }
  return [extents = *after, source = *before, starts, steps,
          operand = movement.data](int64_t element) {
    Extents index = indexOf(element, extents);
    for (size_t axis = 0; axis < index.size(); ++axis)
      index[axis] = starts[axis] + index[axis] * steps[axis];
    return SelectedElement{operand, elementAt(index, source)};
  };
}

ElementSelection gathered(const SelectedResult& selected, const Movement& movement) {
  const Extents* before = selected.extentsOf(movement.data);
  const std::optional<unsigned> axis = movement.axis();
  if (!before || !axis || *axis >= before->size())
    return nullptr;
  const int64_t extent = (*before)[*axis];
  auto rows = entriesOf(selected.numbersOf(movement.indices), extent);
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

ElementSelection gatheredPoints(const SelectedResult& selected, const Movement& movement) {
  const Extents* before = selected.extentsOf(movement.data);
  auto sections = before && selected.node.intAttr("batch_dims", 0) == 0
                      ? sectionsOf(selected.numbersOf(movement.indices), *before)
                      : std::nullopt;
  if (!sections)
    return nullptr;
  return [sections = std::move(*sections), operand = movement.data](int64_t element) {
    const int64_t start = sections.starts[static_cast<size_t>(element / sections.size)];
    return SelectedElement{operand, start + element % sections.size};
  };
}

ElementSelection joined(const SelectedResult& selected, const Movement& movement) {
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

} // namespace

ElementSelection movedElements(const SelectedResult& selected, const Movement& movement) {
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
    return broadcastElements(selected, movement.data);
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

} // namespace kvopt::analysis
