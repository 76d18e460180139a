// ai.kvopt::RingKvSdpa: what it computes, what it writes, what it refuses.
#include "tests/runtime/kernels/ring_attention_case.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// Output within the bound, presents exact: NaN in unwritten slots must neither be read nor change.
void expectRingByDefinition(const AttentionCase& c, int64_t slots, unsigned threads = 1) {
  const RingProblem problem(c, slots);
  const KernelResult result = problem.call().threads(threads).run();
  expectTensor(result, {c.batches, c.heads(), c.rows, c.valueWidth}, problem.expected(),
               problem.all.bound());
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.outputs[1].sameBytes(problem.presentKey));
  EXPECT_TRUE(result.outputs[2].sameBytes(problem.presentValue));
}

TEST(RingKvSdpa, AgreesWithTheDefinition) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (int64_t slots : {1, 2, 6, 7})
      for (int64_t rows : {1, 5, 6, 7, 20})
        for (int64_t past : {0, 1, 5, 6, 7, 41})
          for (bool causal : {false, true}) {
            AttentionCase c = ringCase(rows, past);
            c.element = element;
            c.causal = causal;
            c.window = causal ? slots : 0;
            SCOPED_TRACE(formatted("{}, {} slots, {} rows, past {}, {}", onnxName(element).str(),
                                   slots, rows, past, causal ? "causal" : "open"));
            expectRingByDefinition(c, slots, rows == 7 ? 3 : 1);
          }
}

TEST(RingKvSdpa, OptionsAgreeWithTheDefinition) {
  for (MaskForm mask : {MaskForm::none, MaskForm::additive, MaskForm::boolean})
    for (int broadcast = 0; broadcast < (mask == MaskForm::none ? 1 : 16); ++broadcast)
      for (int options = 0; options < 16; ++options)
        for (int64_t rows : {1, 3})
          for (int64_t past : {2, 4, 5, 13}) {
            AttentionCase c = ringCase(rows, past);
            c.mask = mask;
            c.maskBatch = !(broadcast & 1);
            c.maskHead = !(broadcast & 2);
            c.maskRow = !(broadcast & 4);
            c.maskColumn = !(broadcast & 8);
            c.causal = true;
            c.window = options & 1 ? 3 : 5;
            c.softcap = options & 2 ? 1.5f : 0.0f;
            c.keyTransposed = options & 4;
            c.sinks = options & 8;
            c.scale = options & 1 ? -0.3f : 0.7f;
            SCOPED_TRACE(formatted("broadcast {} options {} rows {} past {}", broadcast, options,
                                   rows, past));
            expectRingByDefinition(c, 5);
          }
}

TEST(RingKvSdpa, HoldsTheWindowAfterTenThousandTokens) {
  constexpr int64_t slots = 6;
  AttentionCase c = ringCase(1, 0);
  c.width = c.valueWidth = 1;
  c.batches = c.kvHeads = c.group = 1;
  TestTensor key = floats({1, 1, slots, 1}, std::vector<double>(slots, kNan));
  TestTensor value = key.clone();
  int64_t position = 0;
  constexpr int64_t chunks[] = {1, 5, 6, 7, 20};
  for (size_t step = 0; position < 10000; ++step) {
    const int64_t rows = std::min<int64_t>(chunks[step % 5], 10000 - position);
    std::vector<double> positions;
    for (int64_t row = 0; row < rows; ++row)
      positions.push_back(static_cast<double>(position + row));
    const TestTensor fresh = floats({1, 1, rows, 1}, positions);
    const TestTensor query = floats({1, 1, rows, 1}, std::vector<double>(positions.size(), 0));
    KernelCall call("ai.kvopt::RingKvSdpa");
    call.in(query).in(fresh).in(fresh).in(key, true).in(value, true);
    call.in(int64s({static_cast<double>(position)})).results(3).absent().absent();
    call.attr("scale", 1.0).attr("causal", 1).attr("window", static_cast<int>(slots));
    const KernelResult result = call.run();
    ASSERT_EQ(result.error, "");
    // A query of zeros weighs all alike: the mean of the positions in its window.
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t last = position + row;
      const int64_t first = std::max<int64_t>(0, last - slots + 1);
      ASSERT_NEAR(result.outputs[0].get(row), static_cast<double>(first + last) / 2,
                  1e-5 * static_cast<double>(last + 1));
    }
    key = result.outputs[1];
    value = result.outputs[2];
    position += rows;
  }
  std::vector<double> held = key.values();
  std::sort(held.begin(), held.end());
  EXPECT_EQ(held, (std::vector<double>{9994, 9995, 9996, 9997, 9998, 9999}));
}

TEST(RingKvSdpa, WritesNothingButTheNewRowsOfAToken) {
  const RingProblem problem(ringCase(1, 9), 4);
  const KernelResult result = problem.call().run();
  ASSERT_EQ(result.error, "");
  EXPECT_TRUE(result.outputs[1].sameBytes(problem.presentKey));
  EXPECT_FALSE(problem.presentKey.sameBytes(problem.pastKey));
}

TEST(RingKvSdpa, RowsOfInt8AreTheNumbersThatTheyAre) {
  for (const int64_t rows : {1, 3, 20}) {
    SCOPED_TRACE(formatted("{} rows", rows));
    auto codes = [](int64_t count, int64_t width, unsigned seed) {
      return randomTensor(ElementType::Int8, {2, 2, count, width}, seed, 127);
    };
    const TestTensor query = randomTensor(ElementType::Float, {2, 4, rows, 8}, 1);
    const TestTensor caches[] = {codes(rows, 8, 2), codes(rows, 5, 3), codes(6, 8, 4),
                                 codes(6, 5, 5)};
    auto call = [&](ElementType element) {
      KernelCall result("ai.kvopt::RingKvSdpa");
      result.in(query);
      for (const TestTensor& cache : caches)
        result.in(TestTensor(element, cache.shape(), cache.values()));
      return result.in(int64s({9})).attr("scale", 0.01).attr("causal", 1).results(3).run();
    };
    const KernelResult numbers = call(ElementType::Float), bytes = call(ElementType::Int8);
    ASSERT_EQ(numbers.error, "");
    // The weights of numbers up to 128.
    expectTensor(bytes, {2, 4, rows, 5}, numbers.outputs[0].values(), 128 * 1e-5);
    for (unsigned i : {1u, 2u}) {
      EXPECT_EQ(bytes.outputs[i].element(), ElementType::Int8);
      EXPECT_EQ(bytes.outputs[i].values(), numbers.outputs[i].values());
    }
  }
}

TEST(RingKvSdpa, RefusesWhatDoesNotFit) {
  auto errorOf = [](llvm::function_ref<void(RingProblem&)> change) {
    RingProblem problem(ringCase(2, 3), 4);
    change(problem);
    const KernelResult result = problem.call().run();
    return result.error;
  };
  EXPECT_EQ(errorOf([](RingProblem&) {}), "");
  EXPECT_NE(errorOf([](RingProblem& p) {
              p.all.pastLength = int64s({-1});
            }).find("past length -1 is impossible"),
            std::string::npos);
  EXPECT_NE(errorOf([](RingProblem& p) {
              p.all.pastLength = int64s({3, 2});
            }).find("batch rows of different lengths do not share a ring"),
            std::string::npos);
  EXPECT_NE(errorOf([](RingProblem& p) {
              p.pastKey = TestTensor(ElementType::Float, {2, 2, 0, 8});
              p.pastValue = TestTensor(ElementType::Float, {2, 2, 0, 5});
            }).find("has no slot"),
            std::string::npos);
  EXPECT_NE(errorOf([](RingProblem& p) {
              p.pastValue = TestTensor(ElementType::Float, {2, 2, 3, 5});
            }).find("4 slots for keys and 3 for values"),
            std::string::npos);
  EXPECT_NE(errorOf([](RingProblem& p) {
              p.all.c.mask = MaskForm::additive;
              p.all.mask = floats({1, 1, 1, 4}, {0, 0, 0, 0});
            }).find("the mask has 4 columns for 5 keys"),
            std::string::npos);
}

} // namespace
} // namespace kvopt
