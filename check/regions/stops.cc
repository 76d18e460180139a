// Which values a frontier has.
#include "check/regions/stops.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {
namespace {

bool stopsAtComputed(Frontier frontier) {
  return frontier == Frontier::ComputedTables || frontier == Frontier::Computed ||
         frontier == Frontier::Compared;
}

/// Whether a constant becomes arbitrary numbers. The contents of large weights are not evaluated
/// where that would only look for another proof.
bool isCut(const ir::Value& constant, Frontier frontier) {
  constexpr int64_t large = 1 << 16;
  switch (frontier) {
  case Frontier::Tables:
  case Frontier::Shared:
    return true;
  case Frontier::Weights:
    return isWeight(constant);
  case Frontier::Activations:
  case Frontier::ComputedTables:
  case Frontier::Computed:
    return isWeight(constant) && constant.constantRef()->elementCount() >= large;
  case Frontier::Compared:
  case Frontier::Inputs:
    break;
  }
  return false;
}

} // namespace

bool stopsAtTables(Frontier frontier) {
  return frontier == Frontier::Tables || frontier == Frontier::ComputedTables;
}

/// Whether a node only arranges the elements of its first operand.
bool Stops::arrangesOperand(const ir::Value& value) {
  const ir::Node* node = value.producer();
  if (!node || !node->operand(0) || node->operand(0)->constantRef())
    return false;
  const auto [at, isNew] = arranging.try_emplace(node, false);
  if (isNew) {
    const meaning::NodeFacts& facts = operators.of(*node);
    at->second = facts.making == meaning::Making::Moved && facts.made == 1;
  }
  return at->second;
}

void Stops::indexValues(const ir::Graph& graph, bool isAfter) {
  auto visit = [&](const ir::Value& value) {
    if (isAfter)
      classesAfter.insert(after.of(value));
    else
      representatives.try_emplace(before.of(value), &value);
  };
  for (const auto& input : graph.inputs()) {
    visit(*input);
    dependsOnInput.insert(input.get());
  }
  for (const auto& constant : graph.initializers())
    visit(*constant);
  for (const ir::Node& node : graph.nodes())
    for (const ir::Value& result : node.results())
      if (!result.isAbsent())
        visit(result);
}

void Stops::indexDependence(const ir::Graph& graph) {
  for (const ir::Node& node : graph.nodes())
    if (!node.subgraphs().empty() || llvm::any_of(node.operands(), [&](const ir::Use& use) {
          return use.value() && dependsOnInput.count(use.value());
        }))
      for (const ir::Value& result : node.results())
        dependsOnInput.insert(&result);
}

void Stops::index(const ir::Model& first, const ir::Model& second) {
  for (const bool isAfter : {false, true}) {
    auto& graph = const_cast<ir::Graph&>((isAfter ? second : first).graph());
    ir::forEachGraph(graph, [&](ir::Graph& each) { indexValues(each, isAfter); });
    ir::forEachGraph(graph, [&](ir::Graph& each) { indexDependence(each); });
  }
}

/// Whether a value of the first model can be a stop by its class.
bool Stops::isShared(const ValueClass& own, Frontier frontier) const {
  return classesAfter.count(own) && (frontier != Frontier::Compared || shapes.comparedAs(own));
}

/// Whether a value only arranges the elements of another one at which a region can stop.
bool Stops::isArrangementOfStop(const ir::Value& value, Frontier frontier) {
  for (const ir::Value* from = &value; arrangesOperand(*from);) {
    from = from->producer()->operand(0);
    if (isShared(before.of(*from), frontier))
      return true;
  }
  return false;
}

std::optional<Stop> Stops::at(bool isAfter, const ir::Value& value, Frontier frontier) {
  if (frontier == Frontier::Inputs)
    return std::nullopt;
  if (!dependsOnInput.count(&value) && !isCut(value, frontier))
    return std::nullopt;
  const ValueClass own = isAfter ? after.of(value) : before.of(value);
  const auto representative = representatives.find(own);
  if (representative == representatives.end() || !isShared(own, frontier) || excluded.count(own))
    return std::nullopt;
  // A value and its arrangement are not arbitrary numbers at once.
  const ir::Value& first = *representative->second;
  if (stopsAtComputed(frontier) && isArrangementOfStop(first, frontier))
    return std::nullopt;
  const bool isArranged = arrangesOperand(first);
  const bool isTable = stopsAtTables(frontier) && !isArranged && dependsOnInput.count(&first) &&
                       leaves.isTable(first);
  return Stop{own, &first, isTable};
}

Stop Stops::again(const ValueClass& value, Frontier frontier) {
  const ir::Value& representative = *representatives.at(value);
  return {value, &representative, stopsAtTables(frontier) && leaves.isTable(representative)};
}

} // namespace kvopt::check
