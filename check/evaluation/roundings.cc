// From a cache of codes to the quotients that are rounded.
#include "check/evaluation/roundings.h"

#include "check/arithmetic/integer_range.h"
#include "ir/graph.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {
namespace {

bool isConstant(const ir::Value* value) {
  return value &&
         (value->isInitializer() || (value->producer() && value->producer()->is("Constant")));
}

bool isOnnx(const ir::Node* node, const char* name) {
  return node && node->op().isOnnx() && node->is(name);
}

/// The only operand that is not a constant; nullopt if there are several.
std::optional<unsigned> variableOperand(const ir::Node& node) {
  std::optional<unsigned> variable;
  for (unsigned i = 0; i < node.operands().size(); ++i) {
    if (!node.operand(i) || isConstant(node.operand(i)))
      continue;
    if (variable)
      return std::nullopt;
    variable = i;
  }
  return variable;
}

/// The operand that a node clamps to constants or converts to another type; nullopt for others.
std::optional<unsigned> limitedOperand(const ir::Node& node) {
  if (isOnnx(&node, "Cast"))
    return 0;
  return isOnnx(&node, "Min") || isOnnx(&node, "Max") || isOnnx(&node, "Clip")
             ? variableOperand(node)
             : std::nullopt;
}

} // namespace

/// A sum with a constant, or with codes times a constant.
bool Roundings::reachesPacked(const ir::Node& sum, const ir::Node* caller) {
  if (const auto variable = variableOperand(sum))
    return reachesRound({sum.operand(*variable), caller});
  for (unsigned i : {0u, 1u}) {
    const ir::Node* product = sum.operand(i) ? sum.operand(i)->producer() : nullptr;
    const auto factor = isOnnx(product, "Mul") ? variableOperand(*product) : std::nullopt;
    if (!factor)
      continue;
    const bool hasUpper = reachesRound({product->operand(*factor), caller});
    const bool hasLower = reachesRound({sum.operand(1 - i), caller});
    if (hasUpper && hasLower)
      found[&sum] = {i == 0 ? CodeStep::PacksFirst : CodeStep::PacksSecond, largestCode};
    return hasUpper && hasLower;
  }
  return false;
}

bool Roundings::reachesRound(const ir::Node& node, const ir::Node* caller) {
  if (isOnnx(&node, "Round")) {
    if (!node.operand(0) || !isOnnx(node.operand(0)->producer(), "Div"))
      return false;
    found[&node] = {CodeStep::Rounds, largestCode};
    return true;
  }
  if (isOnnx(&node, "Add"))
    return reachesPacked(node, caller);
  if (const auto limited = limitedOperand(node)) {
    const bool reaches = reachesRound({node.operand(*limited), caller});
    if (reaches)
      found[&node] = {CodeStep::Rounds, largestCode};
    return reaches;
  }
  bool reaches = false;
  const meaning::NodeFacts facts = operators.of(node);
  for (unsigned i = 0; facts.onlyMoves() && i < node.operands().size(); ++i)
    if (facts.makesOf(i))
      reaches |= reachesRound({node.operand(i), caller});
  return reaches;
}

bool Roundings::reachesRound(Place at) {
  const auto [value, caller] = at;
  if (!value)
    return false;
  const auto [earlier, isNew] = known.try_emplace(at, false);
  if (!isNew)
    return earlier->second;
  bool reaches = false;
  const ir::Node* node = value->producer();
  if (!node) { // an input of the function is an operand of its call
    const ir::Function* function = caller ? model->findFunction(*caller) : nullptr;
    for (unsigned i = 0; function && i < function->body.inputs().size(); ++i)
      if (function->body.inputs()[i].get() == value && i < caller->operands().size())
        reaches |= reachesRound({caller->operand(i), nullptr});
  } else if (const ir::Function* function = model->findFunction(*node)) {
    if (!caller && value->resultIndex() < function->body.outputs().size())
      reaches = reachesRound({function->body.outputs()[value->resultIndex()], node});
    if (reaches)
      calls[function].insert(node);
  } else {
    reaches = reachesRound(*node, caller);
  }
  known[at] = reaches;
  return reaches;
}

bool Roundings::add(const ir::Value& present, double largest) {
  largestCode = largest;
  return reachesRound({&present, nullptr});
}

bool Roundings::coverAllCalls() const {
  size_t covered = 0, all = 0;
  for (const auto& entry : calls)
    covered += entry.second.size();
  auto count = [&](const ir::Graph& graph) {
    for (const ir::Node& node : graph.nodes())
      if (const ir::Function* function = model->findFunction(node))
        all += calls.count(function);
  };
  ir::forEachGraph(const_cast<ir::Graph&>(model->graph()), count);
  for (const auto& function : model->functions)
    ir::forEachGraph(function->body, count);
  return covered == all;
}

namespace {

/// Whether all codes are within the bounds to which a node clamps, or within its type.
bool keepsAllCodes(const Call& call, double largest) {
  auto is = [&](unsigned operand, auto holds) {
    const Ref bound = call.in(operand);
    return !bound || bound->isReal() ||
           (bound->kind == Kind::Known && llvm::all_of(bound->known, holds));
  };
  auto isAbove = [&](double bound) { return bound >= largest; };
  auto isBelow = [&](double bound) { return bound <= -largest; };
  const llvm::StringRef name = call.node.op().type();
  if (name == "Min")
    return is(0, isAbove) && is(1, isAbove) && call.operands.size() <= 2;
  if (name == "Max")
    return is(0, isBelow) && is(1, isBelow) && call.operands.size() <= 2;
  if (name == "Clip")
    return !call.attribute("min") && !call.attribute("max") && is(1, isBelow) && is(2, isAbove);
  const auto type = static_cast<ir::ElementType>(call.integer("to", 1));
  const bool isPacked = largest == FourBitRow::largestCode;
  constexpr double largestByte = 255;
  return name != "Cast" || ir::isFloatingPoint(type) ||
         (isPacked ? holds(type, largestByte) && holds(type, 0)
                   : holds(type, largest) && holds(type, -largest));
}

} // namespace

Results evaluateCodes(Call& call, const CodeStep& step, Rule rule) {
  const auto* real =
      llvm::find_if(call.operands, [](const Ref& operand) { return operand && operand->isReal(); });
  if (real == call.operands.end() || !keepsAllCodes(call, step.largest))
    return rule(call);
  if (step.kind != CodeStep::Rounds) {
    const Results packed = rule(call);
    const Ref upper =
        packed.empty() ? nullptr : call.real(step.kind == CodeStep::PacksFirst ? 0 : 1);
    if (upper && upper->shape == packed[0]->shape)
      call.math.floors.add(*packed[0], *upper, call.field());
    return packed;
  }
  for (const Ref& operand : call.operands)
    if (operand && broadcastShape((*real)->shape, operand->shape) != (*real)->shape)
      return rule(call);
  call.math.assumptions.insert(
      "codes of cached rows represent the rows: their rounding is not looked at");
  call.math.thresholds.noteOpen(roundingGap);
  return {*real};
}

} // namespace kvopt::check
