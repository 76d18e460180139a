// What a measurement was made on, without anything that names the machine or its owner.
#pragma once

#include <cstdint>
#include <string>

namespace kvopt::cli {

struct Machine {
  std::string cpu;               ///< as the processor calls itself; may be empty
  std::string microarchitecture; ///< as LLVM calls it
  unsigned cores = 0;            ///< physical ones; 0 where that cannot be found out
  unsigned logicalCpus = 0;      ///< that this process may run on
  std::string simd;              ///< instruction set that kvopt's kernels use
  int64_t memoryBytes = 0;
  std::string kvopt;       ///< version of this program
  bool assertions = false; ///< a build for development, slower than a release build
};

Machine describeMachine();

/// The value of the first line `key : value` of a text such as /proc/cpuinfo; empty without one.
std::string valueOfLine(const std::string& text, const std::string& key);

} // namespace kvopt::cli
