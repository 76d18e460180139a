// Factors of flattened axes, determined from nearby values.
#include "passes/analysis/scores/attention_atoms.h"

#include "ir/elementwise.h"
#include "passes/analysis/movement/index_map.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

constexpr unsigned maxMovements = 4;

using Pair = std::pair<Dim, Dim>;

/// [B,H] such that B*H is `flat`, from a nearby value.
std::optional<Pair> headsOf(const ScoreRegion& region, const Dim& flat) {
  auto fits = [&](const TensorType& type) {
    return type.hasRank() && type.rank() == 4 &&
           (type.shape()[0] * type.shape()[1]).isKnownEqual(flat);
  };
  auto pair = [](const TensorType& type) { return Pair(type.shape()[0], type.shape()[1]); };
  for (Node* node : region.inner)
    if (fits(node->result().type()))
      return pair(node->result().type());
  for (Value* operand :
       {region.scores->operand(0), region.scores->operand(1), region.context->operand(1)}) {
    Value* value = operand;
    for (unsigned i = 0; value && i <= maxMovements; ++i) {
      if (fits(value->type()))
        return pair(value->type());
      Node* producer = value->producer();
      if (value = producer ? movedOperand(*producer) : nullptr; !value && producer)
        value = isElementwise(*producer) ? producer->operand(0) : nullptr;
    }
  }
  for (Use& use : region.context->result().uses())
    if (isReshaping(use.user()) && fits(use.user().result().type()))
      return pair(use.user().result().type());
  return std::nullopt;
}

/// [S,H] such that `rows` is S*H, from a value [B,S,H,T] between the products.
std::optional<Pair> rowsOf(const ScoreRegion& region, llvm::ArrayRef<Dim> scores) {
  for (Node* node : region.inner) {
    const TensorType& type = node->result().type();
    if (type.hasRank() && type.rank() == 4 && type.shape()[0].isKnownEqual(scores[0]) &&
        type.shape()[1].value() != 1 && type.shape()[2].value() != 1 &&
        (type.shape()[1] * type.shape()[2]).isKnownEqual(scores[1]))
      return Pair(type.shape()[1], type.shape()[2]);
  }
  return std::nullopt;
}

} // namespace

std::pair<unsigned, unsigned> AttentionAtoms::partsOf(Axis axis) const {
  auto count = static_cast<unsigned>(extents.size());
  switch (axis) {
  case Batch:
    return {0, 1};
  case Heads:
    return {1, 1 + headAtoms};
  case Queries:
    return {1 + headAtoms, count - 1};
  default:
    return {count - 1, count};
  }
}

AttentionAtoms::Axis AttentionAtoms::axisOf(unsigned part) const {
  for (Axis axis : {Batch, Heads, Queries})
    if (part < partsOf(axis).second)
      return axis;
  return Keys;
}

Dim AttentionAtoms::extentOf(Axis axis) const {
  Dim extent = Dim::fixed(1);
  for (unsigned part = partsOf(axis).first; part < partsOf(axis).second; ++part)
    extent = extent * extents[part];
  return extent;
}

std::optional<AtomView> viewOf(llvm::ArrayRef<Dim> shape, llvm::ArrayRef<Dim> parts) {
  AtomView view(shape.size());
  unsigned next = 0;
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    Dim taken = Dim::fixed(1);
    while (!taken.isKnownEqual(shape[axis])) {
      if (next == parts.size())
        return std::nullopt;
      taken = taken * parts[next];
      view[axis].push_back(next++);
    }
  }
  for (; next < parts.size(); ++next)
    if (parts[next].value() != 1)
      return std::nullopt;
  return view;
}

std::optional<AttentionAtoms> atomsOf(const ScoreRegion& region) {
  const TensorType& type = region.scores->result().type();
  const TensorType& context = region.context->result().type();
  if (!type.hasRank() || !context.hasRank() || type.rank() < 3 || context.rank() < 3 ||
      (type.rank() == 4 && context.rank() == 4))
    return std::nullopt;
  if (llvm::any_of(type.shape(), [](const Dim& extent) { return extent.isUnknown(); }))
    return std::nullopt;
  AttentionAtoms atoms;
  atoms.extents.assign(type.shape().begin(), type.shape().end());
  if (type.rank() > 3) {
    atoms.headAtoms = type.rank() - 3;
    return atoms;
  }
  // Without other evidence, a fixed number is the heads of one sequence, and a symbolic one a
  // batch.
  const Dim flat = type.shape()[0], one = Dim::fixed(1);
  std::optional<Pair> heads = headsOf(region, flat);
  bool hasOneHead = !heads || heads->second.value() == 1;
  std::optional<Pair> rows = hasOneHead ? rowsOf(region, type.shape()) : std::nullopt;
  if (!heads)
    heads = flat.value() && !rows ? Pair(one, flat) : Pair(flat, one);
  atoms.extents = {heads->first, heads->second};
  if (rows)
    atoms.extents.append({rows->first, rows->second});
  else
    atoms.extents.push_back(type.shape()[1]);
  atoms.extents.push_back(type.shape()[2]);
  return atoms;
}

} // namespace kvopt::analysis
