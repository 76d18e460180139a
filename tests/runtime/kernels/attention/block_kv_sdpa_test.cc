// BlockKvSdpa, and the same over codes: the bits of attention over all rows in one piece, in every
// layout and however the rows are divided; what does not fit is an error.
#include "ir/cache_layout.h"
#include "tests/runtime/kernels/quantized_attention_case.h"

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
      SCOPED_TRACE(formatted("keys rank {} axis {}, values rank {} axis {}", keys.rank, keys.axis,
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
  expectError(start().in(keys).run(), "cannot be divided equally into keys and values");
  expectError(start().in(keys).in(blockRowsOf(p.pastValue, 0, 3)).run(), "4 rows of keys and 3 of");
  expectError(start().in(values).in(keys).run(), "wide");
  expectError(start().in(blockTransposed(keys, {1, 0, 2, 3})).in(values).run(),
              "differ in batch size or heads");
  expectError(
      start().attr("value_axis", 3).in(keys).in(blockTransposed(values, {0, 1, 3, 2})).run(),
      "last axis");
  expectError(start().in(keys).in(laidOut(keys, {3, 2})).in(values).in(values).run(),
              "only one of blocks 0 and 1 of the keys has the sequence on the last axis");
  KernelCall unequal("ai.kvopt::BlockKvSdpa");
  unequal.in(p.query).in(keys).in(values);
  p.attributes(unequal);
  expectError(unequal.run(), "4 new key rows and 3 query rows");
}

/// A case's past of codes in blocks that end at `ends`; layouts are those of codes and scales.
KernelCall codesCallOf(const QuantizedProblem& p, const std::vector<int64_t>& ends,
                       BlockForm keys = {4, 2}, BlockForm values = {4, 2}) {
  const AttentionCase& c = p.c();
  KernelCall call("ai.kvopt::BlockQuantizedKvSdpa");
  auto newRows = [&](const TestTensor& present) {
    return blockRowsOf(present, c.past[0], c.past[0] + c.rows);
  };
  call.in(p.plain.query).in(newRows(p.key.presentCodes)).in(newRows(p.value.presentCodes));
  c.mask == MaskForm::none ? call.absent() : call.in(p.plain.mask);
  c.sinks ? call.in(p.plain.sinks) : call.absent();
  call.in(newRows(p.key.presentScales)).in(newRows(p.value.presentScales));
  for (const auto& [rows, form] :
       {std::pair(&p.key.codes, keys), std::pair(&p.value.codes, values),
        std::pair(&p.key.scales, keys), std::pair(&p.value.scales, values)}) {
    int64_t begin = 0;
    for (int64_t end : ends) {
      call.in(laidOut(blockRowsOf(*rows, begin, end), form));
      begin = end;
    }
  }
  p.plain.attributes(call);
  call.attr("key_axis", keys.axis).attr("value_axis", values.axis);
  call.attr("mask_boolean", c.mask == MaskForm::boolean ? 1 : 0);
  return call;
}

TEST(BlockQuantizedKvSdpa, HasTheBitsOfABuffer) {
  for (ElementType element : {ElementType::Float, ElementType::Float16, ElementType::BFloat16})
    for (MaskForm mask : {MaskForm::none, MaskForm::additive, MaskForm::boolean})
      for (int64_t rows : {1, 3, 40})
        for (int64_t window : {0, 6}) {
          AttentionCase c = problem();
          c.element = element;
          c.mask = mask;
          c.rows = rows;
          c.window = window;
          c.capacity = c.longest();
          SCOPED_TRACE(formatted("{} {} rows, window {}", onnxName(element).str(), rows, window));
          const QuantizedProblem p(c);
          const TestTensor whole = outputOf(p.call(false));
          expectTensor(codesCallOf(p, {13}).run(), {c.batches, c.heads(), rows, c.valueWidth},
                       p.expected(), p.bound());
          for (const std::vector<int64_t>& ends :
               {std::vector<int64_t>{13}, {5, 10, 13, 13}, {1, 2, 3, 13}, {0, 0, 13}})
            EXPECT_TRUE(outputOf(codesCallOf(p, ends)).sameBytes(whole));
        }
}

TEST(BlockQuantizedKvSdpa, TakesEveryLayout) {
  AttentionCase c = problem();
  c.capacity = c.longest();
  const QuantizedProblem p(c);
  for (const BlockForm& keys : blockKeyForms)
    for (const BlockForm& values : blockRowForms) {
      SCOPED_TRACE(formatted("keys rank {} axis {}, values rank {} axis {}", keys.rank, keys.axis,
                             values.rank, values.axis));
      expectTensor(codesCallOf(p, {4, 8, 12, 13}, keys, values).run(),
                   {c.batches, c.heads(), c.rows, c.valueWidth}, p.expected(), p.bound());
    }
}

TEST(BlockQuantizedKvSdpa, WhatDoesNotFitIsAnError) {
  AttentionCase c = problem();
  c.capacity = c.longest();
  c.sinks = false;
  const QuantizedProblem p(c);
  auto newRows = [&](const TestTensor& present) { return blockRowsOf(present, 13, 16); };
  auto start = [&] {
    KernelCall call("ai.kvopt::BlockQuantizedKvSdpa");
    call.in(p.plain.query).in(newRows(p.key.presentCodes)).in(newRows(p.value.presentCodes));
    call.absent().absent();
    call.in(newRows(p.key.presentScales)).in(newRows(p.value.presentScales));
    p.plain.attributes(call);
    return call;
  };
  const TestTensor keys = blockRowsOf(p.key.codes, 0, 4), values = blockRowsOf(p.value.codes, 0, 4);
  const TestTensor scales = blockRowsOf(p.key.scales, 0, 4);
  expectError(start().in(keys).in(values).in(scales).run(), "and their scales");
  expectError(start().in(keys).in(values).in(scales).in(blockRowsOf(p.key.scales, 0, 3)).run(),
              "scales of the values are float [2, 3, 3, 1]");
  KernelCall numbers("ai.kvopt::BlockQuantizedKvSdpa");
  numbers.in(p.plain.query).in(p.plain.keyNew).in(p.plain.valueNew).absent().absent();
  numbers.in(newRows(p.key.presentScales)).in(newRows(p.value.presentScales));
  p.plain.attributes(numbers);
  expectError(numbers.run(), "must be int8 codes");
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
