// The walk from the softmax back to the matrix product, and the algebra that sorts its steps.
#include "passes/analysis/score_chain.h"

#include "ir/format.h"
#include "passes/analysis/uniform_value.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt {
namespace {

std::string describe(const Value& value) {
  if (const Node* producer = value.producer())
    return producer->op().str();
  return value.isGraphInput() ? "a graph input" : "an initializer";
}

std::string nameOf(const Node& node) {
  return node.name().empty() ? node.result().name().str() : node.name().str();
}

/// The number of a constant of one element that does not add axes to a tensor of rank 4.
std::optional<double> scalarFactor(const Value* value) {
  const TensorData* tensor = value ? value->constant() : nullptr;
  if (!tensor || tensor->shape().size() > 4)
    return std::nullopt;
  return scalarValue(*tensor);
}

/// Of 16 bits at least: casts between such types round, and lose no more.
bool isRealType(const Value& value) {
  return roundedTo(value.type().elementType(), 0.0).has_value();
}

/// One operator on the way, with the operand that the scores come in by.
struct Step {
  enum class Kind { Multiply, Divide, Tanh, Add, Subtract, Fill, Clamp, Pass };
  Kind kind = Kind::Pass;
  Node* node = nullptr;
  Value* other = nullptr; // the mask or the condition
  double number = 0.0;
  bool keepsTrue = true;
};

class Reader {
public:
  explicit Reader(MatchFailure& reason) : failure(reason) {}

  /// On success `steps` leads from the softmax inwards and `product` is set.
  bool walk(Value& value) {
    if (++visits > mostVisits)
      return refuse(ReasonCode::StepBudget, value, "the product of queries and keys",
                    fmt::format("no end after {} operators", mostVisits));
    Node* node = value.producer();
    if (!node)
      return refuse(ReasonCode::PatternMismatch, value, "the product of queries and keys",
                    describe(value));
    if (node->is("MatMul"))
      return takeProduct(*node);
    if (node->is("Mul"))
      return walkProductWithConstant(*node);
    if (node->is("Div"))
      return walkQuotient(*node);
    if (node->is("Add"))
      return walkSum(*node);
    if (node->is("Sub") && node->operand(1))
      return walkInto(*node, 0, {Step::Kind::Subtract, node, node->operand(1)});
    if (node->is("Where"))
      return walkSelection(*node);
    if (node->is("Max"))
      return walkMaximum(*node);
    if (node->is("Clip"))
      return walkClip(*node);
    if (node->is("Tanh"))
      return walkInto(*node, 0, {Step::Kind::Tanh, node});
    if (node->is("Identity"))
      return walkInto(*node, 0, {Step::Kind::Pass, node});
    if (node->is("Cast")) {
      if (!isRealType(value) || !node->operand(0) || !isRealType(*node->operand(0)))
        return refuse(ReasonCode::DtypeMix, value, "a cast between floating-point types",
                      value.type().str());
      return walkInto(*node, 0, {Step::Kind::Pass, node});
    }
    return refuse(ReasonCode::PatternMismatch, value,
                  "MatMul of queries and keys, or a scale, soft cap or mask of it",
                  describe(value));
  }

  Node* product = nullptr;
  llvm::SmallVector<Step, 8> steps;

private:
  static constexpr unsigned mostVisits = 256;

  bool refuse(ReasonCode code, const Value& at, std::string expected, std::string found,
              std::string hint = "") {
    const Node* producer = at.producer();
    failure = {code, producer ? nameOf(*producer) : at.name().str(), std::move(expected),
               std::move(found), std::move(hint)};
    return false;
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

  bool walkInto(Node& node, unsigned operand, Step step) {
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
        return walkInto(node, 1 - i, {Step::Kind::Multiply, &node, nullptr, *factor});
    return refuse(ReasonCode::ScaleNotConstant, node.result(), "a factor that is one constant",
                  "two computed operands");
  }

  bool walkQuotient(Node& node) {
    if (std::optional<double> divisor = scalarFactor(node.operand(1)))
      return walkInto(node, 0, {Step::Kind::Divide, &node, nullptr, *divisor});
    return refuse(ReasonCode::ScaleNotConstant, node.result(), "a divisor that is one constant",
                  node.operand(1) ? describe(*node.operand(1)) : "none");
  }

  /// Either operand can be the scores. The likelier one is tried first, and its reason is kept.
  bool walkSum(Node& node) {
    if (!node.operand(0) || !node.operand(1))
      return refuse(ReasonCode::PatternMismatch, node.result(), "two operands", "one");
    unsigned first = looksLikeScores(node, 0) || !looksLikeScores(node, 1) ? 0 : 1;
    if (walkInto(node, first, {Step::Kind::Add, &node, node.operand(1 - first)}))
      return true;
    MatchFailure kept = failure;
    if (walkInto(node, 1 - first, {Step::Kind::Add, &node, node.operand(first)}))
      return true;
    failure = std::move(kept);
    return false;
  }

  /// Masks mostly have one head for all; scores have the result's shape.
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
        return walkInto(node, 3 - fill, {Step::Kind::Fill, &node, condition, *number, fill == 2});
    return refuse(ReasonCode::PatternMismatch, node.result(),
                  "one constant in place of masked scores",
                  describe(*node.operand(1)) + " and " + describe(*node.operand(2)));
  }

  bool walkMaximum(Node& node) {
    if (node.operands().size() == 2)
      for (unsigned i : {1u, 0u})
        if (std::optional<double> floor = scalarFactor(node.operand(i)))
          return walkInto(node, 1 - i, {Step::Kind::Clamp, &node, nullptr, *floor});
    return refuse(ReasonCode::PatternMismatch, node.result(), "Max of the scores and one constant",
                  "other operands");
  }

  bool walkClip(Node& node) {
    std::optional<double> floor = scalarFactor(node.operand(1));
    std::optional<double> ceiling = scalarFactor(node.operand(2));
    constexpr double aboveAllScores = 1e31;
    if (floor && (node.operand(2) ? ceiling && *ceiling >= aboveAllScores : true))
      return walkInto(node, 0, {Step::Kind::Clamp, &node, nullptr, *floor});
    return refuse(ReasonCode::PatternMismatch, node.result(),
                  "Clip with one constant lower bound only", "other bounds");
  }

  MatchFailure& failure;
  unsigned visits = 0;
};

/// Applies the steps from the product outwards.
class Sorter {
public:
  Sorter(ScoreChain& sorted, MatchFailure& reason) : chain(sorted), failure(reason) {}

  bool apply(const Step& step) {
    switch (step.kind) {
    case Step::Kind::Multiply:
    case Step::Kind::Divide:
      return scale(step);
    case Step::Kind::Tanh:
      return cap(step);
    case Step::Kind::Add:
      return broadcasts(step) && mask({MaskStep::Kind::Add, step.node, step.other});
    case Step::Kind::Subtract:
      return broadcasts(step) && mask({MaskStep::Kind::Subtract, step.node, step.other});
    case Step::Kind::Fill:
      return broadcasts(step) &&
             mask({MaskStep::Kind::Fill, step.node, step.other, step.number, step.keepsTrue});
    case Step::Kind::Clamp:
      return clamp(step);
    case Step::Kind::Pass:
      return true;
    }
    return false;
  }

  /// A tanh(B x) is cap * tanh(scale x / cap) with cap = |A| and scale = A B.
  bool finish() {
    if (isCapped) {
      chain.scale *= outerFactor;
      chain.softcap = std::fabs(outerFactor);
    }
    bool isFinite = std::isfinite(static_cast<float>(chain.scale)) &&
                    std::isfinite(static_cast<float>(chain.softcap));
    if (isFinite && (!isCapped || static_cast<float>(chain.softcap) > 0.0f))
      return true;
    return refuse(*chain.product, ReasonCode::ScaleNotConstant, "finite factors",
                  fmt::format("scale {} and soft cap {}", chain.scale, chain.softcap));
  }

private:
  bool refuse(const Node& node, ReasonCode code, std::string expected, std::string found) {
    failure = {code, nameOf(node), std::move(expected), std::move(found), ""};
    return false;
  }

  bool scale(const Step& step) {
    bool divides = step.kind == Step::Kind::Divide;
    double factor = divides ? 1.0 / step.number : step.number;
    if (!std::isfinite(factor))
      return refuse(*step.node, ReasonCode::ScaleNotConstant, "a finite factor",
                    fmt::format("{}", factor));
    // With a factor <= 0 what was masked would not stay masked.
    if (!chain.mask.empty() && !(factor > 0.0))
      return refuse(*step.node, ReasonCode::ScaleNotConstant, "a positive factor after the mask",
                    fmt::format("{}", factor));
    (isCapped ? outerFactor : chain.scale) *= factor;
    if (!chain.mask.empty())
      chain.mask.push_back({divides ? MaskStep::Kind::Divide : MaskStep::Kind::Scale, step.node,
                            nullptr, step.number});
    return true;
  }

  bool cap(const Step& step) {
    if (isCapped)
      return refuse(*step.node, ReasonCode::PatternMismatch, "one soft cap", "a second one");
    if (!chain.mask.empty())
      return refuse(*step.node, ReasonCode::PatternMismatch, "the soft cap before the mask",
                    "that it comes after " + nameOf(*chain.mask.back().node));
    isCapped = true;
    return true;
  }

  bool clamp(const Step& step) {
    // Only what is masked may be below; scores of this size do not occur in f32.
    constexpr double belowAllScores = -1e31;
    ElementType type = step.node->result().type().elementType();
    if (!(step.number <= belowAllScores ||
          (type == ElementType::Float16 && step.number <= -65504.0)))
      return refuse(*step.node, ReasonCode::PatternMismatch,
                    "a lower bound near the lowest number of the type",
                    fmt::format("{}", step.number));
    return chain.mask.empty() || mask({MaskStep::Kind::Clamp, step.node, nullptr, step.number});
  }

  bool mask(MaskStep step) {
    chain.mask.push_back(step);
    return true;
  }

  /// Scores that a mask gives more rows or axes are no scores of this product any more.
  bool broadcasts(const Step& step) {
    const TensorType& type = step.other->type();
    if (!type.hasRank())
      return refuse(*step.node, ReasonCode::DynamicRank, "a mask of known rank", type.str());
    const TensorType& scores = chain.product->result().type();
    bool fits = type.rank() <= 4;
    for (unsigned fromEnd = 1; fits && fromEnd <= type.rank(); ++fromEnd) {
      auto axis = -static_cast<int64_t>(fromEnd);
      const Dim extent = type.dim(axis);
      fits = !(extent.isKnownDifferent(Dim::fixed(1)) && scores.hasRank() &&
               extent.isKnownDifferent(scores.dim(axis)));
    }
    return fits || refuse(*step.node, ReasonCode::ShapeMismatch,
                          "a mask that broadcasts to " + scores.str(), type.str());
  }

  ScoreChain& chain;
  MatchFailure& failure;
  double outerFactor = 1.0;
  bool isCapped = false;
};

} // namespace

std::optional<ScoreChain> readScoreChain(Value& scores, MatchFailure& failure) {
  Reader reader(failure);
  if (!reader.walk(scores))
    return std::nullopt;
  ScoreChain chain;
  chain.product = reader.product;
  chain.query = chain.product->operand(0);
  chain.keysTransposed = chain.product->operand(1);
  chain.nodes.push_back(chain.product);
  Sorter sorter(chain, failure);
  for (const Step& step : llvm::reverse(reader.steps)) {
    chain.nodes.push_back(step.node);
    if (!sorter.apply(step))
      return std::nullopt;
  }
  if (!sorter.finish())
    return std::nullopt;
  return chain;
}

} // namespace kvopt
