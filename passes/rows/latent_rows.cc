// The parts of expanded keys and values.
#include "passes/rows/latent_rows.h"

#include "ir/movement.h"
#include "passes/analysis/movement/data_movement.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rows {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// Maximum number of movements in a chain, and of nodes that compute a constant.
constexpr size_t mostMoves = 64;

/// Whether a value is computed from constants alone.
bool isConstantExpression(const Value& value) {
  llvm::SmallVector<const Value*, 8> pending(1, &value);
  llvm::DenseSet<const Value*> seen;
  while (!pending.empty()) {
    const Value* each = pending.pop_back_val();
    if (each->constant() || !seen.insert(each).second)
      continue;
    const Node* node = each->producer();
    if (!node || !node->subgraphs().empty() || seen.size() > mostMoves)
      return false;
    for (const Use& use : node->operands())
      if (use.value())
        pending.push_back(use.value());
  }
  return true;
}

/// The product with a constant matrix from which the value's elements are moved; null if there is
/// none, or several.
Node* productBehind(Value& value) {
  llvm::SmallVector<Value*, 8> pending(1, &value);
  llvm::DenseSet<const Value*> seen;
  Node* product = nullptr;
  while (!pending.empty()) {
    Value* each = pending.pop_back_val();
    if (!seen.insert(each).second)
      continue;
    Node* node = each->producer();
    if (!node || seen.size() > mostMoves)
      return nullptr;
    if (node->is("MatMul")) {
      if (product && product != node)
        return nullptr;
      product = node;
      continue;
    }
    const std::optional<MovementKind> kind = movementKind(*node);
    if (!kind || !picksElements(*kind))
      return nullptr;
    if (*kind != MovementKind::Concat) {
      pending.push_back(movedOperand(*node));
      continue;
    }
    for (const Use& use : node->operands())
      if (use.value())
        pending.push_back(use.value());
  }
  return product;
}

/// Whether the output is only moved from the rows.
bool onlyMovesRows(const RowFunction& function) {
  if (!function.places.empty())
    return false;
  const Graph& body = function.body->graph();
  llvm::DenseSet<const Value*> moved{body.inputs().front().get()};
  for (const Node& node : body.nodes()) {
    if (node.is("Shape"))
      continue; // only its extents are used
    const std::optional<MovementKind> kind = movementKind(node);
    const Value* data = kind ? movedOperand(node) : nullptr;
    const bool isOfRows = llvm::any_of(node.operands(), [&](const Use& use) {
      return use.value() && moved.contains(use.value());
    });
    if (!isOfRows)
      continue;
    const bool isAllOfRows = llvm::all_of(node.operands(), [&](const Use& use) {
      return use.value() && moved.contains(use.value());
    });
    if (!kind || !picksElements(*kind) || !moved.contains(data) ||
        (*kind == MovementKind::Concat && !isAllOfRows))
      return false;
    for (const Value& result : node.results())
      moved.insert(&result);
  }
  return moved.contains(body.outputs().front());
}

MatchFailure notLowRank(const Value& value, std::string expected, std::string seen = "") {
  const Node* node = value.producer();
  if (seen.empty())
    seen = node ? node->describe() : value.name().str();
  return {ReasonCode::NotLowRank, value.name().str(), std::move(expected), std::move(seen), ""};
}

/// Reason why the caches have other readers than this attention, or are read in another form;
/// nullopt if they have not.
std::optional<MatchFailure> whyNotOwn(const AttentionSite& site) {
  if (site.failure)
    return *site.failure;
  if (!site.grows() || site.isLatent() || site.sharesCaches() || site.pastFlag || site.stepRows ||
      site.isCross || site.node->graph().parentNode())
    return notLowRank(site.node->result(), "attention with its own growing caches");
  const std::pair<const SiteCache*, unsigned> sides[] = {{&*site.key, 1}, {&*site.value, 2}};
  for (const auto& [cache, operand] : sides) {
    Value& joined = cache->writer->result();
    const TensorType& type = joined.type();
    if (!cache->writer->is("Concat") || cache->axis != 2 ||
        site.node->operand(operand) != &joined || cache->output != &joined ||
        cache->writer->operand(0) != cache->past || cache->writer->operand(1) != cache->fresh)
      return notLowRank(joined,
                        "keys and values as stored in the cache, [batch, heads, rows, width]");
    if (type.rank() != 4 || !type.dim(1).value() || !type.dim(3).value())
      return notLowRank(joined, "a fixed number and width of heads", type.str());
    for (const Use& use : joined.uses())
      if (&use.user() != site.node && !use.user().is("Shape"))
        return notLowRank(joined, "keys and values that only attention reads",
                          use.user().describe());
    for (const Use& use : cache->past->uses())
      if (&use.user() != cache->writer && !use.user().is("Shape"))
        return notLowRank(*cache->past, "a past that is only joined", use.user().describe());
  }
  return std::nullopt;
}

class LatentFinder {
public:
  explicit LatentFinder(const AttentionSite& attention) : site(attention) {}

  std::variant<LatentRows, MatchFailure> run() {
    if (auto failure = whyNotOwn(site))
      return std::move(*failure);
    Value& keys = *site.key->fresh;
    if (!site.node->operand(0)->type().dim(1).isKnownEqual(keys.type().dim(1)))
      return notLowRank(keys, "the same number of heads as the query", keys.type().str());
    if (auto failure = findParts(keys))
      return std::move(*failure);
    if (!found.compressed)
      return notLowRank(keys, "keys that include products of compressed rows");
    auto values = expanded(*site.value->fresh);
    if (!values)
      return notLowRank(*site.value->fresh,
                        "values that are products of the same rows as the keys");
    found.values = std::move(*values);
    const Dim heads = keys.type().dim(1);
    const auto full = (heads * (keys.type().dim(3) + site.value->fresh->type().dim(3))).value();
    if (!full || found.width() >= *full)
      return notLowRank(keys, formatted("rows of fewer than {} columns", full.value_or(0)),
                        formatted("{}", found.width()));
    return std::move(found);
  }

private:
  /// Finds the parts of keys along their columns.
  std::optional<MatchFailure> findParts(Value& keys) {
    Node* join = keys.producer();
    const auto axis = join && join->is("Concat")
                          ? normalizedAxis(join->intAttr("axis", 0), keys.type().rank())
                          : std::nullopt;
    llvm::SmallVector<Value*, 4> parts;
    if (axis == 3u)
      for (const Use& use : join->operands())
        parts.push_back(use.value());
    else
      parts.push_back(&keys);
    int64_t first = 0;
    for (Value* part : parts) {
      const auto width = part && part->type().hasRank() && part->type().rank() == 4
                             ? part->type().dim(3).value()
                             : std::nullopt;
      if (!width)
        return notLowRank(keys, "parts of a fixed width");
      if (auto columns = expanded(*part))
        found.keys.push_back({first, *width, std::move(*columns)});
      else if (Value* rows = sharedRows(*part))
        found.keys.push_back({first, *width, SharedColumns{rows}});
      else
        return notLowRank(*part, "columns that are products of compressed rows, or the same for "
                                 "every head");
      first += *width;
    }
    return std::nullopt;
  }

  /// Rows that are repeated for every head; null if they differ between heads.
  static Value* sharedRows(Value& part) {
    Node* node = part.producer();
    const std::optional<MovementKind> kind = node ? movementKind(*node) : std::nullopt;
    if (kind != MovementKind::Broadcast && kind != MovementKind::Repeat)
      return nullptr;
    Value* rows = movedOperand(*node);
    const TensorType& type = rows->type();
    if (!type.hasRank() || type.rank() != 4 || type.dim(1).value() != 1)
      return nullptr;
    for (unsigned axis : {0U, 2U, 3U})
      if (!type.dim(axis).isKnownEqual(part.type().dim(axis)))
        return nullptr;
    return rows;
  }

  /// The columns as products of the compressed rows, which the first call determines.
  std::optional<ExpandedColumns> expanded(Value& part) {
    Node* product = productBehind(part);
    if (!product)
      return std::nullopt;
    Value* rows = product->operand(0);
    Value* weights = product->operand(1);
    const TensorType& type = product->result().type();
    if ((found.compressed && found.compressed != rows) || type.rank() != 3 ||
        rows->type().rank() != 3 || !rows->type().dim(2).value() || weights->type().rank() != 2 ||
        !isConstantExpression(*weights))
      return std::nullopt;
    auto function = findRowFunction(product->result(), 1, part);
    auto* moves = std::get_if<RowFunction>(&function);
    if (!moves || !onlyMovesRows(*moves))
      return std::nullopt;
    const TensorType& moved = moves->body->graph().outputs().front()->type();
    const Dim& count = moves->body->graph().inputs().front()->type().dim(1);
    if (moved.rank() != 4 || !moved.dim(1).isKnownEqual(part.type().dim(1)) ||
        !(moved.dim(2) == count) || !moved.dim(3).isKnownEqual(part.type().dim(3)))
      return std::nullopt;
    found.compressed = rows;
    return ExpandedColumns{weights, std::move(*moves)};
  }

  const AttentionSite& site;
  LatentRows found;
};

} // namespace

int64_t LatentRows::width() const {
  int64_t columns = compressed->type().dim(2).value().value_or(0);
  for (const KeyColumns& part : keys)
    if (std::holds_alternative<SharedColumns>(part.made))
      columns += part.width;
  return columns;
}

std::optional<ValueColumns> findValueColumns(const AttentionSite& site) {
  if (whyNotOwn(site))
    return std::nullopt;
  const Value& keys = *site.key->fresh;
  const Value& values = *site.value->fresh;
  const std::optional<int64_t> width = values.type().dim(3).value();
  if (!width)
    return std::nullopt;
  if (&values == &keys)
    return ValueColumns{0, *width};
  // Keys may join these rows, too.
  const Node* join = keys.producer();
  if (join && join->is("Concat") &&
      normalizedAxis(join->intAttr("axis", 0), keys.type().rank()) == 3u) {
    int64_t first = 0;
    for (const Use& use : join->operands()) {
      if (use.value() == &values)
        return ValueColumns{first, *width};
      const auto columns =
          use.value()->type().hasRank() ? use.value()->type().dim(3).value() : std::nullopt;
      if (!columns)
        break;
      first += *columns;
    }
  }
  const Node* node = values.producer();
  if (!node || movementKind(*node) != MovementKind::Slice || movedOperand(*node) != &keys)
    return std::nullopt;
  const auto range = slicedRange(values);
  if (!range || range->axis != 3 || range->start < 0)
    return std::nullopt;
  return ValueColumns{range->start, *width};
}

std::variant<LatentRows, MatchFailure> findLatentRows(const AttentionSite& site) {
  return LatentFinder(site).run();
}

} // namespace kvopt::rows
