// Names of rules and passes, for messages about unknown ones and for shell completion.
#pragma once

#include "passes/pass.h"

#include <string>
#include <vector>

namespace kvopt::passes {

/// The names of all rules, in the order of the registry.
std::vector<std::string> ruleNames(const pattern::RuleRegistry& rules);

/// The names of all passes, in the order of the registry.
std::vector<std::string> passNames(const PassRegistry& passes);

} // namespace kvopt::passes
