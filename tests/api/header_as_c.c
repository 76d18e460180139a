/* kvopt.h is C11 that needs nothing but the include folder. */
#include "kvopt/kvopt.h"

/* The library's functions, called from C. */
int kvopt_header_works(void) {
  kvopt_tensor tensor = {0};
  kvopt_progress progress = {sizeof(kvopt_progress), 0, 0};
  return tensor.rank == 0 && progress.report == 0 && kvopt_abi_version() == KVOPT_ABI_VERSION;
}
