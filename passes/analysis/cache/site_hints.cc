// Hints about extents.
#include "passes/analysis/cache/site_hints.h"

#include "passes/pattern/explain.h"
#include "support/format.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

/// Maximum number of values searched for one failure.
constexpr size_t mostSearched = 256;

bool lacksExtents(const Value& value) {
  const TensorType& type = value.type();
  return !type.hasRank() ||
         llvm::any_of(type.shape(), [](const Dim& extent) { return extent.isUnknown(); });
}

/// Nodes by their labels in failures.
llvm::StringMap<const Node*> labeledNodes(const Graph& graph) {
  llvm::StringMap<const Node*> nodes;
  for (const Node& node : graph.nodes())
    nodes.try_emplace(labelOf(node), &node);
  return nodes;
}

/// Operands and results of the node, or the value, that a failure names.
llvm::SmallVector<const Value*, 8> concernedBy(const MatchFailure& failure, const Graph& graph,
                                               const llvm::StringMap<const Node*>& nodes) {
  llvm::SmallVector<const Value*, 8> values;
  const Value* named = graph.findValue(failure.node);
  const Node* node = named ? named->producer() : nodes.lookup(failure.node);
  if (named)
    values.push_back(named);
  if (node) {
    for (const Value& result : node->results())
      if (!result.isAbsent())
        values.push_back(&result);
    for (const Use& use : node->operands())
      if (use.value())
        values.push_back(use.value());
  }
  return values;
}

/// Number of symbols in the extents of inputs.
size_t symbolCount(const Graph& graph) {
  llvm::StringSet<> symbols;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->type().hasRank())
      for (const Dim& extent : input->type().shape())
        for (const std::string& symbol : extent.symbols())
          symbols.insert(symbol);
  return symbols.size();
}

/// Whether a failure of this kind may be due to unknown extents.
bool concernsUnknownExtents(const MatchFailure& failure) {
  switch (failure.code) {
  case ReasonCode::ShapeUnknown:
  case ReasonCode::DynamicRank:
  case ReasonCode::AxisUnproven:
    return true;
  case ReasonCode::ShapeMismatch:
    return llvm::StringRef(failure.expected + failure.found).contains('?');
  default:
    return false;
  }
}

std::string hintOn(const UnknownExtents& unknown) {
  if (!unknown.source)
    return "no declaration is missing";
  if (unknown.isUndeclared())
    return formatted("declare the shape of '{}', symbolic extents are enough",
                     unknown.source->name());
  return formatted("no declaration is missing: extents are unknown from {} on",
                   unknown.source->producer()->describe());
}

} // namespace

UnknownExtents findUnknownExtents(llvm::ArrayRef<const Value*> concerned) {
  llvm::SmallVector<const Value*, 32> pending;
  llvm::DenseSet<const Value*> seen;
  const auto add = [&](const Value& value) {
    if (lacksExtents(value) && seen.insert(&value).second)
      pending.push_back(&value);
  };
  for (const Value* value : concerned)
    add(*value);
  for (size_t i = 0; i < pending.size() && i < mostSearched; ++i) {
    const Node* producer = pending[i]->producer();
    bool isFirst = true;
    for (const Use& use : producer ? producer->operands() : llvm::ArrayRef<Use>()) {
      if (!use.value() || !lacksExtents(*use.value()))
        continue;
      isFirst = false;
      add(*use.value());
    }
    if (isFirst)
      return {pending[i]};
  }
  return {};
}

void addShapeHints(const Graph& graph, SiteList& sites) {
  const auto lacksHint = [](const AttentionSite& site) {
    return site.failure && site.failure->hint.empty() &&
           (concernsUnknownExtents(*site.failure) ||
            site.failure->code == ReasonCode::ShapeMismatch);
  };
  if (llvm::none_of(sites, lacksHint))
    return;
  const llvm::StringMap<const Node*> nodes = labeledNodes(graph);
  for (AttentionSite& site : sites) {
    if (!lacksHint(site))
      continue;
    if (concernsUnknownExtents(*site.failure))
      site.failure->hint = hintOn(findUnknownExtents(concernedBy(*site.failure, graph, nodes)));
    else if (symbolCount(graph) < 2)
      site.failure->hint = "no declaration is missing: the extents differ";
  }
}

} // namespace kvopt::analysis
