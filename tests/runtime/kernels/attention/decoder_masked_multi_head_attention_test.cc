// com.microsoft::DecoderMaskedMultiHeadAttention against plain loops.
#include "tests/runtime/kernels/plain_attention.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

constexpr const char* maskedOperator = "com.microsoft::DecoderMaskedMultiHeadAttention";

enum class MaskedPast { None, Grows, Buffer, Beams };

struct MaskedCase {
  int64_t batches = 4, heads = 3, past = 5, capacity = 9, width = 8, valueWidth = 8;
  ElementType element = ElementType::Float;
  MaskedPast kind = MaskedPast::Grows;
  bool mask = false, attentionBias = false, projectionBias = false, packed = false;
  double scale = 0;

  int64_t rows() const { return kind == MaskedPast::None ? 0 : past; }
  int64_t keys() const { return rows() + 1; }
  int64_t held() const { return kind == MaskedPast::Grows ? past : capacity; }
  bool sharesBuffer() const { return kind == MaskedPast::Buffer || kind == MaskedPast::Beams; }
};

constexpr int64_t beamCount = 2;

class MaskedProblem {
public:
  explicit MaskedProblem(const MaskedCase& given) : c(given) {
    query = randomTensor(c.element, {c.batches, 1, c.heads * c.width}, 1);
    key = randomTensor(c.element, {c.batches, 1, c.heads * c.width}, 2);
    value = randomTensor(c.element, {c.batches, 1, c.heads * c.valueWidth}, 3);
    pastKey = randomTensor(c.element, {c.batches, c.heads, c.held(), c.width}, 4);
    pastValue = randomTensor(c.element, {c.batches, c.heads, c.held(), c.valueWidth}, 5);
    projection = randomTensor(c.element, {c.heads * (2 * c.width + c.valueWidth)}, 6);
    bias = randomTensor(c.element, {1, c.heads, 1, c.keys()}, 7);
    mask = TestTensor(ElementType::Int32, {c.batches, c.keys()});
    for (int64_t i = 0; i < mask.count(); ++i)
      mask.set(i, i % 3 != 0 ? 1 : -double(i % 2));
    indirection = TestTensor(ElementType::Int32, {c.batches / beamCount, beamCount, c.capacity});
    for (int64_t i = 0; i < indirection.count(); ++i)
      indirection.set(i, double((i * 5 + i / 3) % beamCount));
  }
  MaskedProblem(const MaskedProblem&) = delete;

  KernelCall call() const {
    KernelCall result(maskedOperator);
    if (c.packed) {
      TestTensor joined(c.element, {c.batches, 1, 3 * c.heads * c.width});
      int64_t to = 0;
      for (int64_t b = 0; b < c.batches; ++b)
        for (const TestTensor* part : {&query, &key, &value})
          for (int64_t i = 0; i < c.heads * c.width; ++i)
            joined.set(to++, part->get(b * c.heads * c.width + i));
      result.in(joined).absent().absent();
    } else {
      result.in(query).in(key).in(value);
    }
    c.mask ? result.in(mask) : result.absent();
    c.attentionBias ? result.in(bias) : result.absent();
    if (c.kind == MaskedPast::None)
      result.absent().absent();
    else
      result.in(pastKey).in(pastValue);
    c.sharesBuffer() ? result.in(TestTensor(ElementType::Int32, {1}, {double(c.past)}))
                     : result.absent();
    c.kind == MaskedPast::Beams
        ? result.in(TestTensor(ElementType::Int32, {1}, {double(beamCount)})).in(indirection)
        : result.absent().absent();
    c.projectionBias ? result.in(projection) : result.absent();
    result.attr("num_heads", int(c.heads)).attr("mask_filter_value", -100.0);
    if (c.scale != 0)
      result.attr("scale", c.scale);
    if (c.sharesBuffer())
      result.attr("past_present_share_buffer", 1);
    result.results(3);
    return result;
  }

  PlainAttention plain() const {
    PlainAttention result;
    result.batches = c.batches;
    result.heads = result.groups = c.heads;
    result.rows = 1;
    result.keys = c.keys();
    result.width = c.width;
    result.valueWidth = c.valueWidth;
    result.query = biased(query, 0).values();
    result.key = rowsOf(pastKey, biased(key, c.heads * c.width), c.width);
    result.value = rowsOf(pastValue, biased(value, 2 * c.heads * c.width), c.valueWidth);
    result.scale = c.scale == 0 ? 1 / std::sqrt(double(c.width)) : c.scale;
    result.bias = [this](int64_t b, int64_t h, int64_t, int64_t j) {
      const double hidden = c.mask && mask.get(b * c.keys() + j) <= 0 ? -100 : 0;
      return hidden + (c.attentionBias ? bias.get(h * c.keys() + j) : 0);
    };
    return result;
  }

  /// The present: the past's rows, the new one, and what a buffer held after it.
  std::vector<double> present(const TestTensor& past, const TestTensor& fresh, int64_t first,
                              int64_t width) const {
    const TestTensor row = biased(fresh, first);
    std::vector<double> result;
    for (int64_t plane = 0; plane < c.batches * c.heads; ++plane)
      for (int64_t j = 0; j < (c.sharesBuffer() ? c.capacity : c.keys()); ++j)
        for (int64_t d = 0; d < width; ++d)
          result.push_back(j == c.rows() ? row.get(plane * width + d)
                                         : past.get((plane * c.held() + j) * width + d));
    return result;
  }

  const MaskedCase c;
  TestTensor query, key, value, pastKey, pastValue, projection, bias, mask, indirection;

private:
  TestTensor biased(const TestTensor& tensor, int64_t first) const {
    TestTensor sum = tensor.clone();
    const int64_t width = tensor.shape()[2];
    for (int64_t i = 0; i < sum.count() && c.projectionBias; ++i)
      sum.set(i, sum.get(i) + projection.get(first + i % width));
    return sum;
  }

  /// The rows that each batch row attends to, [B,H,T,W].
  std::vector<double> rowsOf(const TestTensor& past, const TestTensor& fresh, int64_t width) const {
    std::vector<double> result;
    for (int64_t b = 0; b < c.batches; ++b)
      for (int64_t h = 0; h < c.heads; ++h) {
        for (int64_t j = 0; j < c.rows(); ++j) {
          const int64_t from =
              c.kind == MaskedPast::Beams
                  ? b / beamCount * beamCount + int64_t(indirection.get(b * c.capacity + j))
                  : b;
          for (int64_t d = 0; d < width; ++d)
            result.push_back(past.get(((from * c.heads + h) * c.held() + j) * width + d));
        }
        for (int64_t d = 0; d < width; ++d)
          result.push_back(fresh.get((b * c.heads + h) * width + d));
      }
    return result;
  }
};

void expectMasked(const MaskedCase& c) {
  const MaskedProblem problem(c);
  const KernelResult result = problem.call().threads(2).run();
  const double tolerance = attentionTolerance(c.element);
  expectTensor(result, {c.batches, 1, c.heads * c.valueWidth}, problem.plain().merged(), tolerance);
  const double copied = c.projectionBias ? tolerance : 0;
  const int64_t rows = c.sharesBuffer() ? c.capacity : c.keys();
  expectTensor(result, {c.batches, c.heads, rows, c.width},
               problem.present(problem.pastKey, problem.key, c.heads * c.width, c.width), copied,
               1);
  expectTensor(
      result, {c.batches, c.heads, rows, c.valueWidth},
      problem.present(problem.pastValue, problem.value, 2 * c.heads * c.width, c.valueWidth),
      copied, 2);
}

TEST(DecoderMaskedMultiHeadAttention, PastsAndOptions) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (MaskedPast kind :
         {MaskedPast::None, MaskedPast::Grows, MaskedPast::Buffer, MaskedPast::Beams})
      for (int64_t past : {0, 1, 8})
        for (int options = 0; options < 8; ++options) {
          SCOPED_TRACE(formatted("{} kind {} past {} options {}", onnxName(element), int(kind),
                                 past, options));
          MaskedCase c;
          c.element = element;
          c.kind = kind;
          c.past = past;
          c.mask = (options & 1) != 0;
          c.attentionBias = (options & 2) != 0;
          c.projectionBias = (options & 4) != 0;
          c.packed = options == 3 || options == 4;
          c.valueWidth = options == 5 ? 6 : 8;
          c.scale = options == 6 ? 0.7 : 0;
          expectMasked(c);
        }
}

TEST(DecoderMaskedMultiHeadAttention, WritesOneRowOfASharedBuffer) {
  MaskedCase c;
  c.kind = MaskedPast::Buffer;
  const MaskedProblem problem(c);
  KernelCall call = problem.call();
  const TestTensor keys = problem.pastKey.clone();
  const TestTensor values = problem.pastValue.clone();
  const KernelResult result = call.overwrite(5, keys).overwrite(6, values).run();
  ASSERT_EQ(result.error, "");
  EXPECT_EQ(result.cacheBytesWritten, 2 * 4 * 3 * 8 * 4);
  EXPECT_TRUE(result.outputs[1].sameBytes(keys));
  EXPECT_EQ(keys.values(), problem.present(problem.pastKey, problem.key, 24, 8));
  EXPECT_EQ(values.values(), problem.present(problem.pastValue, problem.value, 48, 8));
}

/// The query alone gets its part of the bias.
TEST(DecoderMaskedMultiHeadAttention, CrossAttention) {
  for (ElementType element : {ElementType::Float, ElementType::Float16})
    for (int64_t keys : {1, 2, 7})
      for (bool masked : {false, true}) {
        SCOPED_TRACE(formatted("{} {} keys, mask {}", onnxName(element), keys, masked));
        PlainAttention plain;
        plain.batches = 2;
        plain.heads = plain.groups = 3;
        plain.keys = keys;
        plain.width = 8;
        plain.valueWidth = 6;
        const TestTensor query = randomTensor(element, {2, 1, 24}, 1);
        const TestTensor key = randomTensor(element, {2, 3, keys, 8}, 2);
        const TestTensor value = randomTensor(element, {2, 3, keys, 6}, 3);
        const TestTensor bias = randomTensor(element, {24 + 24 + 18}, 4);
        TestTensor mask(ElementType::Int32, {2, keys});
        for (int64_t i = 0; i < mask.count(); ++i)
          mask.set(i, double(i % 2));
        TestTensor sum = query.clone();
        for (int64_t i = 0; i < sum.count(); ++i)
          sum.set(i, sum.get(i) + bias.get(i % 24));
        plain.query = sum.values();
        plain.key = key.values();
        plain.value = value.values();
        plain.scale = 1 / std::sqrt(8.0);
        plain.bias = [&](int64_t b, int64_t, int64_t, int64_t j) {
          return masked && mask.get(b * keys + j) <= 0 ? -100.0 : 0.0;
        };
        KernelCall call(maskedOperator);
        call.in(query).in(key).in(value);
        masked ? call.in(mask) : call.absent();
        for (int i = 0; i < 6; ++i)
          call.absent();
        call.in(bias).attr("num_heads", 3).attr("mask_filter_value", -100.0);
        expectTensor(call.run(), {2, 1, 18}, plain.merged(), attentionTolerance(element));
      }
}

/// Scores with their masks, before the softmax.
TEST(DecoderMaskedMultiHeadAttention, OutputsScores) {
  for (MaskedPast kind :
       {MaskedPast::None, MaskedPast::Grows, MaskedPast::Buffer, MaskedPast::Beams}) {
    SCOPED_TRACE(int(kind));
    MaskedCase c;
    c.kind = kind;
    c.mask = c.attentionBias = c.projectionBias = true;
    const MaskedProblem problem(c);
    const PlainAttention plain = problem.plain();
    std::vector<double> scores;
    for (int64_t b = 0; b < c.batches; ++b)
      for (int64_t h = 0; h < c.heads; ++h)
        for (int64_t j = 0; j < c.keys(); ++j)
          scores.push_back(plain.scaled(b, h, 0, j) + plain.biasOf(b, h, 0, j));
    const KernelResult result = problem.call().attr("output_qk", 1).results(4).run();
    expectTensor(result, {c.batches, c.heads, 1, c.keys()}, scores, 2e-5, 3);
    expectTensor(result, {c.batches, 1, c.heads * c.width}, plain.merged(), 1e-5);
  }
}

TEST(DecoderMaskedMultiHeadAttention, EmptyBatch) {
  MaskedCase c;
  c.batches = 0;
  for (MaskedPast kind :
       {MaskedPast::None, MaskedPast::Grows, MaskedPast::Buffer, MaskedPast::Beams}) {
    c.kind = kind;
    expectMasked(c);
  }
}

TestTensor int32s(Extents shape, llvm::ArrayRef<double> values) {
  return {ElementType::Int32, std::move(shape), values};
}

TEST(DecoderMaskedMultiHeadAttention, RefusesBeforeAnythingIsWritten) {
  MaskedCase c;
  c.kind = MaskedPast::Beams;
  c.mask = c.attentionBias = true;
  const MaskedProblem problem(c);
  const auto expectRefused = [&](auto change, const char* text) {
    SCOPED_TRACE(text);
    const TestTensor keys = problem.pastKey.clone();
    const TestTensor values = problem.pastValue.clone();
    KernelCall call = problem.call();
    call.overwrite(5, keys).overwrite(6, values);
    change(call);
    expectError(call.run(), text);
    EXPECT_TRUE(keys.sameBytes(problem.pastKey));
    EXPECT_TRUE(values.sameBytes(problem.pastValue));
  };
  expectRefused([](KernelCall& call) { call.attr("num_heads", 0); }, "num_heads must be positive");
  expectRefused([](KernelCall& call) { call.attr("num_heads", 5); }, "does not split into 5 heads");
  expectRefused([](KernelCall& call) { call.replace(7, int32s({1}, {9})); },
                "past_sequence_length 9");
  expectRefused([](KernelCall& call) { call.replace(7, int32s({1}, {-1})); },
                "past_sequence_length -1");
  expectRefused([](KernelCall& call) { call.replace(7, int32s({2}, {3, 3})); }, "");
  expectRefused(
      [](KernelCall& call) {
        call.replace(3, int32s({4, 2}, std::vector<double>(8, 1)));
      },
      "is not [B,T] = [4,6]");
  expectRefused([](KernelCall& call) { call.replace(3, int32s({4}, {1, 1, 1, 1})); }, "mask_index");
  expectRefused(
      [](KernelCall& call) {
        call.replace(4, randomTensor(ElementType::Float, {1, 3, 1, 5}, 1));
      },
      "attention bias");
  expectRefused([](KernelCall& call) { call.replace(8, int32s({1}, {4})); }, "beam_width");
  expectRefused(
      [](KernelCall& call) {
        call.replace(9, int32s({2, 2, 4}, std::vector<double>(16, 0)));
      },
      "cache_indirection must be");
  expectRefused(
      [](KernelCall& call) {
        call.replace(9, int32s({2, 2, 9}, std::vector<double>(36, 2)));
      },
      "cache_indirection names beam 2 of 2");
  expectRefused(
      [](KernelCall& call) {
        call.replace(9, int32s({2, 2, 9}, std::vector<double>(36, -1)));
      },
      "cache_indirection names beam -1 of 2");
  expectRefused([](KernelCall& call) { call.attr("past_present_share_buffer", 0); },
                "past_sequence_length 5");
  expectRefused(
      [](KernelCall& call) {
        call.replace(0, randomTensor(ElementType::Float, {4, 2, 24}, 1));
      },
      "one token per batch row");
  expectRefused(
      [](KernelCall& call) {
        call.replace(1, randomTensor(ElementType::Float, {4, 1, 16}, 1));
      },
      "does not split into 3 heads");
  expectRefused([](KernelCall& call) { call.results(4); }, "output_qk");
}

TEST(DecoderMaskedMultiHeadAttention, RefusesBeamsWithoutTheirRows) {
  MaskedCase c;
  c.kind = MaskedPast::Buffer;
  const MaskedProblem problem(c);
  KernelCall call = problem.call();
  call.replace(8, int32s({1}, {2}));
  expectError(call.run(), "beam_width of 2 needs cache_indirection");
  KernelCall cross(maskedOperator);
  cross.in(problem.query).in(problem.pastKey).in(problem.pastValue).absent().absent();
  cross.in(problem.pastKey).in(problem.pastValue).attr("num_heads", 3);
  expectError(cross.run(), "cross attention has neither past_key");
}

} // namespace
} // namespace kvopt
