// Arrays keep apart from each other; what is given back is used again.
#include "support/array_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace kvopt {
namespace {

TEST(ArrayPool, ArraysDoNotOverlap) {
  ArrayPool<uint64_t> pool;
  std::vector<uint64_t*> arrays;
  constexpr size_t longest = 20'000; // more than a slab
  for (size_t count = 0; count <= longest; count = count * 3 + 1) {
    arrays.push_back(pool.allocate(count));
    std::fill_n(arrays.back(), count, count);
  }
  size_t count = 0;
  for (uint64_t* array : arrays) {
    for (size_t i = 0; i < count; ++i)
      ASSERT_EQ(array[i], count);
    count = count * 3 + 1;
  }
}

TEST(ArrayPool, UsesAgainWhatIsGivenBack) {
  ArrayPool<uint64_t> pool;
  uint64_t* first = pool.allocate(3);
  uint64_t* second = pool.allocate(3);
  EXPECT_NE(first, second);
  pool.deallocate(first, 3);
  EXPECT_EQ(pool.allocate(3), first);
}

} // namespace
} // namespace kvopt
