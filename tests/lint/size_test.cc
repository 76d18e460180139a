// A file that grows beyond a few screens is two files.
#include "tests/lint/source_files.h"

#include <cstdio>

namespace kvopt {
namespace {

constexpr size_t longLines = 400;
constexpr size_t mostLines = 600;

TEST(Size, NoSourceFileIsTwoFiles) {
  for (const SourceFile& file : allSources()) {
    size_t count = file.lines().size();
    EXPECT_LE(count, mostLines) << file.path;
    if (count > longLines)
      std::printf("%s: %zu lines, perhaps two things\n", file.path.c_str(), count);
  }
}

} // namespace
} // namespace kvopt
