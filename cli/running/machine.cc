// Description of the machine from the operating system and the processor.
#include "cli/running/machine.h"

#include "runtime/simd/stream_read.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/MemoryBuffer.h"
#if LLVM_VERSION_MAJOR >= 16
#include "llvm/Support/Threading.h"
#include "llvm/TargetParser/Host.h"
#else
#include "llvm/Support/Host.h"
#endif

#include <sched.h>
#include <unistd.h>

namespace kvopt::cli {
using namespace simd;

namespace {
// LLVM 16 moved this function.
int physicalCores() {
#if LLVM_VERSION_MAJOR >= 16
  return llvm::get_physical_cores();
#else
  return llvm::sys::getHostNumPhysicalCores();
#endif
}
} // namespace

std::string valueOfLine(const std::string& text, const std::string& key) {
  llvm::StringRef rest = text;
  while (!rest.empty()) {
    auto [line, after] = rest.split('\n');
    rest = after;
    auto [name, value] = line.split(':');
    if (name.trim() == key)
      return value.trim().str();
  }
  return "";
}

Machine describeMachine() {
  Machine machine;
  // The size of this file is unknown until it is read.
  if (auto text = llvm::MemoryBuffer::getFileAsStream("/proc/cpuinfo"))
    machine.cpu = valueOfLine((*text)->getBuffer().str(), "model name");
  machine.microarchitecture = llvm::sys::getHostCPUName().str();
  int cores = physicalCores();
  machine.cores = cores > 0 ? static_cast<unsigned>(cores) : 0;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
    machine.logicalCpus = static_cast<unsigned>(CPU_COUNT(&allowed));
  machine.simd = std::string(simdTarget());
  machine.memoryBytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  machine.kvopt = KVOPT_VERSION;
#ifndef NDEBUG
  machine.assertions = true;
#endif
  return machine;
}

} // namespace kvopt::cli
