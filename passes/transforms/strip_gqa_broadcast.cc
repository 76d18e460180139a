// Sdpa reads grouped keys and values without their broadcast.
#include "passes/pass.h"

namespace kvopt {
namespace {

class Transform final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    return applyRuleGroup(model, RuleGroup::Strip, "strip-gqa-broadcast", context);
  }
};

} // namespace

void register_strip_gqa_broadcast(PassRegistry& registry) {
  registry.add({"strip-gqa-broadcast",
                "Sdpa reads grouped keys and values without their broadcast.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<Transform>());
                }});
}

} // namespace kvopt
