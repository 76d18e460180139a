// Reads the roles of all inputs before anything is rewritten.
#include "passes/analysis/interface/interface_facts.h"
#include "passes/pass.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;

namespace {

class ReadInterface final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    // The manifest of a model that was rewritten before knows more than its operators.
    auto stored = manifestOf(model);
    if (!stored)
      return stored.takeError();
    InterfaceFacts facts = readInterface(model.graph());
    facts.countsTokens |= context.interface.countsTokens || (*stored && (*stored)->padsRight);
    facts.given = std::move(context.interface.given);
    context.interface = std::move(facts);
    return checkLengths(context.interface);
  }
};

} // namespace

void register_read_interface(PassRegistry& registry) {
  registry.add({"read-interface",
                "Records the readers of each input, for the manifest.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<ReadInterface>());
                }});
}

} // namespace kvopt::transforms
