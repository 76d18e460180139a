// Planning replays the chain's mask steps on the mask alone; building creates the nodes.
#include "passes/builders/score_mask.h"

#include "ir/movement.h"
#include "passes/analysis/mask/mask_reader.h"
#include "passes/analysis/movement/uniform_value.h"
#include "passes/builders/attention_builder.h"
#include "passes/pattern/explain.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <cmath>
#include <limits>

namespace kvopt::builders {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

constexpr double absorbing = -1e30;      // absorbs every score below 1e22 in f32
constexpr double belowAbsorbing = -1e31; // remains below it after a sum
constexpr double highestFill = -1e4;
constexpr double lowestHalf = -65504.0;
constexpr double lowestFloat = -static_cast<double>(std::numeric_limits<float>::max());

/// A mask whose elements are one of two numbers.
struct TwoLevels {
  Value* condition;
  double whenTrue;
  double whenFalse;
};

std::optional<TwoLevels> selectedLevels(const Value& value) {
  const Node* node = value.producer();
  if (!node || !node->is("Where") || !node->operand(1) || !node->operand(2))
    return std::nullopt;
  std::optional<double> whenTrue = uniformValue(*node->operand(1));
  std::optional<double> whenFalse = uniformValue(*node->operand(2));
  if (!whenTrue || !whenFalse)
    return std::nullopt;
  return TwoLevels{node->operand(0), *whenTrue, *whenFalse};
}

bool isNothingOrLowest(double number) { return number == 0.0 || number <= belowAbsorbing; }

/// Whether every element is provably 0 or at most `belowAbsorbing`.
bool masksCompletely(const Value& value) {
  const Value* current = &value;
  for (unsigned step = 0; step < 8 && current; ++step) {
    if (std::optional<double> number = uniformValue(*current))
      return isNothingOrLowest(*number);
    const Node* node = current->producer();
    if (!node)
      return false;
    if (std::optional<TwoLevels> levels = selectedLevels(*current))
      return isNothingOrLowest(levels->whenTrue) && isNothingOrLowest(levels->whenFalse);
    std::optional<MovementKind> kind = movementKind(*node);
    current = kind && picksElements(*kind) ? movedOperand(*node) : nullptr;
  }
  return false;
}

/// Whether key `best` of every row passes all fills, and a mask that is added later hides it only
/// together with the whole row. Mask values are moderate enough for f32 to preserve their distance
/// to a fill.
bool isBestKey(MaskReader& reader, const ScoreChain& chain, const Dim& best) {
  constexpr double mostDistance = 1e9;
  MaskExpressions& made = reader.expressions();
  bool isBeforeFill = false;
  for (const MaskStep& step : llvm::reverse(chain.mask)) {
    if (step.kind == MaskStep::Kind::Fill) {
      isBeforeFill = true;
      ExprRef condition = reader.readMask(*step.operand, best);
      if (condition != made.boolean(step.keepsTrue))
        return false;
      continue;
    }
    if (!step.operand)
      continue;
    std::optional<TwoLevels> levels = selectedLevels(*step.operand);
    if (isBeforeFill || step.kind != MaskStep::Kind::Add || !levels ||
        std::fabs(levels->whenTrue) > mostDistance || std::fabs(levels->whenFalse) > mostDistance)
      return false;
    ExprRef here = reader.readMask(*levels->condition);
    ExprRef there = reader.readMask(*levels->condition, best);
    bool seesTrue = levels->whenTrue >= levels->whenFalse;
    if (!(seesTrue ? made.implies(here, there) : made.implies(there, here)))
      return false;
  }
  return true;
}

/// Whether that holds for the first key of every row, or for the row's own key.
bool everyRowKeepsItsBestKey(const ScoreChain& chain) {
  const TensorType& scores = chain.product->result().type();
  if (!scores.hasRank() || scores.rank() != 4)
    return false;
  IndexSpace space(IndexSpace::fromModel(scores.dim(0)), IndexSpace::fromModel(scores.dim(1)),
                   IndexSpace::fromModel(scores.dim(2)), IndexSpace::fromModel(scores.dim(3)));
  if (space.past().isUnknown())
    return false;
  for (bool assuming : {true, false}) {
    MaskReader reader(space, assuming);
    bool isProved = isBestKey(reader, chain, Dim::fixed(0));
    if (!isProved && space.isNonNegative(space.past()))
      isProved = isBestKey(reader, chain, IndexSpace::variable(IndexVariable::Row) + space.past());
    if (reader.assumptionsHold())
      return isProved;
  }
  return false;
}

class MaskPlanner {
public:
  MaskPlanner(const ScoreChain& scoreChain, MatchFailure& reason)
      : chain(scoreChain), failure(reason) {}

  std::optional<ScoreMask> plan() {
    for (const MaskStep& step : chain.mask)
      if (!add(step))
        return std::nullopt;
    if (midFill && !checkFactor())
      return std::nullopt;
    if (midFill)
      demandCompleteMasks();
    if (halfFill)
      demandRebuiltMasks();
    if (objection && !everyRowKeepsItsBestKey(chain)) {
      failure = std::move(*objection);
      return std::nullopt;
    }
    mask.element = elementType();
    return std::move(mask);
  }

private:
  bool add(const MaskStep& step) {
    ScoreMask::Piece piece{step, step.number};
    if (step.kind == MaskStep::Kind::Fill && !planFill(piece, step))
      return false;
    if (step.kind == MaskStep::Kind::Add)
      planAdd(piece);
    if (step.kind == MaskStep::Kind::Subtract)
      needsFloat |= isWide(step.operand->type().elementType());
    if (step.kind == MaskStep::Kind::Clamp && isHalf(step))
      piece.number = lowestFloat;
    mask.pieces.push_back(piece);
    return true;
  }

  bool planFill(ScoreMask::Piece& piece, const MaskStep& step) {
    if (std::isinf(step.number) && step.number < 0)
      return true;
    needsFloat = true;
    if (step.number < lowestFloat) { // for double: it stays finite
      piece.number = lowestFloat;
      return true;
    }
    if (isHalf(step) && step.number <= lowestHalf) {
      piece.number = lowestFloat;
      halfFill = &step;
      return true;
    }
    if (step.number <= absorbing)
      return true;
    if (!(step.number * laterFactor(step) <= highestFill))
      return refuse(step, formatted("a fill of at most {}", highestFill),
                    formatted("{}", step.number));
    if (midFill && midFill->number != step.number)
      object(step, formatted("the fill of '{}', {}", labelOf(*midFill->node), midFill->number),
             formatted("{}", step.number));
    midFill = &step;
    piece.number = absorbing;
    return true;
  }

  /// Masks are added in f32.
  static bool isWide(ElementType type) {
    return type == ElementType::Float || type == ElementType::Double;
  }

  static bool isHalf(const MaskStep& step) {
    return step.node->result().type().elementType() == ElementType::Float16;
  }

  void planAdd(ScoreMask::Piece& piece) {
    const MaskStep& step = piece.step;
    ElementType type = step.operand->type().elementType();
    needsFloat |= isWide(type);
    if (type != ElementType::Float16 && type != ElementType::Double)
      return;
    const double lowest = type == ElementType::Double ? lowestFloat : lowestHalf;
    std::optional<TwoLevels> levels = selectedLevels(*step.operand);
    if (!levels)
      return;
    bool keepsTrue = levels->whenTrue == 0.0 && levels->whenFalse <= lowest;
    bool keepsFalse = levels->whenFalse == 0.0 && levels->whenTrue <= lowest;
    if (!keepsTrue && !keepsFalse)
      return;
    double low = keepsTrue ? levels->whenFalse : levels->whenTrue;
    piece.condition = levels->condition;
    piece.keepsTrue = keepsTrue;
    piece.number = std::isinf(low) ? low : lowestFloat;
    needsFloat |= !std::isinf(low);
  }

  /// Product of the factors that are applied to a fill afterwards.
  double laterFactor(const MaskStep& from) const {
    double factor = 1.0;
    for (const MaskStep& step : llvm::reverse(chain.mask)) {
      if (step.node == from.node)
        break;
      if (step.kind == MaskStep::Kind::Scale)
        factor *= step.number;
      if (step.kind == MaskStep::Kind::Divide)
        factor /= step.number;
    }
    return factor;
  }

  bool checkFactor() {
    double factor = laterFactor(chain.mask.front());
    return (factor >= 1e-3 && factor <= 1e3) ||
           refuse(*midFill, "a factor between 0.001 and 1000 after the fill",
                  formatted("{}", factor));
  }

  void demandCompleteMasks() {
    for (const ScoreMask::Piece& piece : mask.pieces) {
      const MaskStep& step = piece.step;
      bool isProved =
          piece.condition || (step.kind == MaskStep::Kind::Add && masksCompletely(*step.operand));
      if (step.operand && step.kind != MaskStep::Kind::Fill && !isProved)
        object(
            *midFill,
            formatted(
                "masks of 0 and of at most {} next to such a fill, or a key that every row keeps",
                belowAbsorbing),
            formatted("fill {} and mask '{}'", midFill->number, step.operand->name().str()));
    }
  }

  void demandRebuiltMasks() {
    for (const ScoreMask::Piece& piece : mask.pieces)
      if (piece.step.operand && piece.step.kind != MaskStep::Kind::Fill && !piece.condition)
        object(*halfFill,
               "float16 masks of 0 and the lowest number next to such a fill, or a key that every "
               "row sees",
               formatted("mask '{}'", piece.step.operand->name().str()));
  }

  static MatchFailure inexact(const MaskStep& step, std::string expected, std::string found) {
    return {ReasonCode::MaskFillInexact, labelOf(*step.node), std::move(expected), std::move(found),
            ""};
  }

  void object(const MaskStep& step, std::string expected, std::string found) {
    if (!objection)
      objection = inexact(step, std::move(expected), std::move(found));
  }

  bool refuse(const MaskStep& step, std::string expected, std::string found) {
    failure = inexact(step, std::move(expected), std::move(found));
    return false;
  }

  ElementType elementType() const {
    if (mask.pieces.empty())
      return ElementType::Undefined;
    bool isBoolean = llvm::all_of(mask.pieces, [](const ScoreMask::Piece& piece) {
      return piece.step.kind == MaskStep::Kind::Fill && std::isinf(piece.number);
    });
    if (isBoolean)
      return ElementType::Bool;
    ElementType storage = chain.query->type().elementType();
    return needsFloat || isWide(storage) ? ElementType::Float : storage;
  }

  const ScoreChain& chain;
  MatchFailure& failure;
  ScoreMask mask;
  const MaskStep* midFill = nullptr;
  const MaskStep* halfFill = nullptr;
  bool needsFloat = false;
  std::optional<MatchFailure> objection;
};

class Builder {
public:
  Builder(const ScoreMask& mask, Rewriter& rewriter)
      : plan(mask), builder(rewriter), element(mask.element) {}

  Value* build() {
    for (const ScoreMask::Piece& piece : plan.pieces)
      current = element == ElementType::Bool ? both(current, allowed(piece)) : apply(piece);
    return current;
  }

private:
  Value* apply(const ScoreMask::Piece& piece) {
    const MaskStep& step = piece.step;
    switch (step.kind) {
    case MaskStep::Kind::Add: {
      Value* addend = piece.condition
                          ? select(piece.condition, piece.keepsTrue, nullptr, piece.number)
                          : &builder.castTo(*step.operand, element);
      return current ? node("Add", {current, addend}) : addend;
    }
    case MaskStep::Kind::Subtract: {
      Value& subtrahend = builder.castTo(*step.operand, element);
      return current ? node("Sub", {current, subtrahend}) : node("Neg", {subtrahend});
    }
    case MaskStep::Kind::Fill:
      return select(step.operand, step.keepsTrue, current, piece.number);
    case MaskStep::Kind::Clamp:
      return node("Max",
                  {current, number(element == ElementType::Float16 ? step.number : piece.number)});
    case MaskStep::Kind::Scale:
      return node("Mul", {current, number(step.number)});
    case MaskStep::Kind::Divide:
      return node("Div", {current, number(step.number)});
    }
    return current;
  }

  /// `kept` (0 when null) where the condition keeps, `fill` elsewhere.
  Value* select(Value* condition, bool keepsTrue, Value* kept, double fill) {
    BuilderOperand keptValue = kept ? BuilderOperand(kept) : number(0.0);
    BuilderOperand fillValue = number(fill);
    condition = &builder.castTo(*condition, ElementType::Bool);
    return keepsTrue ? node("Where", {condition, keptValue, fillValue})
                     : node("Where", {condition, fillValue, keptValue});
  }

  Value* allowed(const ScoreMask::Piece& piece) {
    Value* condition = &builder.castTo(*piece.step.operand, ElementType::Bool);
    return piece.step.keepsTrue ? condition : node("Not", {condition});
  }

  Value* both(Value* first, Value* second) { return first ? node("And", {first, second}) : second; }

  BuilderOperand number(double value) const { return floatScalar(element, value); }

  /// Layers share equal nodes.
  Value* node(const char* op, llvm::ArrayRef<BuilderOperand> operands) {
    return &builder.node(op, operands, {}, "mask");
  }

  const ScoreMask& plan;
  AttentionBuilder builder;
  ElementType element;
  Value* current = nullptr;
};

} // namespace

std::optional<ScoreMask> planScoreMask(const ScoreChain& chain, MatchFailure& failure) {
  return MaskPlanner(chain, failure).plan();
}

Value* buildScoreMask(const ScoreMask& plan, Rewriter& rewriter) {
  return Builder(plan, rewriter).build();
}

} // namespace kvopt::builders
