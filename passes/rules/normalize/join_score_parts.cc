// Joins the keys instead of the scores, if scores of several sets of keys are joined before one
// softmax.
//
//   before   s = Concat<-1>(Where(m, -inf, Mul(MatMul(q, Transpose(past)), c)),
//                           Mul(MatMul(q, Transpose(k)), c))
//   after    s = Where(Concat<-1>(m, false), -inf,
//                     Mul(MatMul(q, Transpose(Concat<-2>(past, k))), c))
//
// All parts are products with one query and equal scales. A part may have a mask that others lack:
// the others get a mask that hides no key, or adds 0. Parts that are not products, such as sinks,
// do not change.
#include "ir/elementwise.h"
#include "ir/movement.h"
#include "passes/analysis/movement/data_movement.h"
#include "passes/analysis/movement/equal_values.h"
#include "passes/analysis/movement/uniform_value.h"
#include "passes/analysis/scores/probability_columns.h"
#include "passes/builders/attention_builder.h"
#include "passes/pattern/rule.h"
#include "passes/pattern/shape_builder.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rules {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

/// An operator on the scores of all parts.
struct ScoreStep {
  enum class Kind {
    Scale, ///< multiplied or divided by one number
    Bias,  ///< a mask added
    Keep,  ///< kept where a mask is true, replaced by one number elsewhere
    Hide,  ///< replaced by one number where a mask is true
  };
  Kind kind = Kind::Scale;
  const Node* like = nullptr; ///< the operator in one of the parts
  Value* number = nullptr;    ///< the scale, or the number that replaces scores
  /// Mask of each part; null if the part has none. Empty for a scale.
  llvm::SmallVector<Value*, 4> masks;

  bool hasMasks() const { return kind != Kind::Scale; }
};

/// Common composition of the parts.
struct ScoreParts {
  Value* query = nullptr;
  llvm::SmallVector<Value*, 4> keys;     ///< [..,width,keys], by part
  llvm::SmallVector<ScoreStep, 4> steps; ///< from the Concat back to the products
  /// Extents that the masks of each step share: all but the last.
  llvm::SmallVector<Shape, 4> maskExtents;
};

bool isScoreProduct(const Node& node) {
  return node.is("MatMul") && !node.operand(0)->constant() && !node.operand(1)->constant();
}

/// An operator on one part: its kind, the scores, and the other operand.
struct PartStep {
  ScoreStep::Kind kind = ScoreStep::Kind::Scale;
  Value* scores = nullptr;
  Value* number = nullptr;
  Value* mask = nullptr;
};

bool leadsToProduct(const Value& value, unsigned depth = 0);

std::optional<PartStep> partStep(const Node& node) {
  using Kind = ScoreStep::Kind;
  if (node.is("Where") && uniformValue(*node.operand(2)) && leadsToProduct(*node.operand(1)))
    return PartStep{Kind::Keep, node.operand(1), node.operand(2), node.operand(0)};
  if (node.is("Where") && uniformValue(*node.operand(1)) && leadsToProduct(*node.operand(2)))
    return PartStep{Kind::Hide, node.operand(2), node.operand(1), node.operand(0)};
  if (!node.is("Mul") && !node.is("Div") && !node.is("Add"))
    return std::nullopt;
  const auto isScores = [&](unsigned operand) { return leadsToProduct(*node.operand(operand)); };
  if (isScores(0) == isScores(1) || (node.is("Div") && isScores(1)))
    return std::nullopt;
  Value* scores = node.operand(isScores(0) ? 0 : 1);
  Value* other = node.operand(isScores(0) ? 1 : 0);
  if (node.is("Add"))
    return PartStep{Kind::Bias, scores, nullptr, other};
  if (!uniformValue(*other))
    return std::nullopt;
  return PartStep{Kind::Scale, scores, other, nullptr};
}

bool leadsToProduct(const Value& value, unsigned depth) {
  constexpr unsigned mostSteps = 6;
  const Node* node = value.producer();
  if (!node || depth == mostSteps)
    return false;
  if (isScoreProduct(*node))
    return true;
  if (!node->is("Where") && !node->is("Mul") && !node->is("Div") && !node->is("Add"))
    return false;
  return llvm::any_of(node->operands(), [&](const Use& use) {
    return use.value() && leadsToProduct(*use.value(), depth + 1);
  });
}

/// Whether two operands hold the same number for all scores, whatever their shapes.
bool isSameNumber(const Value* a, const Value* b) {
  return a == b || (a && b && uniformValue(*a) == uniformValue(*b) &&
                    a->type().elementType() == b->type().elementType());
}

/// Whether two queries are equal, or are scaled alike.
bool isSameQuery(const Value& a, const Value& b) {
  if (areEqual(a, b))
    return true;
  const Node* first = a.producer();
  const Node* second = b.producer();
  return first && second && first->op() == second->op() && (first->is("Mul") || first->is("Div")) &&
         uniformValue(*first->operand(1)) && isSameNumber(first->operand(1), second->operand(1)) &&
         areEqual(*first->operand(0), *second->operand(0));
}

/// Extents of the masks except the last, each from a mask that has it; nullopt if they differ or
/// are unknown.
std::optional<Shape> commonMaskExtents(llvm::ArrayRef<Value*> masks) {
  llvm::SmallVector<Dim, 4> fromEnd;
  for (const Value* mask : masks) {
    if (!mask)
      continue;
    const TensorType& type = mask->type();
    if (!type.hasRank())
      return std::nullopt;
    for (unsigned axis = 2; axis <= type.rank(); ++axis) {
      const Dim extent = type.dim(-static_cast<int64_t>(axis));
      if (fromEnd.size() < axis - 1)
        fromEnd.push_back(Dim::fixed(1));
      Dim& common = fromEnd[axis - 2];
      if (extent.isUnknown() ||
          (common.value() != 1 && extent.value() != 1 && !extent.isKnownEqual(common)))
        return std::nullopt;
      if (common.value() == 1)
        common = extent;
    }
  }
  return Shape(fromEnd.rbegin(), fromEnd.rend());
}

/// Removes one operator from the parts: a mask, from the parts that have one, or a scale that all
/// have.
std::optional<ScoreStep> takeStep(llvm::MutableArrayRef<Value*> parts) {
  llvm::SmallVector<std::optional<PartStep>, 4> steps;
  for (const Value* part : parts)
    steps.push_back(part->producer() && !isScoreProduct(*part->producer())
                        ? partStep(*part->producer())
                        : std::nullopt);
  const auto* first = llvm::find_if(steps, [](const std::optional<PartStep>& step) {
    return step && step->kind != ScoreStep::Kind::Scale;
  });
  if (first == steps.end())
    first = steps.begin();
  if (!*first)
    return std::nullopt;
  const PartStep& wanted = **first;
  ScoreStep taken;
  taken.kind = wanted.kind;
  taken.number = wanted.number;
  taken.like = parts[static_cast<size_t>(first - steps.begin())]->producer();
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::optional<PartStep>& step = steps[i];
    const bool isAlike = step && step->kind == wanted.kind &&
                         isSameNumber(step->number, wanted.number) &&
                         (taken.hasMasks() || parts[i]->producer()->op() == taken.like->op());
    if (!taken.hasMasks() && !isAlike)
      return std::nullopt;
    if (taken.hasMasks())
      taken.masks.push_back(isAlike ? step->mask : nullptr);
    if (isAlike)
      parts[i] = step->scores;
  }
  return taken;
}

/// Whether keys can be joined along their last axis.
bool areOfOneForm(llvm::ArrayRef<Value*> keys) {
  const TensorType& first = keys.front()->type();
  return first.hasRank() && first.rank() >= 2 && llvm::all_of(keys, [&](const Value* each) {
           const TensorType& type = each->type();
           if (!type.hasRank() || type.rank() != first.rank())
             return false;
           for (unsigned axis = 0; axis + 1 < type.rank(); ++axis)
             if (!type.dim(axis).isKnownEqual(first.dim(axis)))
               return false;
           return !type.dim(-1).isUnknown();
         });
}

std::optional<ScoreParts> scoreParts(const Node& join) {
  constexpr size_t mostSteps = 6;
  const auto along = movementOf(join.result());
  if (!along || !along->axis() || *along->axis() + 1 != join.result().type().rank())
    return std::nullopt;
  llvm::SmallVector<Value*, 4> parts;
  for (const Use& use : join.operands())
    parts.push_back(use.value());
  ScoreParts found;
  const auto isProduct = [](const Value* part) {
    return part->producer() && isScoreProduct(*part->producer());
  };
  while (!llvm::all_of(parts, isProduct)) {
    auto step = found.steps.size() < mostSteps ? takeStep(parts) : std::nullopt;
    if (!step)
      return std::nullopt;
    auto extents = commonMaskExtents(step->masks);
    if (!extents)
      return std::nullopt;
    found.maskExtents.push_back(std::move(*extents));
    found.steps.push_back(std::move(*step));
  }
  found.query = parts.front()->producer()->operand(0);
  for (const Value* part : parts) {
    if (!isSameQuery(*part->producer()->operand(0), *found.query))
      return std::nullopt;
    found.keys.push_back(part->producer()->operand(1));
  }
  return areOfOneForm(found.keys) ? std::optional(std::move(found)) : std::nullopt;
}

/// The softmax over the last axis that reads the scores, through elementwise operators only; null
/// if another operator reads them.
const Node* softmaxOf(const Value& scores) {
  constexpr unsigned mostSteps = 8;
  const Value* value = &scores;
  for (unsigned step = 0; step < mostSteps && value->hasUses(); ++step) {
    const Node& reader = value->uses().begin()->user();
    if (reader.is("Softmax")) {
      const int64_t axis = reader.intAttr("axis", -1);
      return axis == -1 || axis + 1 == static_cast<int64_t>(value->type().rank()) ? &reader
                                                                                  : nullptr;
    }
    if (!isElementwise(reader) || reader.results().size() != 1)
      return nullptr;
    value = &reader.result();
  }
  return nullptr;
}

/// Whether `join-partial-products` can follow: if the probabilities are cut, the places are known,
/// and the keys of a cache come first, or can be moved to the front before.
bool canFollow(const Node& softmax, const ScoreParts& parts) {
  const auto isCut = [](const Use& use) { return movementKind(use.user()) == MovementKind::Slice; };
  const auto uses = softmax.result().uses();
  if (llvm::none_of(uses, isCut))
    return true;
  const bool isKnown = llvm::all_of(uses, [&](const Use& use) {
    return !isCut(use) || llvm::all_of(use.user().results(), [](const Value& columns) {
      return columns.isUnused() || columnRange(columns);
    });
  });
  return isKnown && llvm::is_sorted(parts.keys, [](const Value* a, const Value* b) {
           return isMovedFromInput(*a) && !isMovedFromInput(*b);
         });
}

class ScorePartsWriter {
public:
  ScorePartsWriter(const ScoreParts& scoreParts, const Node& scoreJoin, Rewriter& edits)
      : parts(scoreParts), join(scoreJoin), rewriter(edits), build(edits), shapes(edits) {}

  /// Returns null if a mask cannot be given an extent.
  Value* run() {
    Value* scores = &build.node("MatMul", {*parts.query, joinedKeys()}, {}, "scores");
    for (size_t i = parts.steps.size(); scores && i-- > 0;)
      scores = after(parts.steps[i], parts.maskExtents[i], *scores);
    return scores;
  }

private:
  /// [..,width,keys] as rows [..,keys,width], without a second Transpose if the keys have one.
  Value& rowsOf(Value& columns) {
    std::vector<int64_t> order;
    Value* rows = &columns;
    const Node* node = columns.producer();
    const auto movement = node ? movementOf(columns) : std::nullopt;
    if (movement && movement->is(MovementKind::Permutation) && movement->axes) {
      order.assign(movement->axes->begin(), movement->axes->end());
      rows = movedOperand(*node);
    } else {
      for (unsigned axis = 0; axis < columns.type().rank(); ++axis)
        order.push_back(axis);
    }
    std::swap(order[order.size() - 2], order.back());
    return llvm::is_sorted(order) ? *rows : build.transpose(*rows, std::move(order));
  }

  Value& joinedKeys() {
    llvm::SmallVector<BuilderOperand, 4> rows;
    for (Value* columns : parts.keys)
      rows.emplace_back(rowsOf(*columns));
    const auto rank = static_cast<int64_t>(rows.front().value->type().rank());
    Value& joined = rows.size() == 2
                        ? build.concat(*rows[0].value, *rows[1].value, rank - 2)
                        : build.node("Concat", rows, attrs({{"axis", rank - 2}}), "keys");
    std::vector<int64_t> order;
    for (int64_t axis = 0; axis < rank; ++axis)
      order.push_back(axis);
    std::swap(order[order.size() - 2], order.back());
    return build.transpose(joined, std::move(order));
  }

  Value* after(const ScoreStep& step, const Shape& extents, Value& scores) {
    if (!step.hasMasks())
      return &rewriter.create(step.like->op(), {&scores, step.number}, {}, 1, "scaled").result();
    Value* mask = joinedMask(step, extents);
    if (!mask)
      return nullptr;
    switch (step.kind) {
    case ScoreStep::Kind::Keep:
      return &build.node("Where", {*mask, scores, *step.number}, {}, "masked");
    case ScoreStep::Kind::Hide:
      return &build.node("Where", {*mask, *step.number, scores}, {}, "masked");
    default:
      return &build.node("Add", {scores, *mask}, {}, "masked");
    }
  }

  Value* joinedMask(const ScoreStep& step, const Shape& extents) {
    llvm::SmallVector<BuilderOperand, 4> masks;
    for (size_t i = 0; i < step.masks.size(); ++i) {
      Value& mask = step.masks[i] ? *step.masks[i] : neutralMask(step);
      Shape all = extents;
      all.push_back(parts.keys[i]->type().dim(-1));
      Value* expanded = shapes.expand(mask, all, "mask");
      if (!expanded)
        return nullptr;
      masks.emplace_back(*expanded);
    }
    return &build.node("Concat", masks, attrs({{"axis", static_cast<int64_t>(extents.size())}}),
                       "mask");
  }

  /// A mask that does not change scores.
  Value& neutralMask(const ScoreStep& step) {
    if (step.kind == ScoreStep::Kind::Bias)
      return build.value(floatScalar(join.result().type().elementType(), 0));
    return build.value(boolTensor({step.kind == ScoreStep::Kind::Keep}));
  }

  const ScoreParts& parts;
  const Node& join;
  Rewriter& rewriter;
  AttentionBuilder build;
  ShapeBuilder shapes;
};

class JoinScoreParts final : public Rule {
  Payload<ScoreParts> parts;

public:
  llvm::StringRef name() const override { return "join-score-parts"; }
  RuleGroup group() const override { return RuleGroup::Normalize; }

  P pattern() const override {
    return oneOf("parts", {{"two", op("Concat", {any(), any()})},
                           {"three", op("Concat", {any(), any(), any()})},
                           {"four", op("Concat", {any(), any(), any(), any()})}});
  }

  void constraints(Constraints& c) const override {
    c.require("scores that go to a softmax",
              [](const Match& match) { return softmaxOf(match.root().result()) != nullptr; });
    c.plan(parts, "products of one query with several sets of keys, scaled alike",
           [](const Match& match) { return scoreParts(match.root()); });
    c.require("probabilities that are cut at known places, those of caches first",
              [this](const Match& match) {
                return canFollow(*softmaxOf(match.root().result()), match[parts]);
              });
  }

  std::optional<MatchFailure> rewrite(const Match& match, Rewriter& rewriter) const override {
    Value* scores = ScorePartsWriter(match[parts], match.root(), rewriter).run();
    if (!scores) {
      rewriter.discard();
      return MatchFailure{ReasonCode::ShapeUnknown, match.root().name().str(),
                          "masks whose extents are those of inputs", "others", ""};
    }
    return rewriter.replace(match.root().result(), *scores);
  }
};

} // namespace

void register_join_score_parts(RuleRegistry& registry) {
  registry.add(std::make_unique<JoinScoreParts>());
}

} // namespace kvopt::rules
