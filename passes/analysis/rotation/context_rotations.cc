// Positions in keys, queries, values, and masks.
#include "passes/analysis/rotation/context_rotations.h"

#include "passes/analysis/interface/input_roles.h"
#include "passes/analysis/rotation/form_evaluator.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SetVector.h"

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

MatchFailure failure(ReasonCode code, const Node* node, std::string expected, std::string found) {
  return {code, node ? node->name().str() : "", std::move(expected), std::move(found), ""};
}

class ContextReader {
public:
  ContextReader(const Graph& decoder, llvm::ArrayRef<AttentionSite> allSites)
      : graph(decoder), sites(allSites), flow(decoder, allSites), evaluator(flow, allSites) {}

  std::variant<ContextRotations, MatchFailure> run() {
    bool hasCache = false;
    for (const AttentionSite& site : sites) {
      if (site.isCross && site.isMatched()) {
        if (!flow.isFree(*site.node->operand(0)))
          return failure(ReasonCode::PositionAbsolute, site.node,
                         "queries of cross-attention that do not depend on positions",
                         "queries that depend on positions");
        continue;
      }
      if (auto refused = visit(site))
        return std::move(*refused);
      evaluator.forgetRows();
      hasCache = true;
    }
    if (!hasCache)
      return failure(ReasonCode::NoCache, nullptr, "attention that appends to a cache", "none");
    if (auto refused = checkOutputs())
      return std::move(*refused);
    return std::move(found);
  }

private:
  std::optional<MatchFailure> visit(const AttentionSite& site) {
    if (site.failure)
      return *site.failure;
    if (!site.hasCache())
      return failure(ReasonCode::NoCache, site.node, "attention that appends to a cache", "none");
    if (!flow.follows(site.node->graph()))
      return failure(ReasonCode::InSubgraph, site.node, "attention outside of branches",
                     "attention in a branch");
    if (auto refused = checkMask(site))
      return refused;
    if (const Value* sinks = site.node->operand(4); sinks && !flow.isFree(*sinks))
      return failure(ReasonCode::PositionAbsolute, site.node,
                     "sinks that do not depend on positions", "sinks that depend on positions");
    // Slots correspond to positions if attention sees all slots up to the new token's own position.
    if (site.update == CacheUpdate::Static && site.mask && !site.mask->causalIf &&
        site.mask->causal != Proof::Proved)
      return failure(ReasonCode::MaskUnprovenCausal, site.node,
                     "attention to the slots up to each token's position", site.mask->text);
    if (!site.owner) {
      if (auto refused = checkKeys(site))
        return refused;
      if (auto refused = checkValues(site))
        return refused;
    }
    return checkQuery(site);
  }

  /// Checks that the mask depends on differences of positions, and on inputs for keys, only.
  static std::optional<MatchFailure> checkMask(const AttentionSite& site) {
    if (!site.node->operand(3))
      return std::nullopt;
    if (site.mask && isRelative(*site.mask))
      return std::nullopt;
    return failure(ReasonCode::PositionAbsolute, site.node,
                   "a mask that depends on the distance between tokens",
                   site.mask ? site.mask->text : "one that was not analyzed");
  }

  static bool isRelative(const MaskFacts& mask) {
    const bool isWhole = mask.remaining != MaskFacts::Remaining::Other ||
                         mask.causal == Proof::Proved || mask.causalIf;
    return isWhole && !mask.hasBidirectionalBlocks &&
           (mask.bias == MaskFacts::Bias::None || mask.bias == MaskFacts::Bias::ByDistance) &&
           llvm::all_of(mask.padding, [](const MaskFacts::Padding& padding) {
             return padding.isOfElements || padding.shownBy;
           });
  }

  std::optional<MatchFailure> checkKeys(const AttentionSite& site) {
    const SiteCache& cache = *site.key;
    auto rotation = rotationOf(*cache.fresh, &cache.freshLayout, site);
    if (auto* refused = std::get_if<MatchFailure>(&rotation))
      return std::move(*refused);
    const RowRotation& own = keys[site.layer] = std::get<RowRotation>(rotation);
    // Two branches may both write the cache.
    const auto [written, isFirst] = byCache.try_emplace(cache.past, own);
    if (!isFirst && !(written->second.isRelativeTo(own) && written->second.width == own.width))
      return failure(ReasonCode::RotationUnknown, site.node,
                     "one rotation of a cache in both branches", "different ones");
    if (own.theta.empty())
      return std::nullopt;
    const auto same = llvm::find_if(found.distinct, [&](const RowRotation& other) {
      return other.width == own.width && other.theta == own.theta && other.isRelativeTo(own);
    });
    found.byPast[cache.past->name().str()] = static_cast<size_t>(same - found.distinct.begin());
    if (same == found.distinct.end())
      found.distinct.push_back(own);
    return std::nullopt;
  }

  /// Values of a latent cache must be columns that are not rotated.
  std::optional<MatchFailure> checkValues(const AttentionSite& site) {
    if (site.isLatent()) {
      const RowRotation& rotation = keys[site.layer];
      const auto columns = site.value->columns.value();
      const int64_t first = site.value->firstColumn;
      const int64_t count = 2 * static_cast<int64_t>(rotation.theta.size());
      if (count == 0 ||
          (columns && (first + *columns <= rotation.first || first >= rotation.first + count)))
        return std::nullopt;
      return failure(ReasonCode::RotationUnknown, site.node, "values that are not rotated",
                     "values among the rotated columns");
    }
    const Value& values = *site.value->fresh;
    if (flow.isFree(values))
      return std::nullopt;
    const FormTensor* rows = evaluator.evaluate(values);
    if (!rows)
      return unknown(values);
    for (int64_t i = 0; i < rows->count(); ++i)
      if (!rows->at(i).isPositionFree())
        return failure(ReasonCode::RotationUnknown, values.producer(),
                       "values that do not depend on positions", "values that depend on positions");
    return std::nullopt;
  }

  std::optional<MatchFailure> checkQuery(const AttentionSite& site) {
    auto rotation = rotationOf(*site.node->operand(0), nullptr, site);
    if (auto* refused = std::get_if<MatchFailure>(&rotation))
      return std::move(*refused);
    RowRotation& query = std::get<RowRotation>(rotation);
    query.first += query.theta.empty() ? 0 : site.key->firstColumn;
    const RowRotation& key = keys[site.owner.value_or(site.layer)];
    if (query.isRelativeTo(key))
      return std::nullopt;
    query.source = key.source;
    return failure(ReasonCode::PositionAbsolute, site.node,
                   "queries and keys that are rotated alike",
                   query.isRelativeTo(key)
                       ? "positions that are counted in one way for queries and in another for keys"
                       : "different rotations");
  }

  std::variant<RowRotation, MatchFailure> rotationOf(const Value& rows, const CacheLayout* layout,
                                                     const AttentionSite& site) {
    RowRotation none;
    none.width = site.keyWidth.value().value_or(0);
    if (flow.isFree(rows))
      return none;
    llvm::SmallVector<unsigned, 4> order{0, 1, 2, 3};
    const FormTensor* forms = evaluator.evaluate(rows);
    if (!forms)
      return unknown(rows);
    FormTensor split;
    if (layout) {
      const auto axis = [&](char letter) { return layout->axisOf(letter).value_or(0); };
      if (!layout->isKnown() || layout->rank() != forms->shape.size() || !layout->axisOf('S') ||
          !layout->axisOf('D'))
        return failure(ReasonCode::LayoutUnsupported, site.node, "a known layout", layout->text());
      order = {axis('B'), axis('H'), axis('S'), axis('D')};
      if (forms->shape.size() == 3) {
        const auto width = site.keyWidth.value();
        if (!splitHeads(*forms, order, width.value_or(0), split))
          return failure(ReasonCode::LayoutUnsupported, site.node, "heads of a known width",
                         layout->text());
        forms = &split;
      }
    }
    auto rotation = finder.find(*forms, order);
    if (auto* why = std::get_if<std::string>(&rotation))
      return failure(ReasonCode::RotationUnknown, rows.producer(),
                     "pairs of columns that are rotated by multiples of the position",
                     std::move(*why));
    return std::get<RowRotation>(std::move(rotation));
  }

  /// Splits an axis of rows with three axes, which combines heads with columns, or batch rows with
  /// heads: [B,H,S,D]. False if the split is ambiguous.
  static bool splitHeads(const FormTensor& rows, llvm::SmallVectorImpl<unsigned>& order,
                         int64_t width, FormTensor& split) {
    const auto [batch, head, token, column] = std::tuple(order[0], order[1], order[2], order[3]);
    const bool isFolded = head == batch;
    const int64_t columns = rows.shape[column];
    const int64_t heads = isFolded ? rows.shape[batch] : width > 0 ? columns / width : 0;
    const int64_t own = isFolded ? columns : width;
    if (heads == 0 || own == 0 || (!isFolded && (head != column || heads * own != columns)))
      return false;
    const auto strides = stridesOf(rows.shape);
    std::vector<PositionForm> forms;
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t s = 0; s < rows.shape[token]; ++s)
        for (int64_t d = 0; d < own; ++d)
          forms.push_back(rows.at((isFolded ? h * strides[batch] + d * strides[column]
                                            : (h * own + d) * strides[column]) +
                                  s * strides[token]));
    split.shape = {1, heads, rows.shape[token], own};
    split.take(std::move(forms));
    order.assign({0, 1, 2, 3});
    return true;
  }

  /// Failure for a value that could not be followed.
  MatchFailure unknown(const Value& value) {
    const Node* at = evaluator.where();
    if (evaluator.mixesPositions())
      return failure(ReasonCode::PositionAbsolute, flow.entry(value),
                     "positions that only rotate keys and queries",
                     at ? formatted("rows that depend on positions and reach {}", at->describe())
                        : "other rows");
    return failure(ReasonCode::RotationUnknown, at ? at : value.producer(),
                   "rows that are rotated by multiples of the position", evaluator.obstacle());
  }

  std::optional<MatchFailure> checkOutputs() {
    llvm::DenseSet<const Value*> caches;
    for (const AttentionSite& site : sites)
      for (const auto* cache : {&site.key, &site.value})
        if (*cache)
          caches.insert((*cache)->output);
    for (const Value* output : graph.outputs())
      if (!caches.contains(output) && flow.of(*output) == PositionFlow::State::Both)
        return failure(
            ReasonCode::PositionAbsolute, flow.entry(*output),
            formatted("'{}' to depend on positions through attention only", output->name()),
            foundIn(flow.entry(*output)));
    return std::nullopt;
  }

  /// Names the source of positions in values that are computed from tokens, at a node. An input of
  /// unknown meaning may count tokens.
  std::string foundIn(const Node* entry) const {
    llvm::SetVector<const Value*> pending;
    for (const Use& use : entry ? entry->operands() : llvm::ArrayRef<Use>())
      if (use.value() && flow.of(*use.value()) == PositionFlow::State::Position)
        pending.insert(use.value());
    std::vector<const Value*> inputs;
    for (size_t i = 0; i < pending.size(); ++i) {
      if (pending[i]->isGraphInput())
        inputs.push_back(pending[i]);
      else if (const Node* node = pending[i]->producer(); node && !node->is("Shape"))
        for (const Use& use : node->operands())
          if (use.value() && flow.of(*use.value()) == PositionFlow::State::Position)
            pending.insert(use.value());
    }
    Manifest described;
    describeInputs(graph, readInterface(graph), described);
    const bool isUnknown = llvm::any_of(described.inputs, [&](const ManifestInput& input) {
      return inputs.size() == 1 && input.feed == InputFeed::Any &&
             input.input == inputs.front()->name();
    });
    return isUnknown ? formatted("the input '{}', which may count tokens, as its meaning is not "
                                 "known",
                                 inputs.front()->name())
                     : "positions in values that are computed from tokens";
  }

  const Graph& graph;
  llvm::ArrayRef<AttentionSite> sites;
  PositionFlow flow;
  FormEvaluator evaluator;
  RotationFinder finder;
  std::map<unsigned, RowRotation> keys; ///< rotations of keys by layer
  std::map<const Value*, RowRotation> byCache;
  ContextRotations found;
};

} // namespace

std::variant<ContextRotations, MatchFailure>
findContextRotations(const Graph& graph, llvm::ArrayRef<AttentionSite> sites) {
  return ContextReader(graph, sites).run();
}

} // namespace kvopt::analysis
