// Finding obstacles, and applying adapters.
#include "passes/opset/opset_conversion.h"

#include "passes/opset/op_history.h"
#include "passes/opset/opset_adapter.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::opset {
using namespace ir;
using namespace pattern;

namespace {

/// Adapters that convert nodes of one operator from one opset to another, oldest change first. One
/// object serves one model and caches look-ups.
class AdapterTable {
public:
  AdapterTable(int64_t oldOpset, int64_t newOpset) : from(oldOpset), to(newOpset) {
    registerAll(registry);
  }

  struct Steps {
    llvm::SmallVector<const OpsetAdapter*, 2> adapters;
    std::string unknown; ///< unknown part of the operator's history; empty: it can be converted
  };

  const Steps& stepsFor(llvm::StringRef op) {
    auto [entry, isNew] = known.try_emplace(op);
    if (isNew)
      entry->second = lookUp(op);
    return entry->second;
  }

private:
  Steps lookUp(llvm::StringRef op) const {
    Steps steps;
    const std::optional<OpHistory> history = findHistory(op);
    if (!history) {
      steps.unknown = formatted("{}, whose changes kvopt does not know", op.str());
      return steps;
    }
    if (!history->versionAt(from)) {
      steps.unknown = formatted("{} of opset {}", op.str(), from);
      return steps;
    }
    for (const OpVersion& version : history->versions) {
      if (!version.isChanged || version.since <= from || version.since > to)
        continue;
      const OpsetAdapter* adapter = registry.find(op, version.since);
      assert(adapter && "every change in the table has its adapter");
      steps.adapters.push_back(adapter);
    }
    return steps;
  }

  int64_t from;
  int64_t to;
  OpsetAdapterRegistry registry;
  llvm::StringMap<Steps> known;
};

std::optional<std::string> obstacleAt(const Node& node, AdapterTable& table) {
  const AdapterTable::Steps& steps = table.stepsFor(node.op().type());
  if (!steps.unknown.empty())
    return steps.unknown;
  for (const OpsetAdapter* adapter : steps.adapters) {
    for (const char* name : adapter->attributes)
      if (const Attribute* attribute = node.attribute(name); attribute && attribute->isReference())
        return formatted("{}, whose attribute '{}' is the function's", node.op().str(), name);
    if (!adapter->obstacle)
      continue;
    if (std::optional<std::string> obstacle = adapter->obstacle(node))
      return formatted("{}: {}", node.op().str(), *obstacle);
  }
  return std::nullopt;
}

std::optional<MatchFailure> obstacleIn(const Graph& graph, int64_t version) {
  const int64_t from = graph.opsetVersion();
  if (from >= version)
    return std::nullopt;
  AdapterTable table(from, version);
  std::optional<MatchFailure> failure;
  // Read-only use: subgraphs are accessible through nodes that may be edited.
  forEachGraph(const_cast<Graph&>(graph), [&](Graph& visited) {
    for (const Node& node : visited.nodes()) {
      if (failure || !node.op().isOnnx())
        continue;
      if (std::optional<std::string> found = obstacleAt(node, table))
        failure = MatchFailure{
            ReasonCode::TargetLacksFeature, node.name().str(),
            formatted("operators with the same meaning in opset {}, or that can be converted to it",
                      version),
            std::move(*found), formatted("export the model at opset {}", version)};
    }
  });
  return failure;
}

unsigned raiseGraph(Graph& graph, OpsetImports& opsets, int64_t version, bool isFunction) {
  const int64_t from = graph.opsetVersion();
  if (from >= version)
    return 0;
  AdapterTable table(from, version);
  // Adapters create nodes of the new opset; existing nodes keep their definitions meanwhile.
  opsets[""] = version;
  unsigned adapted = 0;
  std::vector<Graph*> graphs;
  forEachGraph(graph, [&](Graph& visited) { graphs.push_back(&visited); });
  for (Graph* visited : graphs) {
    std::vector<Node*> nodes;
    for (Node& node : visited->nodes())
      if (node.op().isOnnx())
        nodes.push_back(&node);
    for (Node* node : nodes) {
      const AdapterTable::Steps& steps = table.stepsFor(node->op().type());
      for (const OpsetAdapter* adapter : steps.adapters)
        adapter->adapt(OpsetEdit(*node, isFunction));
      adapted += steps.adapters.empty() ? 0 : 1;
    }
    for (Node& node : visited->nodes())
      node.refreshDefinition();
  }
  return adapted;
}

} // namespace

std::optional<MatchFailure> opsetObstacle(const Model& model, int64_t version) {
  assert(version <= newestKnownOpset);
  std::optional<MatchFailure> failure = obstacleIn(model.graph(), version);
  for (const std::unique_ptr<Function>& function : model.functions)
    if (!failure)
      failure = obstacleIn(function->body, version);
  return failure;
}

unsigned raiseOpset(Model& model, int64_t version) {
  assert(!opsetObstacle(model, version));
  const bool isRaised = model.graph().opsetVersion() < version;
  unsigned adapted = raiseGraph(model.graph(), model.opsets, version, false);
  for (const std::unique_ptr<Function>& function : model.functions)
    if (function->opsets.count(""))
      adapted += raiseGraph(function->body, function->opsets, version, true);
  // Initializers need not be inputs since IR version 4.
  if (isRaised) {
    model.irVersion = std::max<int64_t>(model.irVersion, 4);
    model.markEdited();
  }
  return adapted;
}

} // namespace kvopt::opset
