// Traversal from pasts to outputs.
#include "ir/manifest/overwritten_pasts.h"

#include "ir/graph.h"
#include "ir/node.h"
#include "ir/op.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::ir {
namespace {

/// A value that holds the rows of a past, perhaps with new ones.
struct PastHolder {
  const Value* value = nullptr;
  const Node* writer = nullptr; ///< the last operator that put in new rows; null before the first
  bool isOverwritten = false;   ///< whether an operator on the way overwrites the past
};

/// All values that hold the rows of a past, the past first.
class PastFlow {
public:
  explicit PastFlow(const Value& past) {
    reach({&past});
    for (size_t i = 0; i < holders.size(); ++i)
      follow(PastHolder(holders[i]));
  }

  llvm::ArrayRef<PastHolder> all() const { return holders; }

private:
  void reach(PastHolder holder) {
    if (known.insert(holder.value).second)
      holders.push_back(holder);
  }

  void follow(const PastHolder& holder) {
    for (const Use& use : holder.value->uses()) {
      const Node& node = use.user();
      const OpDef* definition = node.definition();
      if (!definition)
        continue;
      for (const Alias& alias : definition->aliases)
        if (alias.operand == use.operandIndex() && alias.result < node.results().size())
          reachResult(holder, node, alias);
      if (node.is("ai.kvopt::AppendRows") && use.operandIndex() == 0)
        reach({&node.results().front(), &node, holder.isOverwritten});
    }
  }

  void reachResult(const PastHolder& holder, const Node& node, const Alias& alias) {
    const Value& result = node.results()[alias.result];
    if (alias.kind == Alias::Kind::View)
      reach({&result, holder.writer, holder.isOverwritten});
    else
      reach({&result, &node, holder.isOverwritten || alias.kind == Alias::Kind::InPlace});
  }

  llvm::SmallVector<PastHolder, 4> holders;
  llvm::SmallPtrSet<const Value*, 4> known;
};

/// Whether the value is an output of the graph itself, not of a subgraph.
bool isOutputOf(const Graph& graph, const Value& value) {
  return &value.graph() == &graph && value.isGraphOutput();
}

} // namespace

llvm::Error checkOverwrittenPasts(const Manifest& manifest, const Graph& graph) {
  llvm::StringSet<> presents;
  for (const ManifestCache& cache : manifest.caches)
    presents.insert(cache.present);
  for (const ManifestCache& cache : manifest.caches) {
    const Value* past = cache.past.empty() ? nullptr : graph.findValue(cache.past);
    const Value* present = cache.present.empty() ? nullptr : graph.findValue(cache.present);
    if (!past || !present || cache.update() == CacheUpdate::State)
      continue;
    const PastFlow flow(*past);
    const auto isPresent = [&](const PastHolder& holder) { return holder.value == present; };
    if (llvm::any_of(flow.all(), isPresent))
      continue;
    for (const PastHolder& holder : flow.all())
      if (holder.writer && isOutputOf(graph, *holder.value) &&
          (holder.isOverwritten || presents.contains(holder.value->name())))
        return invalid("the manifest contradicts the model: its new rows are in output '{}', not "
                       "in '{}'",
                       holder.value->name(), cache.present)
            .node(holder.writer->name(), holder.writer->op().str())
            .value(cache.past);
  }
  return llvm::Error::success();
}

} // namespace kvopt::ir
