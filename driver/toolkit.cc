// Filling the registries.
#include "driver/toolkit.h"

namespace kvopt {

Toolkit::Toolkit() {
  registerAll(ops);
  registerAll(rules);
  registerAll(passes);
  registerAll(targets);
  registerAll(kernels);
}

} // namespace kvopt
