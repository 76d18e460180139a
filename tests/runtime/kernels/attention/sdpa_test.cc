// Sdpa with past_length: rows of one key tensor that are valid for one batch row and not for
// another.
#include "tests/runtime/kernels/attention_case.h"

namespace kvopt {
using namespace ir;

namespace {

AttentionCase ragged(std::vector<int64_t> past) {
  AttentionCase c;
  c.batches = 2;
  c.kvHeads = 2;
  c.group = 2;
  c.rows = 3;
  c.past = std::move(past);
  c.capacity = 12;
  return c;
}

KernelCall call(const AttentionProblem& p) {
  KernelCall result("ai.kvopt::Sdpa");
  result.in(p.query).in(p.presentKey).in(p.presentValue);
  p.c.mask == MaskForm::none ? result.absent() : result.in(p.mask);
  p.c.sinks ? result.in(p.sinks) : result.absent();
  result.in(p.pastLength);
  p.attributes(result);
  return result;
}

/// The rows behind the valid ones are NaN, so reading one shows.
TEST(Sdpa, PastLengthMasksAndAligns) {
  for (const std::vector<int64_t>& past : {std::vector<int64_t>{9}, {4}, {0}, {7, 2}, {0, 9}})
    for (int options = 0; options < 8; ++options) {
      AttentionCase c = ragged(past);
      c.causal = options & 1;
      c.window = options & 2 ? 3 : 0;
      c.sinks = options & 4;
      c.softcap = options & 4 ? 2.0f : 0.0f;
      SCOPED_TRACE(formatted("past {} options {}", past[0], options));
      const AttentionProblem p(c);
      expectTensor(call(p).run(), {c.batches, c.heads(), c.rows, c.valueWidth}, p.expected(),
                   p.bound());
    }
}

/// A mask covers all rows of the keys, those that are never read included, or those that the
/// longest batch row reads.
TEST(Sdpa, MaskBesidePastLength) {
  const AttentionProblem p(ragged({6, 1}));
  const std::vector<double> unmasked = p.expected();
  const auto masked = [&](bool isBoolean, int64_t columns) {
    KernelCall sdpa("ai.kvopt::Sdpa");
    sdpa.in(p.query).in(p.presentKey).in(p.presentValue);
    std::vector<double> mask(static_cast<size_t>(columns), isBoolean ? 1 : 0.5);
    sdpa.in(
        TestTensor(isBoolean ? ElementType::Bool : ElementType::Float, {1, 1, 1, columns}, mask));
    sdpa.absent().in(p.pastLength);
    p.attributes(sdpa);
    return sdpa.run();
  };
  for (bool isBoolean : {false, true})
    for (int64_t columns : {9, 12})
      expectTensor(masked(isBoolean, columns), {2, 4, 3, 8}, unmasked, 2 * p.bound());
  expectError(masked(true, 10), "the mask's extent 10");
  AttentionCase c = ragged({6, 1});
  c.mask = MaskForm::additive;
  const AttentionProblem additive(c);
  expectTensor(call(additive).run(), {2, 4, 3, 8}, additive.expected(), additive.bound());
}

/// Fewer keys than query rows: the first rows see nothing.
TEST(Sdpa, NegativePastLength) {
  AttentionCase c = ragged({0});
  const AttentionProblem p(c);
  const KernelResult shorter = KernelCall("ai.kvopt::Sdpa")
                                   .in(p.query)
                                   .in(p.presentKey)
                                   .in(p.presentValue)
                                   .absent()
                                   .absent()
                                   .in(int64s({-1, -3}))
                                   .attr("scale", 0.5)
                                   .attr("causal", 1)
                                   .run();
  ASSERT_EQ(shorter.error, "");
  const TestTensor& output = shorter.outputs[0];
  for (int64_t head = 0; head < 4; ++head)
    for (int64_t row = 0; row < 3; ++row)
      for (int64_t column = 0; column < 8; ++column) {
        double first = output.get((head * 3 + row) * 8 + column);
        if (row == 0) {
          EXPECT_EQ(first, 0);
        }
        if (row == 1) {
          EXPECT_EQ(first, p.presentValue.get(head / 2 * 12 * 8 + column));
        }
        EXPECT_EQ(output.get(((4 + head) * 3 + row) * 8 + column), 0);
      }
}

TEST(Sdpa, RefusesLengthsThatDoNotFit) {
  const AttentionProblem p(ragged({0}));
  auto error = [&](const TestTensor& lengths) {
    return KernelCall("ai.kvopt::Sdpa")
        .in(p.query)
        .in(p.presentKey)
        .in(p.presentValue)
        .absent()
        .absent()
        .in(lengths)
        .attr("scale", 0.5)
        .run();
  };
  expectError(error(int64s({0, 10})), "past length 10 and 3 query rows do not fit 12 keys");
  expectError(error(int64s({-4})), "past length -4");
  expectError(error(int64s({0, 0, 0})), "shape [1] or [batch]");
  expectError(error(int64s({9e18})), "do not fit");
}

} // namespace
} // namespace kvopt
