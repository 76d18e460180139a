// Differences in units of the last place, NaN, strides, selections.
#include "runtime/equivalence/comparison.h"

#include "runtime/memory/buffer.h"
#include "support/diagnostic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

constexpr float nan = std::numeric_limits<float>::quiet_NaN();
constexpr float inf = std::numeric_limits<float>::infinity();

TensorView viewOf(std::vector<float>& values) {
  return TensorView::contiguous(ElementType::Float, {static_cast<int64_t>(values.size())},
                                reinterpret_cast<std::byte*>(values.data()));
}

Comparison compare(std::vector<float> a, std::vector<float> b, Tolerance tolerance = {}) {
  return llvm::cantFail(compareTensors(viewOf(a), viewOf(b), tolerance));
}

TEST(ComparisonTest, CountsUnitsOfTheLastPlace) {
  Comparison next = compare({1, 2}, {1, std::nextafter(2.0f, 3.0f)});
  EXPECT_EQ(next.maxUlp, 1u);
  EXPECT_EQ(next.compared, 2);
  EXPECT_EQ(next.violations, 1);
  EXPECT_FALSE(next.bitExact);
  EXPECT_EQ(next.worst, Extents({1}));
  float tiny = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(compare({-tiny}, {tiny}).maxUlp, 2u);
  Comparison zeros = compare({0.0f}, {-0.0f});
  EXPECT_EQ(zeros.maxUlp, 0u);
  EXPECT_TRUE(zeros.isWithin());
  EXPECT_FALSE(zeros.bitExact);
}

TEST(ComparisonTest, NanAgreesWithNanOnly) {
  EXPECT_TRUE(compare({nan}, {nan}).isWithin());
  Tolerance huge{1e30, 1e30};
  for (float other : {0.0f, inf}) {
    Comparison mismatch = compare({nan, 1}, {other, 1}, huge);
    EXPECT_TRUE(mismatch.nanMismatch);
    EXPECT_EQ(mismatch.violations, 1);
    EXPECT_EQ(mismatch.maxUlp, UINT64_MAX);
    EXPECT_TRUE(std::isinf(mismatch.maxAbs));
    EXPECT_FALSE(compare({other}, {nan}, huge).isWithin());
  }
  EXPECT_TRUE(compare({inf}, {inf}).isWithin());
  EXPECT_FALSE(compare({inf}, {-inf}, huge).isWithin());
  EXPECT_FALSE(compare({inf}, {1}, huge).isWithin());
}

TEST(ComparisonTest, ToleranceIsAbsolutePlusRelative) {
  EXPECT_TRUE(compare({1.5f}, {1}, {0.5, 0}).isWithin());
  EXPECT_FALSE(compare({1.75f}, {1}, {0.5, 0}).isWithin());
  EXPECT_TRUE(compare({110}, {100}, {0, 0.1}).isWithin());
  EXPECT_TRUE(compare({111}, {100}, {1, 0.1}).isWithin());
}

TEST(ComparisonTest, StridedViewsAndSelections) {
  std::vector<float> a{1, 2, 3, 4, 5, 6};
  std::vector<float> b{1, 2, 9, 4, 5, 9};
  auto matrix = [](std::vector<float>& values) {
    return TensorView::contiguous(ElementType::Float, {2, 3},
                                  reinterpret_cast<std::byte*>(values.data()));
  };
  // The last column differs, in memory between equal elements.
  Comparison left =
      llvm::cantFail(compareTensors(sliceAxis(matrix(a), 1, 0, 2), sliceAxis(matrix(b), 1, 0, 2)));
  EXPECT_TRUE(left.bitExact);
  EXPECT_EQ(left.compared, 4);
  Comparison all = llvm::cantFail(compareTensors(matrix(a), matrix(b)));
  EXPECT_EQ(all.violations, 2);
  EXPECT_EQ(all.worst, Extents({0, 2}));
  Comparison second = llvm::cantFail(compareTensors(
      matrix(a), matrix(b), {}, [](llvm::ArrayRef<int64_t> index) { return index[0] == 1; }));
  EXPECT_EQ(second.compared, 3);
  EXPECT_EQ(second.violations, 1);
  EXPECT_EQ(second.worst, Extents({1, 2}));
}

TEST(ComparisonTest, ShapesAndTypesMustAgree) {
  std::vector<float> a{1, 2};
  std::vector<float> b{1};
  auto shapes = compareTensors(viewOf(a), viewOf(b));
  ASSERT_FALSE(static_cast<bool>(shapes));
  llvm::consumeError(shapes.takeError());
  TensorView integers = viewOf(a);
  integers.element = ElementType::Int32;
  auto types = compareTensors(viewOf(a), integers);
  ASSERT_FALSE(static_cast<bool>(types));
  llvm::consumeError(types.takeError());
}

} // namespace
} // namespace kvopt
