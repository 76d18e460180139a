// Amounts of memory for people.
#pragma once

#include <cstdint>
#include <string>

namespace kvopt::cli {

/// `812 B`, `3.1 MiB`: in the largest unit of 1024 that leaves at least one.
std::string byteText(int64_t bytes);
/// `4,096`.
std::string countText(int64_t count);

} // namespace kvopt::cli
