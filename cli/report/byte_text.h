// Numbers of bytes and counts as text.
#pragma once

#include <cstdint>
#include <string>

namespace kvopt::cli {

/// Text such as `812 B`, `3.1 MiB`, in the largest unit with a value of at least 1.
std::string byteText(int64_t bytes);
/// Text such as `4,096`.
std::string countText(int64_t count);

} // namespace kvopt::cli
