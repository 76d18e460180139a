// The walk from the softmax back to the matrix product.
#include "passes/analysis/scores/score_steps.h"

#include "ir/elementwise.h"
#include "passes/analysis/mask/truth_value.h"
#include "passes/analysis/movement/uniform_value.h"
#include "passes/analysis/scores/quantized_products.h"
#include "passes/pattern/explain.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

std::string describe(const Value& value) {
  if (const Node* producer = value.producer())
    return producer->op().str();
  return value.isGraphInput() ? "a graph input" : "an initializer";
}

/// The number in a constant of one element that does not add axes to a tensor of rank 4.
std::optional<double> scalarFactor(const Value* value) {
  const TensorData* tensor = value ? value->constant() : nullptr;
  if (!tensor || tensor->shape().size() > 4)
    return std::nullopt;
  return scalarValue(*tensor);
}

/// Whether the type has at least 16 bits: casts between such types only round.
bool isRealType(const Value& value) {
  return roundedTo(value.type().elementType(), 0.0).has_value();
}

class Reader {
public:
  explicit Reader(MatchFailure& reason) : failure(reason) {}

  /// On success `steps` contains the path from the softmax inwards, and `product` is set.
  bool walk(Value& value) {
    if (++visits > mostVisits)
      return refuse(ReasonCode::StepBudget, value, "the product of queries and keys",
                    formatted("no end after {} operators", mostVisits));
    Node* node = value.producer();
    if (!node)
      return refuse(ReasonCode::PatternMismatch, value, "the product of queries and keys",
                    describe(value));
    if (node->is("MatMul"))
      return takeProduct(*node);
    if (const Node* codes = codesBehind(*node))
      return refuse(ReasonCode::QuantizedAttention, codes->result(),
                    "scores that are floating-point numbers throughout", codes->op().str());
    if (node->is("Mul"))
      return walkProductWithConstant(*node);
    if (node->is("Div"))
      return walkQuotient(*node);
    if (std::optional<GatedScores> gated = gatedScores(*node))
      return walkGate(*node, *gated);
    if (node->is("Add"))
      return walkSum(*node);
    if (node->is("Sub") && node->operand(1))
      return walkInto(*node, 0, {ScoreStep::Kind::Subtract, node, node->operand(1)});
    if (node->is("Where"))
      return walkSelection(*node);
    if (node->is("Max"))
      return walkMaximum(*node);
    if (node->is("Clip"))
      return walkClip(*node);
    if (node->is("Tanh"))
      return walkInto(*node, 0, {ScoreStep::Kind::Tanh, node});
    if (node->is("Neg"))
      return walkInto(*node, 0, {ScoreStep::Kind::Multiply, node, nullptr, -1.0});
    if (node->is("Identity"))
      return walkInto(*node, 0, {ScoreStep::Kind::Pass, node});
    if (node->is("Cast")) {
      if (!isRealType(value) || !node->operand(0) || !isRealType(*node->operand(0)))
        return refuse(ReasonCode::DtypeMix, value, "a cast between floating-point types",
                      value.type().str());
      return walkInto(*node, 0, {ScoreStep::Kind::Pass, node});
    }
    const bool isFunction = elementFunction(*node) == ElementFunction::Nonlinear;
    return refuse(isFunction ? ReasonCode::ScoreFunction : ReasonCode::PatternMismatch, value,
                  "MatMul of queries and keys, or a scale, soft cap or mask of it",
                  describe(value));
  }

  Node* product = nullptr;
  llvm::SmallVector<ScoreStep, 8> steps;

private:
  static constexpr unsigned mostVisits = 256;

  bool refuse(ReasonCode code, const Value& at, std::string expected, std::string found,
              std::string hint = "") {
    const Node* producer = at.producer();
    failure = {code, producer ? labelOf(*producer) : at.name().str(), std::move(expected),
               std::move(found), std::move(hint)};
    return false;
  }

  /// The node that computes with codes, if it is this one or, ignoring a cast, the producer of one
  /// of its operands; null otherwise.
  static const Node* codesBehind(const Node& node) {
    if (worksOnCodes(node))
      return &node;
    for (const Use& use : node.operands()) {
      const Node* producer = use.value() ? use.value()->producer() : nullptr;
      if (producer && producer->is("Cast") && producer->operand(0))
        producer = producer->operand(0)->producer();
      if (producer && worksOnCodes(*producer))
        return producer;
    }
    return nullptr;
  }

  bool takeProduct(Node& node) {
    const Value* left = node.operand(0);
    const Value* right = node.operand(1);
    for (const Value* operand : {left, right})
      if (!operand || !operand->type().hasRank())
        return refuse(ReasonCode::DynamicRank, node.result(), "operands of known rank",
                      operand ? operand->type().str() : "none");
    if (left->type().rank() != 4 || right->type().rank() != 4)
      return refuse(ReasonCode::ShapeMismatch, node.result(),
                    "queries [B,H,S,D] times keys [B,G,D,T]",
                    left->type().str() + " times " + right->type().str());
    product = &node;
    return true;
  }

  bool walkInto(Node& node, unsigned operand, ScoreStep step) {
    Value* next = node.operand(operand);
    if (!next)
      return refuse(ReasonCode::PatternMismatch, node.result(), "an operand", "none");
    steps.push_back(step);
    if (walk(*next))
      return true;
    steps.pop_back();
    return false;
  }

  bool walkProductWithConstant(Node& node) {
    for (unsigned i : {1u, 0u})
      if (std::optional<double> factor = scalarFactor(node.operand(i)))
        return walkInto(node, 1 - i, {ScoreStep::Kind::Multiply, &node, nullptr, *factor});
    for (unsigned i : {1u, 0u})
      if (isRowFactor(node, i))
        return walkInto(node, 1 - i, {ScoreStep::Kind::MultiplyRows, &node, node.operand(i)});
    return refuse(ReasonCode::ScaleNotConstant, node.result(),
                  "a factor that is one constant, or one number per row of the scores",
                  "two computed operands");
  }

  bool walkQuotient(Node& node) {
    if (std::optional<double> divisor = scalarFactor(node.operand(1)))
      return walkInto(node, 0, {ScoreStep::Kind::Divide, &node, nullptr, *divisor});
    if (isRowFactor(node, 1))
      return walkInto(node, 0, {ScoreStep::Kind::DivideRows, &node, node.operand(1)});
    return refuse(ReasonCode::ScaleNotConstant, node.result(),
                  "a divisor that is one constant, or one number per row of the scores",
                  node.operand(1) ? describe(*node.operand(1)) : "none");
  }

  /// Whether an operand of a product or quotient has one column, and the other may have more.
  static bool isRowFactor(const Node& node, unsigned operand) {
    const Value* factor = node.operand(operand);
    const Value* scores = node.operand(1 - operand);
    if (!factor || !scores || !factor->type().hasRank() || !scores->type().hasRank())
      return false;
    unsigned rank = factor->type().rank();
    return rank > 0 && rank <= 4 && scores->type().rank() == 4 &&
           factor->type().dim(-1).value() == 1 && scores->type().dim(-1).value() != 1;
  }

  bool walkGate(Node& sum, const GatedScores& gated) {
    steps.push_back({ScoreStep::Kind::Fill, &sum, &truthOf(*gated.kept), gated.fill, true});
    if (walkInto(*gated.product, gated.scoresOperand, {ScoreStep::Kind::Pass, gated.product}))
      return true;
    steps.pop_back();
    return false;
  }

  /// Either operand can be the scores. The likelier one is tried first, and its reason is kept.
  bool walkSum(Node& node) {
    if (!node.operand(0) || !node.operand(1))
      return refuse(ReasonCode::PatternMismatch, node.result(), "two operands", "one");
    unsigned first = looksLikeScores(node, 0) || !looksLikeScores(node, 1) ? 0 : 1;
    if (walkInto(node, first, {ScoreStep::Kind::Add, &node, node.operand(1 - first)}))
      return true;
    MatchFailure kept = failure;
    if (walkInto(node, 1 - first, {ScoreStep::Kind::Add, &node, node.operand(first)}))
      return true;
    failure = std::move(kept);
    return false;
  }

  /// Masks usually have one head for all; scores have the result's shape.
  static bool looksLikeScores(const Node& sum, unsigned operand) {
    const TensorType& type = sum.operand(operand)->type();
    const Node* producer = sum.operand(operand)->producer();
    if (!producer || !type.hasRank() || type.rank() != 4 || producer->is("Expand"))
      return false;
    Dim heads = sum.result().type().dim(1);
    return type.dim(1).isKnownEqual(heads) || (heads.isUnknown() && type.dim(1).isUnknown());
  }

  bool walkSelection(Node& node) {
    Value* condition = node.operand(0);
    if (!condition || !node.operand(1) || !node.operand(2))
      return refuse(ReasonCode::PatternMismatch, node.result(), "three operands", "fewer");
    for (unsigned fill : {2u, 1u})
      if (std::optional<double> number = uniformValue(*node.operand(fill)))
        return walkInto(node, 3 - fill,
                        {ScoreStep::Kind::Fill, &node, condition, *number, fill == 2});
    return refuse(ReasonCode::PatternMismatch, node.result(),
                  "one constant in place of masked scores",
                  describe(*node.operand(1)) + " and " + describe(*node.operand(2)));
  }

  bool walkMaximum(Node& node) {
    if (node.operands().size() == 2)
      for (unsigned i : {1u, 0u})
        if (std::optional<double> floor = scalarFactor(node.operand(i)))
          return walkInto(node, 1 - i, {ScoreStep::Kind::Clamp, &node, nullptr, *floor});
    return refuse(ReasonCode::PatternMismatch, node.result(), "Max of the scores and one constant",
                  "other operands");
  }

  bool walkClip(Node& node) {
    std::optional<double> floor = scalarFactor(node.operand(1));
    std::optional<double> ceiling = scalarFactor(node.operand(2));
    constexpr double aboveAllScores = 1e31;
    if (floor && (node.operand(2) ? ceiling && *ceiling >= aboveAllScores : true))
      return walkInto(node, 0, {ScoreStep::Kind::Clamp, &node, nullptr, *floor});
    return refuse(ReasonCode::ScoreFunction, node.result(),
                  "scores that only a scale, a soft cap, and a mask change",
                  "Clip with bounds that scores can reach");
  }

  MatchFailure& failure;
  unsigned visits = 0;
};

} // namespace

std::optional<ScoreSteps> readScoreSteps(Value& scores, MatchFailure& failure) {
  Reader reader(failure);
  if (!reader.walk(scores))
    return std::nullopt;
  return ScoreSteps{reader.product, std::move(reader.steps)};
}

} // namespace kvopt::analysis
