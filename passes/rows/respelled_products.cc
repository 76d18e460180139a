// Conversion of evaluated products to MatMul.
#include "passes/rows/respelled_products.h"

#include "ir/movement.h"
#include "passes/builders/attention_builder.h"
#include "passes/rows/row_writer.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::rows {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace pattern;

namespace {

Node* onlyReader(const Value& value) {
  return value.hasOneUse() && !value.isGraphOutput() ? &value.uses().begin()->user() : nullptr;
}

bool hasExtents(const Value& value, const Value& like, Evaluation& evaluation) {
  const Extents* extents = evaluation.extents(value);
  const Extents* others = evaluation.extents(like);
  return extents && others && *extents == *others;
}

/// The first value with the softmax's extents on the way from the product to it, through nodes that
/// move elements or scale them all; null if there is none.
Value* scoresOf(Node& product, const Node& softmax, Evaluation& evaluation) {
  Value* value = &product.result();
  while (!hasExtents(*value, *softmax.operand(0), evaluation)) {
    Node* reader = onlyReader(*value);
    const bool isScale =
        reader && (reader->is("Mul") || (reader->is("Div") && reader->operand(0) == value));
    if (!reader || (!isScale && !movementKind(*reader)))
      return nullptr;
    value = &reader->result();
  }
  return value;
}

/// The last value on the way from the softmax to the product whose elements are in the same places.
Value& probabilitiesOf(Node& softmax, const Node& product, Evaluation& evaluation) {
  const Node* factors = product.operand(0) ? product.operand(0)->producer() : nullptr;
  Value* value = &softmax.result();
  while (Node* reader = onlyReader(*value)) {
    const bool isProduct = reader == &product || (reader == factors && product.is("ReduceSum"));
    const bool converts = movementKind(*reader) == MovementKind::Convert;
    if (isProduct || (movementKind(*reader) && !converts) ||
        !hasExtents(reader->result(), softmax.result(), evaluation))
      break;
    value = &reader->result();
  }
  return *value;
}

/// Composition of `part` of `arranged` at the fitted points.
template <typename Arranged>
std::optional<RespelledRows> rowsOfPart(const std::vector<Arranged>& arranged,
                                        ArrangedElements Arranged::*part, ElementType element,
                                        StepEvaluations& evaluations) {
  std::vector<ArrangedElements> parts;
  for (const Arranged& each : arranged)
    parts.push_back(each.*part);
  return rowsOf(parts, element, evaluations);
}

bool isInOrder(llvm::ArrayRef<int64_t> elements) {
  for (size_t i = 0; i < elements.size(); ++i)
    if (elements[i] != static_cast<int64_t>(i))
      return false;
  return true;
}

size_t fittedPoints(const StepEvaluations& evaluations) {
  return std::min(evaluations.count(), StepPoints::fitted);
}

} // namespace

std::optional<RespelledScores> respelledScores(Node& softmax, const AttentionOperands& operands,
                                               StepEvaluations& evaluations) {
  RespelledScores found;
  std::vector<ArrangedScores> arranged;
  for (size_t i = 0; i < fittedPoints(evaluations); ++i) {
    found.scores = scoresOf(*operands.scores, softmax, evaluations.at(i));
    auto at = found.scores ? arrangedScores(*found.scores, *operands.scores, evaluations.at(i))
                           : std::nullopt;
    if (!at || at->queries.source == at->keys.source ||
        (i > 0 &&
         (at->queries.source != arranged[0].queries.source || at->factor != arranged[0].factor)))
      return std::nullopt;
    arranged.push_back(std::move(*at));
  }
  if (arranged.empty())
    return std::nullopt;
  const bool isSpelledSo = operands.scores->is("MatMul") &&
                           found.scores == &operands.scores->result() &&
                           arranged[0].queries.source == operands.scores->operand(0);
  const ElementType element = found.scores->type().elementType();
  auto queries = rowsOfPart(arranged, &ArrangedScores::queries, element, evaluations);
  auto keys = rowsOfPart(arranged, &ArrangedScores::keys, element, evaluations);
  if (isSpelledSo || !queries || !keys)
    return std::nullopt;
  found.queries = std::move(*queries);
  found.keys = std::move(*keys);
  found.factor = arranged[0].factor;
  return found;
}

std::optional<RespelledOutput> respelledOutput(Node& softmax, const AttentionOperands& operands,
                                               StepEvaluations& evaluations) {
  RespelledOutput found;
  found.output = &operands.output->result();
  std::vector<ArrangedOutput> arranged;
  for (size_t i = 0; i < fittedPoints(evaluations); ++i) {
    found.probabilities = &probabilitiesOf(softmax, *operands.output, evaluations.at(i));
    auto at = arrangedOutput(*operands.output, operands.hasValuesLeft, *found.probabilities,
                             evaluations.at(i));
    if (!at)
      return std::nullopt;
    arranged.push_back(std::move(*at));
  }
  if (arranged.empty())
    return std::nullopt;
  const bool isSpelledSo = operands.output->is("MatMul") &&
                           operands.output->operand(0) == found.probabilities &&
                           isInOrder(arranged[0].result.elements);
  const ElementType element = found.output->type().elementType();
  auto values = rowsOfPart(arranged, &ArrangedOutput::values, element, evaluations);
  auto moved = rowsOfPart(arranged, &ArrangedOutput::result, element, evaluations);
  if (isSpelledSo || !values || !moved)
    return std::nullopt;
  found.values = std::move(*values);
  found.moved = std::move(*moved);
  return found;
}

Value* write(const RespelledScores& scores, Rewriter& rewriter) {
  RowWriter writer(rewriter);
  AttentionBuilder build(rewriter);
  Value* queries = writer.write(scores.queries);
  Value* keys = writer.write(scores.keys);
  if (!queries || !keys)
    return nullptr;
  Value& product =
      build.node("MatMul", {*queries, build.transpose(*keys, {0, 1, 3, 2})}, {}, "scores");
  if (scores.factor == 1)
    return &product;
  const ElementType element = scores.scores->type().elementType();
  return &build.node("Mul", {product, floatScalar(element, scores.factor)}, {}, "scores");
}

Value* write(const RespelledOutput& output, Rewriter& rewriter) {
  RowWriter writer(rewriter);
  Value* values = writer.write(output.values);
  if (!values)
    return nullptr;
  RespelledRows moved = output.moved;
  moved.fresh =
      &AttentionBuilder(rewriter).node("MatMul", {*output.probabilities, *values}, {}, "attention");
  return writer.write(moved);
}

} // namespace kvopt::rows
