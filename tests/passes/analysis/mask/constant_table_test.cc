// Triangles, bands and ramps are recognized exactly, and nothing else is.
#include "passes/analysis/mask/constant_table.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

template <class T>
TensorRef table(ElementType type, llvm::ArrayRef<int64_t> shape, const std::vector<T>& elements) {
  auto bytes = std::as_bytes(std::span<const T>(elements));
  auto tensor = makeTensor(type, shape, std::vector<std::byte>(bytes.begin(), bytes.end()));
  EXPECT_TRUE(static_cast<bool>(tensor));
  return *tensor;
}

std::vector<uint8_t> square(int64_t n, llvm::function_ref<bool(int64_t, int64_t)> f) {
  std::vector<uint8_t> elements;
  for (int64_t r = 0; r < n; ++r)
    for (int64_t c = 0; c < n; ++c)
      elements.push_back(f(r, c) ? 1 : 0);
  return elements;
}

TEST(ConstantTableTest, Triangle) {
  auto tensor = table(ElementType::Bool, {1, 1, 5, 5},
                      square(5, [](int64_t r, int64_t c) { return c <= r; }));
  auto found = recognizeTable(*tensor);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->form, ConstantTable::Form::Banded);
  EXPECT_EQ(found->rowAxis, 2u);
  EXPECT_EQ(found->columnAxis, 3u);
  ASSERT_EQ(found->bands.size(), 2u);
  EXPECT_EQ(found->bands[0].value, 1);
  EXPECT_EQ(found->bands[1].first, 1);
  EXPECT_EQ(found->bands[1].value, 0);
}

TEST(ConstantTableTest, Band) {
  auto found =
      recognizeTable(*table(ElementType::Bool, {6, 6},
                            square(6, [](int64_t r, int64_t c) { return c <= r && r - c < 3; })));
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->bands.size(), 3u);
  EXPECT_EQ(found->bands[1].first, -2);
  EXPECT_EQ(found->bands[2].first, 1);
}

TEST(ConstantTableTest, OneElementOffIsNoTriangle) {
  std::vector<uint8_t> elements = square(5, [](int64_t r, int64_t c) { return c <= r; });
  for (size_t k = 0; k < elements.size(); ++k) {
    std::vector<uint8_t> changed = elements;
    changed[k] ^= 1;
    auto found = recognizeTable(*table(ElementType::Bool, {5, 5}, changed));
    // A corner is a diagonal of its own.
    bool isCorner = k == 4 || k == 20;
    EXPECT_EQ(found.has_value(), isCorner) << k;
  }
}

TEST(ConstantTableTest, Ramps) {
  auto found = recognizeTable(*table<int64_t>(ElementType::Int64, {1, 4}, {3, 5, 7, 9}));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->base, 3);
  EXPECT_EQ(found->steps[1], 2);
  EXPECT_FALSE(recognizeTable(*table<int64_t>(ElementType::Int64, {4}, {3, 5, 7, 8})).has_value());
  EXPECT_FALSE(
      recognizeTable(*table<float>(ElementType::Float, {3}, {0.5f, 1.0f, 1.5f})).has_value());
  // Beyond 2^53 doubles are not exact.
  EXPECT_FALSE(recognizeTable(*table<int64_t>(ElementType::Int64, {1}, {INT64_MAX})).has_value());
}

TEST(ConstantTableTest, ConstantsOfAnyShape) {
  auto found =
      recognizeTable(*table<float>(ElementType::Float, {2, 2}, {-1e9f, -1e9f, -1e9f, -1e9f}));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->form, ConstantTable::Form::Affine);
  EXPECT_EQ(found->base, static_cast<double>(-1e9f));
  EXPECT_FALSE(recognizeTable(*table<float>(ElementType::Float, {0}, {})).has_value());
}

} // namespace
} // namespace kvopt
