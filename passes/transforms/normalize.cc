// Fewer spellings of the same thing: no-op casts, identities, shapes of concatenations.
#include "passes/pass.h"

namespace kvopt {
namespace {

class Transform final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    return applyRuleGroup(model, RuleGroup::Normalize, "normalize", context);
  }
};

} // namespace

void register_normalize(PassRegistry& registry) {
  registry.add(
      {"normalize",
       "Fewer spellings of the same thing: no-op casts, identities, shapes of concatenations.",
       {},
       [](const PassOptions&) {
         return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<Transform>());
       }});
}

} // namespace kvopt
