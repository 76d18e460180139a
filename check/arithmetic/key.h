// Key: numbers that identify something by its contents.
#pragma once

#include "llvm/ADT/Hashing.h"

#include <cstdint>
#include <vector>

namespace kvopt::check {

/// Numbers that identify something by its contents. Two keys are compared number by number.
using Key = std::vector<uint64_t>;

struct KeyHash {
  size_t operator()(const Key& key) const noexcept {
    return llvm::hash_combine_range(key.begin(), key.end());
  }
};

/// The address of an object that exists once for its contents.
inline uint64_t addressOf(const void* object) { return reinterpret_cast<uintptr_t>(object); }

} // namespace kvopt::check
