// Units of memory.
#include "cli/report/byte_text.h"

#include "support/format.h"

#include <iterator>

namespace kvopt::cli {

std::string byteText(int64_t bytes) {
  static constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto scaled = static_cast<double>(bytes);
  size_t unit = 0;
  while (scaled >= 1024 && unit + 1 < std::size(units)) {
    scaled /= 1024;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", scaled, units[unit]);
}

} // namespace kvopt::cli
