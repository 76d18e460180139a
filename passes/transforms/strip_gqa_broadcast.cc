// Makes Sdpa read grouped keys and values without their broadcast.
#include "passes/pass.h"

namespace kvopt::transforms {
using namespace passes;
using namespace pattern;

void register_strip_gqa_broadcast(PassRegistry& registry) {
  addRuleGroupPass(registry, "strip-gqa-broadcast",
                   "Makes Sdpa read grouped keys and values without their broadcast.",
                   RuleGroup::Strip);
}

} // namespace kvopt::transforms
