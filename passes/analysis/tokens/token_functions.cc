// Follows tokens through a graph.
#include "passes/analysis/tokens/token_functions.h"

#include "ir/elementwise.h"
#include "ir/movement.h"
#include "ir/op.h"
#include "passes/analysis/movement/uniform_value.h"
#include "passes/analysis/tokens/row_operators.h"
#include "support/format.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Dependence of a value on the tokens.
enum class Dependence {
  Constant,  ///< not at all
  Extent,    ///< integers computed from extents
  PerToken,  ///< along one axis, element by element
  LastToken, ///< on the last token only
  Cached     ///< rows of earlier tokens, possibly followed by those of the new ones
};

struct TokenState {
  Dependence kind = Dependence::Constant;
  /// For PerToken: extent outside the tokens on their axis; [B*S] has B.
  Dim outer = Dim::fixed(1);
  /// For PerToken: the tokens' axis, if extents do not determine it. A table may be shorter than
  /// the tokens.
  std::optional<unsigned> axis = std::nullopt;
};

llvm::ArrayRef<Dim> extentsOf(const Value& value) {
  return value.type().hasRank() ? llvm::ArrayRef<Dim>(value.type().shape()) : llvm::ArrayRef<Dim>();
}

Dim product(llvm::ArrayRef<Dim> extents) {
  Dim result = Dim::fixed(1);
  for (const Dim& extent : extents)
    result = result * extent;
  return result;
}

bool isPure(const TokenState& state) { return state.outer.value() == 1; }

/// Whether a Slice keeps only the last of that number of tokens.
bool keepsLast(const MovementRange& range, const Dim& tokens) {
  const bool toEnd = range.end.known.isKnownEqual(tokens) ||
                     range.end.known.value().value_or(0) > std::numeric_limits<int32_t>::max() / 2;
  return toEnd && range.step.known.value() == 1 &&
         (range.start.known.value() == -1 ||
          range.start.known.isKnownEqual(tokens - Dim::fixed(1)));
}

/// Subject of the walk: the tokens of sequences, or the rows of a batch.
enum class Followed { Tokens, BatchRows };

/// The attention of a graph, and the caches that it reads.
struct Attentions {
  explicit Attentions(llvm::ArrayRef<AttentionSite> sites) {
    for (const AttentionSite& site : sites) {
      all.insert(site.node);
      if (site.isCross)
        toOtherSequences.insert(site.node);
      if (site.mask && hidesByRow(*site.mask))
        maskedByRow.insert(site.node);
      for (const auto* cache : {&site.key, &site.value})
        if (*cache && !site.isCross)
          add(**cache);
    }
  }

  /// Whether a mask is understood, and hides keys of a batch row according to an input for that
  /// row.
  static bool hidesByRow(const MaskFacts& facts) {
    return facts.remaining != MaskFacts::Remaining::Other && facts.bias != MaskFacts::Bias::Other &&
           llvm::all_of(facts.padding, [](const MaskFacts::Padding& padding) {
             return padding.shownBy != nullptr;
           });
  }

  void add(const SiteCache& cache) {
    pasts.insert(cache.past);
    if (cache.writer)
      writers.insert({cache.writer, cache.fresh});
    if (cache.update == CacheUpdate::Grows)
      pastRows = cache.past->type().dim(cache.axis);
  }

  llvm::DenseSet<const Node*> all;
  llvm::DenseSet<const Node*> toOtherSequences;
  llvm::DenseSet<const Node*> maskedByRow;
  llvm::DenseSet<const Value*> pasts;
  /// Nodes that join new rows to a past, with the new rows.
  llvm::DenseMap<const Node*, const Value*> writers;
  /// Number of earlier tokens; 0 without caches that grow.
  Dim pastRows = Dim::fixed(0);
};

/// Values from which outputs and attention are computed. When tokens are followed, masks of
/// attention among them are left out, because they define which tokens see each other. When batch
/// rows are followed, masks that are known to treat them separately are left out.
llvm::DenseSet<const Value*> liveValues(const Graph& graph, const Attentions& attentions,
                                        Followed followed) {
  llvm::DenseSet<const Value*> live;
  llvm::SmallVector<const Value*, 32> pending(graph.outputs().begin(), graph.outputs().end());
  while (!pending.empty()) {
    const Value* value = pending.pop_back_val();
    const Node* producer = value->producer();
    if (!live.insert(value).second || !producer || producer->is("Shape") || producer->is("Size"))
      continue;
    const bool leavesMask =
        followed == Followed::Tokens
            ? attentions.all.contains(producer) && !attentions.toOtherSequences.contains(producer)
            : attentions.maskedByRow.contains(producer);
    for (const Use& use : producer->operands())
      if (use.value() && !(leavesMask && use.operandIndex() == 3))
        pending.push_back(use.value());
  }
  return live;
}

/// A test of one value, which may be absent.
using ValueTest = llvm::function_ref<bool(const Value*)>;

/// Reason why attention to another sequence mixes tokens; nullptr if it does not. Rows of that
/// sequence are the same for every token. A mask may select the visible ones for each token, but
/// the token's position must not.
const char* mixedByCrossAttention(const Node& node, ValueTest isConstant, ValueTest isRowPerToken) {
  if (!isRowPerToken(node.operand(0)))
    return "its queries are not one row for each token";
  for (unsigned operand : {1U, 2U, 4U, 5U})
    if (!isConstant(node.operand(operand)))
      return "its keys, values, sinks or lengths depend on the tokens";
  if (node.intAttr("causal", 0) != 0 || node.intAttr("window", 0) != 0)
    return "the rows of the other sequence that a token sees depend on the token's position";
  if (!isConstant(node.operand(3)) && !isRowPerToken(node.operand(3)))
    return "its mask depends on other tokens";
  return nullptr;
}

/// The same for attention among the tokens and earlier ones.
const char* mixedByAttention(const Node& node, ValueTest isConstant, ValueTest isRowPerToken,
                             ValueTest isCached) {
  if (!isRowPerToken(node.operand(0)))
    return "its operands are not one row for each token";
  for (unsigned operand : {1U, 2U})
    if (!isRowPerToken(node.operand(operand)) && !isCached(node.operand(operand)))
      return "its operands are not one row for each token";
  if (!isConstant(node.operand(4)) || !isConstant(node.operand(5)))
    return "its sinks or lengths depend on the tokens";
  return nullptr;
}

/// Reason why attention mixes rows of a batch; nullptr if it does not. All operands must have batch
/// rows on the first axis, or be the same for all rows.
const char* mixedByBatchedAttention(const Node& node, ValueTest isConstant, ValueTest isFirstAxis) {
  if (!isFirstAxis(node.operand(0)))
    return "its queries do not have batch rows on the first axis";
  for (const Use& use : node.operands()) // a mask that was not followed counts as constant
    if (!isConstant(use.value()) && !isFirstAxis(use.value()))
      return "its operands do not have batch rows on the first axis";
  return nullptr;
}

/// Known states of the visited values.
class TokenStates {
protected:
  explicit TokenStates(llvm::StringRef followedSymbol)
      : symbol(followedSymbol), tokens(Dim::symbol(followedSymbol)) {}

  bool counts(const Dim& extent) const {
    return llvm::is_contained(extent.symbols(), symbol.str());
  }

  bool hasTokens(const Value& value) const {
    return llvm::any_of(extentsOf(value), [&](const Dim& extent) { return counts(extent); });
  }

  /// The one axis of tokens.
  std::optional<unsigned> tokenAxis(const Value& value) const {
    if (const auto entry = states.find(&value); entry != states.end() && entry->second.axis)
      return entry->second.axis;
    return axisByExtents(value);
  }
  std::optional<unsigned> axisByExtents(const Value& value) const {
    std::optional<unsigned> single;
    for (unsigned axis = 0; axis < extentsOf(value).size(); ++axis) {
      const Dim& extent = extentsOf(value)[axis];
      if (extent.isUnknown() || (counts(extent) && single))
        return std::nullopt;
      if (counts(extent))
        single = axis;
    }
    return single;
  }

  TokenState stateOf(const Value* value) const {
    const auto entry = states.find(value);
    return entry == states.end() ? TokenState() : entry->second;
  }

  bool isRowPerToken(const Value* value, unsigned place) const {
    return value && stateOf(value).kind == Dependence::PerToken && isPure(stateOf(value)) &&
           tokenAxis(*value) == place && extentsOf(*value)[place].isKnownEqual(tokens);
  }

  llvm::StringRef symbol;
  Dim tokens;
  llvm::DenseMap<const Value*, TokenState> states;
};

/// Rules for operators on tokens' rows, where every token has one row.
class TokenRows : protected TokenStates {
protected:
  TokenRows(llvm::StringRef followedSymbol, Followed kindOfRows)
      : TokenStates(followedSymbol), followed(kindOfRows) {}

  void refuse(const Node* node, std::string why) {
    if (!mixing)
      mixing = TokenMixing{node, std::move(why)};
  }

  void set(const Value& value, TokenState state, const Node* node) {
    if (state.kind == Dependence::PerToken && !(state.axis && !axisByExtents(value))) {
      state.axis.reset();
      const std::optional<unsigned> axis = axisByExtents(value);
      if (!axis)
        return refuse(node, formatted("its result {} has no single axis of {}", value.type().str(),
                                      symbol.str()));
      if (state.outer.value() == 1 && !extentsOf(value)[*axis].isKnownEqual(tokens) &&
          !extentsOf(value)[*axis].dividedBy(tokens))
        return refuse(node, formatted("its result {} has an axis of more than the tokens",
                                      value.type().str()));
    }
    states[&value] = std::move(state);
  }

  void setAll(const Node& node, const TokenState& state) {
    for (const Value& result : node.results())
      if (!result.isUnused())
        set(result, state, &node);
  }
  /// For operators that may move the axis: only extents determine it then.
  static TokenState withoutAxis(TokenState state) {
    state.axis.reset();
    return state;
  }

  /// Each result row is computed from the same row of each operand that has tokens.
  void visitRows(const Node& node) {
    if (stateOf(node.operand(0)).kind != Dependence::PerToken)
      return refuse(&node, "its parameters depend on the tokens");
    const bool takesTokens = node.op().type() == "RotaryEmbedding";
    for (const Use& use : node.operands())
      if (use.operandIndex() > 0 && use.value() &&
          stateOf(use.value()).kind == Dependence::PerToken &&
          (!takesTokens || stateOf(use.value()).outer.value() != 1))
        return refuse(&node, "its parameters depend on the tokens");
    setAll(node, stateOf(node.operand(0)));
  }

  void visitElementwise(const Node& node) {
    std::optional<size_t> fromEnd;
    std::optional<TokenState> state;
    bool isUniform = false; // equal rows may be in any order
    for (const Use& use : node.operands()) {
      if (!use.value() || stateOf(use.value()).kind == Dependence::Constant)
        continue;
      const std::optional<unsigned> axis = tokenAxis(*use.value());
      const TokenState own = stateOf(use.value());
      if (own.kind != Dependence::PerToken || !axis)
        return refuse(&node, "it computes with the number of tokens");
      const size_t place = extentsOf(*use.value()).size() - *axis;
      const bool isLikeAny = uniformValue(*use.value()).has_value();
      if (fromEnd &&
          (*fromEnd != place || !(isUniform || isLikeAny || state->outer.isKnownEqual(own.outer))))
        return refuse(&node, "it combines tokens with each other");
      fromEnd = place;
      if (!state || isUniform) {
        state = own;
        isUniform = isLikeAny;
      }
    }
    if (const TensorType& type = node.result().type(); type.hasRank())
      state->axis = static_cast<unsigned>(type.rank() - *fromEnd);
    setAll(node, *state);
  }

  void visitProduct(const Node& node) {
    const TokenState state = stateOf(node.operand(0));
    if ((node.is("MatMul") || isScaledProduct(node)) && state.kind == Dependence::Constant)
      return visitColumns(node);
    if (state.kind != Dependence::PerToken)
      return refuse(&node, "its matrix depends on the tokens");
    if (!isGemm(node) && stateOf(node.operand(1)).kind == Dependence::PerToken)
      return visitProducts(node);
    for (const Use& use : node.operands())
      if (use.operandIndex() > 0 && use.value() &&
          stateOf(use.value()).kind != Dependence::Constant)
        return refuse(&node, "it multiplies tokens with each other");
    const std::optional<unsigned> axis = tokenAxis(*node.operand(0));
    const bool isTransposed = isGemm(node) && node.intAttr("transA", 0) != 0;
    if (!axis || isTransposed || *axis + 1 == extentsOf(*node.operand(0)).size())
      return refuse(&node, "it sums over the tokens");
    setAll(node, state);
  }

  /// A product of two matrices for each token, such as rows with those of the token's expert.
  void visitProducts(const Node& node) {
    std::optional<int64_t> fromEnd[2];
    for (unsigned i : {0U, 1U})
      if (const auto axis = tokenAxis(*node.operand(i)))
        fromEnd[i] = static_cast<int64_t>(extentsOf(*node.operand(i)).size()) - int64_t{*axis};
    if (!fromEnd[0] || fromEnd[0] != fromEnd[1] || *fromEnd[0] < 3 ||
        !stateOf(node.operand(0)).outer.isKnownEqual(stateOf(node.operand(1)).outer))
      return refuse(&node, "it multiplies tokens with each other");
    setAll(node, withoutAxis(stateOf(node.operand(0))));
  }

  /// A constant matrix times columns, or times matrices, one per token, as angles are computed from
  /// positions.
  void visitColumns(const Node& node) {
    const TokenState state = stateOf(node.operand(1));
    const std::optional<unsigned> axis = tokenAxis(*node.operand(1));
    if (state.kind != Dependence::PerToken || !axis || extentsOf(*node.operand(1)).size() < 2 ||
        *axis + 2 == extentsOf(*node.operand(1)).size())
      return refuse(&node, "it sums over the tokens");
    setAll(node, state);
  }

  void visitGather(const Node& node) {
    constexpr int64_t unknown = -1;
    const TokenState data = stateOf(node.operand(0));
    const TokenState indices = stateOf(node.operand(1));
    const std::optional<Movement> movement = movementOf(node.result());
    const int64_t axis = movement && movement->axis() ? int64_t{*movement->axis()} : unknown;
    const auto tokensOf = [&](unsigned operand) {
      const std::optional<unsigned> place = tokenAxis(*node.operand(operand));
      return place ? int64_t{*place} : unknown;
    };
    if (data.kind == Dependence::Constant && indices.kind == Dependence::PerToken) {
      TokenState state = withoutAxis(indices);
      if (axis != unknown && tokensOf(1) != unknown)
        state.axis = static_cast<unsigned>(axis + tokensOf(1));
      return setAll(node, state);
    }
    if (data.kind != Dependence::PerToken || axis == unknown || tokensOf(0) == unknown)
      return refuse(&node, "it selects by token and from tokens");
    if (axis != tokensOf(0) && indices.kind == Dependence::Constant)
      return setAll(node, withoutAxis(data));
    auto known = node.operand(1)->knownIntegers();
    const bool isLast =
        followed == Followed::Tokens && axis == tokensOf(0) && known && known->size() == 1 &&
        isPure(data) &&
        (known->front().value() == -1 || known->front().isKnownEqual(tokens - Dim::fixed(1)));
    if (!isLast)
      return refuse(&node, "it selects tokens by position");
    setAll(node, {Dependence::LastToken, Dim::fixed(1)});
  }

  /// Entries of a constant for each token, such as the weights of its expert, or the same entries
  /// of each token's row.
  void visitPointGather(const Node& node) {
    const TokenState data = stateOf(node.operand(0));
    const TokenState indices = stateOf(node.operand(1));
    const auto axis = tokenAxis(*node.operand(data.kind == Dependence::PerToken ? 0 : 1));
    const llvm::ArrayRef<Dim> places = extentsOf(*node.operand(1));
    if (!axis || places.empty() || node.intAttr("batch_dims", 0) != 0)
      return refuse(&node, "it is not known to treat tokens separately");
    if (data.kind == Dependence::Constant && *axis + 1 < places.size()) {
      TokenState state = indices;
      state.axis = axis;
      return setAll(node, state);
    }
    const auto pointed = places.back().value();
    if (indices.kind != Dependence::Constant || !pointed || *axis < *pointed)
      return refuse(&node, "it selects tokens by position");
    setAll(node, withoutAxis(data));
  }

  /// Whether indices into rows have the tokens on the same axis as the rows, and select along
  /// another axis.
  bool picksWithinTokens(const Node& node) const {
    const TensorType& type = node.operand(1)->type();
    const auto along =
        type.hasRank() ? normalizedAxis(node.intAttr("axis", 0), type.rank()) : std::nullopt;
    const auto axis = tokenAxis(*node.operand(1));
    return along && axis && along != axis;
  }

  /// Numbers that overwrite others of the same token. Equal rows may be in any order.
  void visitScatterElements(const Node& node) {
    const auto axis = tokenAxis(*node.operand(1));
    if (!picksWithinTokens(node))
      return refuse(&node, "it writes by the position of tokens");
    const TokenState indices = stateOf(node.operand(1));
    const auto isAlike = [&](const Value& value) {
      const TokenState own = stateOf(&value);
      if (own.kind != Dependence::PerToken || tokenAxis(value) != axis)
        return false;
      const bool areEqualRows =
          extentsOf(value)[*axis].isKnownEqual(extentsOf(*node.operand(1))[*axis]) &&
          uniformValue(value);
      return areEqualRows || own.outer.isKnownEqual(indices.outer);
    };
    for (const Use& use : node.operands())
      if (!isAlike(*use.value()))
        return refuse(&node, "its operands have tokens on different axes");
    setAll(node, {Dependence::PerToken, indices.outer, stateOf(node.operand(0)).axis});
  }

  /// Tables by position: each index selects an entry along its own axis. If data are tokens' rows,
  /// each index selects from its own token's.
  void visitGatherElements(const Node& node) {
    const TensorType& type = node.operand(1)->type();
    const std::optional<unsigned> along =
        type.hasRank() ? normalizedAxis(node.intAttr("axis", 0), type.rank()) : std::nullopt;
    const TokenState indices = stateOf(node.operand(1));
    const TokenState data = stateOf(node.operand(0));
    if (data.kind == Dependence::PerToken && indices.kind == Dependence::PerToken &&
        picksWithinTokens(node) && tokenAxis(*node.operand(0)) == tokenAxis(*node.operand(1)) &&
        data.outer.isKnownEqual(indices.outer))
      return setAll(node, indices);
    if (stateOf(node.operand(0)).kind != Dependence::Constant ||
        indices.kind != Dependence::PerToken || !along || tokenAxis(*node.operand(1)) != along)
      return refuse(&node, "it selects tokens by position");
    setAll(node, indices);
  }

  void visitConcat(const Node& node) {
    const std::optional<Movement> movement = movementOf(node.result());
    const std::optional<unsigned> joined = movement ? movement->axis() : std::nullopt;
    std::optional<TokenState> state;
    for (const Use& use : node.operands()) {
      const TokenState own = stateOf(use.value());
      const std::optional<unsigned> axis = tokenAxis(*use.value());
      if (!joined || own.kind != Dependence::PerToken || !axis || axis == joined)
        return refuse(&node, "it joins tokens with something else");
      if (state && !state->outer.isKnownEqual(own.outer))
        return refuse(&node, "it joins tokens in different orders");
      state = own;
    }
    setAll(node, *state);
  }

  const Followed followed;
  std::optional<TokenMixing> mixing;
};

class TokenFollower : private TokenRows {
public:
  TokenFollower(const Graph& followedGraph, llvm::ArrayRef<AttentionSite> sites,
                llvm::StringRef followedSymbol, Followed kindOfRows,
                const PrefixSequences& knownSequences)
      : TokenRows(followedSymbol, kindOfRows), graph(followedGraph), attentions(sites),
        sequences(knownSequences) {}

  std::variant<TokenFunctions, TokenMixing> run() {
    live = liveValues(graph, attentions, followed);
    for (const std::unique_ptr<Value>& input : graph.inputs()) {
      if (!live.contains(input.get()) || input->constant())
        continue;
      if (followed == Followed::Tokens && attentions.pasts.contains(input.get()))
        set(*input, {Dependence::Cached, Dim::fixed(1)}, nullptr);
      else if (hasTokens(*input))
        set(*input, {Dependence::PerToken, Dim::fixed(1)}, nullptr);
    }
    for (const Node& node : graph.nodes()) {
      if (mixing)
        break;
      if (llvm::any_of(node.results(), [&](const Value& result) { return live.contains(&result); }))
        visit(node);
    }
    if (mixing)
      return std::move(*mixing);
    return std::move(found);
  }

private:
  /// Whether the integers depend on the number of tokens, new or earlier, through these extents.
  bool dependsOnCount(llvm::ArrayRef<Dim> extents) const {
    return llvm::any_of(extents, [&](const Dim& extent) {
      return extent.isUnknown() || counts(extent) ||
             (followed == Followed::Tokens &&
              llvm::any_of(extent.symbols(), [&](const std::string& other) {
                return llvm::is_contained(attentions.pastRows.symbols(), other);
              }));
    });
  }

  /// Visits nodes on sequences of all tokens. Returns true if the result is such a sequence.
  bool visitSequences(const Node& node) {
    if (sequences.count(&node.result())) {
      const PrefixSequence& sequence = sequences.find(&node.result())->second;
      if (node.result().isGraphOutput())
        refuse(&node, "an output has an element for every key");
      set(node.result(), {Dependence::PerToken, Dim::fixed(1), sequence.axis}, &node);
      return true;
    }
    for (const Use& use : node.operands()) {
      const auto sequence = use.value() ? sequences.find(use.value()) : sequences.end();
      if (sequence == sequences.end() ||
          (attentions.all.contains(&node) && use.operandIndex() == 3))
        continue;
      if (node.is("Gather") && !sequence->second.isCounted)
        refuse(&node,
               formatted("it selects by '{}', which has an element per key", use.value()->name()));
      found.lastRows.push_back(
          {const_cast<Node*>(&node), use.operandIndex(), sequence->second.axis});
    }
    return false;
  }

  void visit(const Node& node) {
    if (!sequences.empty() && visitSequences(node))
      return;
    if (attentions.all.contains(&node))
      return visitAttention(node);
    bool any[5] = {};
    for (const Use& use : node.operands())
      if (use.value())
        any[static_cast<unsigned>(stateOf(use.value()).kind)] = true;
    const auto has = [&](Dependence kind) { return any[static_cast<unsigned>(kind)]; };
    if (!node.subgraphs().empty() || hasUnknownOperands(node))
      return refuse(&node, "it has subgraphs, or operands that are not known");
    if (node.is("Shape") || node.is("Size"))
      return setExtents(node, extentsOf(*node.operand(0)));
    if (const auto writer = attentions.writers.find(&node); writer != attentions.writers.end())
      return visitWriter(node, *writer->second);
    if (has(Dependence::Cached))
      return movementKind(node) ? setAll(node, {Dependence::Cached, Dim::fixed(1)})
                                : refuse(&node, "it computes with rows of earlier tokens");
    if (has(Dependence::LastToken) && has(Dependence::PerToken))
      return refuse(&node, "it combines the last token with others");
    if (has(Dependence::LastToken))
      return setAll(node, {Dependence::LastToken, Dim::fixed(1)});
    if (has(Dependence::PerToken))
      return visitTokens(node);
    if (has(Dependence::Extent))
      return visitExtents(node);
  }

  void setExtents(const Node& node, llvm::ArrayRef<Dim> extents) {
    setAll(node,
           {dependsOnCount(extents) ? Dependence::Extent : Dependence::Constant, Dim::fixed(1)});
  }

  void visitAttention(const Node& node) {
    const auto isConstant = [&](const Value* value) {
      return !value || stateOf(value).kind == Dependence::Constant;
    };
    const auto isRow = [&](const Value* value) {
      return isRowPerToken(value, followed == Followed::Tokens ? 2 : 0);
    };
    const auto isCached = [&](const Value* value) {
      return stateOf(value).kind == Dependence::Cached;
    };
    const char* why = followed == Followed::BatchRows
                          ? mixedByBatchedAttention(node, isConstant, isRow)
                      : attentions.toOtherSequences.contains(&node)
                          ? mixedByCrossAttention(node, isConstant, isRow)
                          : mixedByAttention(node, isConstant, isRow, isCached);
    if (why)
      return refuse(&node, why);
    setAll(node, {Dependence::PerToken, Dim::fixed(1)});
  }

  /// Visits nodes that join the tokens' rows to earlier ones, each to those of its own batch row.
  void visitWriter(const Node& node, const Value& fresh) {
    const bool isTokens = followed == Followed::Tokens;
    if (isTokens ? stateOf(&fresh).kind != Dependence::PerToken : !isRowPerToken(&fresh, 0))
      return refuse(&node, "the new rows of a cache are not one for each token");
    setAll(node, {isTokens ? Dependence::Cached : Dependence::PerToken, Dim::fixed(1)});
  }

  /// Visits constants and extents.
  void visitExtents(const Node& node) {
    if (node.is("Range")) {
      const auto integer = [&](unsigned operand) -> std::optional<Dim> {
        auto known = node.operand(operand)->knownIntegers();
        return known && known->size() == 1 ? std::optional<Dim>(known->front()) : std::nullopt;
      };
      const auto start = integer(0);
      const auto limit = integer(1);
      const auto step = integer(2);
      const Dim& past = attentions.pastRows;
      if (followed != Followed::Tokens || !start || !limit || !step || step->value() != 1 ||
          !start->isKnownEqual(past) || !limit->isKnownEqual(past + tokens))
        return refuse(&node, "it counts something other than the tokens");
      found.positions.push_back(const_cast<Node*>(&node));
      return setAll(node, {Dependence::PerToken, Dim::fixed(1)});
    }
    if (node.is("Slice")) {
      const std::optional<Movement> movement = movementOf(node.result());
      const std::optional<unsigned> axis = movement ? movement->axis() : std::nullopt;
      const Dim& past = attentions.pastRows;
      if (axis && followed == Followed::Tokens &&
          movement->ranges.front().start.known.isKnownEqual(past) &&
          movement->ranges.front().step.known.value() == 1 &&
          movement->ranges.front().end.known.isKnownEqual(past + tokens)) {
        found.tables.push_back(const_cast<Node*>(&node));
        return setAll(node, {Dependence::PerToken, Dim::fixed(1), axis});
      }
    }
    if (const auto known = node.result().knownIntegers(); known && node.results().size() == 1)
      return setExtents(node, *known);
    const bool repeatsConstants = node.is("ConstantOfShape") ||
                                  movementKind(node) == MovementKind::Broadcast ||
                                  movementKind(node) == MovementKind::Reshape;
    if (!repeatsConstants)
      return refuse(&node, "it computes with the number of tokens");
    const bool countsTokens =
        llvm::any_of(extentsOf(node.result()), [&](const Dim& extent) { return counts(extent); });
    if (countsTokens && movementKind(node) == MovementKind::Reshape)
      return refuse(&node, "it combines constants with the axis of tokens");
    setAll(node, {countsTokens ? Dependence::PerToken : Dependence::Constant, Dim::fixed(1)});
  }

  void visitTokens(const Node& node) {
    if (node.is("Gather"))
      return visitGather(node);
    if (node.is("GatherElements"))
      return visitGatherElements(node);
    if (node.is("GatherND"))
      return visitPointGather(node);
    if (node.is("ScatterElements"))
      return visitScatterElements(node);
    if (node.is("Concat"))
      return visitConcat(node);
    if (std::optional<MovementKind> kind = movementKind(node))
      return visitMovement(node, *kind);
    if (elementFunction(node))
      return visitElementwise(node);
    if (isRowProduct(node) || isGemm(node) || isScaledProduct(node))
      return visitProduct(node);
    if (node.op().type() == "RotaryEmbedding" || node.is("QuantizeLinear") ||
        node.is("DequantizeLinear"))
      return visitRows(node);
    const TokenState state = stateOf(node.operand(0));
    const std::optional<unsigned> axis =
        node.operand(0) ? tokenAxis(*node.operand(0)) : std::nullopt;
    const auto rank = axis ? static_cast<int64_t>(extentsOf(*node.operand(0)).size()) : 0;
    const auto combined = axis ? combinedAxes(node, rank) : std::nullopt;
    if (!combined)
      return refuse(&node, "it is not known to treat tokens separately");
    if (llvm::is_contained(*combined, static_cast<int64_t>(*axis)))
      return refuse(&node, "it combines the tokens");
    if (llvm::any_of(node.operands(), [&](const Use& use) {
          return use.operandIndex() > 1 && stateOf(use.value()).kind == Dependence::PerToken;
        }))
      return refuse(&node, "its weights depend on the tokens");
    setAll(node, state);
  }

  void visitMovement(const Node& node, MovementKind kind) {
    const Value* data = movedOperand(node);
    const TokenState state = withoutAxis(stateOf(data));
    if (!data || state.kind != Dependence::PerToken)
      return refuse(&node, "where it moves something depends on the tokens");
    const std::optional<unsigned> axis = tokenAxis(*data);
    if (!axis)
      return refuse(&node, "its operand has no single axis of tokens");
    switch (kind) {
    case MovementKind::Same:
    case MovementKind::Convert:
    case MovementKind::Permutation:
    case MovementKind::InsertAxes:
    case MovementKind::RemoveAxes:
      return setAll(node, state);
    case MovementKind::Reshape:
      return visitReshape(node, *data, state, *axis);
    case MovementKind::Broadcast: {
      const bool isKept =
          tokenAxis(node.result()) && extentsOf(node.result()).size() - *tokenAxis(node.result()) ==
                                          extentsOf(*data).size() - *axis;
      return isKept ? setAll(node, state) : refuse(&node, "it repeats tokens");
    }
    case MovementKind::Repeat: {
      const std::optional<Movement> movement = movementOf(node.result());
      const bool isOnce =
          movement && *axis < movement->counts.size() && movement->counts[*axis].known.value() == 1;
      return isOnce ? setAll(node, state) : refuse(&node, "it repeats tokens");
    }
    case MovementKind::Slice:
      return visitSlice(node, state, *axis);
    case MovementKind::Gather:
    case MovementKind::PointGather:
    case MovementKind::Concat:
      break;
    }
    refuse(&node, "it is not known to treat tokens separately");
  }

  /// The order of elements is preserved: the extent before the tokens is unchanged.
  void visitReshape(const Node& node, const Value& data, const TokenState& state, unsigned axis) {
    const std::optional<unsigned> after = tokenAxis(node.result());
    if (!after)
      return refuse(&node, "its result has no single axis of tokens");
    const Dim before = product(extentsOf(data).take_front(axis)) * state.outer;
    const Dim left = product(extentsOf(node.result()).take_front(*after));
    const std::optional<Dim> outer = before.dividedBy(left);
    if (!outer || !extentsOf(node.result())[*after].dividedBy(*outer * tokens))
      return refuse(&node, "it is not known to keep the order of the tokens");
    setAll(node, {Dependence::PerToken, *outer});
  }

  void visitSlice(const Node& node, const TokenState& state, unsigned axis) {
    for (const Value& result : node.results()) {
      if (result.isUnused())
        continue;
      const std::optional<Movement> movement = movementOf(result);
      if (!movement || !movement->axes)
        return refuse(&node, "the part that it keeps is not known");
      const auto* place = llvm::find(*movement->axes, axis);
      if (place == movement->axes->end()) {
        set(result, state, &node);
        continue;
      }
      const MovementRange& range =
          movement->ranges[static_cast<size_t>(place - movement->axes->begin())];
      if (followed != Followed::Tokens || !isPure(state) || !keepsLast(range, tokens))
        return refuse(&node, "it selects tokens by position");
      set(result, {Dependence::LastToken, Dim::fixed(1)}, &node);
    }
  }

  const Graph& graph;
  const Attentions attentions;
  const PrefixSequences& sequences;
  llvm::DenseSet<const Value*> live;
  TokenFunctions found;
};

} // namespace

std::variant<TokenFunctions, TokenMixing> findTokenFunctions(const Graph& graph,
                                                             llvm::ArrayRef<AttentionSite> sites,
                                                             llvm::StringRef tokens,
                                                             const PrefixSequences& sequences) {
  return TokenFollower(graph, sites, tokens, Followed::Tokens, sequences).run();
}

std::optional<TokenMixing> findBatchMixing(const Graph& graph, llvm::ArrayRef<AttentionSite> sites,
                                           llvm::StringRef batch) {
  const PrefixSequences none;
  auto followed = TokenFollower(graph, sites, batch, Followed::BatchRows, none).run();
  if (auto* mixing = std::get_if<TokenMixing>(&followed))
    return std::move(*mixing);
  return std::nullopt;
}

} // namespace kvopt::analysis
