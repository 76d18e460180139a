// com.microsoft::MultiHeadAttention and Attention against plain loops.
#include "tests/runtime/kernels/plain_attention.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

/// [B,S,H,D] parts side by side: [B,S,H,parts,D].
TestTensor packedParts(const std::vector<TestTensor>& parts, int64_t heads) {
  const Extents& shape = parts.front().shape();
  const int64_t width = shape[2] / heads;
  TestTensor packed(parts.front().element(),
                    {shape[0], shape[1], heads, int64_t(parts.size()), width});
  int64_t to = 0;
  for (int64_t line = 0; line < shape[0] * shape[1] * heads; ++line)
    for (const TestTensor& part : parts)
      for (int64_t d = 0; d < width; ++d)
        packed.set(to++, part.get(line * width + d));
  return packed;
}

enum class Padding { None, Lengths, PackedLengths, Ranges, Keys, Pairs };

struct MultiHeadCase {
  int64_t batches = 2, heads = 3, rows = 4, newKeys = 4, past = 0, width = 8, valueWidth = 8;
  ElementType element = ElementType::Float;
  bool projectionBias = false, attentionBias = false, causal = false;
  Padding padding = Padding::None;
  double hidden = -10000, scale = 0;

  int64_t keys() const { return past + newKeys; }
};

/// Operands and results that both operators have in common.
class MultiHeadProblem {
public:
  explicit MultiHeadProblem(const MultiHeadCase& given) : c(given) {
    query = randomTensor(c.element, {c.batches, c.rows, c.heads * c.width}, 1);
    key = randomTensor(c.element, {c.batches, c.newKeys, c.heads * c.width}, 2);
    value = randomTensor(c.element, {c.batches, c.newKeys, c.heads * c.valueWidth}, 3);
    pastKey = randomTensor(c.element, {c.batches, c.heads, c.past, c.width}, 4);
    pastValue = randomTensor(c.element, {c.batches, c.heads, c.past, c.valueWidth}, 5);
    projection = randomTensor(c.element, {c.heads * (2 * c.width + c.valueWidth)}, 6);
    bias = randomTensor(c.element, {1, c.heads, c.rows, c.keys()}, 7);
    const Extents shape = c.padding == Padding::Lengths         ? Extents{c.batches}
                          : c.padding == Padding::PackedLengths ? Extents{3 * c.batches + 2}
                          : c.padding == Padding::Ranges        ? Extents{2 * c.batches}
                          : c.padding == Padding::Keys          ? Extents{c.batches, c.keys()}
                                                       : Extents{c.batches, c.rows, c.keys()};
    mask = TestTensor(ElementType::Int32, shape);
    for (int64_t i = 0; i < mask.count(); ++i)
      mask.set(i, shape.size() > 1    ? double(i % 3 != 0 ? 1 : -(i % 2))
                  : i < c.batches     ? double(c.keys() - 2 * i)
                  : i < 2 * c.batches ? double(2 - (i - c.batches))
                                      : double(7 * i));
  }
  MultiHeadProblem(const MultiHeadProblem&) = delete;

  PlainAttention plain() const {
    PlainAttention result;
    result.batches = c.batches;
    result.heads = result.groups = c.heads;
    result.rows = c.rows;
    result.keys = c.keys();
    result.width = c.width;
    result.valueWidth = c.valueWidth;
    result.query = splitHeadsOf(biased(query, 0), c.heads);
    result.key =
        joinedRows(pastKey.values(), c.past, splitHeadsOf(biased(key, c.heads * c.width), c.heads),
                   c.newKeys, c.batches * c.heads, c.width);
    result.value = joinedRows(pastValue.values(), c.past,
                              splitHeadsOf(biased(value, 2 * c.heads * c.width), c.heads),
                              c.newKeys, c.batches * c.heads, c.valueWidth);
    result.scale = c.scale == 0 ? 1 / std::sqrt(double(c.width)) : c.scale;
    result.bias = [this](int64_t b, int64_t h, int64_t i, int64_t j) {
      double sum = isVisible(b, i, j) ? 0 : c.hidden;
      if (c.causal && j > i + c.past && i + 1 < c.rows)
        sum = c.padding == Padding::None ? minusInfinity
                                         : double(std::numeric_limits<float>::lowest());
      return sum + (c.attentionBias ? bias.get((h * c.rows + i) * c.keys() + j) : 0);
    };
    return result;
  }

  /// Everything after query, key and value.
  void addRest(KernelCall& call) const {
    c.projectionBias ? call.in(projection) : call.absent();
    c.padding != Padding::None ? call.in(mask) : call.absent();
    c.attentionBias ? call.in(bias) : call.absent();
    c.past != 0 ? call.in(pastKey).in(pastValue) : call.absent().absent();
    attributes(call);
  }
  void attributes(KernelCall& call) const {
    call.attr("num_heads", int(c.heads)).attr("unidirectional", c.causal ? 1 : 0);
    call.attr("mask_filter_value", c.hidden);
    if (c.scale != 0)
      call.attr("scale", c.scale);
  }

  const MultiHeadCase c;
  TestTensor query, key, value, pastKey, pastValue, projection, bias, mask;

private:
  bool isVisible(int64_t b, int64_t i, int64_t j) const {
    switch (c.padding) {
    case Padding::None:
      return true;
    case Padding::Lengths:
    case Padding::PackedLengths:
      return double(j) < mask.get(b);
    case Padding::Ranges:
      return double(j) < mask.get(b) && double(j) >= mask.get(c.batches + b);
    case Padding::Keys:
      return mask.get(b * c.keys() + j) > 0;
    case Padding::Pairs:
      return mask.get((b * c.rows + i) * c.keys() + j) > 0;
    }
    return true;
  }

  TestTensor biased(const TestTensor& tensor, int64_t first) const {
    TestTensor sum = tensor.clone();
    const int64_t width = tensor.shape()[2];
    for (int64_t i = 0; i < sum.count() && c.projectionBias; ++i)
      sum.set(i, sum.get(i) + projection.get(first + i % width));
    return sum;
  }
};

void expectResults(const MultiHeadProblem& problem, const KernelResult& result) {
  const MultiHeadCase& c = problem.c;
  const PlainAttention plain = problem.plain();
  const double tolerance = attentionTolerance(c.element);
  expectTensor(result, {c.batches, c.rows, c.heads * c.valueWidth}, plain.merged(), tolerance);
  const double copied = c.projectionBias ? tolerance : 0;
  expectTensor(result, {c.batches, c.heads, c.keys(), c.width}, plain.key, copied, 1);
  expectTensor(result, {c.batches, c.heads, c.keys(), c.valueWidth}, plain.value, copied, 2);
}

KernelCall separate(const MultiHeadProblem& problem) {
  KernelCall call("com.microsoft::MultiHeadAttention");
  call.in(problem.query).in(problem.key).in(problem.value).results(3);
  problem.addRest(call);
  return call;
}

TEST(MultiHeadAttention, OptionsAndPasts) {
  for (int64_t past : {0, 3})
    for (Padding padding :
         {Padding::None, Padding::Lengths, Padding::PackedLengths, Padding::Keys, Padding::Pairs})
      for (int options = 0; options < 8; ++options) {
        SCOPED_TRACE(formatted("past {} padding {} options {}", past, int(padding), options));
        MultiHeadCase c;
        c.past = past;
        c.padding = padding;
        c.causal = (options & 1) != 0;
        c.attentionBias = (options & 2) != 0;
        c.projectionBias = (options & 4) != 0;
        c.valueWidth = options == 3 ? 6 : 8;
        c.scale = options == 5 ? 0.7 : 0;
        // As exporters write it: nothing else than hidden keys is so low.
        c.hidden = options % 2 == 0 ? -10000 : double(std::numeric_limits<float>::lowest());
        if (c.attentionBias)
          c.hidden = -10000;
        const MultiHeadProblem problem(c);
        expectResults(problem, separate(problem).threads(2).run());
      }
}

/// The triangle starts at the first key after the past; the last row sees every key.
TEST(MultiHeadAttention, UnidirectionalWithMoreOrFewerKeysThanRows) {
  for (int64_t newKeys : {1, 2, 3, 6})
    for (int64_t past : {0, 2})
      for (Padding padding : {Padding::None, Padding::Keys})
        for (bool biased : {false, true}) {
          SCOPED_TRACE(formatted("{} new keys, past {}, padding {}, bias {}", newKeys, past,
                                 int(padding), biased));
          MultiHeadCase c;
          c.rows = 3;
          c.newKeys = newKeys;
          c.past = past;
          c.causal = true;
          c.padding = padding;
          c.attentionBias = biased;
          c.hidden = -100;
          const MultiHeadProblem problem(c);
          expectResults(problem, separate(problem).threads(2).run());
        }
}

TEST(MultiHeadAttention, UnidirectionalIsOnAtOneAlone) {
  const MultiHeadProblem problem{MultiHeadCase()};
  for (int value : {-1, 2})
    expectResults(problem, separate(problem).attr("unidirectional", value).run());
}

TEST(MultiHeadAttention, HalfPrecision) {
  MultiHeadCase c;
  c.element = ElementType::Float16;
  c.past = 2;
  c.attentionBias = c.projectionBias = true;
  c.padding = Padding::Keys;
  c.rows = 1;
  const MultiHeadProblem problem(c);
  expectResults(problem, separate(problem).run());
}

/// Packed operands, and heads of cross attention, hold what separate ones do.
TEST(MultiHeadAttention, Layouts) {
  MultiHeadCase c;
  c.projectionBias = true;
  const MultiHeadProblem problem(c);
  KernelCall packed("com.microsoft::MultiHeadAttention");
  packed.in(packedParts({problem.query, problem.key, problem.value}, c.heads)).absent().absent();
  problem.addRest(packed);
  expectResults(problem, packed.results(3).run());

  KernelCall pair("com.microsoft::MultiHeadAttention");
  pair.in(problem.query).in(packedParts({problem.key, problem.value}, c.heads)).absent();
  problem.addRest(pair);
  expectResults(problem, pair.results(3).run());

  MultiHeadCase cross;
  cross.newKeys = 6;
  cross.rows = 2;
  const MultiHeadProblem crossing(cross);
  KernelCall heads("com.microsoft::MultiHeadAttention");
  heads.in(crossing.query);
  heads.in(TestTensor(ElementType::Float, {2, 3, 6, 8}, splitHeadsOf(crossing.key, 3)));
  heads.in(TestTensor(ElementType::Float, {2, 3, 6, 8}, splitHeadsOf(crossing.value, 3)));
  crossing.addRest(heads);
  expectResults(crossing, heads.results(3).run());
}

/// Heads of cross attention come with their bias; only the query's part of it is added.
TEST(MultiHeadAttention, BiasOfHeadsOfCrossAttention) {
  MultiHeadCase c;
  c.projectionBias = true;
  c.newKeys = 6;
  const MultiHeadProblem problem(c);
  const PlainAttention plain = problem.plain();
  KernelCall call("com.microsoft::MultiHeadAttention");
  call.in(problem.query);
  call.in(TestTensor(ElementType::Float, {2, 3, 6, 8}, plain.key));
  call.in(TestTensor(ElementType::Float, {2, 3, 6, 8}, plain.value));
  problem.addRest(call);
  expectResults(problem, call.results(3).run());
}

/// A row whose every key is hidden averages them: the mask is finite.
TEST(MultiHeadAttention, NothingVisible) {
  const double lowest = double(std::numeric_limits<float>::lowest());
  KernelCall call("com.microsoft::MultiHeadAttention");
  call.in(floats({1, 1, 1}, {1})).in(floats({1, 2, 1}, {1, 2})).in(floats({1, 2, 1}, {3, 5}));
  call.absent().in(TestTensor(ElementType::Int32, {1, 2}, {0, 0}));
  expectTensor(call.attr("num_heads", 1).attr("mask_filter_value", lowest).run(), {1, 1, 1}, {4},
               1e-6);
}

TEST(MultiHeadAttention, Refuses) {
  const MultiHeadProblem problem{MultiHeadCase()};
  expectError(separate(problem).attr("num_heads", 5).run(), "5 heads");
  expectError(separate(problem).attr("num_heads", 0).run(), "num_heads must be positive");
  expectError(separate(problem).results(4).run(), "qk");
  KernelCall alone("com.microsoft::MultiHeadAttention");
  alone.in(problem.query).attr("num_heads", 3);
  expectError(alone.run(), "[B,S,H,3,D]");
  KernelCall mask("com.microsoft::MultiHeadAttention");
  mask.in(problem.query).in(problem.key).in(problem.value).absent().attr("num_heads", 3);
  mask.in(TestTensor(ElementType::Int32, {4}, {0, 0, 0, 0}));
  expectError(mask.run(), "neither [B], [3B+2], [B,T] nor [B,S,T]");
}

/// input, weights and bias whose product is problem.query, key and value side by side: the input is
/// that product and the weights are the identity.
KernelCall fused(const MultiHeadProblem& problem) {
  const MultiHeadCase& c = problem.c;
  const int64_t widths[] = {c.heads * c.width, c.heads * c.width, c.heads * c.valueWidth};
  const int64_t columns = widths[0] + widths[1] + widths[2];
  TestTensor input(c.element, {c.batches, c.rows, columns});
  const TestTensor* parts[] = {&problem.query, &problem.key, &problem.value};
  int64_t to = 0;
  for (int64_t token = 0; token < c.batches * c.rows; ++token)
    for (int part = 0; part < 3; ++part)
      for (int64_t i = 0; i < widths[part]; ++i)
        input.set(to++, parts[part]->get(token * widths[part] + i));
  TestTensor identity(c.element, {columns, columns});
  for (int64_t i = 0; i < identity.count(); ++i)
    identity.set(i, i / columns == i % columns);
  KernelCall call("com.microsoft::Attention");
  call.in(input).in(identity);
  c.projectionBias ? call.in(problem.projection) : call.absent();
  c.padding != Padding::None ? call.in(problem.mask) : call.absent();
  if (c.past != 0) {
    std::vector<double> stacked = problem.pastKey.values();
    const std::vector<double> values = problem.pastValue.values();
    stacked.insert(stacked.end(), values.begin(), values.end());
    call.in(TestTensor(c.element, {2, c.batches, c.heads, c.past, c.width}, stacked));
  } else {
    call.absent();
  }
  if (c.attentionBias)
    call.in(problem.bias);
  problem.attributes(call);
  call.attr("qkv_hidden_sizes", std::vector<int64_t>(widths, widths + 3));
  return call;
}

TEST(FusedAttention, OptionsAndPasts) {
  for (ElementType element : {ElementType::Float, ElementType::Float16})
    for (int64_t past : {0, 3})
      for (Padding padding :
           {Padding::None, Padding::Keys, Padding::Ranges, Padding::PackedLengths})
        for (int options = 0; options < 8; ++options) {
          SCOPED_TRACE(formatted("past {} padding {} options {}", past, int(padding), options));
          MultiHeadCase c;
          c.element = element;
          c.past = past;
          c.padding = padding;
          c.causal = (options & 1) != 0;
          c.attentionBias = (options & 2) != 0;
          c.projectionBias = (options & 4) != 0;
          // Rows may see nothing but hidden keys, whose scores keep their last digits.
          c.hidden = -100;
          const MultiHeadProblem problem(c);
          const KernelResult result = fused(problem).results(2).run();
          const PlainAttention plain = problem.plain();
          const double tolerance = attentionTolerance(element);
          expectTensor(result, {2, 4, 24}, plain.merged(), tolerance);
          std::vector<double> present = plain.key;
          present.insert(present.end(), plain.value.begin(), plain.value.end());
          expectTensor(result, {2, 2, 3, past + 4, 8}, present, tolerance, 1);
        }
}

/// A product of its own, a third of the columns each, and values of another width.
TEST(FusedAttention, ProjectsAndSplits) {
  MultiHeadCase c;
  c.valueWidth = 4;
  c.causal = true;
  const MultiHeadProblem problem(c);
  expectTensor(fused(problem).run(), {2, 4, 12}, problem.plain().merged(), 1e-5);

  const TestTensor input = randomTensor(ElementType::Float, {1, 2, 5}, 8);
  const TestTensor weights = randomTensor(ElementType::Float, {5, 6}, 9);
  PlainAttention plain;
  plain.rows = plain.keys = 2;
  plain.width = plain.valueWidth = 2;
  plain.scale = 1 / std::sqrt(2.0);
  for (std::vector<double>* part : {&plain.query, &plain.key, &plain.value}) {
    const int64_t first = part == &plain.query ? 0 : part == &plain.key ? 2 : 4;
    for (int64_t token = 0; token < 2; ++token)
      for (int64_t d = 0; d < 2; ++d) {
        double sum = 0;
        for (int64_t n = 0; n < 5; ++n)
          sum += input.get(token * 5 + n) * weights.get(n * 6 + first + d);
        part->push_back(sum);
      }
  }
  KernelCall call("com.microsoft::Attention");
  expectTensor(call.in(input).in(weights).attr("num_heads", 1).run(), {1, 2, 2}, plain.merged(),
               1e-6);
}

TEST(FusedAttention, Refuses) {
  MultiHeadCase c;
  c.past = 2;
  const MultiHeadProblem problem(c);
  expectError(fused(problem).attr("do_rotary", 1).run(), "do_rotary");
  expectError(fused(problem).attr("past_present_share_buffer", 1).run(), "shared buffer");
  expectError(fused(problem).attr("num_heads", 7).run(), "7 heads");
  expectError(fused(problem).attr("qkv_hidden_sizes", std::vector<int64_t>{24, 24, 48}).run(),
              "not those of the weights");
  c.valueWidth = 16;
  c.past = 0;
  const MultiHeadProblem wide(c);
  expectError(fused(wide).results(2).run(), "one width");
}

} // namespace
} // namespace kvopt
