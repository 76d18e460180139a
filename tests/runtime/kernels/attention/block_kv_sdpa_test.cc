// BlockKvSdpa: the bits of Sdpa over all rows in one piece, in every layout and however the rows
// are divided; what does not fit is an error.
#include "ir/cache_layout.h"
#include "tests/runtime/kernels/attention_case.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

struct BlockForm {
  unsigned rank;
  int axis;
};

constexpr BlockForm blockRowForms[] = {{4, 0}, {4, 1}, {4, 2}, {3, 1}};
constexpr BlockForm blockKeyForms[] = {{4, 0}, {4, 1}, {4, 2}, {3, 1}, {4, 3}, {3, 2}};

TestTensor outputOf(const KernelCall& call) {
  const KernelResult result = call.run();
  EXPECT_EQ(result.error, "");
  return result.outputs[0].clone();
}

TestTensor blockTransposed(const TestTensor& x, std::vector<int64_t> order) {
  return outputOf(KernelCall("Transpose").in(x).attr("perm", std::move(order)));
}

/// Rows [begin, end) of a tensor [B,G,C,W].
TestTensor blockRowsOf(const TestTensor& x, int64_t begin, int64_t end) {
  return outputOf(KernelCall("Slice")
                      .in(x)
                      .in(int64s({double(begin)}))
                      .in(int64s({double(end)}))
                      .in(int64s({2})));
}

/// Rows [B,G,C,W] as a cache of another form holds them.
TestTensor laidOut(const TestTensor& rows, const BlockForm& form) {
  const CacheLayout layout = *CacheLayout::bySequenceAxis(form.rank, form.axis);
  const llvm::SmallVector<int64_t, 4> order = layout.cacheOrder();
  const std::vector<int64_t> inverse(order.begin(), order.end());
  if (!layout.hasFoldedHeads())
    return blockTransposed(rows, inverse);
  const Extents& shape = rows.shape();
  TestTensor folded(rows.element(), {shape[0] * shape[1], shape[2], shape[3]});
  std::memcpy(folded.data(), rows.data(), rows.bytes());
  return blockTransposed(folded, inverse);
}

AttentionCase problem() {
  AttentionCase c;
  c.batches = 2;
  c.kvHeads = 3;
  c.group = 2;
  c.rows = 3;
  c.past = {13};
  c.capacity = 16;
  c.width = 12;
  c.valueWidth = 7;
  c.causal = true;
  c.sinks = true;
  return c;
}

/// The problem's past in blocks that end at `ends`, which may be none.
KernelCall callOf(const AttentionProblem& p, const std::vector<int64_t>& ends,
                  BlockForm keys = {4, 2}, BlockForm values = {4, 2}) {
  KernelCall call("ai.kvopt::BlockKvSdpa");
  call.in(p.query).in(p.keyNew).in(p.valueNew);
  p.c.mask == MaskForm::none ? call.absent() : call.in(p.mask);
  p.c.sinks ? call.in(p.sinks) : call.absent();
  for (const auto& [rows, form] : {std::pair(&p.pastKey, keys), std::pair(&p.pastValue, values)}) {
    int64_t begin = 0;
    for (int64_t end : ends) {
      call.in(laidOut(blockRowsOf(*rows, begin, end), form));
      begin = end;
    }
  }
  p.attributes(call);
  call.attr("key_axis", keys.axis).attr("value_axis", values.axis);
  if (p.c.mask == MaskForm::boolean)
    call.attr("mask_boolean", 1);
  return call;
}

TEST(BlockKvSdpa, HasTheBitsOfOnePiece) {
  for (ElementType element : {ElementType::Float, ElementType::Float16})
    for (MaskForm mask : {MaskForm::none, MaskForm::additive}) {
      AttentionCase c = problem();
      c.element = element;
      c.mask = mask;
      const AttentionProblem p(c);
      const TestTensor whole = outputOf(callOf(p, {13}));
      for (const std::vector<int64_t>& ends :
           {std::vector<int64_t>{5, 10, 13, 13}, {1, 2, 3, 13}, {0, 0, 13}, {6, 12, 13}}) {
        const TestTensor parts = outputOf(callOf(p, ends));
        EXPECT_TRUE(parts.sameBytes(whole));
      }
    }
}

TEST(BlockKvSdpa, ComputesAttention) {
  for (MaskForm mask : {MaskForm::none, MaskForm::additive, MaskForm::boolean})
    for (int64_t window : {0, 4}) {
      AttentionCase c = problem();
      c.mask = mask;
      c.window = window;
      c.softcap = window == 0 ? 0.0f : 2.0f;
      const AttentionProblem p(c);
      expectTensor(callOf(p, {5, 10, 13}).run(), {c.batches, c.heads(), c.rows, c.valueWidth},
                   p.expected(), p.bound());
    }
}

TEST(BlockKvSdpa, LayoutsGiveTheBitsOfRowsInHeads) {
  const AttentionProblem p(problem());
  const TestTensor whole = outputOf(callOf(p, {13}));
  for (const BlockForm& keys : blockKeyForms)
    for (const BlockForm& values : blockRowForms) {
      SCOPED_TRACE(fmt::format("keys rank {} axis {}, values rank {} axis {}", keys.rank, keys.axis,
                               values.rank, values.axis));
      const TestTensor single = outputOf(callOf(p, {13}, keys, values));
      const TestTensor parts = outputOf(callOf(p, {4, 8, 12, 13}, keys, values));
      EXPECT_TRUE(parts.sameBytes(single));
      // Columns far apart are summed in another order.
      EXPECT_TRUE(single.sameBytes(whole) ||
                  CacheLayout::bySequenceAxis(keys.rank, keys.axis)->isTransposed());
    }
}

TEST(BlockKvSdpa, WithoutAPast) {
  AttentionCase c = problem();
  c.past = {0};
  const AttentionProblem p(c);
  const TestTensor none = outputOf(callOf(p, {}));
  EXPECT_TRUE(outputOf(callOf(p, {0})).sameBytes(none));
  EXPECT_TRUE(outputOf(callOf(p, {0, 0, 0})).sameBytes(none));
  expectTensor(callOf(p, {0, 0}).run(), {c.batches, c.heads(), c.rows, c.valueWidth}, p.expected(),
               p.bound());
}

TEST(BlockKvSdpa, WhatDoesNotFitIsAnError) {
  const AttentionProblem p(problem());
  auto start = [&] {
    KernelCall call("ai.kvopt::BlockKvSdpa");
    call.in(p.query).in(p.keyNew).in(p.valueNew).absent().absent();
    p.attributes(call);
    return call;
  };
  const TestTensor keys = blockRowsOf(p.pastKey, 0, 4), values = blockRowsOf(p.pastValue, 0, 4);
  expectError(start().in(keys).run(), "not as many of keys as of values");
  expectError(start().in(keys).in(blockRowsOf(p.pastValue, 0, 3)).run(), "4 rows of keys and 3 of");
  expectError(start().in(values).in(keys).run(), "wide");
  expectError(start().in(blockTransposed(keys, {1, 0, 2, 3})).in(values).run(),
              "differ in batch size or heads");
  expectError(
      start().attr("value_axis", 3).in(keys).in(blockTransposed(values, {0, 1, 3, 2})).run(),
      "last axis");
  KernelCall unequal("ai.kvopt::BlockKvSdpa");
  unequal.in(p.query).in(keys).in(values);
  p.attributes(unequal);
  expectError(unequal.run(), "4 new key rows and 3 query rows");
}

/// Columns [begin, begin + count) of the last axis.
TestTensor blockColumns(const TestTensor& x, int64_t begin, int64_t count) {
  return outputOf(KernelCall("Slice")
                      .in(x)
                      .in(int64s({double(begin)}))
                      .in(int64s({double(begin + count)}))
                      .in(int64s({3})));
}

TEST(BlockLatentKvSdpa, IsBlockKvSdpaWithColumnsOfTheKeysAsValues) {
  constexpr int width = 8;
  for (ElementType element : {ElementType::Float, ElementType::Float16})
    for (int offset : {0, 3}) {
      AttentionCase c = problem();
      c.element = element;
      c.valueWidth = width;
      const AttentionProblem p(c);
      const std::vector<int64_t> ends{4, 8, 8, 13};
      KernelCall separate("ai.kvopt::BlockKvSdpa");
      separate.in(p.query)
          .in(p.keyNew)
          .in(blockColumns(p.keyNew, offset, width))
          .absent()
          .in(p.sinks);
      KernelCall latent("ai.kvopt::BlockLatentKvSdpa");
      latent.in(p.query).in(p.keyNew).absent().in(p.sinks);
      for (bool ofValues : {false, true}) {
        int64_t begin = 0;
        for (int64_t end : ends) {
          const TestTensor rows = blockRowsOf(p.pastKey, begin, end);
          separate.in(ofValues ? blockColumns(rows, offset, width) : rows.clone());
          if (!ofValues)
            latent.in(laidOut(rows, {4, 1}));
          begin = end;
        }
      }
      p.attributes(separate);
      p.attributes(latent);
      latent.attr("v_offset", offset).attr("v_width", width).attr("key_axis", 1);
      EXPECT_TRUE(outputOf(latent).sameBytes(outputOf(separate)));
      KernelCall tooWide("ai.kvopt::BlockLatentKvSdpa");
      tooWide.in(p.query).in(p.keyNew);
      p.attributes(tooWide);
      expectError(tooWide.attr("v_offset", offset).attr("v_width", 13 - offset).run(),
                  "columns from");
    }
}

} // namespace
} // namespace kvopt
