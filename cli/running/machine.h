// Description of the machine of a measurement, without names of the machine or its owner.
#pragma once

#include <cstdint>
#include <string>

namespace kvopt::cli {

struct Machine {
  std::string cpu;               ///< the processor's own name; may be empty
  std::string microarchitecture; ///< LLVM's name
  unsigned cores = 0;            ///< number of physical cores; 0 if unknown
  unsigned logicalCpus = 0;      ///< number of CPUs on which this process may run
  std::string simd;              ///< instruction set of kvopt's kernels
  int64_t memoryBytes = 0;
  std::string kvopt;       ///< version of this program
  bool assertions = false; ///< whether this is a development build, which is slower
};

Machine describeMachine();

/// Value of the first line `key : value` of a text such as /proc/cpuinfo; empty if there is none.
std::string valueOfLine(const std::string& text, const std::string& key);

} // namespace kvopt::cli
