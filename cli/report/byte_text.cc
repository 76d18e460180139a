// Formatting of byte counts.
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
  return unit == 0 ? formatted("{} B", bytes) : formatted("{:.1f} {}", scaled, units[unit]);
}

std::string countText(int64_t count) {
  std::string text = std::to_string(count);
  for (size_t end = text.size(); end > 3; end -= 3)
    text.insert(end - 3, ",");
  return text;
}

} // namespace kvopt::cli
