// Removes nodes and initializers without readers.
#include "passes/pass.h"

namespace kvopt::transforms {
using namespace ir;
using namespace passes;

namespace {

class EliminateDeadNodes final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    context.count("eliminate-dead-nodes", "nodes", model.graph().eraseDeadNodes());
    return llvm::Error::success();
  }
};

} // namespace

void register_eliminate_dead_nodes(PassRegistry& registry) {
  registry.add({"eliminate-dead-nodes",
                "Removes unused nodes and initializers.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(
                      std::make_unique<EliminateDeadNodes>());
                }});
}

} // namespace kvopt::transforms
