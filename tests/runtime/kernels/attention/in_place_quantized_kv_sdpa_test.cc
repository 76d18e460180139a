// ai.kvopt::InPlaceQuantizedKvSdpa: what it computes, what it writes, what it refuses.
#include "ir/cache_layout.h"
#include "tests/runtime/kernels/quantized_attention_case.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// Output within the bound, presents exact: what is beyond the valid rows must neither be read nor
/// change.
void expectQuantizedByDefinition(const AttentionCase& c, unsigned threads = 1) {
  const QuantizedProblem problem(c);
  const std::vector<double> expected = problem.expected();
  const KernelResult result = problem.call().threads(threads).run();
  expectTensor(result, {c.batches, c.heads(), c.rows, c.valueWidth}, expected, problem.bound());
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.outputs[1].sameBytes(problem.key.presentCodes));
  EXPECT_TRUE(result.outputs[2].sameBytes(problem.key.presentScales));
  EXPECT_TRUE(result.outputs[3].sameBytes(problem.value.presentCodes));
  EXPECT_TRUE(result.outputs[4].sameBytes(problem.value.presentScales));
}

AttentionCase groupedQuantized(int64_t rows, std::vector<int64_t> past) {
  AttentionCase c;
  c.batches = 2;
  c.kvHeads = 2;
  c.group = 2;
  c.rows = rows;
  c.past = std::move(past);
  c.capacity = c.longest() + 3;
  c.width = 16;
  c.valueWidth = 12;
  c.causal = true;
  return c;
}

TEST(InPlaceQuantizedKvSdpa, AgreesWithTheDefinition) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (int64_t group : {1, 2, 7})
      for (int64_t rows : {0, 1, 2, 5, 17})
        for (int64_t past : {0, 1, 9, 40}) {
          AttentionCase c = groupedQuantized(rows, {past});
          c.element = element;
          c.group = group;
          SCOPED_TRACE(
              formatted("{} group {} rows {} past {}", onnxName(element).str(), group, rows, past));
          expectQuantizedByDefinition(c, group == 2 ? 3 : 1);
        }
}

TEST(InPlaceQuantizedKvSdpa, ManyRowsOnSeveralThreads) {
  AttentionCase c = groupedQuantized(150, {30});
  c.width = 64;
  c.valueWidth = 70;
  expectQuantizedByDefinition(c, 3);
  c.keyTransposed = true;
  expectQuantizedByDefinition(c, 3);
}

TEST(InPlaceQuantizedKvSdpa, OptionsAgreeWithTheDefinition) {
  for (MaskForm mask : {MaskForm::none, MaskForm::additive, MaskForm::boolean})
    for (int options = 0; options < 32; ++options) {
      AttentionCase c = groupedQuantized(3, {6, 2});
      c.mask = mask;
      c.maskHead = !(options & 1);
      c.maskRow = !(options & 2);
      c.causal = options & 1;
      c.window = options & 2 ? 4 : 0;
      c.softcap = options & 4 ? 1.5f : 0.0f;
      c.keyTransposed = options & 8;
      c.sinks = options & 16;
      c.valueWidth = 5;
      c.scale = options & 1 ? -0.3f : 0.7f;
      SCOPED_TRACE(formatted("options {}", options));
      expectQuantizedByDefinition(c);
    }
}

TEST(InPlaceQuantizedKvSdpa, RowsThatSeeNothingAreZero) {
  for (MaskForm mask : {MaskForm::additive, MaskForm::boolean}) {
    AttentionCase c = groupedQuantized(2, {3});
    c.mask = mask;
    c.hideEverything = true;
    expectQuantizedByDefinition(c);
  }
}

TEST(InPlaceQuantizedKvSdpa, FullAndEmpty) {
  AttentionCase c = groupedQuantized(3, {5});
  c.capacity = 8;
  expectQuantizedByDefinition(c);
  c.rows = 8;
  c.past = {0};
  expectQuantizedByDefinition(c);
  c.rows = 0;
  c.past = {8};
  expectQuantizedByDefinition(c);
  c.batches = 0;
  expectQuantizedByDefinition(c);
  c.batches = 1;
  c.kvHeads = 0;
  expectQuantizedByDefinition(c);
  c.kvHeads = 1;
  c.valueWidth = 0;
  c.past = {2};
  expectQuantizedByDefinition(c);
}

/// The bytes of every cache and scale outside of the new rows stay, and the count is exact.
TEST(InPlaceQuantizedKvSdpa, WritesTheNewRowsInPlaceAndNothingElse) {
  for (bool transposedQuantized : {false, true}) {
    AttentionCase c = groupedQuantized(2, {5, 0});
    c.keyTransposed = transposedQuantized;
    const QuantizedProblem problem(c);
    const KernelResult result = problem.call(true).run();
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(result.outputs[1].data(), problem.key.codes.data());
    EXPECT_EQ(result.outputs[2].data(), problem.key.scales.data());
    EXPECT_EQ(result.outputs[3].data(), problem.value.codes.data());
    EXPECT_EQ(result.outputs[4].data(), problem.value.scales.data());
    EXPECT_TRUE(problem.key.codes.sameBytes(problem.key.presentCodes));
    EXPECT_TRUE(problem.value.scales.sameBytes(problem.value.presentScales));
    // A byte an element, and a scale of four for each of the rows of K and of V.
    EXPECT_EQ(result.cacheBytesWritten, 2 * 2 * 2 * ((16 + 12) + 2 * 4));
  }
}

TEST(InPlaceQuantizedKvSdpa, WithoutPermissionThePastStays) {
  const QuantizedProblem problem(groupedQuantized(3, {4}));
  const TestTensor codes = problem.key.codes.clone();
  const TestTensor scales = problem.value.scales.clone();
  const KernelResult result = problem.call(false).run();
  const KernelResult unread = problem.call(false).unread(1).unread(2).unread(3).unread(4).run();
  ASSERT_EQ(result.error + unread.error, "");
  EXPECT_TRUE(problem.key.codes.sameBytes(codes));
  EXPECT_TRUE(problem.value.scales.sameBytes(scales));
  EXPECT_TRUE(result.outputs[1].sameBytes(problem.key.presentCodes));
  EXPECT_TRUE(result.outputs[4].sameBytes(problem.value.presentScales));
  EXPECT_TRUE(unread.outputs[0].sameBytes(result.outputs[0]));
}

/// Rows with something that is no number poison what sees them, and rows of zeros are zeros.
TEST(InPlaceQuantizedKvSdpa, RowsThatAreNoNumbers) {
  AttentionCase c = groupedQuantized(2, {0});
  for (double x : {double{NAN}, double{INFINITY}}) {
    const QuantizedProblem problem(c);
    TestTensor fresh = problem.plain.keyNew;
    fresh.set(3, x);
    const KernelResult result = problem.call().run();
    ASSERT_EQ(result.error, "");
    EXPECT_TRUE(std::isnan(result.outputs[2].get(0)));
    for (int64_t column = 0; column < c.width; ++column)
      EXPECT_EQ(result.outputs[1].get(column), 0);
    EXPECT_TRUE(std::isnan(result.outputs[0].get(0)));
    // Of another head.
    EXPECT_FALSE(std::isnan(result.outputs[0].get(c.group * c.rows * c.valueWidth)));
  }
  const QuantizedProblem problem(c);
  TestTensor fresh = problem.plain.valueNew;
  for (int64_t i = 0; i < fresh.count(); ++i)
    fresh.set(i, 0);
  const KernelResult result = problem.call().run();
  ASSERT_EQ(result.error, "");
  for (int64_t i = 0; i < result.outputs[0].count(); ++i)
    EXPECT_EQ(result.outputs[0].get(i), 0.0);
  EXPECT_EQ(result.outputs[4].get(0), 0.0);
}

TestTensor transposedQuantized(const TestTensor& x, std::vector<int64_t> order) {
  const KernelResult result = KernelCall("Transpose").in(x).attr("perm", std::move(order)).run();
  EXPECT_EQ(result.error, "");
  return result.outputs[0].clone();
}

/// A cache [B,G,C,W], or its scales, in another form.
TestTensor laidOut(const TestTensor& cache, unsigned rank, int64_t axis) {
  const CacheLayout layout = *CacheLayout::bySequenceAxis(rank, axis);
  const llvm::SmallVector<int64_t, 4> order = layout.cacheOrder();
  const std::vector<int64_t> inverse(order.begin(), order.end());
  const Extents& shape = cache.shape();
  return transposedQuantized(layout.hasFoldedHeads()
                                 ? cache.clone().reshaped({shape[0] * shape[1], shape[2], shape[3]})
                                 : cache,
                             inverse);
}

TEST(InPlaceQuantizedKvSdpa, EveryLayoutGivesTheBitsOfRowsInHeads) {
  AttentionCase c = groupedQuantized(3, {5, 2});
  c.sinks = true;
  const QuantizedProblem p(c);
  const KernelResult plain = p.call(false).run();
  ASSERT_EQ(plain.error, "");
  const std::pair<unsigned, int> forms[] = {{4, 0}, {4, 1}, {4, 2}, {3, 1}, {4, 3}, {3, 2}};
  for (const auto& [rank, axis] : forms) {
    SCOPED_TRACE(formatted("rank {} axis {}", rank, axis));
    const bool isTransposed = CacheLayout::bySequenceAxis(rank, axis)->isTransposed();
    const unsigned valueRank = isTransposed ? 4 : rank;
    const int valueAxis = isTransposed ? 2 : axis;
    TestTensor key = laidOut(p.key.codes, rank, axis);
    TestTensor keyScale = laidOut(p.key.scales, rank, axis);
    TestTensor value = laidOut(p.value.codes, valueRank, valueAxis);
    TestTensor valueScale = laidOut(p.value.scales, valueRank, valueAxis);
    KernelCall call("ai.kvopt::InPlaceQuantizedKvSdpa");
    call.in(p.plain.query).in(p.plain.keyNew).in(p.plain.valueNew);
    call.in(key, true).in(keyScale, true).in(value, true).in(valueScale, true);
    call.in(p.plain.pastLength).absent().in(p.plain.sinks).results(5);
    p.plain.attributes(call);
    const KernelResult result = call.attr("key_axis", axis).attr("value_axis", valueAxis).run();
    ASSERT_EQ(result.error, "");
    if (isTransposed)
      expectTensor(result, plain.outputs[0].shape(), p.expected(), p.bound());
    else
      EXPECT_TRUE(result.outputs[0].sameBytes(plain.outputs[0]));
    EXPECT_TRUE(key.sameBytes(laidOut(p.key.presentCodes, rank, axis)));
    EXPECT_TRUE(keyScale.sameBytes(laidOut(p.key.presentScales, rank, axis)));
    EXPECT_TRUE(value.sameBytes(laidOut(p.value.presentCodes, valueRank, valueAxis)));
    EXPECT_TRUE(valueScale.sameBytes(laidOut(p.value.presentScales, valueRank, valueAxis)));
    EXPECT_EQ(result.cacheBytesWritten, plain.cacheBytesWritten);
  }
}

/// An error must name `text` and leave all four caches.
template <class Damage> void expectQuantizedRefused(const char* text, Damage damage) {
  SCOPED_TRACE(text);
  AttentionCase c = groupedQuantized(2, {3});
  c.capacity = 8;
  QuantizedProblem problem(c);
  damage(problem);
  const TestTensor before[] = {problem.key.codes.clone(), problem.key.scales.clone(),
                               problem.value.codes.clone(), problem.value.scales.clone()};
  const KernelResult result = problem.call(true).run();
  expectError(result, text);
  EXPECT_TRUE(problem.key.codes.sameBytes(before[0]));
  EXPECT_TRUE(problem.key.scales.sameBytes(before[1]));
  EXPECT_TRUE(problem.value.codes.sameBytes(before[2]));
  EXPECT_TRUE(problem.value.scales.sameBytes(before[3]));
  EXPECT_EQ(result.cacheBytesWritten, 0);
}

TEST(InPlaceQuantizedKvSdpa, RefusesWhatDoesNotFit) {
  using P = QuantizedProblem&;
  auto random = [](Extents shape, ElementType element = ElementType::Float) {
    return randomTensor(element, std::move(shape), 99);
  };
  expectQuantizedRefused("exceed the capacity of 8 rows",
                         [](P p) { p.plain.pastLength = int64s({7}); });
  expectQuantizedRefused("exceed the capacity of 8 rows",
                         [](P p) { p.plain.pastLength = int64s({-1}); });
  expectQuantizedRefused("in number", [&](P p) { p.plain.keyNew = random({2, 2, 3, 16}); });
  expectQuantizedRefused("keys are 6 wide", [&](P p) { p.plain.keyNew = random({2, 2, 2, 6}); });
  expectQuantizedRefused("differ in batch size or heads", [&](P p) {
    p.plain.valueNew = random({2, 1, 2, 12});
  });
  expectQuantizedRefused("cache of the keys have element types float and float", [&](P p) {
    p.key.codes = random({2, 2, 8, 16});
  });
  expectQuantizedRefused("cache of the values have element types float and uint8", [&](P p) {
    p.value.codes = random({2, 2, 8, 12}, ElementType::UInt8);
  });
  expectQuantizedRefused(
      "scales of the keys are float [2, 2, 7, 1], they should be float [2, 2, 8, 1]", [&](P p) {
        p.key.scales = random({2, 2, 7, 1});
      });
  expectQuantizedRefused("scales of the values are float16", [&](P p) {
    p.value.scales = random({2, 2, 8, 1}, ElementType::Float16);
  });
  expectQuantizedRefused("scales of the values are float [2, 2, 8]", [&](P p) {
    p.value.scales = random({2, 2, 8});
  });
  expectQuantizedRefused("new keys of element type double", [&](P p) {
    p.plain.keyNew = random({2, 2, 2, 16}, ElementType::Double);
  });
  expectQuantizedRefused("8 key rows and 9 value rows", [&](P p) {
    p.value.codes = random({2, 2, 9, 12}, ElementType::Int8);
    p.value.scales = random({2, 2, 9, 1});
  });
}

} // namespace
} // namespace kvopt
