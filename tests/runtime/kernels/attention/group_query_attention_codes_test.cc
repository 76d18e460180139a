// com.microsoft::GroupQueryAttention with caches of codes, against plain loops over what the codes
// stand for.
#include "tests/runtime/kernels/plain_attention.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

struct CodesCase {
  int bits = 8;
  bool keyChannels = false, valueChannels = false; ///< PER_CHANNEL
  int64_t heads = 4, groups = 2, rows = 1, width = 16;
  std::vector<int64_t> past = {3, 5}; ///< valid rows, by batch row; of a prompt, all 0
  int64_t capacity = 5;               ///< rows of the past operands
  ElementType element = ElementType::Float;
  bool rotates = false;
  int window = -1;
  double softcap = 0;
  bool sinks = false, bias = false;
  std::vector<int64_t> padding; ///< of a prompt: padded rows at the end, by batch row

  int64_t batches() const { return int64_t(past.size()); }
  int64_t longest() const { return rows + *std::max_element(past.begin(), past.end()); }
  int64_t presentRows() const { return std::max(capacity, longest()); }
  int64_t rowBytes() const { return bits == 8 ? width : (width + 1) / 2; }
  ElementType codeElement() const { return bits == 8 ? ElementType::Int8 : ElementType::UInt8; }
  double lowest() const { return bits == 8 ? -128 : -8; }
  double largest() const { return bits == 8 ? 127 : 7; }
};

/// The code of a column in a cache [B,G,C,bytes], of which `row` counts the rows.
double codeAt(const CodesCase& c, const TestTensor& codes, int64_t row, int64_t column) {
  if (c.bits == 8)
    return codes.get(row * c.width + column);
  const int byte = int(codes.get(row * c.rowBytes() + column / 2));
  return double(column % 2 == 0 ? byte & 15 : byte >> 4) - 8;
}

/// One of the caches: its scales, what it holds before, and the rows that are new.
struct CodesCache {
  CodesCache(const CodesCase& c, bool perChannel, unsigned seed)
      : channels(perChannel), scales(ElementType::Float, {perChannel ? c.groups * c.width : 1}),
        fresh(randomTensor(c.element, {c.batches(), c.rows, c.groups * c.width}, seed)),
        past(c.codeElement(), {c.batches(), c.groups, c.capacity, c.rowBytes()}) {
    const TestTensor factors = randomTensor(ElementType::Float, scales.shape(), seed + 1);
    for (int64_t i = 0; i < scales.count(); ++i)
      scales.set(i, (1 + 0.5 * factors.get(i)) / c.largest());
    if (perChannel) {
      scales.set(1, 0);
      scales.set(2, -scales.get(2));
      scales.set(3, scales.get(3) / 4); // rows that reach the largest codes
    }
    for (int64_t i = 0; i < past.count(); ++i)
      past.set(i, double(int(i * 37 + seed) % (c.bits == 8 ? 256 : 255)) - (c.bits == 8 ? 128 : 0));
  }

  double scaleOf(const CodesCase& c, int64_t group, int64_t column) const {
    return scales.get(channels ? group * c.width + column : 0);
  }

  bool channels;
  TestTensor scales, fresh, past;
};

class CodesProblem {
public:
  explicit CodesProblem(const CodesCase& given)
      : c(given), key(c, c.keyChannels, 2), value(c, c.valueChannels, 4),
        query(randomTensor(c.element, {c.batches(), c.rows, c.heads * c.width}, 1)),
        sinks(randomTensor(c.element, {c.heads}, 6)),
        bias(randomTensor(c.element, {c.batches(), 1, c.rows, c.longest()}, 7)),
        cosine(ElementType::Float, {40, c.width / 2}), sine(ElementType::Float, {40, c.width / 2}) {
    for (int64_t i = 0; i < cosine.count(); ++i) {
      cosine.set(i, std::cos(double(i)));
      sine.set(i, std::sin(double(i)));
    }
  }
  CodesProblem(const CodesProblem&) = delete;

  KernelCall call() const {
    KernelCall result("com.microsoft::GroupQueryAttention");
    result.in(query).in(key.fresh).in(value.fresh).in(key.past).in(value.past);
    TestTensor lengths(ElementType::Int32, {c.batches()});
    for (int64_t b = 0; b < c.batches(); ++b)
      lengths.set(b, double(c.past[size_t(b)] + c.rows - paddingOf(b) - 1));
    result.in(lengths).in(TestTensor(ElementType::Int32, {}, {double(c.longest())}));
    c.rotates ? result.in(cosine).in(sine) : result.absent().absent();
    result.absent();
    c.bias ? result.in(bias) : result.absent();
    c.sinks ? result.in(sinks) : result.absent();
    result.in(key.scales).in(value.scales);
    result.attr("num_heads", int(c.heads)).attr("kv_num_heads", int(c.groups));
    result.attr("do_rotary", c.rotates ? 1 : 0).attr("local_window_size", c.window);
    result.attr("softcap", c.softcap).attr("kv_cache_bit_width", c.bits);
    result.attr("k_quant_type", c.keyChannels ? "PER_CHANNEL" : "PER_TENSOR");
    result.attr("v_quant_type", c.valueChannels ? "PER_CHANNEL" : "PER_TENSOR");
    result.results(3);
    return result;
  }

  /// Codes of the presents, and attention over what they stand for.
  void expectAll(const KernelResult& result, bool inPlace = false) const {
    ASSERT_EQ(result.error, "");
    expectCodes(key, rotated(splitHeadsOf(key.fresh, c.groups), c.groups), result.outputs[1],
                inPlace);
    expectCodes(value, splitHeadsOf(value.fresh, c.groups), result.outputs[2], inPlace);
    PlainAttention plain;
    plain.batches = c.batches();
    plain.heads = c.heads;
    plain.groups = c.groups;
    plain.rows = c.rows;
    plain.keys = c.presentRows();
    plain.width = plain.valueWidth = c.width;
    plain.query = rotated(splitHeadsOf(query, c.heads), c.heads);
    plain.key = numbersOf(key, result.outputs[1]);
    plain.value = numbersOf(value, result.outputs[2]);
    plain.scale = 1 / std::sqrt(double(c.width));
    plain.softcap = c.softcap;
    if (c.sinks)
      plain.sinks = sinks.values();
    plain.bias = [this](int64_t b, int64_t, int64_t i, int64_t j) {
      const int64_t own = c.past[size_t(b)] + i;
      if (j > own || (c.window > 0 && own - j >= c.window))
        return minusInfinity;
      return c.bias ? bias.get((b * c.rows + i) * c.longest() + j) : 0.0;
    };
    // Padded rows may hold anything.
    std::vector<double> expected = plain.merged();
    for (int64_t b = 0; b < c.batches(); ++b)
      for (int64_t row = c.rows - paddingOf(b); row < c.rows; ++row)
        for (int64_t i = 0; i < c.heads * c.width; ++i) {
          const int64_t at = (b * c.rows + row) * c.heads * c.width + i;
          expected[size_t(at)] = result.outputs[0].get(at);
        }
    expectTensor(result, {c.batches(), c.rows, c.heads * c.width}, expected,
                 attentionTolerance(c.element));
  }

  /// With pasts that may be overwritten: nothing but the new rows is written, where they belong.
  void expectInPlace() const {
    const TestTensor buffers[] = {key.past.clone(), value.past.clone()};
    KernelCall inPlace = call();
    inPlace.overwrite(3, buffers[0]).overwrite(4, buffers[1]);
    const KernelResult result = inPlace.run();
    expectAll(result, true);
    EXPECT_TRUE(result.outputs[0].sameBytes(call().run().outputs[0]));
    EXPECT_EQ(result.cacheBytesWritten, 2 * c.batches() * c.groups * c.rows * c.rowBytes());
    EXPECT_EQ(result.outputs[1].data(), buffers[0].data());
    EXPECT_EQ(result.outputs[2].data(), buffers[1].data());
  }

  const CodesCase c;

private:
  int64_t paddingOf(int64_t b) const { return c.padding.empty() ? 0 : c.padding[size_t(b)]; }

  std::vector<double> rotated(std::vector<double> x, int64_t heads) const {
    for (int64_t line = 0; c.rotates && line < c.batches() * heads * c.rows; ++line)
      for (int64_t i = 0; i < c.width / 2; ++i) {
        const int64_t position = c.past[size_t(line / c.rows / heads)] + line % c.rows;
        const double angle = double(position * (c.width / 2) + i);
        double& first = x[size_t(line * c.width + i)];
        double& second = x[size_t(line * c.width + c.width / 2 + i)];
        const double a = first;
        first = std::cos(angle) * a - std::sin(angle) * second;
        second = std::sin(angle) * a + std::cos(angle) * second;
      }
    return x;
  }

  /// What the cache holds is the past's bytes, the nearest codes of the new rows, and then zeros
  /// or, in place, the past's bytes.
  void expectCodes(const CodesCache& cache, const std::vector<double>& fresh,
                   const TestTensor& present, bool inPlace) const {
    ASSERT_EQ(present.shape(), (Extents{c.batches(), c.groups, c.presentRows(), c.rowBytes()}));
    const bool isExact = !c.rotates || &cache == &value;
    for (int64_t line = 0; line < c.batches() * c.groups * c.presentRows(); ++line) {
      const int64_t plane = line / c.presentRows(), row = line % c.presentRows();
      const int64_t valid = c.past[size_t(plane / c.groups)];
      const bool isNew = row >= valid && row < valid + c.rows;
      for (int64_t i = 0; !isNew && i < c.rowBytes(); ++i)
        ASSERT_EQ(present.get(line * c.rowBytes() + i),
                  row < valid || inPlace
                      ? cache.past.get((plane * c.capacity + row) * c.rowBytes() + i)
                      : 0)
            << "line " << line;
      for (int64_t d = 0; isNew && d < c.width; ++d) {
        const auto scale = float(cache.scaleOf(c, plane % c.groups, d));
        const auto number = fresh[size_t((plane * c.rows + row - valid) * c.width + d)];
        const float inverse = scale == 0 ? 1 : 1 / scale;
        const double exact = number * double(inverse);
        const double code = codeAt(c, present, line, d);
        if (isExact)
          ASSERT_EQ(code, std::clamp(double(std::nearbyint(float(number) * inverse)), c.lowest(),
                                     c.largest()))
              << "line " << line << " column " << d;
        else // rotated numbers are rounded themselves
          ASSERT_LE(std::abs(code - std::clamp(exact, c.lowest(), c.largest())),
                    0.5 + std::abs(exact) * attentionTolerance(c.element))
              << "line " << line << " column " << d;
      }
    }
  }

  std::vector<double> numbersOf(const CodesCache& cache, const TestTensor& present) const {
    std::vector<double> numbers;
    for (int64_t line = 0; line < c.batches() * c.groups * c.presentRows(); ++line)
      for (int64_t d = 0; d < c.width; ++d)
        numbers.push_back(codeAt(c, present, line, d) *
                          cache.scaleOf(c, line / c.presentRows() % c.groups, d));
    return numbers;
  }

  CodesCache key, value;
  TestTensor query, sinks, bias, cosine, sine;
};

/// Prompts, chunks and tokens with every option, for every kind of codes and scales.
TEST(GroupQueryAttentionCodes, Options) {
  struct Shape {
    const char* name;
    int64_t rows;
    std::vector<int64_t> past;
    int64_t capacity;
  };
  for (const Shape& shape :
       {Shape{"prompt, empty past", 5, {0, 0}, 0}, Shape{"prompt into a buffer", 5, {0, 0}, 9},
        Shape{"ragged token", 1, {3, 5}, 5}, Shape{"ragged token in a buffer", 1, {3, 5}, 11},
        Shape{"chunk", 3, {4, 4}, 4}, Shape{"ragged chunk in a buffer", 3, {6, 2}, 12},
        Shape{"long prompt", 70, {0, 0}, 80}, Shape{"long", 1, {170, 67}, 180}})
    for (const int bits : {8, 4})
      for (int channels = 0; channels < 4; ++channels) {
        CodesCase plain;
        plain.rows = shape.rows;
        plain.past = shape.past;
        plain.capacity = shape.capacity;
        plain.bits = bits;
        plain.keyChannels = channels & 1;
        plain.valueChannels = channels & 2;
        std::vector<CodesCase> cases(7, plain);
        cases[1].window = 2;
        cases[2].softcap = 0.7;
        cases[3].sinks = true;
        cases[4].bias = cases[4].sinks = true;
        cases[4].window = 3;
        cases[5].groups = 1;
        cases[6].groups = cases[6].heads = 3;
        cases[6].width = 40;
        for (size_t i = 0; i < cases.size(); ++i) {
          SCOPED_TRACE(
              formatted("{}, {} bits, channels {}, case {}", shape.name, bits, channels, i));
          const CodesProblem problem(cases[i]);
          problem.expectAll(problem.call().threads(2).run());
          if (shape.capacity < 40) {
            cases[i].rotates = true;
            const CodesProblem rotating(cases[i]);
            rotating.expectAll(rotating.call().run());
          }
        }
      }
}

TEST(GroupQueryAttentionCodes, OddWidth) {
  CodesCase c;
  c.bits = 4;
  c.width = 7;
  c.keyChannels = c.valueChannels = true;
  const CodesProblem problem(c);
  const KernelResult result = problem.call().run();
  problem.expectAll(result);
  // The byte that the width leaves half of has the code 0 there.
  EXPECT_EQ(int(result.outputs[1].get(3 * 4 + 3)) >> 4, 8);
}

TEST(GroupQueryAttentionCodes, HalfPrecision) {
  for (const ElementType element : {ElementType::Float16, ElementType::BFloat16})
    for (const int bits : {8, 4})
      for (const bool channels : {false, true}) {
        CodesCase c;
        c.element = element;
        c.bits = bits;
        c.keyChannels = c.valueChannels = channels;
        c.sinks = c.bias = true;
        const CodesProblem token(c);
        token.expectAll(token.call().run());
        c.past = {0, 0};
        c.rows = 6;
        const CodesProblem prompt(c);
        prompt.expectAll(prompt.call().run());
      }
}

TEST(GroupQueryAttentionCodes, PromptPaddedOnTheRight) {
  CodesCase c;
  c.rows = 6;
  c.past = {0, 0};
  c.padding = {2, 0};
  c.rotates = true;
  for (c.bits = 4; c.bits <= 8; c.bits += 4) {
    const CodesProblem problem(c);
    problem.expectAll(problem.call().run());
  }
}

TEST(GroupQueryAttentionCodes, WritesNewRowsOnlyWhereThePastMayBeOverwritten) {
  for (const int bits : {8, 4})
    for (const int64_t rows : {1, 3})
      for (const bool rotates : {false, true}) {
        CodesCase c;
        c.bits = bits;
        c.rows = rows;
        c.rotates = rotates;
        c.keyChannels = c.valueChannels = true;
        c.capacity = 12;
        CodesProblem(c).expectInPlace();
        c.past = {0, 0};
        CodesProblem(c).expectInPlace();
      }
}

/// Halves go to even codes, numbers beyond the codes to the nearest of them, and NaN to the
/// largest, as ONNX Runtime rounds.
TEST(GroupQueryAttentionCodes, Corners) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> numbers = {0.5,       1.5,        2.5,  -0.5, -1.5, std::nan(""),
                                       300,       -300,       8.5,  -8.5, 7.5,  infinity,
                                       -infinity, 0.49999997, -0.1, 4};
  const std::vector<double> codes8 = {0, 2, 2, 0, -2, 127, 127, -128, 8, -8, 8, 127, -128, 0, 0, 4};
  const TestTensor row(ElementType::Float, {1, 1, 16}, numbers);
  const TestTensor one(ElementType::Float, {1}, {1});
  auto call = [&](int bits) {
    const TestTensor past(bits == 8 ? ElementType::Int8 : ElementType::UInt8,
                          {1, 1, 0, bits == 8 ? 16 : 8});
    KernelCall result("com.microsoft::GroupQueryAttention");
    result.in(row).in(row).in(row).in(past).in(past);
    result.in(TestTensor(ElementType::Int32, {1}, {0})).in(TestTensor(ElementType::Int32, {}, {1}));
    for (int i = 7; i < 12; ++i)
      result.absent();
    result.in(one).in(one).attr("num_heads", 1).attr("kv_num_heads", 1).results(3);
    result.attr("k_quant_type", "PER_TENSOR").attr("v_quant_type", "per_tensor");
    return result.attr("kv_cache_bit_width", bits).run();
  };
  const KernelResult eight = call(8);
  ASSERT_EQ(eight.error, "");
  EXPECT_EQ(eight.outputs[1].values(), codes8);
  EXPECT_EQ(eight.outputs[2].values(), codes8);
  const KernelResult four = call(4);
  ASSERT_EQ(four.error, "");
  for (size_t i = 0; i < 16; ++i) {
    const int byte = int(four.outputs[1].get(int64_t(i) / 2));
    EXPECT_EQ(double(i % 2 == 0 ? byte & 15 : byte >> 4) - 8, std::clamp(codes8[i], -8.0, 7.0));
  }
}

/// A large scale of a column whose codes are 0 makes no infinity of the query.
TEST(GroupQueryAttentionCodes, LargeScalesOfZeros) {
  const int64_t width = 16;
  TestTensor query(ElementType::Float, {1, 1, width}), key = query.clone();
  TestTensor scales(ElementType::Float, {width});
  for (int64_t d = 0; d < width; ++d) {
    query.set(d, 100);
    key.set(d, d == 0 ? 0 : 1e36);
    scales.set(d, d == 0 ? 3e38 : 1e37);
  }
  const TestTensor past(ElementType::Int8, {1, 1, 0, width});
  KernelCall call("com.microsoft::GroupQueryAttention");
  call.in(query).in(key).in(key).in(past).in(past);
  call.in(TestTensor(ElementType::Int32, {1}, {0})).in(TestTensor(ElementType::Int32, {}, {1}));
  for (int i = 7; i < 12; ++i)
    call.absent();
  call.in(scales).in(TestTensor(ElementType::Float, {1}, {1e36}));
  call.attr("num_heads", 1).attr("kv_num_heads", 1).attr("kv_cache_bit_width", 8);
  call.attr("k_quant_type", "PER_CHANNEL").attr("v_quant_type", "PER_TENSOR").results(3);
  const KernelResult result = call.run();
  ASSERT_EQ(result.error, "");
  for (int64_t d = 0; d < width; ++d)
    EXPECT_EQ(result.outputs[0].get(d), d == 0 ? 0 : double(1e36f)) << d;
}

TEST(GroupQueryAttentionCodes, Refuses) {
  CodesCase c;
  c.past = {3, 3};
  const CodesProblem problem(c);
  auto refusal = [&](auto change) {
    KernelCall call = problem.call();
    change(call);
    return call.run();
  };
  EXPECT_TRUE(refusal([](KernelCall&) {}).ok());
  expectError(refusal([](KernelCall& call) { call.attr("k_quant_type", "PER_TOKEN"); }),
              "k_quant_type PER_TOKEN is not supported");
  expectError(refusal([](KernelCall& call) { call.attr("v_quant_type", "NONE").without(13); }),
              "of k_quant_type and v_quant_type, one is NONE");
  expectError(refusal([](KernelCall& call) { call.attr("kv_cache_bit_width", 2); }),
              "kv_cache_bit_width 2");
  expectError(refusal([](KernelCall& call) { call.attr("kv_cache_bit_width", 4); }),
              "a past must be");
  expectError(refusal([](KernelCall& call) { call.without(12); }), "k_quant_type needs k_scale");
  expectError(refusal([](KernelCall& call) { call.attr("v_quant_type", "PER_CHANNEL"); }),
              "v_scale has 1 numbers");
  expectError(refusal([](KernelCall& call) {
                call.replace(12, TestTensor(ElementType::Float16, {1}, {1}));
              }),
              "k_scale has 1 numbers of type float16");
  expectError(refusal([](KernelCall& call) {
                call.attr("k_quant_type", "NONE").attr("v_quant_type", "NONE");
              }),
              "k_scale without k_quant_type");
}

} // namespace
} // namespace kvopt
