// Operators around attention in the fused forms of ONNX Runtime.
#include "passes/pass.h"

namespace kvopt::transforms {
using namespace passes;
using namespace pattern;

void register_fuse_operators(PassRegistry& registry) {
  addRuleGroupPass(registry, "fuse-operators",
                   "Replaces norms, and sums with their norms, by ONNX Runtime's fused operators.",
                   RuleGroup::Fuse);
}

} // namespace kvopt::transforms
