// ONNX's Attention: layouts, pasts, masks, lengths, causal alignment, its score matrix, refusals.
#include "tests/runtime/kernels/plain_attention.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

struct OnnxCase {
  int64_t batches = 2, heads = 4, groups = 2, rows = 3, newKeys = 5, past = 0, width = 8,
          valueWidth = 6;
  ElementType element = ElementType::Float;
  bool flat = false; ///< operands of rank 3
  bool causal = false;
  int64_t left = -1, right = -1; ///< windows
  std::vector<int64_t> lengths;  ///< nonpad_kv_seqlen
  double scale = 0;              ///< 0: the default
  double softcap = 0;
  TestTensor mask; ///< no elements: none

  int64_t keys() const { return past + newKeys; }
};

/// The operands of a case, and what must come out.
class Problem {
public:
  explicit Problem(const OnnxCase& given) : c(given) {
    query = operand(c.heads, c.rows, c.width, 1);
    key = operand(c.groups, c.newKeys, c.width, 2);
    value = operand(c.groups, c.newKeys, c.valueWidth, 3);
    pastKey = randomTensor(c.element, {c.batches, c.groups, c.past, c.width}, 4);
    pastValue = randomTensor(c.element, {c.batches, c.groups, c.past, c.valueWidth}, 5);
    plain.batches = c.batches;
    plain.heads = c.heads;
    plain.groups = c.groups;
    plain.rows = c.rows;
    plain.keys = c.keys();
    plain.width = c.width;
    plain.valueWidth = c.valueWidth;
    plain.query = listOf(query, c.heads);
    const int64_t planes = c.batches * c.groups;
    plain.key =
        joinedRows(pastKey.values(), c.past, listOf(key, c.groups), c.newKeys, planes, c.width);
    plain.value = joinedRows(pastValue.values(), c.past, listOf(value, c.groups), c.newKeys, planes,
                             c.valueWidth);
    plain.scale = c.scale == 0 ? 1 / std::sqrt(double(c.width)) : c.scale;
    plain.softcap = c.softcap;
    plain.bias = [this](int64_t b, int64_t h, int64_t i, int64_t j) { return bias(b, h, i, j); };
  }
  Problem(const Problem&) = delete;

  KernelCall call() const {
    const bool isWindowed = c.left != -1 || c.right != -1;
    KernelCall result("Attention", isWindowed ? 25 : 24);
    result.in(query).in(key).in(value);
    hasMask() ? result.in(c.mask) : result.absent();
    c.past != 0 ? result.in(pastKey).in(pastValue) : result.absent().absent();
    if (!c.lengths.empty())
      result.in(int64s(std::vector<double>(c.lengths.begin(), c.lengths.end())));
    if (c.scale != 0)
      result.attr("scale", c.scale);
    if (isWindowed)
      result.attr("left_window_size", Attribute::ofInt(c.left))
          .attr("right_window_size", Attribute::ofInt(c.right));
    if (c.flat)
      result.attr("q_num_heads", int(c.heads)).attr("kv_num_heads", int(c.groups));
    result.attr("softcap", c.softcap).attr("is_causal", c.causal ? 1 : 0);
    return result;
  }

  void expectOutput(const KernelResult& result) const {
    const Extents shape = c.flat ? Extents{c.batches, c.rows, c.heads * c.valueWidth}
                                 : Extents{c.batches, c.heads, c.rows, c.valueWidth};
    expectTensor(result, shape, c.flat ? plain.merged() : plain.output(),
                 attentionTolerance(c.element));
  }
  void expectPresents(const KernelResult& result) const {
    expectTensor(result, {c.batches, c.groups, c.keys(), c.width}, plain.key, 0, 1);
    expectTensor(result, {c.batches, c.groups, c.keys(), c.valueWidth}, plain.value, 0, 2);
  }

  const OnnxCase c;
  PlainAttention plain;

private:
  bool hasMask() const { return c.mask.element() != ElementType::Undefined; }
  TestTensor operand(int64_t heads, int64_t rows, int64_t width, unsigned seed) const {
    return randomTensor(c.element,
                        c.flat ? Extents{c.batches, rows, heads * width}
                               : Extents{c.batches, heads, rows, width},
                        seed);
  }
  std::vector<double> listOf(const TestTensor& tensor, int64_t heads) const {
    return c.flat ? splitHeadsOf(tensor, heads) : tensor.values();
  }

  double bias(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const bool ragged = !c.lengths.empty();
    const int64_t offset = ragged ? c.lengths[size_t(b)] - c.rows : c.past;
    if ((ragged && j >= c.lengths[size_t(b)]) || (c.causal && j > i + offset))
      return minusInfinity;
    if ((c.left >= 0 && i + offset - j > c.left) || (c.right >= 0 && j - i - offset > c.right))
      return minusInfinity;
    if (!hasMask())
      return 0;
    const Extents& shape = c.mask.shape();
    if (j >= shape.back())
      return minusInfinity;
    const int64_t index[] = {b, h, i, j};
    const Extents strides = contiguousStrides(shape);
    int64_t at = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis)
      if (shape[axis] != 1)
        at += index[axis + 4 - shape.size()] * strides[axis];
    const double stored = c.mask.get(at);
    return c.mask.element() != ElementType::Bool ? stored : stored != 0 ? 0 : minusInfinity;
  }

  TestTensor query, key, value, pastKey, pastValue;
};

/// Additive or boolean, with some keys hidden.
TestTensor maskOf(ElementType element, Extents shape) {
  TestTensor mask =
      randomTensor(element == ElementType::Bool ? ElementType::Float : element, shape, 7);
  TestTensor result(element, shape);
  for (int64_t i = 0; i < mask.count(); ++i) {
    const bool hidden = i % 3 == 1;
    result.set(i, element == ElementType::Bool ? !hidden : hidden ? minusInfinity : mask.get(i));
  }
  return result;
}

TEST(OnnxAttention, LayoutsTypesAndPasts) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (bool flat : {false, true})
      for (int64_t past : {0, 4})
        for (bool causal : {false, true}) {
          SCOPED_TRACE(formatted("{} flat {} past {} causal {}", int(element), flat, past, causal));
          OnnxCase c;
          c.element = element;
          c.flat = flat;
          c.past = past;
          c.causal = causal;
          c.newKeys = 3;
          const Problem problem(c);
          const KernelResult result = problem.call().results(3).threads(2).run();
          problem.expectOutput(result);
          problem.expectPresents(result);
          problem.expectOutput(problem.call().run());
        }
}

/// Aligned top-left without a past, whatever the numbers of rows and keys; at the past's end with
/// one.
TEST(OnnxAttention, CausalAlignment) {
  for (int64_t rows : {1, 3, 5, 70})
    for (int64_t keys : {3, 5, 70})
      for (int64_t past : {0, 2}) {
        SCOPED_TRACE(formatted("{} rows {} keys {} past", rows, keys, past));
        OnnxCase c;
        c.rows = rows;
        c.newKeys = keys;
        c.past = past;
        c.causal = true;
        const Problem alone(c);
        alone.expectOutput(alone.call().run());
        c.mask = maskOf(ElementType::Float, {rows, past + keys});
        const Problem masked(c);
        masked.expectOutput(masked.call().run());
        c.mask = maskOf(ElementType::Bool, {2, 1, rows, past + keys});
        const Problem boolean(c);
        boolean.expectOutput(boolean.call().run());
      }
}

TEST(OnnxAttention, Masks) {
  for (ElementType element : {ElementType::Float, ElementType::Bool})
    for (const Extents& shape :
         {Extents{5}, Extents{3, 5}, Extents{1, 5}, Extents{4, 3, 5}, Extents{1, 3, 5},
          Extents{2, 4, 3, 5}, Extents{2, 1, 1, 5}, Extents{3, 4}, Extents{2, 1, 3, 2}})
      for (bool causal : {false, true}) {
        SCOPED_TRACE(formatted("{} rank {} columns {}", int(element), shape.size(), shape.back()));
        OnnxCase c;
        c.causal = causal;
        c.softcap = 0.7;
        c.mask = maskOf(element, shape);
        const Problem problem(c);
        problem.expectOutput(problem.call().run());
      }
  OnnxCase half;
  half.element = ElementType::Float16;
  half.mask = maskOf(ElementType::Float16, {3, 4});
  const Problem problem(half);
  problem.expectOutput(problem.call().run());
}

TEST(OnnxAttention, LengthsOfKeys) {
  for (bool causal : {false, true})
    for (const std::vector<int64_t>& lengths :
         {std::vector<int64_t>{3, 5}, std::vector<int64_t>{4, 0}, std::vector<int64_t>{1, 2}})
      for (int64_t columns : {0, 4, 5}) {
        SCOPED_TRACE(formatted("causal {} lengths {} {} columns {}", causal, lengths[0], lengths[1],
                               columns));
        OnnxCase c;
        c.causal = causal;
        c.lengths = lengths;
        if (columns != 0)
          c.mask = maskOf(ElementType::Float, {2, 1, 3, columns});
        const Problem problem(c);
        problem.expectOutput(problem.call().run());
      }
}

/// Left and right of the position, which starts behind a past, is aligned to each batch row's last
/// key, or is the row's number; with as many new keys as rows and with more.
TEST(OnnxAttention, Windows) {
  constexpr int64_t huge = std::numeric_limits<int64_t>::max();
  for (int64_t left : {int64_t{-1}, int64_t{0}, int64_t{2}, huge})
    for (int64_t right : {int64_t{-1}, int64_t{0}, int64_t{1}, huge})
      for (int64_t keys : {3, 5})
        for (int64_t past : {0, 2})
          for (bool causal : {false, true})
            for (const std::vector<int64_t>& lengths :
                 {std::vector<int64_t>{}, std::vector<int64_t>{3, 1}}) {
              if (past != 0 && !lengths.empty())
                continue;
              SCOPED_TRACE(formatted("left {} right {} keys {} past {} causal {} lengths {}", left,
                                     right, keys, past, causal, lengths.size()));
              OnnxCase c;
              c.newKeys = keys;
              c.past = past;
              c.left = left;
              c.right = right;
              c.causal = causal;
              c.lengths = lengths;
              const Problem alone(c);
              alone.expectOutput(alone.call().run());
              c.mask = maskOf(ElementType::Float, {4, 3, past + keys - 1});
              const Problem masked(c);
              masked.expectOutput(masked.call().run());
              c.mask = maskOf(ElementType::Bool, {past + keys});
              const Problem boolean(c);
              boolean.expectOutput(boolean.call().run());
            }
}

/// Rows that see no key, by a negative offset or a mask, are zero in Y and in the probabilities.
TEST(OnnxAttention, RowsThatSeeNoKey) {
  for (bool masked : {false, true}) {
    OnnxCase c;
    c.newKeys = 3;
    c.causal = true;
    c.lengths = {1, 0};
    if (masked)
      c.mask = bools({3, 3}, std::vector<double>(9, 0));
    const Problem problem(c);
    const KernelResult result =
        problem.call().results(4).unread(1).unread(2).attr("qk_matmul_output_mode", 3).run();
    problem.expectOutput(result);
    for (int64_t i = 0; i < 2 * 4 * 3 * 3; ++i) {
      const bool sees = !masked && i / 36 == 0 && i / 3 % 3 == 2 && i % 3 == 0;
      EXPECT_EQ(result.outputs[3].get(i), sees ? 1 : 0) << i;
    }
  }
}

/// Modes 0 to 3 of qk_matmul_output.
TEST(OnnxAttention, ScoreMatrix) {
  for (bool causal : {false, true})
    for (int mode : {0, 1, 2, 3}) {
      SCOPED_TRACE(formatted("causal {} mode {}", causal, mode));
      OnnxCase c;
      c.past = 2;
      c.newKeys = 3;
      c.causal = causal;
      c.softcap = 0.5;
      c.mask = maskOf(ElementType::Float, {3, 5});
      const Problem problem(c);
      std::vector<double> expected;
      for (int64_t b = 0; b < c.batches; ++b)
        for (int64_t h = 0; h < c.heads; ++h)
          for (int64_t i = 0; i < c.rows; ++i) {
            const std::vector<double> weights = problem.plain.weights(b, h, i);
            for (int64_t j = 0; j < c.keys(); ++j) {
              const double scaled = problem.plain.scaled(b, h, i, j);
              const double bias = problem.plain.biasOf(b, h, i, j);
              expected.push_back(mode == 0   ? scaled
                                 : mode == 1 ? problem.plain.capped(scaled)
                                 : mode == 2 ? problem.plain.capped(scaled) + bias
                                             : weights[size_t(j)]);
            }
          }
      const KernelResult result =
          problem.call().results(4).attr("qk_matmul_output_mode", mode).run();
      problem.expectOutput(result);
      expectTensor(result, {2, 4, 3, 5}, expected, 1e-6, 3);
    }
}

TEST(OnnxAttention, Refuses) {
  const Problem plain{OnnxCase()};
  auto with = [](auto change) {
    OnnxCase c;
    change(c);
    return Problem(c).call().run();
  };
  expectError(with([](OnnxCase& c) {
                c.mask = maskOf(ElementType::Float, {3, 1});
              }),
              "a mask of one column");
  expectError(with([](OnnxCase& c) {
                c.mask = maskOf(ElementType::Float, {3, 6});
              }),
              "6 columns for 5 keys");
  expectError(with([](OnnxCase& c) {
                c.mask = maskOf(ElementType::Float, {2, 5});
              }),
              "neither 1 nor 3");
  expectError(with([](OnnxCase& c) { c.lengths = {6, 1}; }), "a length of 6");
  expectError(with([](OnnxCase& c) { c.lengths = {1}; }), "one length per batch row");
  expectError(with([](OnnxCase& c) {
                c.lengths = {1, 1};
                c.past = 1;
              }),
              "together with a past");
  expectError(with([](OnnxCase& c) { c.left = -2; }), "left_window_size = -2");
  expectError(with([](OnnxCase& c) { c.right = -2; }), "right_window_size = -2");
  expectError(plain.call().attr("left_window_size", 3).run(), "opset 25");
  expectError(plain.call().attr("softmax_precision", 7).run(), "softmax_precision");
  expectError(plain.call().attr("is_causal", 2).run(), "is_causal");
  expectError(plain.call().attr("softcap", -1.0).run(), "softcap");
  expectError(plain.call().attr("qk_matmul_output_mode", 4).run(), "qk_matmul_output_mode");
  expectError(plain.call().attr("q_num_heads", 2).run(), "q_num_heads = 2");
  OnnxCase ragged;
  ragged.lengths = {1, 1};
  expectError(Problem(ragged).call().results(3).run(), "or a present");
  OnnxCase flat;
  flat.flat = true;
  expectError(Problem(flat).call().attr("q_num_heads", 5).run(), "5 heads");
}

/// Empty tensors may have huge other extents; no mask is made for them.
TEST(OnnxAttention, HugeEmptyExtents) {
  const int64_t huge = int64_t{1} << 40;
  auto call = [&](int64_t rows) {
    KernelCall result("Attention", 23);
    result.in(TestTensor(ElementType::Float, {0, 1, rows, 8}));
    result.in(TestTensor(ElementType::Float, {0, 1, huge + 1, 8}));
    result.in(TestTensor(ElementType::Float, {0, 1, huge + 1, 8})).attr("is_causal", 1);
    return result;
  };
  EXPECT_FALSE(call(huge).run().ok());
  expectTensor(call(huge + 1).run(), {0, 1, huge + 1, 8}, {});
}

} // namespace
} // namespace kvopt
