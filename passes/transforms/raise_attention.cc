// Replaces attention in any spelling by ai.kvopt::Sdpa.
#include "passes/pass.h"

namespace kvopt::transforms {
using namespace passes;
using namespace pattern;

void register_raise_attention(PassRegistry& registry) {
  addRuleGroupPass(registry, "raise-attention", "Replaces attention in any form by ai.kvopt::Sdpa.",
                   RuleGroup::Raise);
}

} // namespace kvopt::transforms
