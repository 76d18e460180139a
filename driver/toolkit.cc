// Registration of the built-in definitions, and what a build lacks.
#include "driver/toolkit.h"

#include "support/diagnostic.h"

namespace kvopt::driver {
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace targets;

Toolkit::Toolkit() : runner(makeRunner()) {
  registerAll(ops);
  registerAll(rules);
  registerAll(passes);
  registerAll(targets);
}

llvm::Error needsRuntime(llvm::StringRef what) {
  return usageError("{}, which {} needs", noRuntime, what)
      .hint("build kvopt with -DKVOPT_RUNTIME=ON, the default");
}

} // namespace kvopt::driver
