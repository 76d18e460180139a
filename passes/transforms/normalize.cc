// Fewer spellings of the same thing: no-op casts, identities, shapes of concatenations.
#include "passes/pass.h"

namespace kvopt::transforms {
using namespace passes;
using namespace pattern;

void register_normalize(PassRegistry& registry) {
  addRuleGroupPass(
      registry, "normalize",
      "Reduces equivalent forms to one: no-op casts, identities, shapes of concatenations.",
      RuleGroup::Normalize);
}

} // namespace kvopt::transforms
