// kvopt.hpp is C++17 that needs nothing but the include folder.
#include "kvopt/kvopt.hpp"

static_assert(__cplusplus == 201703L, "compiled as C++17");

// NOLINTNEXTLINE(misc-use-internal-linkage): called from the test
bool kvoptHppWorks() {
  try {
    kvopt::Model::open("/nonexistent/model.onnx");
  } catch (const kvopt::Error& error) {
    return error.kind() == KVOPT_ERROR_IO && error.code() == "io" &&
           error.file() == "/nonexistent/model.onnx";
  }
  return false;
}
