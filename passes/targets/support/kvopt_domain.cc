// Unused functions and imports of ai.kvopt.
#include "passes/targets/support/kvopt_domain.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace ir;

void dropKvoptDomain(Model& model, int64_t irVersion) {
  llvm::DenseSet<OpName> used;
  auto collect = [&](Graph& visited) {
    for (const Node& node : visited.nodes())
      used.insert(node.op());
  };
  forEachGraph(model.graph(), collect);
  llvm::erase_if(model.functions, [&](const std::unique_ptr<Function>& function) {
    return function->domain == kvoptDomain && !used.count(OpName(function->domain, function->name));
  });
  for (const std::unique_ptr<Function>& function : model.functions)
    forEachGraph(function->body, collect);
  if (llvm::any_of(used, [](OpName op) { return op.domain() == kvoptDomain; }))
    return;
  model.opsets.erase(kvoptDomain);
  if (model.functions.empty())
    model.irVersion = irVersion;
}

} // namespace kvopt::targets
