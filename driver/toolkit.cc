// Registration of the built-in definitions.
#include "driver/toolkit.h"

namespace kvopt::driver {
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace runtime;
using namespace targets;

Toolkit::Toolkit() {
  registerAll(ops);
  registerAll(rules);
  registerAll(passes);
  registerAll(targets);
  registerAll(kernels);
}

} // namespace kvopt::driver
