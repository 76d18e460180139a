// Attention in any spelling becomes ai.kvopt::Sdpa.
#include "passes/pass.h"

namespace kvopt {
namespace {

class Transform final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    return applyRuleGroup(model, RuleGroup::Raise, "raise-attention", context);
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
