// Algebra that separates the steps from the product to the softmax into factors, a soft cap and
// masks.
#include "passes/analysis/scores/score_chain.h"

#include "passes/analysis/movement/uniform_value.h"
#include "passes/analysis/scores/score_steps.h"
#include "passes/pattern/explain.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

/// Applies the steps from the product outwards.
class Sorter {
public:
  Sorter(ScoreChain& sorted, MatchFailure& reason) : chain(sorted), failure(reason) {}

  bool apply(const ScoreStep& step) {
    switch (step.kind) {
    case ScoreStep::Kind::Multiply:
    case ScoreStep::Kind::Divide:
      return scale(step);
    case ScoreStep::Kind::MultiplyRows:
    case ScoreStep::Kind::DivideRows:
      return scaleRows(step);
    case ScoreStep::Kind::Tanh:
      return cap(step);
    case ScoreStep::Kind::Add:
      return broadcasts(step) &&
             (addsNothing(step) || mask({MaskStep::Kind::Add, step.node, step.other}));
    case ScoreStep::Kind::Subtract:
      return broadcasts(step) &&
             (addsNothing(step) || mask({MaskStep::Kind::Subtract, step.node, step.other}));
    case ScoreStep::Kind::Fill:
      return broadcasts(step) &&
             mask({MaskStep::Kind::Fill, step.node, step.other, step.number, step.keepsTrue});
    case ScoreStep::Kind::Clamp:
      return clamp(step);
    case ScoreStep::Kind::Pass:
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
                  formatted("scale {} and soft cap {}", chain.scale, chain.softcap));
  }

private:
  bool refuse(const Node& node, ReasonCode code, std::string expected, std::string found) {
    failure = {code, labelOf(node), std::move(expected), std::move(found), ""};
    return false;
  }

  bool scale(const ScoreStep& step) {
    bool divides = step.kind == ScoreStep::Kind::Divide;
    double factor = divides ? 1.0 / step.number : step.number;
    if (!std::isfinite(factor))
      return refuse(*step.node, ReasonCode::ScaleNotConstant, "a finite factor",
                    formatted("{}", factor));
    // With a factor <= 0, masked scores would not stay masked.
    if (!chain.mask.empty() && !(factor > 0.0))
      return refuse(*step.node, ReasonCode::ScaleNotConstant, "a positive factor after the mask",
                    formatted("{}", factor));
    (isCapped ? outerFactor : chain.scale) *= factor;
    if (!chain.mask.empty())
      chain.mask.push_back({divides ? MaskStep::Kind::Divide : MaskStep::Kind::Scale, step.node,
                            nullptr, step.number});
    return true;
  }

  bool scaleRows(const ScoreStep& step) {
    if (isCapped || !chain.mask.empty())
      return refuse(*step.node, ReasonCode::ScaleNotConstant,
                    "a factor per row before the soft cap and the mask", "a factor after them");
    if (!broadcasts(step))
      return false;
    chain.rowFactors.push_back({step.other, step.kind == ScoreStep::Kind::DivideRows});
    return true;
  }

  bool cap(const ScoreStep& step) {
    if (isCapped)
      return refuse(*step.node, ReasonCode::ScoreFunction, "one soft cap", "a second one");
    if (!chain.mask.empty())
      return refuse(*step.node, ReasonCode::ScoreFunction, "the soft cap before the mask",
                    "a soft cap after " + labelOf(*chain.mask.back().node) +
                        ", so that masked keys keep some weight");
    isCapped = true;
    return true;
  }

  /// Whether the step adds a mask of zeros, as in the expansion of functions with an optional mask.
  static bool addsNothing(const ScoreStep& step) { return uniformValue(*step.other) == 0.0; }

  bool clamp(const ScoreStep& step) {
    // Only masked scores may be below; other scores of this size do not occur in f32.
    constexpr double belowAllScores = -1e31;
    ElementType type = step.node->result().type().elementType();
    if (!(step.number <= belowAllScores ||
          (type == ElementType::Float16 && step.number <= -65504.0)))
      return refuse(*step.node, ReasonCode::ScoreFunction,
                    "a lower bound near the lowest number of the type",
                    formatted("{}", step.number));
    return chain.mask.empty() || mask({MaskStep::Kind::Clamp, step.node, nullptr, step.number});
  }

  bool mask(MaskStep step) {
    chain.mask.push_back(step);
    return true;
  }

  /// Scores to which a mask adds rows or axes are no longer scores of this product.
  bool broadcasts(const ScoreStep& step) {
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
  std::optional<ScoreSteps> read = readScoreSteps(scores, failure);
  if (!read)
    return std::nullopt;
  ScoreChain chain;
  chain.product = read->product;
  chain.query = chain.product->operand(0);
  chain.keysTransposed = chain.product->operand(1);
  chain.nodes.push_back(chain.product);
  Sorter sorter(chain, failure);
  for (const ScoreStep& step : llvm::reverse(read->steps)) {
    chain.nodes.push_back(step.node);
    if (!sorter.apply(step))
      return std::nullopt;
  }
  if (!sorter.finish())
    return std::nullopt;
  return chain;
}

} // namespace kvopt::analysis
