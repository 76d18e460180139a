// Attention in any spelling becomes ai.kvopt::Sdpa.
#include "ir/op.h"
#include "passes/pass.h"

namespace kvopt {
namespace {

bool usesKvopt(Graph& graph) {
  bool found = false;
  forEachGraph(graph, [&](Graph& visited) {
    for (const Node& node : visited.nodes())
      found |= node.op().domain() == kvoptDomain;
  });
  return found;
}

class Transform final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    // Before the first such node: a node's definition is the one imported when it is created.
    bool isNewImport = model.opsets.try_emplace(kvoptDomain, 1).second;
    llvm::Error error = applyRuleGroup(model, RuleGroup::Raise, "raise-attention", context);
    if (isNewImport && !usesKvopt(model.graph()))
      model.opsets.erase(kvoptDomain);
    return error;
  }
};

} // namespace

void register_raise_attention(PassRegistry& registry) {
  registry.add({"raise-attention",
                "Attention in any spelling becomes ai.kvopt::Sdpa.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<Transform>());
                }});
}

} // namespace kvopt
