// Raises decomposed attention, matrix products and a softmax, to ai.kvopt::Sdpa.
//
//   before   o = MatMul(guard(Softmax<-1>(mask(softcap(scale * MatMul(q, kt))))), v)
//   after    o = ai.kvopt.Sdpa<scale, softcap>(q, Transpose<0,1,3,2>(kt), v[, mask])
//
// analysis/score_chain.h reads everything between the products, and score_mask.h explains which
// masks one operand can express. The guard is any of: casts between float types, Dropout in
// inference, and zeros for a row without any visible key, as in Sdpa: Where(IsNaN(p), 0, p), or the
// same for rows whose scores, or the mask added to them, are all -inf.
#include "ir/attribute.h"
#include "passes/analysis/movement/uniform_value.h"
#include "passes/analysis/scores/last_axis.h"
#include "passes/analysis/scores/row_guard.h"
#include "passes/builders/attention_builder.h"
#include "passes/builders/score_mask.h"
#include "passes/builders/spelled_operands.h"
#include "passes/builders/spelled_sinks.h"
#include "passes/pattern/explain.h"
#include "passes/pattern/rule.h"
#include "support/format.h"
#include "support/string_ends.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>

namespace kvopt::rules {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

class RaiseSpelledAttention final : public Rule {
  Var scores{"scores"}, probabilities{"probabilities"}, zero{"zero"}, v{"v"}, ratio{"ratio"},
      training{"training"}, exponentials{"exponentials"}, logits{"logits"}, sinks{"sinks"},
      starts{"starts"}, ends{"ends"}, axes{"axes"}, steps{"steps"}, infinite{"infinite"},
      tested{"tested"}, shift{"shift"}, one{"one"}, floor{"floor"}, pads{"pads"}, filler{"filler"};
  struct Plan {
    ScoreChain chain;
    ScoreMask mask;
    SpelledOperands operands;
    SpelledSinks sinks;
  };
  Payload<Plan> planned;

public:
  llvm::StringRef name() const override { return "raise-spelled-attention"; }
  RuleGroup group() const override { return RuleGroup::Raise; }

  P pattern() const override {
    // The plain form comes first in every alternative, because its failure is the one to report.
    P column = inner(bind(
        logits, oneOf("column", {{"joined", op("Concat", {scores, sinks}, attrs({{"axis", -1}}))},
                                 {"padded", op("Pad", {scores, pads, maybe(filler)})}})));
    P logitsSoftmax = softmaxOf(column, logits);
    P cut = op("Slice", {optional(logitsSoftmax, inner(op("Cast", {logitsSoftmax}))), starts, ends,
                         maybe(axes), maybe(steps)});
    P softmax = oneOf("sinks", {{"none", softmaxOf(scores, scores)}, {"column", inner(cut)}});
    P narrowed = optional(softmax, inner(op("Cast", {softmax})));
    P seen = optional(inner(op("Cast", {probabilities})), probabilities);
    P isNaN = inner(op("IsNaN", {seen}));
    P guard =
        oneOf("guard", {{"nan", isNaN}, {"rows", allMaskedRows()}, {"mask", maskedMaximum()}});
    P guarded =
        optional(narrowed, inner(op("Where", {guard, zero, bind(probabilities, narrowed)})));
    P cast = optional(guarded, inner(op("Cast", {guarded})));
    P dropped = optional(cast, inner(op("Dropout", {cast, maybe(ratio), maybe(training)})));
    return op("MatMul", {dropped, v});
  }

  void constraints(Constraints& c) const override {
    c.plan(planned, [this](const Match& match, Refusal& refusal) {
      MatchFailure failure;
      std::optional<Plan> plan = checkGuard(match, failure) ? planOf(match, failure) : std::nullopt;
      if (!plan)
        refusal.because([&] { return failure; });
      return plan;
    });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    const Plan& plan = match[planned];
    const SpelledOperands& chosen = plan.operands;
    llvm::SmallVector<Value*, 5> operands{&buildQuery(chosen, plan.chain, rewriter),
                                          &buildKeys(chosen, rewriter), chosen.values};
    Value* mask = buildScoreMask(plan.mask, rewriter);
    if (mask || plan.sinks.exist())
      operands.push_back(mask);
    if (plan.sinks.exist())
      operands.push_back(&buildSinks(plan.sinks, rewriter));
    AttributeList attributes = attrs({{"scale", plan.chain.scale}});
    if (plan.chain.softcap != 0.0)
      attributes.add("softcap", plan.chain.softcap);
    Node& sdpa = rewriter.create("ai.kvopt::Sdpa", operands, attributes, 1, "attention");
    llvm::SmallVector<Node*, 16> sources(match.nodes().begin(), match.nodes().end());
    sources.append(plan.chain.nodes.rbegin(), plan.chain.nodes.rend());
    rewriter.recordSources(sdpa, sources);
    Value& output = AttentionBuilder(rewriter).castTo(sdpa.result(), match[v].type().elementType());
    return rewriter.replace(match.root().result(), output);
  }

private:
  /// Readers are checked here and not by the matcher, because readers of extents are harmless.
  static P inner(P pattern) { return escaping(std::move(pattern)); }

  static P reduced(const char* name, const P& operand) {
    return optional(inner(op(name, {operand})), inner(op(name, {operand, any()})));
  }

  /// A softmax of `operand`, which is `same`, also shifted by its maximum; and one whose
  /// denominator is the sum plus one, which has a sink of 0.
  P softmaxOf(const P& operand, const Var& same) const {
    P peak = reduced("ReduceMax", same);
    P bound = oneOf("shift", {{"peak", peak},
                              {"relu", inner(op("Relu", {peak}))},
                              {"floor", inner(commutative("Max", {peak, constant(floor)}))}});
    P shifted = inner(op("Sub", {operand, inner(bind(shift, bound))}));
    P weights = inner(bind(exponentials, op("Exp", {shifted})));
    P unshifted = inner(bind(exponentials, op("Exp", {operand})));
    P total = reduced("ReduceSum", exponentials);
    P shiftedOne = inner(op("Exp", {inner(op("Neg", {shift}))}));
    return oneOf(
        "softmax",
        {{"operator", inner(op("Softmax", {operand}, attrs({{"axis", -1}})))},
         {"shifted", inner(op("Softmax", {shifted}, attrs({{"axis", -1}})))},
         {"off-by-one-shifted",
          inner(op("Div", {weights, inner(commutative("Add", {total, shiftedOne}))}))},
         {"off-by-one",
          inner(op("Div", {unshifted, inner(commutative("Add", {total, constant(one)}))}))}});
  }

  /// "Every score of the row is -inf".
  P allMaskedRows() const {
    P isMasked = inner(commutative("Equal", {scores, constant(infinite)}));
    return inner(op("Cast", {reduced("ReduceMin", inner(op("Cast", {isMasked})))}));
  }

  /// "The largest element of the row is -inf", for the scores or a mask.
  P maskedMaximum() const {
    return inner(commutative("Equal", {reduced("ReduceMax", tested), constant(infinite)}));
  }

  /// Operators between the softmax and the product with the values must not change probabilities.
  bool checkGuard(const Match& match, MatchFailure& failure) const {
    auto refuse = [&](const Node& node, std::string expected, std::string found) {
      failure = {ReasonCode::PatternMismatch, labelOf(node), std::move(expected), std::move(found),
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
      if (node->is("Max") && !keepsPeak(*match[floor].constant()))
        return refuse(*node, "a shift by the largest score, or by more", "another shift");
      if (node->is("Equal") &&
          scalarValue(*match[infinite].constant()) != -std::numeric_limits<double>::infinity())
        return refuse(*node, "scores of -inf", "another number");
    }
    if (const Value* number = match.find(one); number && scalarValue(*number->constant()) != 1.0)
      return refuse(match.root(), "a sum, or 1 more than it, in the denominator", "another number");
    return true;
  }

  /// Exponentials of operands shifted by such a number do not overflow.
  static bool keepsPeak(const TensorData& floor) {
    std::optional<double> number = scalarValue(floor);
    return number && std::isfinite(*number);
  }

  /// Whether the cast is between float types, or from or to the booleans of a guard.
  static bool isHarmless(const Node& cast) {
    return roundedTo(cast.result().type().elementType(), 0.0).has_value() ||
           cast.result().type().elementType() == ElementType::Bool ||
           (cast.operand(0) && cast.operand(0)->type().elementType() == ElementType::Bool);
  }

  /// Finds sinks as a column next to the scores, or as a 1 in the denominator.
  bool findSinks(const Match& match, const Dim& heads, SpelledSinks& found,
                 MatchFailure& failure) const {
    if (Value* column = match.find(sinks))
      found = sinksOfColumn(*column, heads);
    else if (match.find(pads))
      found = sinksOfNumber(match.find(filler) ? uniformValue(match[filler]) : 0.0, heads);
    else if (startsWith(match.choice("softmax"), "off-by-one"))
      found = sinksOfNumber(0.0, heads);
    else
      return true;
    if (found.exist() && !(match.find(logits) && startsWith(match.choice("softmax"), "off-by-one")))
      return true;
    const Value& at = match.find(logits) ? match[logits] : match[scores];
    failure = {ReasonCode::SinkUnsupported, at.name().str(),
               "one number per head, repeated over batch and rows, for a known number of heads",
               match.find(sinks) ? match[sinks].type().str() : at.type().str(), ""};
    return false;
  }

  /// The slice removes the last column, which Concat or Pad appended to the scores.
  bool cutsSinks(const Match& match, const Node& slice) const {
    auto only = [](const Value* value) -> std::optional<int64_t> {
      auto known = value ? value->knownIntegers() : std::nullopt;
      return known && known->size() == 1 ? known->front().value() : std::nullopt;
    };
    std::optional<int64_t> axis = only(match.find(axes));
    const Value* stride = match.find(steps);
    return (axis == -1 || axis == 3) && only(&match[starts]) == 0 &&
           (!stride || only(stride) == 1) && appendsOneColumn(match) &&
           (only(&match[ends]) == -1 ||
            slice.result().type().dim(-1).isKnownEqual(match[scores].type().dim(-1)));
  }

  bool appendsOneColumn(const Match& match) const {
    if (const Value* column = match.find(sinks))
      return column->type().dim(-1).value() == 1;
    auto known = match[pads].knownIntegers();
    if (!known || known->size() != 8 ||
        match[logits].producer()->stringAttr("mode", "constant") != "constant")
      return false;
    for (size_t i = 0; i < known->size(); ++i)
      if ((*known)[i].value() != (i + 1 == known->size() ? 1 : 0))
        return false;
    return true;
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
    if (guarded && !neverHides(*guarded) &&
        !guardsHiddenRows(*guarded, match[scores], *chain, failure))
      return std::nullopt;
    Plan plan{std::move(*chain), {}, {}};
    if (!nothingIsRounded(match, plan.chain, match[v], failure))
      return std::nullopt;
    std::optional<SpelledOperands> operands = planOperands(plan.chain, match[v], failure);
    if (!operands)
      return std::nullopt;
    plan.operands = *operands;
    if (!findSinks(match, plan.operands.query->type().dim(1), plan.sinks, failure))
      return std::nullopt;
    std::optional<ScoreMask> mask = planScoreMask(plan.chain, failure);
    if (!mask)
      return std::nullopt;
    plan.mask = std::move(*mask);
    return plan;
  }

  /// Whether a guard never applies, because its mask is one finite number.
  static bool neverHides(const Value& mask) {
    std::optional<double> number = uniformValue(mask);
    return number && std::isfinite(*number);
  }

  /// Nodes outside must not read the scores or probabilities; they may read their extents.
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
      failure = {ReasonCode::ValueEscapes, labelOf(*node), "no reader outside the matched nodes",
                 reader, ""};
      return false;
    }
    return true;
  }

  /// Scores and probabilities never have fewer bits than the values, because Sdpa would not round
  /// them.
  static bool nothingIsRounded(const Match& match, const ScoreChain& chain, const Value& values,
                               MatchFailure& failure) {
    ElementType storage = values.type().elementType();
    llvm::SmallVector<Node*, 16> nodes(chain.nodes.begin(), chain.nodes.end());
    nodes.append(match.nodes().begin(), match.nodes().end());
    for (Node* node : nodes) {
      ElementType type = node->result().type().elementType();
      if (!node->is("Cast") || !isFloatingPoint(type) || type == storage ||
          type == ElementType::Float || type == ElementType::Double || isTestOnly(*node))
        continue;
      failure = {ReasonCode::DtypeMix, labelOf(*node),
                 "scores and probabilities at least as precise as the values (" +
                     onnxName(storage).str() + ")",
                 onnxName(type).str(), ""};
      return false;
    }
    return true;
  }

  /// Probabilities may be tested in any type if nothing is computed from them.
  static bool isTestOnly(const Node& cast) {
    return llvm::all_of(cast.result().uses(),
                        [](const Use& use) { return use.user().is("IsNaN"); });
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
};

} // namespace

void register_raise_spelled_attention(RuleRegistry& registry) {
  registry.add(std::make_unique<RaiseSpelledAttention>());
}

} // namespace kvopt::rules
