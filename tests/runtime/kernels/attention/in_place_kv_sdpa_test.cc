// ai.kvopt::InPlaceKvSdpa: what it computes, what it writes, what it refuses.
#include "tests/runtime/kernels/attention_case.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// Output within the bound, presents exact: NaN poison must neither be read nor change.
void expectByDefinition(const AttentionCase& c, unsigned threads = 1) {
  const AttentionProblem problem(c);
  const std::vector<double> expected = problem.expected();
  const KernelResult result = problem.call().threads(threads).run();
  expectTensor(result, {c.batches, c.heads(), c.rows, c.valueWidth}, expected, problem.bound());
  ASSERT_TRUE(result.ok());
  EXPECT_TRUE(result.outputs[1].sameBytes(problem.presentKey));
  EXPECT_TRUE(result.outputs[2].sameBytes(problem.presentValue));
}

TEST(InPlaceKvSdpa, AgreesWithTheDefinition) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (int64_t group : {1, 2, 4, 7})
      for (int64_t rows : {0, 1, 2, 5, 17})
        for (int64_t past : {0, 1, 9, 40}) {
          AttentionCase c;
          c.element = element;
          c.batches = 2;
          c.kvHeads = 2;
          c.group = group;
          c.rows = rows;
          c.past = {past};
          c.capacity = past + rows + 3;
          c.width = 16;
          c.valueWidth = 12;
          c.causal = true;
          SCOPED_TRACE(
              formatted("{} group {} rows {} past {}", onnxName(element).str(), group, rows, past));
          expectByDefinition(c, group == 4 ? 3 : 1);
        }
}

TEST(InPlaceKvSdpa, OptionsAgreeWithTheDefinition) {
  for (MaskForm mask : {MaskForm::none, MaskForm::additive, MaskForm::boolean})
    for (int broadcast = 0; broadcast < (mask == MaskForm::none ? 1 : 16); ++broadcast)
      for (int options = 0; options < 32; ++options) {
        AttentionCase c;
        c.mask = mask;
        c.maskBatch = !(broadcast & 1);
        c.maskHead = !(broadcast & 2);
        c.maskRow = !(broadcast & 4);
        c.maskColumn = !(broadcast & 8);
        c.causal = options & 1;
        c.window = options & 2 ? 4 : 0;
        c.softcap = options & 4 ? 1.5f : 0.0f;
        c.keyTransposed = options & 8;
        c.sinks = options & 16;
        c.batches = 2;
        c.kvHeads = 2;
        c.group = 2;
        c.rows = 3;
        c.past = {6, 2};
        c.capacity = 11;
        c.width = 8;
        c.valueWidth = 5;
        c.scale = options & 1 ? -0.3f : 0.7f;
        SCOPED_TRACE(formatted("broadcast {} options {}", broadcast, options));
        expectByDefinition(c);
      }
}

TEST(InPlaceKvSdpa, RowsOfInt8AreTheNumbersThatTheyAre) {
  for (const int64_t rows : {1, 3, 20})
    for (const bool transposed : {false, true})
      for (const bool inPlace : {false, true}) {
        SCOPED_TRACE(formatted("rows {} transposed {} in place {}", rows, transposed, inPlace));
        const int64_t capacity = 40, width = 24;
        const Extents keys =
            transposed ? Extents{2, 2, width, capacity} : Extents{2, 2, capacity, width};
        const TestTensor query = randomTensor(ElementType::Float, {2, 4, rows, width}, 1);
        const TestTensor fresh[] = {randomCodes({2, 2, rows, width}, 2),
                                    randomCodes({2, 2, rows, 16}, 3)};
        const TestTensor past[] = {randomCodes(keys, 4), randomCodes({2, 2, capacity, 16}, 5)};
        auto call = [&](auto form) {
          KernelCall result("ai.kvopt::InPlaceKvSdpa");
          result.in(query).in(form(fresh[0])).in(form(fresh[1])).in(form(past[0]), inPlace);
          result.in(form(past[1]), inPlace).in(int64s({17, 9}));
          result.attr("scale", 0.01).attr("causal", 1).attr("window", 15);
          return result.attr("key_axis", transposed ? 3 : 2).results(3).run();
        };
        const KernelResult floats = call([](const TestTensor& codes) { return asNumbers(codes); });
        const KernelResult codes = call([](const TestTensor& given) { return given.clone(); });
        ASSERT_EQ(floats.error, "");
        // The weights of numbers up to 128.
        expectTensor(codes, {2, 4, rows, 16}, floats.outputs[0].values(), 128 * 1e-5);
        for (unsigned i : {1u, 2u}) {
          EXPECT_EQ(codes.outputs[i].element(), ElementType::Int8);
          EXPECT_EQ(codes.outputs[i].values(), floats.outputs[i].values());
        }
        EXPECT_EQ(codes.cacheBytesWritten, 2 * 2 * rows * (width + 16));
      }
}

TEST(InPlaceKvSdpa, RefusesCodesAmongNumbers) {
  const TestTensor query = randomTensor(ElementType::Float, {1, 1, 1, 8}, 1);
  const TestTensor codes = randomCodes({1, 1, 1, 8}, 2), past = randomCodes({1, 1, 4, 8}, 3);
  auto call = [&](const TestTensor& key, const TestTensor& pastKey) {
    KernelCall result("ai.kvopt::InPlaceKvSdpa");
    result.in(query).in(key).in(codes).in(pastKey).in(past).in(int64s({1}));
    return result.attr("scale", 1.0).results(3).run();
  };
  EXPECT_TRUE(call(codes, past).ok());
  expectError(call(asNumbers(codes), past), "element types float and int8");
  expectError(call(asNumbers(codes), asNumbers(past)), "are not supported together");
}

TEST(InPlaceKvSdpa, RowsThatSeeNothingAreZero) {
  for (MaskForm mask : {MaskForm::additive, MaskForm::boolean}) {
    AttentionCase c;
    c.mask = mask;
    c.hideEverything = true;
    c.rows = 2;
    c.past = {3};
    const AttentionProblem problem(c);
    const KernelResult result = problem.call().run();
    ASSERT_EQ(result.error, "");
    for (int64_t i = 0; i < c.valueWidth; ++i)
      EXPECT_EQ(result.outputs[0].get(i), 0.0);
    expectByDefinition(c);
  }
}

/// One element of past_length stands for the whole batch; one per batch row is the same.
TEST(InPlaceKvSdpa, OneLengthIsTheSameAsEqualLengths) {
  AttentionCase one;
  one.batches = 3;
  one.rows = 2;
  one.past = {4};
  AttentionCase each = one;
  each.past = {4, 4, 4};
  const KernelResult a = AttentionProblem(one).call().run();
  const KernelResult b = AttentionProblem(each).call().run();
  ASSERT_EQ(a.error + b.error, "");
  for (unsigned i = 0; i < 3; ++i)
    EXPECT_TRUE(a.outputs[i].sameBytes(b.outputs[i]));
}

/// The rows of axis 2, as Concat does it, of two [B,G,·,W].
TestTensor concatRows(const TestTensor& a, const TestTensor& b) {
  const KernelResult result = KernelCall("Concat").in(a).in(b).attr("axis", 2).run();
  EXPECT_EQ(result.error, "");
  return result.outputs[0];
}

/// Rows [begin, end) of axis 2.
TestTensor rowsOf(const TestTensor& x, int64_t begin, int64_t end) {
  const KernelResult result = KernelCall("Slice")
                                  .in(x)
                                  .in(int64s({double(begin)}))
                                  .in(int64s({double(end)}))
                                  .in(int64s({2}))
                                  .run();
  EXPECT_EQ(result.error, "");
  return result.outputs[0];
}

struct StepCase {
  ElementType element;
  int64_t group, width, valueWidth;
  bool causal;
  int64_t window;
  float softcap;
};

/// Prefill, a chunk and decode steps over one buffer, against Concat and Sdpa over what grows.
void expectStepsLikeConcat(const StepCase& s) {
  const int64_t batches = 2, groups = 2, capacity = 32;
  TestTensor keys(s.element, {batches, groups, capacity, s.width});
  TestTensor values(s.element, {batches, groups, capacity, s.valueWidth});
  TestTensor grownKeys(s.element, {batches, groups, 0, s.width});
  TestTensor grownValues(s.element, {batches, groups, 0, s.valueWidth});
  int64_t past = 0;
  unsigned seed = 10;
  for (int64_t rows : {7, 5, 1, 1, 1, 3, 1}) {
    SCOPED_TRACE(formatted("{} rows after {}", rows, past));
    TestTensor query = randomTensor(s.element, {batches, groups * s.group, rows, s.width}, seed++);
    TestTensor key = randomTensor(s.element, {batches, groups, rows, s.width}, seed++);
    TestTensor value = randomTensor(s.element, {batches, groups, rows, s.valueWidth}, seed++);
    auto options = [&](KernelCall call) {
      call.attr("scale", 0.4).attr("causal", s.causal ? 1 : 0).attr("softcap", double{s.softcap});
      call.attr("window", int(s.window));
      return call.run();
    };
    const TestTensor keysBefore = keys.clone();
    const TestTensor valuesBefore = values.clone();
    KernelCall step("ai.kvopt::InPlaceKvSdpa");
    step.in(query).in(key).in(value).in(keys, true).in(values, true);
    step.in(int64s({double(past)})).results(3);
    const KernelResult inPlace = options(std::move(step));
    grownKeys = concatRows(grownKeys, key);
    grownValues = concatRows(grownValues, value);
    KernelCall whole("ai.kvopt::Sdpa");
    whole.in(query).in(grownKeys).in(grownValues);
    const KernelResult grown = options(std::move(whole));
    ASSERT_EQ(inPlace.error + grown.error, "");

    EXPECT_TRUE(inPlace.outputs[0].sameBytes(grown.outputs[0]));
    EXPECT_EQ(inPlace.outputs[1].data(), keys.data());
    EXPECT_EQ(inPlace.outputs[2].data(), values.data());
    EXPECT_TRUE(rowsOf(keys, 0, past + rows).sameBytes(grownKeys));
    EXPECT_TRUE(rowsOf(values, 0, past + rows).sameBytes(grownValues));
    EXPECT_TRUE(
        rowsOf(keys, past + rows, capacity).sameBytes(rowsOf(keysBefore, past + rows, capacity)));
    EXPECT_TRUE(rowsOf(values, past + rows, capacity)
                    .sameBytes(rowsOf(valuesBefore, past + rows, capacity)));
    EXPECT_EQ(inPlace.cacheBytesWritten,
              batches * groups * rows * (s.width + s.valueWidth) * int64_t{*byteWidth(s.element)});
    past += rows;
  }
}

TEST(InPlaceKvSdpa, StepsEqualConcatAndSdpaBitForBit) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (int64_t group : {1, 2, 4, 7})
      for (bool causal : {true, false}) {
        SCOPED_TRACE(formatted("{} group {}", onnxName(element).str(), group));
        expectStepsLikeConcat({element, group, 16, 16, causal, 0, 0});
        expectStepsLikeConcat({element, group, 24, 10, causal, 5, 2.0f});
      }
}

/// The bytes of a cache that lie outside of the new rows.
void expectOnlyNewRowsChanged(const AttentionProblem& p, const TestTensor& before,
                              const TestTensor& after, int64_t width, bool transposed) {
  const int64_t bytes = *byteWidth(p.c.element);
  for (int64_t batch = 0; batch < p.c.batches; ++batch)
    for (int64_t head = 0; head < p.c.kvHeads; ++head)
      for (int64_t row = 0; row < p.c.capacity; ++row) {
        const int64_t past = p.c.pastOf(batch);
        if (row >= past && row < past + p.c.rows)
          continue;
        for (int64_t column = 0; column < width; ++column) {
          const int64_t at = p.at(batch, head, row, column, width, transposed) * bytes;
          ASSERT_EQ(std::memcmp(before.data() + at, after.data() + at, size_t(bytes)), 0)
              << "batch " << batch << " head " << head << " row " << row;
        }
      }
}

TEST(InPlaceKvSdpa, WritesTheNewRowsAndNothingElse) {
  for (bool transposed : {false, true}) {
    AttentionCase c;
    c.keyTransposed = transposed;
    c.batches = 3;
    c.kvHeads = 2;
    c.rows = 2;
    c.valueWidth = 6;
    c.past = {5, 0, 3};
    const AttentionProblem problem(c);
    const TestTensor key = problem.pastKey.clone();
    const TestTensor value = problem.pastValue.clone();
    const KernelResult result = problem.call(true).run();
    ASSERT_EQ(result.error, "");
    EXPECT_EQ(result.outputs[1].data(), problem.pastKey.data());
    EXPECT_EQ(result.outputs[2].data(), problem.pastValue.data());
    EXPECT_EQ(result.cacheBytesWritten, 3 * 2 * 2 * (8 + 6) * 4);
    expectOnlyNewRowsChanged(problem, key, problem.pastKey, c.width, transposed);
    expectOnlyNewRowsChanged(problem, value, problem.pastValue, c.valueWidth, false);
  }
}

TEST(InPlaceKvSdpa, WithoutPermissionThePastStays) {
  AttentionCase c;
  c.rows = 3;
  c.past = {4};
  const AttentionProblem problem(c);
  const TestTensor key = problem.pastKey.clone();
  const TestTensor value = problem.pastValue.clone();
  const KernelResult result = problem.call(false).run();
  ASSERT_EQ(result.error, "");
  EXPECT_NE(result.outputs[1].data(), problem.pastKey.data());
  EXPECT_NE(result.outputs[2].data(), problem.pastValue.data());
  EXPECT_TRUE(problem.pastKey.sameBytes(key));
  EXPECT_TRUE(problem.pastValue.sameBytes(value));
  EXPECT_TRUE(result.outputs[1].sameBytes(problem.presentKey));
  EXPECT_TRUE(result.outputs[2].sameBytes(problem.presentValue));
}

/// The output is the same when nobody reads the presents, and the past stays.
TEST(InPlaceKvSdpa, UnreadPresents) {
  AttentionCase c;
  c.rows = 3;
  c.past = {4};
  const AttentionProblem problem(c);
  const TestTensor key = problem.pastKey.clone();
  const KernelResult result = problem.call(false).unread(1).unread(2).run();
  const KernelResult read = problem.call(false).run();
  ASSERT_EQ(result.error + read.error, "");
  EXPECT_TRUE(result.outputs[0].sameBytes(read.outputs[0]));
  EXPECT_TRUE(problem.pastKey.sameBytes(key));
}

TEST(InPlaceKvSdpa, ExactlyFull) {
  AttentionCase c;
  c.rows = 3;
  c.past = {5};
  c.capacity = 8;
  c.causal = true;
  expectByDefinition(c);
  c.rows = 8;
  c.past = {0};
  expectByDefinition(c);
  c.rows = 0;
  c.past = {8};
  expectByDefinition(c);
}

TEST(InPlaceKvSdpa, EmptyExtents) {
  AttentionCase c;
  c.batches = 0;
  expectByDefinition(c);
  c.batches = 1;
  c.kvHeads = 0;
  expectByDefinition(c);
  c.kvHeads = 1;
  c.valueWidth = 0;
  c.past = {2};
  expectByDefinition(c);
}

/// Runs a problem that `damage` has made wrong; an error must name `text` and leave the caches.
template <class Damage> void expectRefused(const char* text, Damage damage) {
  SCOPED_TRACE(text);
  AttentionCase c;
  c.batches = 2;
  c.kvHeads = 2;
  c.group = 2;
  c.rows = 2;
  c.past = {3};
  AttentionProblem problem(c);
  damage(problem);
  const TestTensor key = problem.pastKey.clone();
  const TestTensor value = problem.pastValue.clone();
  const KernelResult result = problem.call(true).run();
  expectError(result, text);
  EXPECT_TRUE(problem.pastKey.sameBytes(key));
  EXPECT_TRUE(problem.pastValue.sameBytes(value));
  EXPECT_EQ(result.cacheBytesWritten, 0);
}

TestTensor random(Extents shape, ElementType element = ElementType::Float) {
  return randomTensor(element, std::move(shape), 99);
}

TEST(InPlaceKvSdpa, RefusesLengthsThatDoNotFit) {
  using P = AttentionProblem&;
  const char* exceeds = "exceed the capacity of 8 rows";
  expectRefused(exceeds, [](P p) { p.pastLength = int64s({7}); });
  expectRefused(exceeds, [](P p) { p.pastLength = int64s({9}); });
  expectRefused(exceeds, [](P p) { p.pastLength = int64s({-1}); });
  expectRefused(exceeds, [](P p) { p.pastLength = int64s({0, 7}); });
  expectRefused(exceeds, [](P p) { p.pastLength = int64s({3, -2}); });
  expectRefused("past length 9223372036854775807", [](P p) {
    const int64_t most = std::numeric_limits<int64_t>::max();
    p.pastLength = TestTensor(ElementType::Int64, {1});
    std::memcpy(p.pastLength.data(), &most, sizeof most);
  });
  const char* form = "past_length must be int64 of shape [1] or [batch]";
  expectRefused(form, [](P p) { p.pastLength = int64s({1, 1, 1}); });
  expectRefused(form, [](P p) { p.pastLength = int64s({2, 1}, {1, 1}); });
  expectRefused(form, [](P p) { p.pastLength = int64s({0}, {}); });
  expectRefused(form, [](P p) { p.pastLength = TestTensor(ElementType::Int32, {1}, {3}); });
}

TEST(InPlaceKvSdpa, RefusesOperandsThatDisagree) {
  using P = AttentionProblem&;
  const char* rows = "in number";
  expectRefused(rows, [](P p) { p.keyNew = random({2, 2, 3, 8}); });
  expectRefused(rows, [](P p) { p.valueNew = random({2, 2, 1, 8}); });
  expectRefused(rows, [](P p) { p.query = random({2, 4, 3, 8}); });
  expectRefused("keys are 6 wide, those of the cache 8", [](P p) {
    p.keyNew = random({2, 2, 2, 6});
  });
  expectRefused("values are 9 wide, those of the cache 8", [](P p) {
    p.valueNew = random({2, 2, 2, 9});
  });
  expectRefused("query width 4 and key width 8", [](P p) { p.query = random({2, 4, 2, 4}); });
  const char* heads = "differ in batch size or heads";
  expectRefused(heads, [](P p) { p.keyNew = random({2, 1, 2, 8}); });
  expectRefused(heads, [](P p) { p.valueNew = random({2, 3, 2, 8}); });
  expectRefused(heads, [](P p) { p.keyNew = random({1, 2, 2, 8}); });
  expectRefused("2 key heads and 1 value heads", [](P p) {
    p.valueNew = random({2, 1, 2, 8});
    p.pastValue = random({2, 1, 8, 8});
  });
  expectRefused("3 query heads are not a multiple", [](P p) { p.query = random({2, 3, 2, 8}); });
  expectRefused("batch sizes", [](P p) { p.query = random({1, 4, 2, 8}); });
  expectRefused("batch sizes", [](P p) {
    p.valueNew = random({1, 2, 2, 8});
    p.pastValue = random({1, 2, 8, 8});
  });
  expectRefused("8 key rows and 9 value rows", [](P p) { p.pastValue = random({2, 2, 9, 8}); });
  expectRefused("new rows of rank 3 and a cache of rank 4", [](P p) {
    p.keyNew = random({2, 2, 16});
  });
  expectRefused("new rows of rank 4 and a cache of rank 5", [](P p) {
    p.pastValue = random({2, 2, 8, 8, 1});
  });
}

TEST(InPlaceKvSdpa, RefusesElementTypes) {
  using P = AttentionProblem&;
  expectRefused("new rows and cache of the keys have element types float16 and float", [](P p) {
    p.keyNew = random({2, 2, 2, 8}, ElementType::Float16);
  });
  expectRefused("new rows and cache of the values have element types float and bfloat16", [](P p) {
    p.pastValue = random({2, 2, 8, 8}, ElementType::BFloat16);
  });
  expectRefused("element types float, float and float16 of query, key and value", [](P p) {
    p.valueNew = random({2, 2, 2, 8}, ElementType::Float16);
    p.pastValue = random({2, 2, 8, 8}, ElementType::Float16);
  });
  expectRefused("element types double, float and float", [](P p) {
    p.query = random({2, 4, 2, 8}, ElementType::Double);
  });
}

TEST(InPlaceKvSdpa, RefusesMasks) {
  using P = AttentionProblem&;
  auto additive = [](P p, TestTensor mask) {
    p.c.mask = MaskForm::additive;
    p.mask = std::move(mask);
  };
  expectRefused("mask_boolean does not agree", [&](P p) { additive(p, bools({1, 1, 1, 1}, {1})); });
  expectRefused("mask_boolean does not agree", [&](P p) {
    p.c.mask = MaskForm::boolean;
    p.mask = floats({1, 1, 1, 1}, {0});
  });
  expectRefused("extent 4 on axis 3", [&](P p) { additive(p, random({1, 1, 2, 4})); });
  // The mask covers the valid rows, not the capacity.
  expectRefused("extent 8 on axis 3", [&](P p) { additive(p, random({1, 1, 2, 8})); });
  expectRefused("extent 3 on axis 2", [&](P p) { additive(p, random({3, 1})); });
  expectRefused("extent 2 on axis 1", [&](P p) { additive(p, random({2, 2, 1, 5})); });
  expectRefused("rank 5", [&](P p) { additive(p, random({1, 1, 1, 1, 1})); });
  expectRefused("element type int64", [&](P p) { additive(p, int64s({0})); });
  expectRefused("sinks must be one float per query head", [&](P p) {
    p.c.sinks = true;
    p.sinks = random({2});
  });
}

TEST(InPlaceKvSdpa, RefusesAxesItDoesNotKnow) {
  AttentionProblem problem{AttentionCase()};
  const TestTensor key = problem.pastKey.clone();
  expectError(problem.call().attr("value_axis", 3).run(),
              "values with the sequence on the last axis");
  expectError(problem.call().attr("key_axis", 1).run(), "differ in batch size or heads");
  expectError(problem.call().attr("key_axis", 4).run(), "key_axis 4");
  expectError(problem.call().attr("window", -1).run(), "a window of -1 rows");
  EXPECT_TRUE(problem.pastKey.sameBytes(key));
}

} // namespace
} // namespace kvopt
