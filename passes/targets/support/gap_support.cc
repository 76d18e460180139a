// Checks whether an attention can have hidden rows in its keys.
#include "passes/targets/support/gap_support.h"

#include "ir/movement.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// Whether the operands other than the moved one are independent of the number of rows, an
/// expression in `pastRows`.
bool isDirectedWithout(const Node& node, const Dim& pastRows) {
  for (const Use& use : node.operands()) {
    if (!use.value() || isMoved(use))
      continue;
    const auto numbers = use.value()->knownIntegers();
    if (!numbers)
      return false;
    for (const Dim& number : *numbers)
      for (const std::string& symbol : number.symbols())
        if (number.isUnknown() || llvm::is_contained(pastRows.symbols(), symbol))
          return false;
  }
  return true;
}

/// Whether the node treats each row the same for any number of rows.
bool takesAnyNumberOfRows(const Node& node, const Dim& pastRows) {
  const std::optional<MovementKind> kind = movementKind(node);
  if (!kind)
    return false;
  switch (*kind) {
  case MovementKind::Same:
  case MovementKind::Convert:
  case MovementKind::Permutation:
  case MovementKind::InsertAxes:
  case MovementKind::RemoveAxes:
    return true;
  case MovementKind::Reshape:
  case MovementKind::Slice:
    return isDirectedWithout(node, pastRows);
  case MovementKind::Broadcast:
  case MovementKind::Repeat:
  case MovementKind::Gather:
  case MovementKind::PointGather:
  case MovementKind::Concat:
    return false;
  }
  return false;
}

/// The first node on the path from `from` back to `to`, along moved operands, that depends on the
/// number of rows.
const Node* nodeOfFixedRows(const Value& from, const Value& to, const Dim& pastRows) {
  for (const Value* value = &from; value != &to;) {
    const Node* producer = value->producer();
    assert(producer && "a site's caches are ancestors of its attention");
    if (!takesAnyNumberOfRows(*producer, pastRows))
      return producer;
    value = movedOperand(*producer);
  }
  return nullptr;
}

} // namespace

std::optional<MatchFailure> gapObstacle(const AttentionSite& site) {
  if (const Node* reader = site.shapeReader)
    return MatchFailure{ReasonCode::CacheEscapes, reader->operand(0)->name().str(),
                        "shapes computed from the past and the new rows",
                        reader->describe() + " reads the shape of the present",
                        "--to blocks-plain keeps it as long as it holds tokens"};
  if (!site.addsQueryRows())
    return MatchFailure{ReasonCode::ShapeMismatch, site.key->fresh->name().str(),
                        formatted("a new row for each of {} query rows", site.stepRows->query),
                        formatted("{} rows", site.stepRows->appended),
                        "--to blocks-plain takes any number"};
  if (site.node->operand(5))
    return MatchFailure{ReasonCode::TargetLacksFeature, site.node->name().str(),
                        "batch rows of the same length", "a length for each batch row",
                        "--to kvopt keeps rows at the positions that the lengths give"};
  const SiteCache* updates[] = {&*site.key, &*site.value};
  for (unsigned i = 0; i < 2; ++i) {
    const SiteCache& update = *updates[i];
    const Dim& pastRows = update.past->type().dim(update.axis);
    const Node* obstacle =
        nodeOfFixedRows(*site.node->operand(1 + i), update.writer->result(), pastRows);
    if (!obstacle)
      obstacle = nodeOfFixedRows(*update.writer->operand(0), *update.past, pastRows);
    if (obstacle)
      return MatchFailure{ReasonCode::LayoutUnsupported, update.past->name().str(),
                          "rows that are moved in the same way for any number of them",
                          obstacle->describe() + " computes with it",
                          "--to blocks-plain keeps the number that the model computes with"};
  }
  return std::nullopt;
}

} // namespace kvopt::targets
