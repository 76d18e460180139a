// In-place attention over caches of every layout: the same bits as over [B,G,C,D].
#include "ir/cache_layout.h"
#include "tests/runtime/kernels/attention_case.h"

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

struct Form {
  unsigned rank;
  int axis;
};

constexpr Form rowForms[] = {{4, 0}, {4, 1}, {4, 2}, {3, 1}};
constexpr Form keyForms[] = {{4, 0}, {4, 1}, {4, 2}, {3, 1}, {4, 3}, {3, 2}};

TestTensor transposed(const TestTensor& x, std::vector<int64_t> order) {
  const KernelResult result = KernelCall("Transpose").in(x).attr("perm", std::move(order)).run();
  EXPECT_EQ(result.error, "");
  return result.outputs[0].clone();
}

TestTensor reshaped(const TestTensor& x, const Extents& shape) {
  TestTensor result(x.element(), shape);
  std::memcpy(result.data(), x.data(), x.bytes());
  return result;
}

/// A cache [B,G,C,W] in another form.
TestTensor laidOut(const TestTensor& cache, const Form& form) {
  const CacheLayout layout = *CacheLayout::bySequenceAxis(form.rank, form.axis);
  const llvm::SmallVector<int64_t, 4> order = layout.cacheOrder();
  const std::vector<int64_t> inverse(order.begin(), order.end());
  if (!layout.hasFoldedHeads())
    return transposed(cache, inverse);
  const Extents& shape = cache.shape();
  return transposed(reshaped(cache, {shape[0] * shape[1], shape[2], shape[3]}), inverse);
}

AttentionCase ragged() {
  AttentionCase c;
  c.batches = 2;
  c.kvHeads = 3;
  c.group = 2;
  c.rows = 3;
  c.past = {5, 2};
  c.capacity = 11;
  c.width = 12;
  c.valueWidth = 7;
  c.causal = true;
  c.sinks = true;
  return c;
}

TEST(InPlaceLayouts, GiveTheBitsOfRowsInHeads) {
  const AttentionProblem p(ragged());
  const KernelResult plain = p.call(false).run();
  ASSERT_EQ(plain.error, "");
  for (const Form& keyForm : keyForms)
    for (const Form& valueForm : rowForms) {
      SCOPED_TRACE(formatted("keys rank {} axis {}, values rank {} axis {}", keyForm.rank,
                             keyForm.axis, valueForm.rank, valueForm.axis));
      TestTensor key = laidOut(p.pastKey, keyForm);
      TestTensor value = laidOut(p.pastValue, valueForm);
      KernelCall call("ai.kvopt::InPlaceKvSdpa");
      call.in(p.query).in(p.keyNew).in(p.valueNew).in(key, true).in(value, true);
      call.in(p.pastLength).absent().in(p.sinks).results(3);
      p.attributes(call);
      call.attr("key_axis", keyForm.axis).attr("value_axis", valueForm.axis);
      const KernelResult result = call.run();
      ASSERT_EQ(result.error, "");
      // Columns far apart are summed in another order.
      if (CacheLayout::bySequenceAxis(keyForm.rank, keyForm.axis)->isTransposed())
        expectTensor(result, plain.outputs[0].shape(), p.expected(), p.bound());
      else
        EXPECT_TRUE(result.outputs[0].sameBytes(plain.outputs[0]));
      EXPECT_EQ(result.outputs[1].data(), key.data());
      EXPECT_EQ(result.outputs[2].data(), value.data());
      EXPECT_TRUE(key.sameBytes(laidOut(p.presentKey, keyForm)));
      EXPECT_TRUE(value.sameBytes(laidOut(p.presentValue, valueForm)));
      EXPECT_EQ(result.cacheBytesWritten, plain.cacheBytesWritten);
    }
}

TEST(InPlaceLayouts, ValuesWithColumnsFarApartAreRefused) {
  const AttentionProblem p(ragged());
  const TestTensor value = transposed(p.pastValue, {0, 1, 3, 2});
  KernelCall call("ai.kvopt::InPlaceKvSdpa");
  call.in(p.query).in(p.keyNew).in(p.valueNew).in(p.pastKey).in(value).in(p.pastLength).results(3);
  p.attributes(call);
  expectError(call.attr("value_axis", 3).run(), "last axis");
}

/// Columns [begin, begin + count) of the last axis.
TestTensor columns(const TestTensor& x, int64_t begin, int64_t count) {
  const KernelResult result = KernelCall("Slice")
                                  .in(x)
                                  .in(int64s({double(begin)}))
                                  .in(int64s({double(begin + count)}))
                                  .in(int64s({3}))
                                  .run();
  EXPECT_EQ(result.error, "");
  return result.outputs[0].clone();
}

TEST(InPlaceLatentKvSdpa, IsInPlaceKvSdpaWithColumnsOfTheKeysAsValues) {
  for (ElementType element : {ElementType::Float, ElementType::Float16})
    for (int64_t offset : {0, 3}) {
      AttentionCase c = ragged();
      c.element = element;
      c.valueWidth = 8;
      const AttentionProblem p(c);
      KernelCall separate("ai.kvopt::InPlaceKvSdpa");
      separate.in(p.query).in(p.keyNew).in(columns(p.keyNew, offset, c.valueWidth));
      separate.in(p.pastKey).in(columns(p.pastKey, offset, c.valueWidth)).in(p.pastLength);
      separate.absent().in(p.sinks).results(3);
      p.attributes(separate);
      const KernelResult expected = separate.run();
      ASSERT_EQ(expected.error, "");
      for (const Form& form : rowForms) {
        SCOPED_TRACE(formatted("rank {} axis {} offset {}", form.rank, form.axis, offset));
        TestTensor cache = laidOut(p.pastKey, form);
        KernelCall call("ai.kvopt::InPlaceLatentKvSdpa");
        call.in(p.query).in(p.keyNew).in(cache, true).in(p.pastLength).absent().in(p.sinks);
        call.results(2);
        p.attributes(call);
        call.attr("key_axis", form.axis).attr("v_offset", static_cast<int>(offset));
        call.attr("v_width", static_cast<int>(c.valueWidth));
        const KernelResult result = call.run();
        ASSERT_EQ(result.error, "");
        EXPECT_TRUE(result.outputs[0].sameBytes(expected.outputs[0]));
        EXPECT_EQ(result.outputs[1].data(), cache.data());
        EXPECT_TRUE(cache.sameBytes(laidOut(p.presentKey, form)));
        EXPECT_EQ(result.cacheBytesWritten,
                  c.batches * c.kvHeads * c.rows * c.width * int64_t{*byteWidth(element)});
      }
    }
}

TEST(InPlaceLatentKvSdpa, RefusesColumnsThatAreNotThereAndLeavesTheCache) {
  const AttentionProblem p(ragged());
  for (int width : {0, 9}) {
    TestTensor cache = p.pastKey.clone();
    KernelCall call("ai.kvopt::InPlaceLatentKvSdpa");
    call.in(p.query).in(p.keyNew).in(cache, true).in(p.pastLength).results(2);
    p.attributes(call);
    expectError(call.attr("v_offset", 4).attr("v_width", width).run(), "columns from 4 on");
    EXPECT_TRUE(cache.sameBytes(p.pastKey));
  }
}

} // namespace
} // namespace kvopt
