// Following tokens through a graph.
#include "passes/analysis/tokens/token_functions.h"

#include "ir/movement.h"
#include "support/format.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"

#include <limits>

namespace kvopt::analysis {
using namespace ir;

namespace {

/// How a value depends on the tokens.
enum class Kind {
  Constant, ///< not at all
  Extent,   ///< integers that are computed from extents
  PerToken, ///< along one axis, element by element
  LastToken ///< on the last token only
};

struct State {
  Kind kind = Kind::Constant;
  /// Of PerToken: what else lies along the tokens' axis, outside of them; [B*S] has B.
  Dim outer = Dim::fixed(1);
  /// Of PerToken: the tokens' axis, where extents do not tell. A table may be shorter than they
  /// are.
  std::optional<unsigned> axis = std::nullopt;
};

/// Operators whose results are functions of the elements at the same place, or at one that is
/// broadcast to it.
bool isElementwise(const Node& node) {
  if (node.op().isOnnx())
    return llvm::StringSwitch<bool>(node.op().type())
        .Cases("Abs", "Add", "And", "BitwiseAnd", "Ceil", "Celu", "Clip", "Cos", "Div", true)
        .Cases("Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", true)
        .Cases("HardSigmoid", "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Less", true)
        .Cases("LessOrEqual", "Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", true)
        .Cases("Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu", true)
        .Cases("Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", true)
        .Cases("Swish", "Tanh", "Tan", "ThresholdedRelu", "Where", "Xor", true)
        .Default(false);
  return node.op().domain() == "com.microsoft" &&
         llvm::StringSwitch<bool>(node.op().type())
             .Cases("BiasGelu", "FastGelu", "Gelu", "QuickGelu", true)
             .Default(false);
}

/// Operators that combine the elements of some of the last axes, or of one axis.
std::optional<llvm::SmallVector<int64_t, 4>> combinedAxes(const Node& node, int64_t rank) {
  llvm::SmallVector<int64_t, 4> axes;
  const llvm::StringRef type = node.op().type();
  const auto fromAxis = [&](int64_t first) {
    for (int64_t axis = first < 0 ? first + rank : first; axis < rank; ++axis)
      axes.push_back(axis);
    return axes;
  };
  const auto oneAxis = [&](int64_t axis) {
    axes.push_back(axis < 0 ? axis + rank : axis);
    return axes;
  };
  if (type == "LayerNormalization" || type == "RMSNormalization" ||
      type == "SimplifiedLayerNormalization")
    return fromAxis(node.intAttr("axis", -1));
  if (type == "SkipLayerNormalization" || type == "SkipSimplifiedLayerNormalization")
    return fromAxis(-1);
  if (!node.op().isOnnx())
    return std::nullopt;
  if (type == "Softmax" || type == "LogSoftmax" || type == "LpNormalization" || type == "TopK")
    return oneAxis(node.intAttr("axis", -1));
  if (type == "ArgMax" || type == "ArgMin")
    return oneAxis(node.intAttr("axis", 0));
  if (type.startswith("Reduce")) {
    auto given = knownIntegersOf(node, 1, "axes");
    if (!given || given->empty())
      return std::nullopt; // all of them
    for (int64_t axis : *given)
      oneAxis(axis);
    return axes;
  }
  return std::nullopt;
}

/// Products of rows of the first operand with constant matrices.
bool isRowProduct(const Node& node) {
  if (node.op().isOnnx())
    return node.is("MatMul");
  return node.op().domain() == "com.microsoft" && node.op().type() == "MatMulNBits";
}

llvm::ArrayRef<Dim> extentsOf(const Value& value) {
  return value.type().hasRank() ? llvm::ArrayRef<Dim>(value.type().shape()) : llvm::ArrayRef<Dim>();
}

Dim product(llvm::ArrayRef<Dim> extents) {
  Dim result = Dim::fixed(1);
  for (const Dim& extent : extents)
    result = result * extent;
  return result;
}

bool isPure(const State& state) { return state.outer.value() == 1; }

/// Whether a Slice keeps the last of so many tokens and no other.
bool keepsLast(const MovementRange& range, const Dim& tokens) {
  const bool toEnd = range.end.known.isKnownEqual(tokens) ||
                     range.end.known.value().value_or(0) > std::numeric_limits<int32_t>::max() / 2;
  return toEnd && range.step.known.value() == 1 &&
         (range.start.known.value() == -1 ||
          range.start.known.isKnownEqual(tokens - Dim::fixed(1)));
}

/// What outputs and attention are computed from, but for masks of attention among the tokens.
llvm::DenseSet<const Value*> liveValues(const Graph& graph,
                                        const llvm::DenseSet<const Node*>& attentions,
                                        const llvm::DenseSet<const Node*>& toOtherSequences) {
  llvm::DenseSet<const Value*> live;
  llvm::SmallVector<const Value*, 32> pending(graph.outputs().begin(), graph.outputs().end());
  while (!pending.empty()) {
    const Value* value = pending.pop_back_val();
    if (!live.insert(value).second || !value->producer())
      continue;
    const bool isAttention =
        attentions.contains(value->producer()) && !toOtherSequences.contains(value->producer());
    for (const Use& use : value->producer()->operands())
      if (use.value() && !(isAttention && use.operandIndex() == 3))
        pending.push_back(use.value());
  }
  return live;
}

/// Why attention to another sequence mixes tokens; nullptr if it does not. Rows of that sequence
/// are the same for every token. A mask may say for each token which of them it sees, the token's
/// place may not.
const char* mixedByCrossAttention(const Node& node,
                                  llvm::function_ref<bool(const Value*)> isConstant,
                                  llvm::function_ref<bool(const Value&)> isRowPerToken) {
  if (!isRowPerToken(*node.operand(0)))
    return "its queries are not one row for each token";
  for (unsigned operand : {1U, 2U, 4U, 5U})
    if (!isConstant(node.operand(operand)))
      return "its keys, values, sinks or lengths depend on the tokens";
  if (node.intAttr("causal", 0) != 0 || node.intAttr("window", 0) != 0)
    return "which rows of the other sequence a token sees depends on its place";
  if (!isConstant(node.operand(3)) && !isRowPerToken(*node.operand(3)))
    return "its mask depends on other tokens";
  return nullptr;
}

class TokenFollower {
public:
  TokenFollower(const Graph& followed, llvm::ArrayRef<AttentionSite> sites,
                llvm::StringRef tokenSymbol)
      : graph(followed), symbol(tokenSymbol), tokens(Dim::symbol(tokenSymbol.str())) {
    for (const AttentionSite& site : sites) {
      attentions.insert(site.node);
      if (site.isCross)
        toOtherSequences.insert(site.node);
    }
  }

  std::variant<TokenFunctions, TokenMixing> run() {
    live = liveValues(graph, attentions, toOtherSequences);
    for (const std::unique_ptr<Value>& input : graph.inputs())
      if (live.contains(input.get()) && !input->constant())
        if (llvm::any_of(extentsOf(*input), [&](const Dim& extent) { return counts(extent); }))
          set(*input, {Kind::PerToken, Dim::fixed(1)}, nullptr);
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
  bool counts(const Dim& extent) const {
    return llvm::is_contained(extent.symbols(), symbol.str());
  }

  /// The one axis that tokens lie along.
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

  void refuse(const Node* node, std::string why) {
    if (!mixing)
      mixing = TokenMixing{node, std::move(why)};
  }

  void set(const Value& value, State state, const Node* node) {
    if (state.kind == Kind::PerToken && !(state.axis && !axisByExtents(value))) {
      state.axis.reset();
      const std::optional<unsigned> axis = axisByExtents(value);
      if (!axis)
        return refuse(node, fmt::format("its result {} has no single axis of {} tokens",
                                        value.type().str(), symbol.str()));
      if (state.outer.value() == 1 && !extentsOf(value)[*axis].isKnownEqual(tokens) &&
          !extentsOf(value)[*axis].dividedBy(tokens))
        return refuse(node, fmt::format("its result {} has an axis of more than the tokens",
                                        value.type().str()));
    }
    states[&value] = std::move(state);
  }

  State stateOf(const Value* value) const {
    const auto entry = states.find(value);
    return entry == states.end() ? State() : entry->second;
  }

  void setAll(const Node& node, const State& state) {
    for (const Value& result : node.results())
      if (!result.isUnused())
        set(result, state, &node);
  }
  /// For operators that may move the axis: only extents tell where it is then.
  static State withoutAxis(State state) {
    state.axis.reset();
    return state;
  }

  void visit(const Node& node) {
    if (attentions.contains(&node))
      return visitAttention(node);
    bool any[4] = {};
    for (const Use& use : node.operands())
      if (use.value())
        any[static_cast<unsigned>(stateOf(use.value()).kind)] = true;
    const bool isPerToken = any[static_cast<unsigned>(Kind::PerToken)];
    const bool isLast = any[static_cast<unsigned>(Kind::LastToken)];
    const bool isExtent = any[static_cast<unsigned>(Kind::Extent)];
    if (!node.subgraphs().empty())
      return refuse(&node, "it has subgraphs");
    if (node.is("Shape") || node.is("Size"))
      return setAll(node, {isPerToken || isExtent ? Kind::Extent : Kind::Constant, Dim::fixed(1)});
    if (isLast && isPerToken)
      return refuse(&node, "it combines the last token with others");
    if (isLast)
      return setAll(node, {Kind::LastToken, Dim::fixed(1)});
    if (isPerToken)
      return visitTokens(node);
    if (isExtent)
      return visitExtents(node);
  }

  void visitCrossAttention(const Node& node) {
    const auto isConstant = [&](const Value* value) {
      return !value || stateOf(value).kind == Kind::Constant;
    };
    const auto isRow = [&](const Value& value) { return isRowPerToken(value); };
    if (const char* why = mixedByCrossAttention(node, isConstant, isRow))
      return refuse(&node, why);
    setAll(node, {Kind::PerToken, Dim::fixed(1)});
  }

  bool isRowPerToken(const Value& value) const {
    const State state = stateOf(&value);
    return state.kind == Kind::PerToken && isPure(state) && tokenAxis(value) == 2U &&
           extentsOf(value)[2].isKnownEqual(tokens);
  }

  void visitAttention(const Node& node) {
    if (toOtherSequences.contains(&node))
      return visitCrossAttention(node);
    for (unsigned operand : {0u, 1u, 2u})
      if (!isRowPerToken(*node.operand(operand)))
        return refuse(&node, "its operands are not one row for each token");
    for (unsigned operand : {4u, 5u})
      if (node.operand(operand) && stateOf(node.operand(operand)).kind != Kind::Constant)
        return refuse(&node, "its sinks or lengths depend on the tokens");
    setAll(node, {Kind::PerToken, Dim::fixed(1)});
  }

  /// Constants and extents.
  void visitExtents(const Node& node) {
    if (node.is("Range")) {
      const auto integer = [&](unsigned operand) -> std::optional<Dim> {
        auto known = node.operand(operand)->knownIntegers();
        return known && known->size() == 1 ? std::optional<Dim>(known->front()) : std::nullopt;
      };
      const auto start = integer(0);
      const auto limit = integer(1);
      const auto step = integer(2);
      if (!start || !limit || !step || start->value() != 0 || step->value() != 1 ||
          !limit->isKnownEqual(tokens))
        return refuse(&node, "it counts something else than the tokens");
      found.positions.push_back(const_cast<Node*>(&node));
      return setAll(node, {Kind::PerToken, Dim::fixed(1)});
    }
    if (node.is("Slice")) {
      const std::optional<Movement> movement = movementOf(node.result());
      const std::optional<unsigned> axis = movement ? movement->axis() : std::nullopt;
      if (axis && movement->ranges.front().start.known.value() == 0 &&
          movement->ranges.front().step.known.value() == 1 &&
          movement->ranges.front().end.known.isKnownEqual(tokens)) {
        found.tables.push_back(const_cast<Node*>(&node));
        return setAll(node, {Kind::PerToken, Dim::fixed(1), axis});
      }
    }
    const bool isKnown = llvm::all_of(node.results(), [](const Value& result) {
      return result.isUnused() || result.knownIntegers().has_value();
    });
    if (isKnown)
      return setAll(node, {Kind::Extent, Dim::fixed(1)});
    const bool repeatsConstants = node.is("ConstantOfShape") ||
                                  movementKind(node) == MovementKind::Broadcast ||
                                  movementKind(node) == MovementKind::Reshape;
    if (!repeatsConstants)
      return refuse(&node, "it computes with the number of tokens");
    const bool countsTokens =
        llvm::any_of(extentsOf(node.result()), [&](const Dim& extent) { return counts(extent); });
    if (countsTokens && movementKind(node) == MovementKind::Reshape)
      return refuse(&node, "it lays constants out along the tokens");
    setAll(node, {countsTokens ? Kind::PerToken : Kind::Constant, Dim::fixed(1)});
  }

  void visitTokens(const Node& node) {
    if (node.is("Gather"))
      return visitGather(node);
    if (node.is("Concat"))
      return visitConcat(node);
    if (std::optional<MovementKind> kind = movementKind(node))
      return visitMovement(node, *kind);
    if (isElementwise(node))
      return visitElementwise(node);
    if (isRowProduct(node) || node.is("Gemm"))
      return visitProduct(node);
    if (node.op().type() == "RotaryEmbedding" || node.is("QuantizeLinear") ||
        node.is("DequantizeLinear"))
      return visitRows(node);
    const State state = stateOf(node.operand(0));
    const std::optional<unsigned> axis =
        node.operand(0) ? tokenAxis(*node.operand(0)) : std::nullopt;
    const auto rank = axis ? static_cast<int64_t>(extentsOf(*node.operand(0)).size()) : 0;
    const auto combined = axis ? combinedAxes(node, rank) : std::nullopt;
    if (!combined)
      return refuse(&node, "nothing says that it treats tokens apart");
    if (llvm::is_contained(*combined, static_cast<int64_t>(*axis)))
      return refuse(&node, "it combines the tokens");
    if (llvm::any_of(node.operands(), [&](const Use& use) {
          return use.operandIndex() > 1 && stateOf(use.value()).kind == Kind::PerToken;
        }))
      return refuse(&node, "its weights depend on the tokens");
    setAll(node, state);
  }

  /// Each result row is computed from the same row of each operand that has the tokens.
  void visitRows(const Node& node) {
    if (stateOf(node.operand(0)).kind != Kind::PerToken)
      return refuse(&node, "its parameters depend on the tokens");
    const bool takesTokens = node.op().type() == "RotaryEmbedding";
    for (const Use& use : node.operands())
      if (use.operandIndex() > 0 && use.value() && stateOf(use.value()).kind == Kind::PerToken &&
          (!takesTokens || stateOf(use.value()).outer.value() != 1))
        return refuse(&node, "its parameters depend on the tokens");
    setAll(node, stateOf(node.operand(0)));
  }

  void visitElementwise(const Node& node) {
    std::optional<size_t> fromEnd;
    std::optional<State> state;
    for (const Use& use : node.operands()) {
      if (!use.value() || stateOf(use.value()).kind == Kind::Constant)
        continue;
      const std::optional<unsigned> axis = tokenAxis(*use.value());
      const State own = stateOf(use.value());
      if (own.kind != Kind::PerToken || !axis)
        return refuse(&node, "it computes with the number of tokens");
      const size_t place = extentsOf(*use.value()).size() - *axis;
      if (fromEnd && (*fromEnd != place || !state->outer.isKnownEqual(own.outer)))
        return refuse(&node, "it combines tokens with each other");
      fromEnd = place;
      state = own;
    }
    if (const TensorType& type = node.result().type(); type.hasRank())
      state->axis = static_cast<unsigned>(type.rank() - *fromEnd);
    setAll(node, *state);
  }

  void visitProduct(const Node& node) {
    const State state = stateOf(node.operand(0));
    if (node.is("MatMul") && state.kind == Kind::Constant)
      return visitColumns(node);
    if (state.kind != Kind::PerToken)
      return refuse(&node, "its matrix depends on the tokens");
    for (const Use& use : node.operands())
      if (use.operandIndex() > 0 && use.value() && stateOf(use.value()).kind != Kind::Constant)
        return refuse(&node, "it multiplies tokens with each other");
    const std::optional<unsigned> axis = tokenAxis(*node.operand(0));
    const bool isTransposed = node.is("Gemm") && node.intAttr("transA", 0) != 0;
    if (!axis || isTransposed || *axis + 1 == extentsOf(*node.operand(0)).size())
      return refuse(&node, "it sums over the tokens");
    setAll(node, state);
  }

  /// A constant matrix times columns, of which each is a token's: as angles are made of positions.
  void visitColumns(const Node& node) {
    const State state = stateOf(node.operand(1));
    const std::optional<unsigned> axis = tokenAxis(*node.operand(1));
    if (state.kind != Kind::PerToken || !axis || extentsOf(*node.operand(1)).size() < 2 ||
        *axis + 1 != extentsOf(*node.operand(1)).size())
      return refuse(&node, "it sums over the tokens");
    setAll(node, state);
  }

  void visitGather(const Node& node) {
    constexpr int64_t unknown = -1;
    const State data = stateOf(node.operand(0));
    const State indices = stateOf(node.operand(1));
    const std::optional<Movement> movement = movementOf(node.result());
    const int64_t axis = movement && movement->axis() ? int64_t{*movement->axis()} : unknown;
    const auto tokensOf = [&](unsigned operand) {
      const std::optional<unsigned> place = tokenAxis(*node.operand(operand));
      return place ? int64_t{*place} : unknown;
    };
    if (data.kind == Kind::Constant && indices.kind == Kind::PerToken) {
      State state = withoutAxis(indices);
      if (axis != unknown && tokensOf(1) != unknown)
        state.axis = static_cast<unsigned>(axis + tokensOf(1));
      return setAll(node, state);
    }
    if (data.kind != Kind::PerToken || axis == unknown || tokensOf(0) == unknown)
      return refuse(&node, "it picks by token and from tokens");
    if (axis != tokensOf(0) && indices.kind == Kind::Constant)
      return setAll(node, withoutAxis(data));
    auto known = node.operand(1)->knownIntegers();
    const bool isLast =
        axis == tokensOf(0) && known && known->size() == 1 && isPure(data) &&
        (known->front().value() == -1 || known->front().isKnownEqual(tokens - Dim::fixed(1)));
    if (!isLast)
      return refuse(&node, "it picks tokens by their place");
    setAll(node, {Kind::LastToken, Dim::fixed(1)});
  }

  void visitConcat(const Node& node) {
    const std::optional<Movement> movement = movementOf(node.result());
    const std::optional<unsigned> joined = movement ? movement->axis() : std::nullopt;
    std::optional<State> state;
    for (const Use& use : node.operands()) {
      const State own = stateOf(use.value());
      const std::optional<unsigned> axis = tokenAxis(*use.value());
      if (!joined || own.kind != Kind::PerToken || !axis || axis == joined)
        return refuse(&node, "it joins tokens with something else");
      if (state && !state->outer.isKnownEqual(own.outer))
        return refuse(&node, "it joins tokens in different orders");
      state = own;
    }
    setAll(node, *state);
  }

  void visitMovement(const Node& node, MovementKind kind) {
    const Value* data = movedOperand(node);
    const State state = withoutAxis(stateOf(data));
    if (!data || state.kind != Kind::PerToken)
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
    refuse(&node, "nothing says that it treats tokens apart");
  }

  /// The order of elements stays: what lies before the tokens is as large as it was.
  void visitReshape(const Node& node, const Value& data, const State& state, unsigned axis) {
    const std::optional<unsigned> after = tokenAxis(node.result());
    if (!after)
      return refuse(&node, "its result has no single axis of tokens");
    const Dim before = product(extentsOf(data).take_front(axis)) * state.outer;
    const Dim left = product(extentsOf(node.result()).take_front(*after));
    const std::optional<Dim> outer = before.dividedBy(left);
    if (!outer || !extentsOf(node.result())[*after].dividedBy(*outer * tokens))
      return refuse(&node, "nothing says that it keeps the order of the tokens");
    setAll(node, {Kind::PerToken, *outer});
  }

  void visitSlice(const Node& node, const State& state, unsigned axis) {
    for (const Value& result : node.results()) {
      if (result.isUnused())
        continue;
      const std::optional<Movement> movement = movementOf(result);
      if (!movement || !movement->axes)
        return refuse(&node, "what it keeps is not known");
      const auto* place = llvm::find(*movement->axes, axis);
      if (place == movement->axes->end()) {
        set(result, state, &node);
        continue;
      }
      const MovementRange& range =
          movement->ranges[static_cast<size_t>(place - movement->axes->begin())];
      if (!isPure(state) || !keepsLast(range, tokens))
        return refuse(&node, "it keeps tokens by their place");
      set(result, {Kind::LastToken, Dim::fixed(1)}, &node);
    }
  }

  const Graph& graph;
  llvm::StringRef symbol;
  Dim tokens;
  llvm::DenseSet<const Node*> attentions;
  llvm::DenseSet<const Node*> toOtherSequences; ///< of the attentions
  llvm::DenseSet<const Value*> live;
  llvm::DenseMap<const Value*, State> states;
  TokenFunctions found;
  std::optional<TokenMixing> mixing;
};

} // namespace

std::variant<TokenFunctions, TokenMixing> findTokenFunctions(const Graph& graph,
                                                             llvm::ArrayRef<AttentionSite> sites,
                                                             llvm::StringRef tokens) {
  return TokenFollower(graph, sites, tokens).run();
}

} // namespace kvopt::analysis
