// Reading of masks: elements at positions that another tensor holds.
#include "passes/analysis/mask/mask_reader.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

using Kind = MaskExpression::Kind;

/// An index that is read for all b, h, i and j does not leave the extent, or the graph would fail.
void MaskReader::learnFrom(ExprRef index, const Dim& extent) {
  Dim known = modelDim(extent);
  if (shifts != 0 || !index->is(Kind::Integer) || index->variables == noIndices ||
      known.isUnknown() || !space().isNonNegative(index->dim))
    return;
  if (std::optional<Dim> last = space().largest(index->dim))
    made.learnNonNegative(known - *last - Dim::fixed(1));
}

ExprRef MaskReader::gather(const Place& place, const Movement& movement) {
  const Value& data = *place.node->operand(movement.data);
  const Value* indices = place.node->operand(movement.indices);
  std::optional<unsigned> axis = movement.axis();
  if (!axis || !indices || !indices->type().hasRank())
    return nullptr;
  unsigned indexRank = indices->type().rank();
  if (data.type().rank() - 1 + indexRank != place.index.size())
    return nullptr;
  ExprRef position = read(*indices, place.index.slice(*axis, indexRank));
  learnFrom(position, data.type().shape()[*axis]);
  ExprVector index(place.index.begin(), place.index.begin() + *axis);
  index.push_back(wrapped(position, data.type().shape()[*axis]));
  llvm::append_range(index, place.index.drop_front(*axis + indexRank));
  return read(data, index);
}

ExprRef MaskReader::pointGather(const Place& place, const Movement& movement) {
  const Value& data = *place.node->operand(movement.data);
  if (!movement.axes)
    return nullptr;
  const Value& indices = *place.node->operand(movement.indices);
  unsigned outer = indices.type().rank() - 1;
  auto width = static_cast<unsigned>(movement.axes->size());
  if (outer > place.index.size() || data.type().rank() - width != place.index.size() - outer)
    return nullptr;
  ExprVector at(place.index.begin(), place.index.begin() + outer);
  at.push_back(nullptr);
  ExprVector index;
  for (unsigned axis = 0; axis < width; ++axis) {
    at.back() = made.number(axis);
    ExprRef position = read(indices, at);
    learnFrom(position, data.type().shape()[axis]);
    index.push_back(wrapped(position, data.type().shape()[axis]));
  }
  llvm::append_range(index, place.index.drop_front(outer));
  return read(data, index);
}

/// An update of a whole block, whose indices count up from 0 on every axis, or of rows.
ExprRef MaskReader::scatterND(const Place& place) {
  const Value& data = *place.node->operand(0);
  const Value* indices = place.node->operand(1);
  const Value* updates = place.node->operand(2);
  unsigned rank = data.type().rank();
  if (!indices || !updates || !indices->type().hasRank() || !updates->type().hasRank() ||
      place.node->stringAttr("reduction", "none") != "none")
    return nullptr;
  unsigned outer = updates->type().rank();
  if (indices->type().rank() == 2 && indices->type().dim(-1).value() == 1 && outer == rank)
    return scatterRows(place);
  if (indices->type().rank() != outer + 1 || indices->type().dim(-1).value() != rank ||
      outer != rank)
    return nullptr;
  // The update at [i0, i1, …] goes to [i0, i1, …]; asked at the place's own index.
  ExprVector at(place.index.begin(), place.index.end());
  at.push_back(nullptr);
  ExprRef isUpdated = made.boolean(true);
  for (unsigned axis = 0; axis < rank; ++axis) {
    Dim extent = modelDim(updates->type().shape()[axis]);
    if (!place.index[axis]->is(Kind::Integer) || extent.isUnknown() ||
        !countsUp(*indices, axis, rank))
      return nullptr;
    isUpdated =
        made.both(isUpdated, made.atLeastZero(extent - place.index[axis]->dim - Dim::fixed(1)));
  }
  ++shifts;
  ExprRef update = read(*updates, place.index);
  --shifts;
  return made.select(isUpdated, update, read(data, place.index));
}

/// An update of consecutive entries of the first axis, `mask[first:first + n] = updates`, as a
/// slice of any axis is assigned between two transpositions.
ExprRef MaskReader::scatterRows(const Place& place) {
  // First, at the mask's own index: what its tables show of extents serves the updates, too.
  ExprRef before = read(*place.node->operand(0), place.index);
  const Value& indices = *place.node->operand(1);
  const Value& updates = *place.node->operand(2);
  Dim count = extentOf(updates, 0);
  if (count.isUnknown())
    count = extentOf(indices, 0);
  // What is read at a symbol that no model has holds at every entry.
  const Dim entry = Dim::symbol("\x01"
                                "entry");
  ++shifts;
  ExprRef position = read(indices, {made.integer(entry), made.number(0)});
  --shifts;
  if (!place.index[0]->is(Kind::Integer) || !position->is(Kind::Integer) || count.isUnknown())
    return nullptr;
  Dim first = position->dim - entry;
  auto symbols = first.symbols();
  // Entries before 0 would count from the end.
  if (llvm::is_contained(symbols, entry.symbols().front()) || !space().isNonNegative(first))
    return nullptr;
  Dim from = place.index[0]->dim - first;
  ExprRef isUpdated =
      made.both(made.atLeastZero(from), made.atLeastZero(count - from - Dim::fixed(1)));
  ExprVector index(place.index.begin(), place.index.end());
  index[0] = made.integer(from);
  ++shifts;
  ExprRef update = read(updates, index);
  --shifts;
  return made.select(isUpdated, update, before);
}

/// Whether the last axis of `indices` at position `axis` holds the index on `axis` itself.
bool MaskReader::countsUp(const Value& indices, unsigned axis, unsigned rank) {
  ExprVector at;
  for (unsigned k = 0; k < rank; ++k)
    at.push_back(made.integer(Dim::symbol("\x01"
                                          "at" +
                                          std::to_string(k))));
  at.push_back(made.number(axis));
  // An axis of one element is at 0.
  ExprRef own = modelDim(indices.type().shape()[axis]).value() == 1 ? made.number(0) : at[axis];
  ++shifts;
  bool isOwn = read(indices, at) == own;
  --shifts;
  return isOwn;
}

} // namespace kvopt::analysis
