// Attention (opset 23): its causal alignment, default scale and refusals.
#include "tests/runtime/kernels/attention_case.h"

namespace kvopt {
namespace {

struct Operands {
  TestTensor query, key, value;
};

Operands operands(int64_t rows, int64_t keys) {
  return {randomTensor(ElementType::Float, {2, 4, rows, 8}, 1),
          randomTensor(ElementType::Float, {2, 2, keys, 8}, 2),
          randomTensor(ElementType::Float, {2, 2, keys, 6}, 3)};
}

KernelCall call(const char* op, const Operands& given) {
  KernelCall result(op, 23);
  result.in(given.query).in(given.key).in(given.value);
  return result;
}

/// A boolean mask [S,T] of j <= i.
TestTensor topLeft(int64_t rows, int64_t keys) {
  TestTensor mask(ElementType::Bool, {rows, keys});
  for (int64_t i = 0; i < rows * keys; ++i)
    mask.set(i, i % keys <= i / keys);
  return mask;
}

TEST(OnnxAttention, IsSdpaWithTheDefaultScale) {
  const Operands given = operands(3, 5);
  const KernelResult sdpa = call("ai.kvopt::Sdpa", given).attr("scale", 1 / std::sqrt(8.0)).run();
  const KernelResult onnx = call("Attention", given).run();
  ASSERT_EQ(sdpa.error + onnx.error, "");
  EXPECT_TRUE(sdpa.outputs[0].sameBytes(onnx.outputs[0]));
}

TEST(OnnxAttention, CausalIsAlignedTopLeft) {
  for (int64_t rows : {1, 3, 5})
    for (int64_t keys : {3, 5}) {
      SCOPED_TRACE(fmt::format("{} rows {} keys", rows, keys));
      const Operands given = operands(rows, keys);
      const KernelResult sdpa =
          call("ai.kvopt::Sdpa", given).in(topLeft(rows, keys)).attr("scale", 0.5).run();
      ASSERT_EQ(sdpa.error, "");
      auto causal = [&](TestTensor mask) {
        return call("Attention", given)
            .in(std::move(mask))
            .attr("scale", 0.5)
            .attr("is_causal", 1)
            .run();
      };
      const Extents shape = sdpa.outputs[0].shape();
      const std::vector<double> expected = sdpa.outputs[0].values();
      expectTensor(call("Attention", given).attr("scale", 0.5).attr("is_causal", 1).run(), shape,
                   expected, 1e-6);
      expectTensor(causal(bools({1, 1}, {1})), shape, expected, 1e-6);
      expectTensor(causal(floats({1}, {0})), shape, expected, 1e-6);
    }
}

TEST(OnnxAttention, Refuses) {
  const Operands given = operands(2, 4);
  KernelCall withPast = call("Attention", given);
  withPast.absent().in(given.key).in(given.value);
  expectError(withPast.run(), "a past, or lengths of keys");
  expectError(call("Attention", given).in(floats({2, 3}, {0, 0, 0, 0, 0, 0})).run(),
              "a mask shorter than the keys");
  expectError(call("Attention", given).results(2).run(), "only the first result");
  Operands flat = given;
  flat.query = given.query.reshaped({2, 2, 32});
  expectError(call("Attention", flat).run(), "rank 3");
}

/// Empty tensors may have huge other extents; no mask is made for them.
TEST(OnnxAttention, HugeEmptyExtents) {
  const int64_t huge = int64_t{1} << 40;
  Operands given{TestTensor(ElementType::Float, {0, 1, huge, 8}),
                 TestTensor(ElementType::Float, {0, 1, huge + 1, 8}),
                 TestTensor(ElementType::Float, {0, 1, huge + 1, 8})};
  EXPECT_FALSE(call("Attention", given).attr("is_causal", 1).run().ok());
  given.query = TestTensor(ElementType::Float, {0, 1, huge + 1, 8});
  expectTensor(call("Attention", given).attr("is_causal", 1).run(), {0, 1, huge + 1, 8}, {});
}

} // namespace
} // namespace kvopt
