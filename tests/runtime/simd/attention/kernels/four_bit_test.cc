// Rows of four-bit codes: attention over them has the bits of attention over the bytes that they
// stand for, by every kernel, on every SIMD target.
#include "support/four_bit_row.h"
#include "tests/runtime/simd/attention_problem.h"
#include "tests/runtime/simd/targets.h"

namespace kvopt {
using namespace simd;

namespace {

/// The same random rows twice: packed, with bytes around them that must not be read as codes, and
/// as the bytes that they stand for. All else is a problem's.
class FourBitTwins {
public:
  FourBitTwins(const Case& c, CodeForm codeForm)
      : problem(c), packed(problem.view()), products(problem.view()), random(11) {
    packed.codeForm = codeForm;
    const int64_t capacity = c.keys + 1;
    fill(c, capacity, c.width, packedKeys, keys);
    fill(c, capacity, c.valueWidth, packedValues, values);
    const auto strides = [&](int64_t row) {
      return RowStrides{c.kvHeads * capacity * row, capacity * row, row};
    };
    packed.key = packedKeys.data();
    packed.value = packedValues.data();
    packed.keyStrides = strides(codeRowBytes(codeForm, c.width) + spare);
    packed.valueStrides = strides(codeRowBytes(codeForm, c.valueWidth) + spare);
    products.key = keys.data();
    products.value = values.data();
    products.keyStrides = strides(c.width);
    products.valueStrides = strides(c.valueWidth);
  }

  Problem problem;
  AttentionView packed;
  AttentionView products;

private:
  static constexpr int64_t spare = 3;

  void fill(const Case& c, int64_t capacity, int64_t width, std::vector<uint8_t>& rows,
            std::vector<int8_t>& bytes) {
    if (packed.codeForm == CodeForm::nibbles)
      return fillNibbles(c.batches * c.kvHeads * capacity, width, rows, bytes);
    const FourBitRow form{width};
    const int64_t half = form.halfGroup();
    for (int64_t row = 0; row < c.batches * c.kvHeads * capacity; ++row) {
      const size_t start = rows.size();
      for (int64_t group = 0; group < form.groups(); ++group) {
        for (int64_t i = 0; i < half; ++i)
          rows.push_back(static_cast<uint8_t>(draw(1, 15) | draw(1, 15) << 4));
        rows.push_back(static_cast<uint8_t>(draw(1, FourBitRow::largestMultiplier)));
      }
      for (int64_t d = 0; d < width; ++d) {
        const uint8_t* group = rows.data() + start + d / (2 * half) * form.groupBytes();
        const int64_t column = d % (2 * half);
        const int stored = column < half ? group[column] & 15 : group[column - half] >> 4;
        bytes.push_back(static_cast<int8_t>((stored - 8) * group[half]));
      }
      rows.insert(rows.end(), spare, uint8_t{0xFF});
    }
  }

  void fillNibbles(int64_t count, int64_t width, std::vector<uint8_t>& rows,
                   std::vector<int8_t>& bytes) {
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t d = 0; d < width; d += 2) {
        const int even = draw(0, 15), odd = draw(0, 15);
        rows.push_back(static_cast<uint8_t>(even | odd << 4));
        bytes.push_back(static_cast<int8_t>(even - nibbleOffset));
        if (d + 1 < width)
          bytes.push_back(static_cast<int8_t>(odd - nibbleOffset));
      }
      rows.insert(rows.end(), spare, uint8_t{0xFF});
    }
  }

  int draw(int from, int to) {
    return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
  }

  std::mt19937 random;
  std::vector<uint8_t> packedKeys, packedValues;
  std::vector<int8_t> keys, values;
};

void checkFourBit(const Case& c, CodeForm codeForm) {
  ASSERT_TRUE(c.quantized);
  FourBitTwins twins(c, codeForm);
  std::vector<double> exact(twins.problem.output().size()), defined(exact.size());
  attentionReference(twins.products, exact);
  attentionReference(twins.packed, defined);
  EXPECT_EQ(defined, exact);
  forEachKernel(c, [&](const TestedKernel& kernel) {
    if (!kernel.kernel.takes(twins.packed))
      return;
    compute(twins.products, kernel);
    const std::vector<float> expected = twins.problem.output();
    compute(twins.packed, kernel);
    const std::vector<float> found = twins.problem.output();
    EXPECT_TRUE(twins.problem.paddingIsUntouched());
    for (size_t i = 0; i < found.size(); ++i)
      ASSERT_EQ(found[i], expected[i]) << "element " << i << " of T=" << c.keys << " D=" << c.width
                                       << " Dv=" << c.valueWidth << " S=" << c.rows;
  });
}

void checkFourBit(const Case& c) {
  checkFourBit(c, CodeForm::fourBitRows);
  checkFourBit(c, CodeForm::nibbles);
}

TEST(FourBitAttention, EveryWidth) {
  forEachSimdTarget([] {
    for (const int64_t rows : {1, 12})
      for (int64_t width = 1; width <= 70; ++width)
        checkFourBit({.group = 3,
                      .rows = rows,
                      .keys = 21,
                      .width = width,
                      .valueWidth = 71 - width,
                      .quantized = true});
    for (const int64_t width : {80, 96, 128, 192, 256})
      checkFourBit(
          {.group = 4, .keys = 70, .width = width, .valueWidth = width - 32, .quantized = true});
  });
}

TEST(FourBitAttention, EveryLengthAndGroup) {
  forEachSimdTarget([] {
    for (const int64_t rows : {1, 2, 5, 33})
      for (const int64_t keys : {1, 2, 15, 16, 63, 64, 65, 130, 1100})
        for (const int64_t group : {1, 2, 7}) {
          // Many tiles are many whatever the group.
          if (keys == 1100 && (group != 2 || rows > 2))
            continue;
          checkFourBit({.batches = 2,
                        .kvHeads = 2,
                        .group = group,
                        .rows = rows,
                        .keys = keys,
                        .width = 32,
                        .valueWidth = 64,
                        .quantized = true,
                        .causal = rows > 1});
        }
  });
}

/// Rows of these widths are read as they are where registers hold a table of floats.
TEST(FourBitAttention, WholeRunsOfGroups) {
  forEachSimdTarget([] {
    for (const auto& [width, valueWidth] :
         {std::pair<int64_t, int64_t>{64, 64}, {64, 192}, {256, 256}, {320, 64}})
      for (const int64_t keys : {1, 17, 64, 130})
        for (const int64_t group : {1, 2, 4, 7})
          for (const int64_t rows : {1, 2})
            checkFourBit({.kvHeads = 2,
                          .group = group,
                          .rows = rows,
                          .keys = keys,
                          .width = width,
                          .valueWidth = valueWidth,
                          .quantized = true,
                          .causal = rows > 1});
  });
}

TEST(FourBitAttention, MasksWindowsAndRaggedLengths) {
  for (const int64_t rows : {1, 9, 40})
    for (const Mask mask : {Mask::none, Mask::additive, Mask::boolean})
      for (const int64_t window : {0, 70})
        for (const int64_t width : {40, 128}) {
          Case c{.batches = 2,
                 .group = 2,
                 .rows = rows,
                 .keys = 201,
                 .width = width,
                 .valueWidth = width == 40 ? 48 : 64,
                 .quantized = true,
                 .causal = true,
                 .sinks = true,
                 .window = window,
                 .mask = mask};
          checkFourBit(c);
          c.totals = {201, 97};
          checkFourBit(c);
        }
}

} // namespace
} // namespace kvopt
