// -inf stays -inf under all steps except fills with a finite number, and lower bounds.
#include "passes/analysis/scores/row_guard.h"

#include "support/format.h"

#include <cmath>

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

/// Whether a cast keeps every finite number finite.
bool widens(ElementType from, ElementType to) {
  if (from == to)
    return true;
  return bitWidth(from).value_or(64) < bitWidth(to).value_or(0);
}

/// The operand of a cast between floating-point types; null for anything else.
const Value* beforeCast(const Value& value) {
  const Node* cast = value.producer();
  if (!cast || !cast->is("Cast") || !cast->operand(0) ||
      !isFloatingPoint(cast->operand(0)->type().elementType()) ||
      !isFloatingPoint(value.type().elementType()))
    return nullptr;
  return cast->operand(0);
}

constexpr unsigned mostCasts = 8;

/// `value` before casts that keep every finite number finite.
const Value& beforeWidening(const Value& value) {
  const Value* current = &value;
  for (unsigned step = 0; step < mostCasts; ++step) {
    const Value* operand = beforeCast(*current);
    if (!operand || !widens(operand->type().elementType(), current->type().elementType()))
      break;
    current = operand;
  }
  return *current;
}

/// Whether `value` is `tested` or a cast of it; casts preserve -inf.
bool comesFrom(const Value& value, const Value& tested) {
  const Value* current = &value;
  for (unsigned step = 0; step <= mostCasts && current; ++step) {
    if (current == &tested)
      return true;
    current = beforeCast(*current);
  }
  return false;
}

/// Whether a score of -inf stays -inf.
bool keepsHidden(const MaskStep& step) {
  switch (step.kind) {
  case MaskStep::Kind::Fill:
    return std::isinf(step.number) && step.number < 0;
  case MaskStep::Kind::Clamp:
    return std::isinf(step.number);
  case MaskStep::Kind::Add:
  case MaskStep::Kind::Subtract:
  case MaskStep::Kind::Scale:
  case MaskStep::Kind::Divide:
    return true;
  }
  return false;
}

} // namespace

bool guardsHiddenRows(const Value& mask, const Value& scores, const ScoreChain& chain,
                      MatchFailure& failure) {
  const Value& tested = beforeWidening(mask);
  if (comesFrom(scores, tested))
    return true;
  const MaskStep* added = nullptr;
  const MaskStep* lifting = nullptr;
  for (const MaskStep& step : chain.mask) {
    if (step.kind == MaskStep::Kind::Add && comesFrom(*step.operand, tested)) {
      added = &step;
      lifting = nullptr;
    } else if (added && !keepsHidden(step)) {
      lifting = &step;
    }
  }
  if (added && !lifting)
    return true;
  auto refuse = [&](const char* expected, std::string found) {
    failure = {ReasonCode::PatternMismatch, mask.name().str(), expected, std::move(found), ""};
    return false;
  };
  if (!added)
    return refuse("a guard that tests the scores, or a mask that is added to the scores",
                  "another mask");
  return refuse("a mask that no later step cancels before the softmax",
                formatted("{}, which gives hidden keys a finite score", lifting->node->describe()));
}

} // namespace kvopt::analysis
