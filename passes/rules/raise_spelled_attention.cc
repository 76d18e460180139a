// Attention spelled out in matrix products and a softmax → ai.kvopt::Sdpa.
//
//   before   o = MatMul(guard(Softmax<-1>(mask(softcap(scale * MatMul(q, kt))))), v)
//   after    o = ai.kvopt.Sdpa<scale, softcap>(q, Transpose<0,1,3,2>(kt), v[, mask])
//
// Everything between the products is read by analysis/score_chain.h, and score_mask.h argues which
// masks one operand can stand for. The guard is any of: casts between float types, Dropout in
// inference, and zeros for a row without any allowed key, as Sdpa has them: Where(IsNaN(p), 0, p),
// or the same for rows whose scores, or the mask added to them, are -inf throughout.
#include "ir/attribute.h"
#include "ir/format.h"
#include "passes/analysis/row_guard.h"
#include "passes/analysis/uniform_value.h"
#include "passes/rule.h"
#include "passes/score_mask.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace kvopt {
namespace {

std::string nameOf(const Node& node) {
  return node.name().empty() ? node.result().name().str() : node.name().str();
}

/// `value` before a cast to a wider float type, also below one Transpose; null when there is none
/// of element type `type`.
Value* beforeWidening(Value& value, ElementType type) {
  Node* node = value.producer();
  if (!node || !node->is("Cast") || !node->operand(0) ||
      node->operand(0)->type().elementType() != type)
    return nullptr;
  return node->operand(0);
}

class RaiseSpelledAttention final : public Rule {
  Var scores{"scores"}, probabilities{"probabilities"}, zero{"zero"}, v{"v"}, ratio{"ratio"},
      training{"training"}, exponentials{"exponentials"}, logits{"logits"}, sinks{"sinks"},
      starts{"starts"}, ends{"ends"}, axes{"axes"}, steps{"steps"}, infinite{"infinite"},
      tested{"tested"};

public:
  llvm::StringRef name() const override { return "raise-spelled-attention"; }
  RuleGroup group() const override { return RuleGroup::Raise; }

  P pattern() const override {
    // The plain form comes first everywhere: its failure is the one to report.
    P column = inner(bind(logits, op("Concat", {scores, sinks}, {attr("axis", -1)})));
    P logitsSoftmax = softmaxOf(column, logits);
    P cut = op("Slice", {optional(logitsSoftmax, inner(op("Cast", {logitsSoftmax}))), starts, ends,
                         maybe(axes), maybe(steps)});
    P softmax = oneOf("sinks", {{"none", softmaxOf(scores, scores)}, {"column", inner(cut)}});
    P narrowed = optional(softmax, inner(op("Cast", {softmax})));
    P isNaN = inner(op("IsNaN", {probabilities}));
    P guard =
        oneOf("guard", {{"nan", isNaN}, {"rows", allMaskedRows()}, {"mask", maskedMaximum()}});
    P guarded =
        optional(narrowed, inner(op("Where", {guard, zero, bind(probabilities, narrowed)})));
    P cast = optional(guarded, inner(op("Cast", {guarded})));
    P dropped = optional(cast, inner(op("Dropout", {cast, maybe(ratio), maybe(training)})));
    return op("MatMul", {dropped, v});
  }

  void constraints(Constraints& c) const override {
    c.check([this](const Match& match, Refusal& refusal) {
      MatchFailure failure;
      return checkGuard(match, failure) && planOf(match, failure)
                 ? true
                 : refusal.because([&] { return failure; });
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    MatchFailure failure;
    std::optional<Plan> plan = planOf(match, failure);
    if (!plan)
      return failure;
    llvm::SmallVector<Value*, 5> operands{plan->query, keys(*plan, rewriter), &match[v]};
    Value* mask = buildScoreMask(plan->mask, rewriter);
    if (mask || plan->sinks)
      operands.push_back(mask);
    if (plan->sinks)
      operands.push_back(sinkPerHead(*plan->sinks, rewriter));
    std::vector<NamedAttribute> attributes;
    attributes.push_back({"scale", Attribute::ofFloat(static_cast<float>(plan->chain.scale))});
    if (plan->chain.softcap != 0.0)
      attributes.push_back(
          {"softcap", Attribute::ofFloat(static_cast<float>(plan->chain.softcap))});
    Node& sdpa = rewriter.create("ai.kvopt::Sdpa", operands, std::move(attributes), 1, "attention");
    llvm::SmallVector<Node*, 16> sources(match.nodes().begin(), match.nodes().end());
    sources.append(plan->chain.nodes.rbegin(), plan->chain.nodes.rend());
    rewriter.recordSources(sdpa, sources);
    return rewriter.replace(match.root().result(), sdpa.result());
  }

private:
  /// Readers are checked here and not by the matcher: those of the extents do no harm.
  static P inner(P pattern) { return escaping(std::move(pattern)); }

  static P reduced(const char* name, const P& operand) {
    return optional(inner(op(name, {operand})), inner(op(name, {operand, any()})));
  }

  /// A softmax of `operand`, which is `same`, also shifted by its maximum or spelled out.
  P softmaxOf(const P& operand, const Var& same) const {
    P shifted = inner(op("Sub", {operand, reduced("ReduceMax", same)}));
    P weights = inner(bind(exponentials, op("Exp", {shifted})));
    return oneOf("softmax",
                 {{"operator", inner(op("Softmax", {operand}, {attr("axis", -1)}))},
                  {"shifted", inner(op("Softmax", {shifted}, {attr("axis", -1)}))},
                  {"spelled", inner(op("Div", {weights, reduced("ReduceSum", exponentials)}))}});
  }

  /// "Every score of the row is -inf".
  P allMaskedRows() const {
    P isMasked = inner(commutative("Equal", {scores, constant(infinite)}));
    return inner(op("Cast", {reduced("ReduceMin", inner(op("Cast", {isMasked})))}));
  }

  /// "The largest element of the row is -inf", of the scores or of a mask.
  P maskedMaximum() const {
    return inner(commutative("Equal", {reduced("ReduceMax", tested), constant(infinite)}));
  }

  struct Plan {
    ScoreChain chain;
    ScoreMask mask;
    Value* query = nullptr;
    Value* keysTransposed = nullptr; ///< [B,G,D,T]; null when `keyRows` is set
    Value* keyRows = nullptr;        ///< [B,G,T,D]
    Value* sinks = nullptr;          ///< [1,H,1,1], leading axes may be missing
  };

  /// What stands between the softmax and the product with the values changes no probability.
  bool checkGuard(const Match& match, MatchFailure& failure) const {
    auto refuse = [&](const Node& node, std::string expected, std::string found) {
      failure = {ReasonCode::PatternMismatch, nameOf(node), std::move(expected), std::move(found),
                 ""};
      return false;
    };
    for (Node* node : match.nodes()) {
      if (node->is("Cast") && !isHarmless(*node))
        return refuse(*node, "a cast to a floating-point type", node->result().type().str());
      if (node->op().str().rfind("Reduce", 0) == 0 && !reducesLastAxis(*node))
        return refuse(*node, "a reduction that keeps the last axis", "other axes");
      if (node->is("Dropout") && !isInference(match, *node))
        return refuse(*node, "Dropout in inference", "training mode, or a reader of its mask");
      if (node->is("Slice") && !cutsSinks(match, *node))
        return refuse(*node, "all probabilities but those of the sinks", "another part");
      if (node->is("Where") && uniformValue(match[zero]) != 0.0)
        return refuse(*node, "0 in rows without any allowed key", match[zero].type().str());
      if (node->is("Equal") &&
          scalarValue(*match[infinite].constant()) != -std::numeric_limits<double>::infinity())
        return refuse(*node, "scores of -inf", "another number");
    }
    return true;
  }

  /// Between float types, or from and to the truth values of a guard.
  static bool isHarmless(const Node& cast) {
    return roundedTo(cast.result().type().elementType(), 0.0).has_value() ||
           cast.result().type().elementType() == ElementType::Bool ||
           (cast.operand(0) && cast.operand(0)->type().elementType() == ElementType::Bool);
  }

  /// The slice leaves out the last column, which Concat appended to the scores.
  bool cutsSinks(const Match& match, const Node& slice) const {
    auto only = [](const Value* value) -> std::optional<int64_t> {
      auto known = value ? value->knownIntegers() : std::nullopt;
      return known && known->size() == 1 ? known->front().value() : std::nullopt;
    };
    std::optional<int64_t> axis = only(match.find(axes));
    const Value* stride = match.find(steps);
    return (axis == -1 || axis == 3) && only(&match[starts]) == 0 &&
           (!stride || only(stride) == 1) && match[sinks].type().dim(-1).value() == 1 &&
           (only(&match[ends]) == -1 ||
            slice.result().type().dim(-1).isKnownEqual(match[scores].type().dim(-1)));
  }

  static bool reducesLastAxis(const Node& reduction) {
    const TensorType& type = reduction.operand(0)->type();
    llvm::SmallVector<int64_t, 4> axes;
    if (auto written = reduction.intsAttr("axes")) {
      axes.assign(written->begin(), written->end());
    } else if (const Value* operand = reduction.operand(1)) {
      for (const Dim& axis : operand->knownIntegers().value_or(llvm::SmallVector<Dim, 4>()))
        axes.push_back(axis.value().value_or(0));
    }
    if (axes.size() != 1 || reduction.intAttr("keepdims", 1) != 1)
      return false;
    return axes[0] == -1 || (type.hasRank() && axes[0] == type.rank() - 1);
  }

  bool isInference(const Match& match, Node& dropout) const {
    if (dropout.results().size() > 1 && !dropout.result(1).isUnused())
      return false;
    const Value* mode = match.find(training);
    if (!mode)
      return true;
    auto known = mode->knownIntegers();
    return known && known->size() == 1 && known->front().value() == 0;
  }

  std::optional<Plan> planOf(const Match& match, MatchFailure& failure) const {
    std::optional<ScoreChain> chain = readScoreChain(match[scores], failure);
    if (!chain || !nothingEscapes(match, *chain, failure))
      return std::nullopt;
    if (!keepsShape(match[scores], *chain, failure))
      return std::nullopt;
    const Value* guarded = match.find(tested);
    if (guarded && !guardsHiddenRows(*guarded, match[scores], *chain, failure))
      return std::nullopt;
    Plan plan{std::move(*chain), {}};
    if (!nothingIsRounded(match, plan.chain, match[v], failure) ||
        !chooseOperands(plan, match[v], failure) || !shapesAgree(plan, match[v], failure))
      return std::nullopt;
    if (Value* column = match.find(sinks)) {
      plan.sinks = onePerHead(*column, plan.query->type().dim(1), failure);
      if (!plan.sinks)
        return std::nullopt;
    }
    std::optional<ScoreMask> mask = planScoreMask(plan.chain, failure);
    if (!mask)
      return std::nullopt;
    plan.mask = std::move(*mask);
    return plan;
  }

  /// Nothing outside may read the scores or probabilities; their extents may be read.
  static bool nothingEscapes(const Match& match, const ScoreChain& chain, MatchFailure& failure) {
    llvm::SmallVector<Node*, 16> nodes(chain.nodes.begin(), chain.nodes.end());
    nodes.append(match.nodes().begin() + 1, match.nodes().end());
    for (Node* node : nodes) {
      Value& result = node->result();
      std::string reader = result.isGraphOutput() ? "the graph's output" : "";
      for (Use& use : result.uses())
        if (!match.contains(use.user()) && !llvm::is_contained(nodes, &use.user()) &&
            !use.user().is("Shape"))
          reader = use.user().describe();
      if (reader.empty())
        continue;
      failure = {ReasonCode::ValueEscapes, nameOf(*node), "no reader outside the matched nodes",
                 reader, ""};
      return false;
    }
    return true;
  }

  /// Scores and probabilities are nowhere held in fewer bits than the values are: Sdpa would not
  /// round them.
  static bool nothingIsRounded(const Match& match, const ScoreChain& chain, const Value& values,
                               MatchFailure& failure) {
    ElementType storage = values.type().elementType();
    llvm::SmallVector<Node*, 16> nodes(chain.nodes.begin(), chain.nodes.end());
    nodes.append(match.nodes().begin(), match.nodes().end());
    for (Node* node : nodes) {
      ElementType type = node->result().type().elementType();
      if (!node->is("Cast") || !isFloatingPoint(type) || type == storage ||
          type == ElementType::Float || type == ElementType::Double)
        continue;
      failure = {ReasonCode::DtypeMix, nameOf(*node),
                 "scores and probabilities at least as precise as the values (" +
                     onnxName(storage).str() + ")",
                 onnxName(type).str(), ""};
      return false;
    }
    return true;
  }

  /// Masks and fills broadcast to the product, and not the product to them.
  static bool keepsShape(const Value& last, const ScoreChain& chain, MatchFailure& failure) {
    const TensorType& type = last.type();
    const TensorType& product = chain.product->result().type();
    bool same = type.hasRank() && type.rank() == 4;
    for (int64_t axis = 0; same && product.hasRank() && axis < 4; ++axis)
      same = !type.dim(axis).isKnownDifferent(product.dim(axis));
    if (same)
      return true;
    failure = {type.hasRank() ? ReasonCode::ShapeMismatch : ReasonCode::DynamicRank,
               last.name().str(), "scores of the product's shape " + product.str(), type.str(), ""};
    return false;
  }

  /// Queries and keys of the values' element type: Sdpa computes in f32 whatever the storage, so
  /// casts of narrower operands to f32 are not needed.
  static bool chooseOperands(Plan& plan, const Value& values, MatchFailure& failure) {
    ElementType type = values.type().elementType();
    plan.query = plan.chain.query;
    plan.keysTransposed = plan.chain.keysTransposed;
    if (Node* transpose = plan.keysTransposed->producer()) {
      auto perm = transpose->intsAttr("perm");
      if (transpose->is("Transpose") && perm && *perm == llvm::ArrayRef<int64_t>{0, 1, 3, 2})
        plan.keyRows = transpose->operand(0);
    }
    Value*& keyOperand = plan.keyRows ? plan.keyRows : plan.keysTransposed;
    if (type != ElementType::Float && plan.query->type().elementType() == ElementType::Float)
      for (Value** operand : {&plan.query, &keyOperand})
        if (Value* narrow = beforeWidening(**operand, type))
          *operand = narrow;
    bool isSupported =
        type == ElementType::Float || type == ElementType::Float16 || type == ElementType::BFloat16;
    if (isSupported && plan.query->type().elementType() == type &&
        keyOperand->type().elementType() == type)
      return true;
    failure = {ReasonCode::DtypeMix, nameOf(*plan.chain.product),
               "queries, keys and values of one type: float, float16 or bfloat16",
               plan.query->type().str() + ", " + keyOperand->type().str() + " and " +
                   values.type().str(),
               ""};
    return false;
  }

  /// The products themselves demand equal widths D and lengths T; batches and heads they would
  /// broadcast.
  static bool shapesAgree(const Plan& plan, const Value& values, MatchFailure& failure) {
    auto refuse = [&](ReasonCode code, const Value& at, std::string expected, std::string found) {
      failure = {code, at.name().str(), std::move(expected), std::move(found), ""};
      return false;
    };
    if (!values.type().hasRank())
      return refuse(ReasonCode::DynamicRank, values, "values of rank 4", values.type().str());
    if (values.type().rank() != 4)
      return refuse(ReasonCode::ShapeMismatch, values, "values [B,G,T,Dv]", values.type().str());
    const TensorType& query = plan.query->type();
    const Value& keyOperand = plan.keyRows ? *plan.keyRows : *plan.keysTransposed;
    const TensorType& key = keyOperand.type();
    auto isUnknown = [](const Dim& a, const Dim& b) { return a.isUnknown() || b.isUnknown(); };
    auto codeFor = [&](const Dim& a, const Dim& b) {
      return isUnknown(a, b) ? ReasonCode::ShapeUnknown : ReasonCode::ShapeMismatch;
    };
    for (const Value* operand : {&keyOperand, &values})
      if (!operand->type().dim(0).isKnownEqual(query.dim(0)))
        return refuse(codeFor(operand->type().dim(0), query.dim(0)), *operand,
                      fmt::format("the queries' batch {}", query.dim(0).str()),
                      operand->type().str());
    if (!key.dim(1).isKnownEqual(values.type().dim(1)))
      return refuse(ReasonCode::HeadCountUnproven, keyOperand,
                    "keys and values with one number of heads",
                    key.str() + " and " + values.type().str());
    if (!key.dim(1).isKnownEqual(query.dim(1)) && key.dim(1).value() != 1)
      return refuse(ReasonCode::HeadCountUnproven, keyOperand,
                    "keys with the query's number of heads, or one",
                    query.str() + " and " + key.str());
    return true;
  }

  /// The value [1,H,1,1] that is repeated over batch and rows to make the column of sinks.
  static Value* onePerHead(Value& column, const Dim& heads, MatchFailure& failure) {
    constexpr unsigned mostSteps = 4;
    Value* value = &column;
    for (unsigned step = 0; step < mostSteps && value; ++step) {
      const TensorType& type = value->type();
      if (type.hasRank() && type.rank() >= 3 && type.rank() <= 4 && type.dim(-1).value() == 1 &&
          type.dim(-2).value() == 1 && type.dim(-3).isKnownEqual(heads) &&
          (type.rank() == 3 || type.dim(0).value() == 1))
        return value;
      Node* producer = value->producer();
      value = producer && producer->is("Expand") ? producer->operand(0) : nullptr;
    }
    failure = {ReasonCode::SinkUnsupported, column.name().str(),
               "one number per head, repeated over batch and rows", column.type().str(), ""};
    return nullptr;
  }

  static Value* sinkPerHead(Value& value, Rewriter& rewriter) {
    Value& rest = rewriter.constant("rest", int64Tensor({-1}));
    Value* list = &rewriter.create("Reshape", {&value, &rest}, {}, 1, "sinks").result();
    if (value.type().elementType() == ElementType::Float)
      return list;
    std::vector<NamedAttribute> attributes;
    attributes.push_back({"to", Attribute::ofInt(static_cast<int64_t>(ElementType::Float))});
    return &rewriter.create("Cast", {list}, std::move(attributes), 1, "sinks").result();
  }

  static Value* keys(const Plan& plan, Rewriter& rewriter) {
    if (plan.keyRows)
      return plan.keyRows;
    std::vector<NamedAttribute> attributes;
    attributes.push_back({"perm", Attribute::ofInts({0, 1, 3, 2})});
    return &rewriter.create("Transpose", {plan.keysTransposed}, std::move(attributes), 1, "keys")
                .result();
  }
};

} // namespace

void register_raise_spelled_attention(RuleRegistry& registry) {
  registry.add(std::make_unique<RaiseSpelledAttention>());
}

} // namespace kvopt
