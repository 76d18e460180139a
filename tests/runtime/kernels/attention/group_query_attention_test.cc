// com.microsoft::GroupQueryAttention against plain loops.
#include "tests/runtime/kernels/plain_attention.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

struct GroupedCase {
  int64_t heads = 4, groups = 2, rows = 1, width = 8;
  std::vector<int64_t> past = {3, 5}; ///< valid rows, by batch row; of a prompt, all 0
  int64_t capacity = 5;               ///< rows of the past operands; -1: they are absent
  ElementType element = ElementType::Float;
  int64_t rotary = 0; ///< rotated elements
  bool interleaved = false;
  bool positionIds = false;
  int window = -1;
  double softcap = 0, scale = 0;
  bool smooth = false, sinks = false, bias = false, causal = true;
  std::vector<int64_t> padding; ///< of a prompt: padded rows at the end, by batch row

  int64_t batches() const { return int64_t(past.size()); }
  int64_t longest() const { return rows + *std::max_element(past.begin(), past.end()); }
  int64_t presentRows() const { return std::max(capacity, longest()); }
};

class GroupedProblem {
public:
  explicit GroupedProblem(const GroupedCase& given) : c(given) {
    query = randomTensor(c.element, {c.batches(), c.rows, c.heads * c.width}, 1);
    key = randomTensor(c.element, {c.batches(), c.rows, c.groups * c.width}, 2);
    value = randomTensor(c.element, {c.batches(), c.rows, c.groups * c.width}, 3);
    if (c.capacity >= 0) {
      pastKey = poisoned(4);
      pastValue = poisoned(5);
    }
    sinks = randomTensor(c.element, {c.heads}, 6);
    bias = randomTensor(c.element, {c.batches(), 1, c.rows, c.longest()}, 7);
    cosine = TestTensor(ElementType::Float, {40, c.rotary / 2});
    sine = TestTensor(ElementType::Float, {40, c.rotary / 2});
    for (int64_t i = 0; i < cosine.count(); ++i) {
      cosine.set(i, std::cos(double(i)));
      sine.set(i, std::sin(double(i)));
    }
    solve();
  }
  GroupedProblem(const GroupedProblem&) = delete;

  KernelCall call(bool packed = false) const {
    KernelCall result("com.microsoft::GroupQueryAttention");
    packed ? result.in(packedOperand()).absent().absent() : result.in(query).in(key).in(value);
    c.capacity >= 0 ? result.in(pastKey).in(pastValue) : result.absent().absent();
    TestTensor lengths(ElementType::Int32, {c.batches()});
    for (int64_t b = 0; b < c.batches(); ++b)
      lengths.set(b, double(c.past[size_t(b)] + c.rows - paddingOf(b) - 1));
    result.in(lengths).in(TestTensor(ElementType::Int32, {}, {double(c.longest())}));
    c.rotary != 0 ? result.in(cosine).in(sine) : result.absent().absent();
    c.positionIds ? result.in(positions) : result.absent();
    c.bias ? result.in(bias) : result.absent();
    c.sinks ? result.in(sinks) : result.absent();
    result.attr("num_heads", int(c.heads)).attr("kv_num_heads", int(c.groups));
    result.attr("do_rotary", c.rotary != 0 ? 1 : 0);
    result.attr("rotary_interleaved", c.interleaved ? 1 : 0);
    result.attr("local_window_size", c.window).attr("softcap", c.softcap);
    result.attr("scale", c.scale).attr("smooth_softmax", c.smooth ? 1 : 0);
    if (!c.causal)
      result.attr("causal", 0);
    result.results(3);
    return result;
  }

  void expectAll(const KernelResult& result) const {
    ASSERT_EQ(result.error, "");
    const double tolerance = attentionTolerance(c.element);
    const Extents present{c.batches(), c.groups, c.presentRows(), c.width};
    expectTensor(result, present, presentKey, c.rotary == 0 ? 0 : tolerance, 1);
    expectTensor(result, present, presentValue, 0, 2);
    // Padded rows may hold anything.
    std::vector<double> expected = plain.merged();
    for (int64_t b = 0; b < c.batches(); ++b)
      for (int64_t row = c.rows - paddingOf(b); row < c.rows; ++row)
        for (int64_t i = 0; i < c.heads * c.width; ++i) {
          const int64_t at = (b * c.rows + row) * c.heads * c.width + i;
          expected[size_t(at)] = result.outputs[0].get(at);
        }
    expectTensor(result, {c.batches(), c.rows, c.heads * c.width}, expected, tolerance);
  }

  /// Another layer, whose key and value have no rows, sees the present as this one does.
  void expectSharedGivesTheSame() const {
    const KernelResult own = call().run();
    ASSERT_EQ(own.error, "");
    const TestTensor noRows(c.element, {c.batches(), 0, c.groups * c.width});
    KernelCall shared = call();
    shared.replace(1, noRows).replace(2, noRows);
    shared.replace(3, own.outputs[1]).replace(4, own.outputs[2]);
    const KernelResult result = shared.run();
    ASSERT_EQ(result.error, "");
    EXPECT_TRUE(result.outputs[0].sameBytes(own.outputs[0]));
    EXPECT_TRUE(result.outputs[1].sameBytes(own.outputs[1]));
    EXPECT_TRUE(result.outputs[2].sameBytes(own.outputs[2]));
    EXPECT_TRUE(shared.unread(1).unread(2).run().outputs[0].sameBytes(own.outputs[0]));
  }

  /// With pasts that may be overwritten: nothing but the new rows is written, where they belong.
  void expectInPlace() const {
    const TestTensor buffers[] = {pastKey.clone(), pastValue.clone()};
    KernelCall inPlace = call();
    inPlace.overwrite(3, buffers[0]).overwrite(4, buffers[1]);
    const KernelResult result = inPlace.run();
    ASSERT_EQ(result.error, "");
    EXPECT_TRUE(result.outputs[0].sameBytes(call().run().outputs[0]));
    EXPECT_EQ(result.cacheBytesWritten, int64_t(key.bytes() + value.bytes()));
    for (unsigned i : {0u, 1u}) {
      EXPECT_EQ(result.outputs[i + 1].data(), buffers[i].data());
      const TestTensor& before = i == 0 ? pastKey : pastValue;
      const std::vector<double>& present = i == 0 ? presentKey : presentValue;
      const double tolerance = i == 0 && c.rotary != 0 ? attentionTolerance(c.element) : 0;
      for (int64_t at = 0; at < before.count(); ++at) {
        const int64_t row = at / c.width % c.capacity;
        const int64_t first = c.past[size_t(at / c.width / c.capacity / c.groups)];
        const bool isNew = row >= first && row < first + c.rows;
        const double expected = isNew ? present[size_t(at)] : before.get(at);
        const double found = buffers[i].get(at);
        EXPECT_TRUE(std::abs(found - expected) <= tolerance ||
                    (std::isnan(found) && std::isnan(expected)))
            << "result " << i + 1 << ", element " << at;
      }
    }
  }

  const GroupedCase c;

private:
  int64_t paddingOf(int64_t b) const { return c.padding.empty() ? 0 : c.padding[size_t(b)]; }

  /// A past whose rows beyond the valid ones are NaN.
  TestTensor poisoned(unsigned seed) const {
    TestTensor past = randomTensor(c.element, {c.batches(), c.groups, c.capacity, c.width}, seed);
    for (int64_t i = 0; i < past.count(); ++i)
      if (i / c.width % c.capacity >= c.past[size_t(i / c.width / c.capacity / c.groups)])
        past.set(i, std::numeric_limits<double>::quiet_NaN());
    return past;
  }

  TestTensor packedOperand() const {
    TestTensor packed(c.element, {c.batches(), c.rows, (c.heads + 2 * c.groups) * c.width});
    int64_t to = 0;
    for (int64_t token = 0; token < c.batches() * c.rows; ++token)
      for (const TestTensor* part : {&query, &key, &value})
        for (int64_t i = 0, width = part->shape()[2]; i < width; ++i)
          packed.set(to++, part->get(token * width + i));
    return packed;
  }

  static int64_t positionId(int64_t b, int64_t row) { return 7 + 3 * row + b; }

  int64_t positionOf(int64_t b, int64_t row) const {
    if (!c.positionIds)
      return c.past[size_t(b)] + row;
    // A prompt has the first number only.
    return c.longest() == c.rows ? positionId(0, 0) + row : positionId(b, row);
  }

  std::vector<double> rotated(std::vector<double> x, int64_t heads) const {
    const int64_t half = c.rotary / 2;
    for (int64_t line = 0; line < c.batches() * heads * c.rows; ++line) {
      const int64_t b = line / c.rows / heads;
      const int64_t position = positionOf(b, line % c.rows);
      for (int64_t i = 0; i < half; ++i) {
        const double angle = double(position * half + i);
        double& first = x[size_t(line * c.width + (c.interleaved ? 2 * i : i))];
        double& second = x[size_t(line * c.width + (c.interleaved ? 2 * i + 1 : half + i))];
        const double a = first;
        first = std::cos(angle) * a - std::sin(angle) * second;
        second = std::sin(angle) * a + std::cos(angle) * second;
      }
    }
    return x;
  }

  /// Past rows, new rows, zeros.
  std::vector<double> presentOf(const TestTensor& past, const std::vector<double>& fresh) const {
    std::vector<double> present;
    for (int64_t b = 0; b < c.batches(); ++b)
      for (int64_t g = 0; g < c.groups; ++g)
        for (int64_t row = 0; row < c.presentRows(); ++row)
          for (int64_t d = 0; d < c.width; ++d) {
            const int64_t valid = c.past[size_t(b)];
            const int64_t plane = b * c.groups + g;
            present.push_back(row < valid ? past.get((plane * c.capacity + row) * c.width + d)
                              : row < valid + c.rows
                                  ? fresh[size_t((plane * c.rows + row - valid) * c.width + d)]
                                  : 0);
          }
    return present;
  }

  void solve() {
    positions = TestTensor(ElementType::Int64, {c.batches(), c.rows});
    for (int64_t i = 0; i < positions.count(); ++i)
      positions.set(i, double(positionId(i / c.rows, i % c.rows)));
    presentKey = presentOf(pastKey, rotated(splitHeadsOf(key, c.groups), c.groups));
    presentValue = presentOf(pastValue, splitHeadsOf(value, c.groups));
    plain.batches = c.batches();
    plain.heads = c.heads;
    plain.groups = c.groups;
    plain.rows = c.rows;
    plain.keys = c.presentRows();
    plain.width = plain.valueWidth = c.width;
    plain.query = rotated(splitHeadsOf(query, c.heads), c.heads);
    plain.key = presentKey;
    plain.value = presentValue;
    plain.scale = c.scale == 0 ? 1 / std::sqrt(double(c.width)) : c.scale;
    plain.softcap = c.softcap;
    if (c.smooth)
      plain.sinks.assign(size_t(c.heads), 0.0);
    if (c.sinks)
      plain.sinks = sinks.values();
    plain.bias = [this](int64_t b, int64_t, int64_t i, int64_t j) {
      const int64_t own = c.past[size_t(b)] + (c.causal ? i : c.rows - paddingOf(b) - 1);
      if (j > own || (c.window > 0 && own - j >= c.window))
        return minusInfinity;
      return c.bias ? bias.get((b * c.rows + i) * c.longest() + j) : 0.0;
    };
  }

  TestTensor query, key, value, pastKey, pastValue, sinks, bias, cosine, sine, positions;
  std::vector<double> presentKey, presentValue;
  PlainAttention plain;
};

void expectAgreement(const GroupedCase& c) {
  const GroupedProblem problem(c);
  const KernelResult separate = problem.call().threads(2).run();
  problem.expectAll(separate);
  const KernelResult packed = problem.call(true).run();
  ASSERT_EQ(packed.error, "");
  for (unsigned i = 0; i < 3; ++i)
    EXPECT_TRUE(separate.outputs[i].sameBytes(packed.outputs[i])) << "packed, result " << i;
}

/// Every option on its own and with rotation, for prompts, chunks and single tokens.
TEST(GroupQueryAttention, Options) {
  struct Shape {
    const char* name;
    int64_t rows;
    std::vector<int64_t> past;
    int64_t capacity;
  };
  for (const Shape& shape :
       {Shape{"prompt without past", 5, {0, 0}, -1}, Shape{"prompt, empty past", 5, {0, 0}, 0},
        Shape{"prompt into a buffer", 5, {0, 0}, 9}, Shape{"ragged token", 1, {3, 5}, 5},
        Shape{"ragged token in a buffer", 1, {3, 5}, 11}, Shape{"chunk", 3, {4, 4}, 4},
        Shape{"ragged chunk in a buffer", 3, {6, 2}, 12}, Shape{"long", 2, {70, 67}, 80}}) {
    GroupedCase plain;
    plain.rows = shape.rows;
    plain.past = shape.past;
    plain.capacity = shape.capacity;
    std::vector<GroupedCase> cases(10, plain);
    cases[1].window = 2;
    cases[2].softcap = 0.7;
    cases[3].scale = 0.3;
    cases[4].smooth = true;
    cases[5].sinks = true;
    cases[6].bias = true;
    cases[7].window = 3;
    cases[7].softcap = 0.5;
    cases[7].bias = cases[7].sinks = true;
    cases[8].groups = 1;
    cases[9].groups = cases[9].heads = 3;
    cases[9].width = 10;
    for (size_t i = 0; i < cases.size(); ++i) {
      SCOPED_TRACE(formatted("{}, case {}", shape.name, i));
      expectAgreement(cases[i]);
      if (shape.capacity < 40) {
        cases[i].rotary = i % 2 == 0 ? cases[i].width : 4;
        cases[i].interleaved = i % 3 == 0;
        cases[i].positionIds = i % 4 == 1;
        expectAgreement(cases[i]);
      }
    }
  }
}

TEST(GroupQueryAttention, HalfPrecision) {
  for (ElementType element : {ElementType::Float16, ElementType::BFloat16}) {
    GroupedCase c;
    c.element = element;
    c.sinks = c.bias = true;
    expectAgreement(c);
    c.rotary = 8;
    expectAgreement(c);
    c.past = {0, 0};
    c.rows = 6;
    expectAgreement(c);
  }
}

TEST(GroupQueryAttention, PromptPaddedOnTheRight) {
  GroupedCase c;
  c.rows = 6;
  c.past = {0, 0};
  c.padding = {2, 0};
  c.capacity = -1;
  c.rotary = 8;
  expectAgreement(c);
}

/// Every row sees every valid key of its batch row, and none of the padding.
TEST(GroupQueryAttention, NotCausal) {
  GroupedCase c;
  c.causal = false;
  c.rows = 6;
  c.past = {0, 0};
  c.padding = {2, 1};
  c.capacity = -1;
  c.rotary = 8;
  expectAgreement(c);
  c.bias = c.sinks = true;
  expectAgreement(c);
  c.padding.clear();
  c.past = {6, 3};
  c.capacity = 12;
  expectAgreement(c);
}

/// ONNX Runtime reads flags other than 1, and caps and windows below 0, as off; its optimizer
/// writes smooth_softmax = -1.
TEST(GroupQueryAttention, SentinelsAreOff) {
  GroupedCase c;
  c.rows = 3;
  c.past = {4, 4};
  const GroupedProblem problem(c);
  const KernelResult plain = problem.call().run();
  ASSERT_EQ(plain.error, "");
  for (const char* flag : {"smooth_softmax", "do_rotary", "rotary_interleaved"})
    for (int value : {-1, 2}) {
      SCOPED_TRACE(formatted("{} = {}", flag, value));
      const KernelResult result = problem.call().attr(flag, value).run();
      ASSERT_EQ(result.error, "");
      EXPECT_TRUE(result.outputs[0].sameBytes(plain.outputs[0]));
    }
  for (double cap : {-1.0, -0.0, -50.0})
    EXPECT_TRUE(problem.call().attr("softcap", cap).run().outputs[0].sameBytes(plain.outputs[0]));
  EXPECT_TRUE(
      problem.call().attr("local_window_size", -2).run().outputs[0].sameBytes(plain.outputs[0]));
}

/// The weights act as if query and key had been normalized before, head by head.
TEST(GroupQueryAttention, NormalizesHeads) {
  for (ElementType element : {ElementType::Float, ElementType::Float16}) {
    const int64_t heads[] = {4, 2}, width = 8;
    TestTensor rows[2], expected[2], weights[2];
    for (unsigned part : {0u, 1u}) {
      rows[part] = randomTensor(element, {2, 3, heads[part] * width}, part, 2.0);
      weights[part] = randomTensor(element, {width}, 7 + part);
      expected[part] = TestTensor(element, rows[part].shape());
      for (int64_t head = 0; head < rows[part].count() / width; ++head) {
        double squares = 0;
        for (int64_t d = 0; d < width; ++d)
          squares += std::pow(rows[part].get(head * width + d), 2);
        const double root = std::sqrt(squares / double(width) + 0.25);
        for (int64_t d = 0; d < width; ++d)
          expected[part].set(head * width + d,
                             rows[part].get(head * width + d) / root * weights[part].get(d));
      }
    }
    const TestTensor value = randomTensor(element, {2, 3, 16}, 5);
    const TestTensor table = randomTensor(ElementType::Float, {9, 4}, 6);
    auto call = [&](const TestTensor& query, const TestTensor& key) {
      KernelCall result("com.microsoft::GroupQueryAttention");
      result.in(query).in(key).in(value).absent().absent();
      result.in(TestTensor(ElementType::Int32, {2}, {2, 2}));
      result.in(TestTensor(ElementType::Int32, {}, {3})).in(table).in(table);
      result.attr("num_heads", 4).attr("kv_num_heads", 2).attr("do_rotary", 1).results(3);
      return result;
    };
    KernelCall inside = call(rows[0], rows[1]);
    for (int i = 9; i < 14; ++i)
      inside.absent();
    inside.in(weights[0]).in(weights[1]).attr("qk_norm_epsilon", 0.25);
    const KernelResult before = call(expected[0], expected[1]).run();
    ASSERT_EQ(before.error, "");
    const KernelResult result = inside.run();
    for (unsigned i : {0u, 1u, 2u})
      expectTensor(result, before.outputs[i].shape(), before.outputs[i].values(),
                   2 * attentionTolerance(element), i);
  }
}

TEST(GroupQueryAttention, SharesTheCacheOfAnotherLayer) {
  for (const int64_t rotary : {0, 8})
    for (const int64_t rows : {1, 3}) {
      SCOPED_TRACE(formatted("rotary {} rows {}", rotary, rows));
      GroupedCase decode;
      decode.rows = rows;
      decode.capacity = 9;
      decode.rotary = rotary;
      decode.bias = rows == 3;
      GroupedProblem(decode).expectSharedGivesTheSame();
      GroupedCase prompt = decode;
      prompt.past = {0, 0};
      prompt.window = 2;
      GroupedProblem(prompt).expectSharedGivesTheSame();
    }
}

TEST(GroupQueryAttention, WritesNewRowsOnlyWhereThePastMayBeOverwritten) {
  for (int64_t rotary : {0, 8})
    for (int64_t rows : {1, 3}) {
      GroupedCase c;
      c.rows = rows;
      c.rotary = rotary;
      c.capacity = 12;
      GroupedProblem(c).expectInPlace();
      c.past = {0, 0};
      GroupedProblem(c).expectInPlace();
    }
}

TEST(GroupQueryAttention, PresentsThatNobodyReads) {
  const GroupedProblem problem{GroupedCase()};
  const KernelResult all = problem.call().run();
  const KernelResult one = problem.call().unread(1).unread(2).run();
  ASSERT_EQ(all.error + one.error, "");
  EXPECT_TRUE(all.outputs[0].sameBytes(one.outputs[0]));
}

TEST(GroupQueryAttention, ASlidingCacheHoldsTheLastRows) {
  constexpr int64_t capacity = 4;
  TestTensor whole(ElementType::Float, {1, 1, 0, 8});
  TestTensor last = randomTensor(ElementType::Float, {1, 1, capacity, 8}, 9);
  int64_t total = 0;
  // The first prompt is longer than the cache.
  for (const int64_t rows : {6, 1, 1, 2, 1}) {
    total += rows;
    const auto seed = static_cast<uint32_t>(total);
    const TestTensor query = randomTensor(ElementType::Float, {1, rows, 16}, seed);
    const TestTensor key = randomTensor(ElementType::Float, {1, rows, 8}, 100 + seed);
    const auto call = [&](const TestTensor& past) {
      KernelCall result("com.microsoft::GroupQueryAttention");
      result.in(query).in(key).in(key).in(past).in(past);
      result.in(TestTensor(ElementType::Int32, {1}, {double(total - 1)}));
      result.in(TestTensor(ElementType::Int32, {1}, {double(total)}));
      result.results(3).attr("num_heads", 2).attr("kv_num_heads", 1).attr("local_window_size", 3);
      return result;
    };
    const KernelResult all = call(whole).run();
    const KernelResult sliding = call(last).attr("sliding_window_cache", 1).run();
    ASSERT_EQ(all.error + sliding.error, "");
    expectTensor(sliding, {1, rows, 16}, all.outputs[0].values(),
                 attentionTolerance(ElementType::Float));
    const int64_t kept = std::min(total, capacity);
    for (unsigned side : {1u, 2u}) {
      ASSERT_EQ(sliding.outputs[side].count(), capacity * 8);
      for (int64_t i = 0; i < kept * 8; ++i)
        EXPECT_EQ(sliding.outputs[side].get(i), all.outputs[side].get((total - kept) * 8 + i));
    }
    whole = all.outputs[1].clone();
    last = sliding.outputs[1].clone();
  }
}

TEST(GroupQueryAttention, Refuses) {
  const TestTensor query = randomTensor(ElementType::Float, {1, 2, 16}, 1);
  const TestTensor key = randomTensor(ElementType::Float, {1, 2, 8}, 2);
  const TestTensor past = randomTensor(ElementType::Float, {1, 1, 3, 8}, 3);
  auto call = [&](double lessOne, double total) {
    KernelCall result("com.microsoft::GroupQueryAttention");
    result.in(query).in(key).in(key).in(past).in(past);
    result.in(TestTensor(ElementType::Int32, {1}, {lessOne}));
    result.in(TestTensor(ElementType::Int32, {1}, {total}));
    result.results(3).attr("num_heads", 2).attr("kv_num_heads", 1);
    return result;
  };
  EXPECT_TRUE(call(4, 5).run().ok());
  expectError(call(5, 6).run(), "a past length of 4 and a past of 3 rows");
  expectError(call(5, 5).run(), "does not fit total_sequence_length");
  expectError(call(-1, 5).run(), "does not fit total_sequence_length");
  expectError(call(0, 5).run(), "leaves no past");
  expectError(call(0, 1).run(), "less than 2 new rows");
  expectError(call(4, 5).attr("do_rotary", 1).run(), "cos_cache");
  expectError(call(4, 5).attr("kv_num_heads", 3).run(), "not a positive multiple");
  expectError(call(4, 5).attr("num_heads", 0).run(), "not a positive multiple");
  expectError(call(4, 5).attr("kv_cache_bit_width", 8).run(), "kv_cache_bit_width 8");
  expectError(call(4, 5).attr("causal", 2).run(), "causal 2");
  expectError(call(4, 5).attr("causal", 0).attr("local_window_size", 2).run(),
              "local_window_size 2 without causal");
  expectError(call(4, 5).attr("local_window_size", 0).run(), "local_window_size of 0");
  expectError(call(5, 6).attr("sliding_window_cache", 1).run(), "sliding_window_cache");
  KernelCall halfNormalized = call(4, 5);
  for (int i = 7; i < 14; ++i)
    halfNormalized.absent();
  halfNormalized.in(past.reshaped({24}));
  expectError(halfNormalized.run(), "without one for the key");
  halfNormalized.in(past.reshaped({24}));
  expectError(halfNormalized.run(), "operand 14 must be [8]");
  expectError(call(4, 5).results(4).run(), "output_qk");
  EXPECT_FALSE(call(4, 1e9).run().ok()); // more memory than there is
}

} // namespace
} // namespace kvopt
