// The runner of a build without the runtime.
#include "driver/runner.h"

namespace kvopt::driver {

std::unique_ptr<Runner> makeRunner() { return nullptr; }

} // namespace kvopt::driver
