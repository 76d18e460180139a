// ai.kvopt::RingQuantizedKvSdpa: what it computes, what it writes, what it refuses.
#include "support/four_bit_row.h"
#include "tests/runtime/kernels/quantized_ring_case.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// Output within the bound, presents exact: slots that hold no row must neither be read nor change.
void expectQuantizedRingByDefinition(const AttentionCase& c, int64_t slots, unsigned threads = 1) {
  const QuantizedRingProblem problem(c, slots);
  const KernelResult result = problem.call().threads(threads).run();
  expectTensor(result, {c.batches, c.heads(), c.rows, c.valueWidth}, problem.expected(),
               problem.all.bound());
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.outputs[1].sameBytes(problem.key.presentCodes));
  EXPECT_TRUE(result.outputs[2].sameBytes(problem.key.presentScales));
  EXPECT_TRUE(result.outputs[3].sameBytes(problem.value.presentCodes));
  EXPECT_TRUE(result.outputs[4].sameBytes(problem.value.presentScales));
}

TEST(RingQuantizedKvSdpa, AgreesWithTheDefinition) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (int64_t slots : {1, 2, 6, 7})
      for (int64_t rows : {1, 5, 6, 7, 20})
        for (int64_t past : {0, 1, 5, 6, 7, 41}) {
          AttentionCase c = ringCase(rows, past);
          c.element = element;
          c.causal = true;
          c.window = slots;
          SCOPED_TRACE(formatted("{}, {} slots, {} rows, past {}", onnxName(element).str(), slots,
                                 rows, past));
          expectQuantizedRingByDefinition(c, slots, rows == 7 ? 3 : 1);
        }
}

TEST(RingQuantizedKvSdpa, OptionsAgreeWithTheDefinition) {
  for (MaskForm mask : {MaskForm::none, MaskForm::additive, MaskForm::boolean})
    for (int options = 0; options < 16; ++options)
      for (int64_t rows : {1, 3})
        for (int64_t past : {2, 4, 5, 13}) {
          AttentionCase c = ringCase(rows, past);
          c.mask = mask;
          c.causal = true;
          c.window = options & 1 ? 3 : 5;
          c.softcap = options & 2 ? 1.5f : 0.0f;
          c.keyTransposed = options & 4;
          c.sinks = options & 8;
          SCOPED_TRACE(formatted("options {} rows {} past {}", options, rows, past));
          expectQuantizedRingByDefinition(c, 5);
        }
}

TEST(RingQuantizedKvSdpa, ManyRowsOnSeveralThreads) {
  AttentionCase c = ringCase(300, 70);
  c.width = c.valueWidth = 64;
  c.causal = true;
  c.window = 128;
  expectQuantizedRingByDefinition(c, 128, 3);
}

/// A ring of rows that are packed four bits each gives what a buffer of all of them gives.
TEST(RingQuantizedKvSdpa, FourBitRowsGiveWhatABufferGives) {
  constexpr int64_t slots = 6, capacity = 64, width = 40;
  const int64_t bytes = FourBitRow{width}.bytes();
  auto empty = [&](int64_t count) {
    return std::array<TestTensor, 4>{TestTensor(ElementType::UInt8, {1, 2, count, bytes}),
                                     TestTensor(ElementType::Float, {1, 2, count, 1}),
                                     TestTensor(ElementType::UInt8, {1, 2, count, bytes}),
                                     TestTensor(ElementType::Float, {1, 2, count, 1})};
  };
  std::array<TestTensor, 4> ring = empty(slots), buffer = empty(capacity);
  int64_t past = 0;
  unsigned seed = 1;
  for (int64_t rows : {1, 3, 1, 1, 7, 1, 20, 1, 1}) {
    const TestTensor query = randomTensor(ElementType::Float, {1, 4, rows, width}, seed++);
    const TestTensor key = randomTensor(ElementType::Float, {1, 2, rows, width}, seed++);
    const TestTensor value = randomTensor(ElementType::Float, {1, 2, rows, width}, seed++);
    auto run = [&](const char* op, std::array<TestTensor, 4>& caches) {
      KernelCall call(op);
      call.in(query).in(key).in(value);
      for (const TestTensor& cache : caches)
        call.in(cache, true);
      call.in(int64s({static_cast<double>(past)})).results(5).absent().absent();
      call.attr("scale", 0.2).attr("causal", 1).attr("window", static_cast<int>(slots));
      KernelResult result = call.run();
      EXPECT_EQ(result.error, "");
      for (size_t i = 0; i < caches.size() && result.ok(); ++i)
        caches[i] = result.outputs[i + 1];
      return result;
    };
    const KernelResult ours = run("ai.kvopt::RingQuantizedKvSdpa", ring);
    const KernelResult all = run("ai.kvopt::InPlaceQuantizedKvSdpa", buffer);
    ASSERT_TRUE(ours.ok() && all.ok());
    for (int64_t i = 0; i < all.outputs[0].count(); ++i)
      ASSERT_NEAR(ours.outputs[0].get(i), all.outputs[0].get(i), 1e-6) << rows;
    past += rows;
    for (size_t part = 0; part < ring.size(); ++part)
      for (int64_t plane = 0; plane < 2; ++plane)
        for (int64_t row = std::max<int64_t>(0, past - slots); row < past; ++row) {
          const int64_t columns = ring[part].shape()[3];
          for (int64_t column = 0; column < columns; ++column)
            ASSERT_EQ(ring[part].get((plane * slots + row % slots) * columns + column),
                      buffer[part].get((plane * capacity + row) * columns + column));
        }
  }
}

TEST(RingQuantizedKvSdpa, WithoutPermissionThePastStays) {
  for (int64_t rows : {1, 3}) {
    const QuantizedRingProblem problem(ringCase(rows, 9), 4);
    const TestTensor before = problem.key.codes.clone();
    const KernelResult result = problem.call(false).run();
    ASSERT_EQ(result.error, "");
    EXPECT_TRUE(problem.key.codes.sameBytes(before));
    EXPECT_TRUE(result.outputs[1].sameBytes(problem.key.presentCodes));
  }
}

TEST(RingQuantizedKvSdpa, RefusesWhatDoesNotFit) {
  auto errorOf = [](llvm::function_ref<void(QuantizedRingProblem&)> change) {
    QuantizedRingProblem problem(ringCase(2, 3), 4);
    change(problem);
    return problem.call().run().error;
  };
  using testing::HasSubstr;
  EXPECT_EQ(errorOf([](QuantizedRingProblem&) {}), "");
  EXPECT_THAT(errorOf([](QuantizedRingProblem& p) { p.all.plain.pastLength = int64s({-1}); }),
              HasSubstr("past length -1 is impossible"));
  EXPECT_THAT(errorOf([](QuantizedRingProblem& p) {
                p.all.plain.pastLength = int64s({3, 2});
              }),
              HasSubstr("batch rows of different lengths do not share a ring"));
  EXPECT_THAT(errorOf([](QuantizedRingProblem& p) {
                p.value.codes = TestTensor(ElementType::Int8, {2, 2, 3, 5});
                p.value.scales = TestTensor(ElementType::Float, {2, 2, 3, 1});
              }),
              HasSubstr("4 slots for keys and 3 for values"));
  EXPECT_THAT(errorOf([](QuantizedRingProblem& p) {
                p.key.scales = TestTensor(ElementType::Float, {2, 2, 3, 1});
              }),
              HasSubstr("scales of the keys are float [2, 2, 3, 1]"));
}

} // namespace
} // namespace kvopt
