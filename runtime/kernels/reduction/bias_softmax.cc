// com.microsoft::BiasSoftmax: y = softmax(x + bias). The softmax treats the axes from `axis` on as
// one, and the bias broadcasts to x. The shape of the bias determines which of its axes are
// repeated; is_inner_broadcast repeats this.
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "runtime/simd/elementwise.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;
using namespace simd;

namespace {

llvm::Error biasSoftmax(KernelContext& context) {
  const TensorView& x = context.in(0);
  const TensorView& bias = context.in(1);
  if (bias.element != x.element || !broadcastsTo(bias.shape, x.shape))
    return context.error("the bias must broadcast to the scores and have their element type");
  const auto rank = static_cast<int64_t>(x.rank());
  int64_t axis = context.node().intAttr("axis", 1);
  axis = axis < 0 ? axis + rank : axis;
  if (axis < 0 || axis > rank)
    return context.error("axis out of range");
  auto output = context.output(0, x.element, x.shape);
  if (!output)
    return output.takeError();
  if (output->elementCount() == 0)
    return llvm::Error::success();
  auto scores = floatsOf(context, x);
  if (!scores)
    return scores.takeError();
  auto addend = floatsOf(context, bias);
  if (!addend)
    return addend.takeError();
  auto result = floatResult(context, *output);
  if (!result)
    return result.takeError();
  const StridedLoop<2> loop(x.shape,
                            {broadcastStrides(x, x.shape), broadcastStrides(bias, x.shape)});
  float* to = *result;
  loop.run([&](auto offsets, int64_t count, auto steps) {
    for (int64_t i = 0; i < count; ++i)
      *to++ = (*scores)[offsets[0] + i * steps[0]] + (*addend)[offsets[1] + i * steps[1]];
  });
  const llvm::ArrayRef<int64_t> shape = x.shape;
  const int64_t length = product(shape.drop_front(static_cast<size_t>(axis)));
  context.parallelFor(product(shape.take_front(static_cast<size_t>(axis))), [&](int64_t row) {
    softmaxRow(*result + row * length, *result + row * length, static_cast<size_t>(length));
  });
  storeFloats(*result, *output);
  return llvm::Error::success();
}

} // namespace

void register_bias_softmax(KernelRegistry& registry) {
  registry.add("com.microsoft::BiasSoftmax", 1, biasSoftmax);
}

} // namespace kvopt::kernels
