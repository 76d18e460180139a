// Reading for the yardstick reads every byte, on every SIMD target.
#include "runtime/simd/stream_read.h"

#include "tests/runtime/simd/targets.h"

#include <vector>

namespace kvopt {
using namespace simd;

namespace {

TEST(StreamRead, ReadsEveryByteOnce) {
  forEachSimdTarget([] {
    // A byte that is not read, or read twice, does not change the number.
    std::vector<std::byte> memory(2200);
    for (size_t size : {0, 1, 31, 64, 255, 256, 999, 2199})
      for (size_t begin : {0, 1}) {
        const uint64_t before = streamRead(memory.data() + begin, size);
        for (size_t i = begin; i < begin + size; ++i) {
          memory[i] = std::byte{0x5a};
          EXPECT_NE(streamRead(memory.data() + begin, size), before) << size << " " << i;
          memory[i] = std::byte{0};
        }
      }
  });
}

TEST(StreamRead, NamesTheTargetThatIsUsed) {
  std::vector<std::string> names;
  forEachSimdTarget([&] { names.emplace_back(simdTarget()); });
  EXPECT_EQ(names, simdTargetsToTest());
}

} // namespace
} // namespace kvopt
