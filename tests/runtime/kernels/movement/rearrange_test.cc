// Transpose, Concat, Split, Slice, Expand, Tile, Trilu.
#include "tests/runtime/kernels/kernel_harness.h"
#include "tests/support/small_slices.h"

namespace kvopt {
using namespace ir;

namespace {

TestTensor sixes() { return floats({2, 3}, {1, 2, 3, 4, 5, 6}); }

TEST(Transpose, PermutationsAndDefault) {
  expectTensor(KernelCall("Transpose").in(sixes()).run(), {3, 2}, {1, 4, 2, 5, 3, 6});
  const TestTensor x = floats({1, 2, 3}, {1, 2, 3, 4, 5, 6});
  auto run = [&](std::vector<int64_t> perm) {
    return KernelCall("Transpose").in(x).attr("perm", std::move(perm)).run();
  };
  expectTensor(run({2, 0, 1}), {3, 1, 2}, {1, 4, 2, 5, 3, 6});
  expectTensor(run({0, 1, 2}), {1, 2, 3}, {1, 2, 3, 4, 5, 6});
  expectTensor(KernelCall("Transpose").in(floats({2, 0}, {})).run(), {0, 2}, {});
  expectTensor(KernelCall("Transpose").in(floats({}, {7})).run(), {}, {7});
  expectError(run({0, 1}), "perm must name every axis");
  expectError(run({0, 0, 1}), "named twice");
  expectError(run({0, 1, 3}), "axis 3");
}

TEST(Transpose, LargeTensors) {
  const runtime::Extents extents = {2, 3, 277, 35};
  for (const ElementType element :
       {ElementType::Float, ElementType::Float16, ElementType::Int64, ElementType::UInt8}) {
    const TestTensor x = randomTensor(element, extents, 1, 100);
    for (const std::vector<int64_t>& perm : {std::vector<int64_t>{0, 1, 3, 2},
                                             {1, 0, 3, 2},
                                             {0, 3, 1, 2},
                                             {0, 2, 1, 3},
                                             {3, 2, 1, 0}}) {
      runtime::Extents shape, strides;
      for (const int64_t axis : perm) {
        shape.push_back(extents[static_cast<size_t>(axis)]);
        strides.push_back(x.view().strides[static_cast<size_t>(axis)]);
      }
      std::vector<double> expected;
      for (int64_t i = 0; i < shape[0]; ++i)
        for (int64_t j = 0; j < shape[1]; ++j)
          for (int64_t k = 0; k < shape[2]; ++k)
            for (int64_t l = 0; l < shape[3]; ++l)
              expected.push_back(
                  x.get(i * strides[0] + j * strides[1] + k * strides[2] + l * strides[3]));
      expectTensor(KernelCall("Transpose").in(x).attr("perm", perm).threads(3).run(), shape,
                   expected);
    }
  }
}

TEST(Concat, AxesAndEmptyParts) {
  auto run = [](std::vector<TestTensor> parts, int axis) {
    KernelCall call("Concat");
    for (TestTensor& part : parts)
      call.in(part);
    return call.attr("axis", axis).run();
  };
  expectTensor(run({sixes(), floats({1, 3}, {7, 8, 9})}, 0), {3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  expectTensor(run({sixes(), floats({2, 1}, {7, 8})}, -1), {2, 4}, {1, 2, 3, 7, 4, 5, 6, 8});
  expectTensor(run({floats({2, 0}, {}), floats({2, 1}, {7, 8})}, 1), {2, 1}, {7, 8});
  expectTensor(run({floats({0, 3}, {}), floats({0, 3}, {})}, 0), {0, 3}, {});
  expectError(run({sixes(), floats({2, 2}, {1, 2, 3, 4})}, 0), "extent 2 on axis 1, not 3");
  expectError(run({sixes(), int64s({1, 3}, {1, 2, 3})}, 0), "operand 1 differs in type or rank");
  expectError(run({sixes()}, 2), "axis 2");
}

TEST(Split, PartsByOperandAttributeAndCount) {
  const TestTensor x = floats({5}, {1, 2, 3, 4, 5});
  const KernelResult sizes = KernelCall("Split").in(x).in(int64s({2, 0, 3})).results(3).run();
  expectTensor(sizes, {2}, {1, 2}, 0, 0);
  expectTensor(sizes, {0}, {}, 0, 1);
  expectTensor(sizes, {3}, {3, 4, 5}, 0, 2);
  const KernelResult smaller = KernelCall("Split").in(x).attr("num_outputs", 2).results(2).run();
  expectTensor(smaller, {3}, {1, 2, 3}, 0, 0);
  expectTensor(smaller, {2}, {4, 5}, 0, 1);
  const KernelResult columns = KernelCall("Split", 11)
                                   .in(sixes())
                                   .attr("axis", -1)
                                   .attr("split", std::vector<int64_t>{1, 2})
                                   .results(2)
                                   .unread(0)
                                   .run();
  expectTensor(columns, {2, 2}, {2, 3, 5, 6}, 0, 1);
  const KernelResult empty = KernelCall("Split").in(floats({0}, {})).results(2).run();
  expectTensor(empty, {0}, {}, 0, 1);
}

TEST(Split, Refuses) {
  const TestTensor x = floats({5}, {1, 2, 3, 4, 5});
  expectError(KernelCall("Split", 13).in(x).results(2).run(), "does not split into 2 equal parts");
  expectError(KernelCall("Split").in(x).in(int64s({2, 2})).results(2).run(), "4 in all");
  expectError(KernelCall("Split").in(x).in(int64s({6, -1})).results(2).run(), "bad extents");
  expectError(KernelCall("Split").in(x).in(int64s({5})).results(2).run(), "1 parts");
  expectError(KernelCall("Split").in(x).results(0).run(), "no results");
}

TEST(Slice, StartsEndsSteps) {
  const TestTensor x = floats({5}, {0, 1, 2, 3, 4});
  auto run = [&](double start, double end, double step) {
    return KernelCall("Slice")
        .in(x)
        .in(int64s({start}))
        .in(int64s({end}))
        .in(int64s({0}))
        .in(int64s({step}))
        .run();
  };
  const double most = 0x1p62;
  expectTensor(run(1, 4, 1), {3}, {1, 2, 3});
  expectTensor(run(-2, most, 1), {2}, {3, 4});
  expectTensor(run(-100, 2, 1), {2}, {0, 1});
  expectTensor(run(0, 5, 2), {3}, {0, 2, 4});
  expectTensor(run(most, -most, -1), {5}, {4, 3, 2, 1, 0});
  expectTensor(run(3, 0, -2), {2}, {3, 1});
  expectTensor(run(-9, -20, -1), {1}, {0});
  expectTensor(run(0, 5, most), {1}, {0});
  expectTensor(run(4, 2, 1), {0}, {});
  expectTensor(run(9, 10, 1), {0}, {});
  expectError(run(0, 1, 0), "a step is 0");
  expectTensor(KernelCall("Slice").in(sixes()).in(int64s({0, 1})).in(int64s({1, -1})).run(), {1, 1},
               {2});
  expectTensor(KernelCall("Slice").in(floats({0, 2}, {})).in(int64s({0})).in(int64s({3})).run(),
               {0, 2}, {});
  expectError(KernelCall("Slice").in(x).in(int64s({0, 0})).in(int64s({1})).run(),
              "differ in length");
  expectError(KernelCall("Slice").in(x).in(int64s({0, 0})).in(int64s({1, 1})).run(), "axis 1");
}

TEST(Slice, EverySmallOneTakesWhatOnnxSays) {
  forEachSmallSlice([](const SmallSlice& slice) {
    std::vector<double> numbers, taken;
    for (int64_t i = 0; i < slice.extent; ++i)
      numbers.push_back(static_cast<double>(i));
    for (int64_t index : slice.indices())
      taken.push_back(static_cast<double>(index));
    SCOPED_TRACE(slice.text());
    expectTensor(KernelCall("Slice")
                     .in(floats({slice.extent}, numbers))
                     .in(int64s({static_cast<double>(slice.start)}))
                     .in(int64s({static_cast<double>(slice.end)}))
                     .in(int64s({0}))
                     .in(int64s({static_cast<double>(slice.step)}))
                     .run(),
                 {static_cast<int64_t>(taken.size())}, taken);
  });
}

TEST(Expand, BothWays) {
  auto run = [](TestTensor x, llvm::ArrayRef<double> shape) {
    return KernelCall("Expand").in(std::move(x)).in(int64s(shape)).run();
  };
  expectTensor(run(floats({2, 1}, {1, 2}), {1, 3}), {2, 3}, {1, 1, 1, 2, 2, 2});
  expectTensor(run(floats({2}, {1, 2}), {2, 1, 2}), {2, 1, 2}, {1, 2, 1, 2});
  expectTensor(run(floats({1}, {1}), {0, 2}), {0, 2}, {});
  expectTensor(run(floats({}, {5}), {}), {}, {5});
  expectError(run(floats({2}, {1, 2}), {3}), "broadcast");
  EXPECT_FALSE(run(floats({1}, {1}), {-1}).ok());
  EXPECT_FALSE(run(floats({1}, {1}), {0x1p40, 0x1p40}).ok());
}

TEST(Tile, Repeats) {
  auto run = [](llvm::ArrayRef<double> repeats) {
    return KernelCall("Tile").in(floats({1, 2}, {1, 2})).in(int64s(repeats)).run();
  };
  expectTensor(run({2, 2}), {2, 4}, {1, 2, 1, 2, 1, 2, 1, 2});
  expectTensor(run({0, 1}), {0, 2}, {});
  expectError(run({1}), "1 repeats for rank 2");
  expectError(run({1, -1}), "bad repeat -1");
}

TEST(Trilu, Diagonals) {
  const TestTensor x = floats({1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  auto run = [&](int upper, double k) {
    return KernelCall("Trilu").in(x).in(int64s({}, {k})).attr("upper", upper).run();
  };
  expectTensor(KernelCall("Trilu").in(x).run(), {1, 3, 3}, {1, 2, 3, 0, 5, 6, 0, 0, 9});
  expectTensor(run(1, 1), {1, 3, 3}, {0, 2, 3, 0, 0, 6, 0, 0, 0});
  expectTensor(run(0, 0), {1, 3, 3}, {1, 0, 0, 4, 5, 0, 7, 8, 9});
  expectTensor(run(0, -0x1p62), {1, 3, 3}, {0, 0, 0, 0, 0, 0, 0, 0, 0});
  expectTensor(run(1, -0x1p62), {1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  expectTensor(KernelCall("Trilu").in(floats({0, 3}, {})).run(), {0, 3}, {});
  expectError(KernelCall("Trilu").in(floats({1}, {1})).run(), "less than two axes");
}

} // namespace
} // namespace kvopt
