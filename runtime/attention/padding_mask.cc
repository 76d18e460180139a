// Operands of the mask, and its memory.
#include "runtime/attention/padding_mask.h"

#include "runtime/attention/attention_heads.h"
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/simd/attention/padding_mask.h"
#include "support/format.h"

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

namespace {

llvm::Expected<simd::PaddingForm> formOf(KernelContext& context,
                                         const PaddingMaskRequest& request) {
  if (!request.visible)
    return simd::PaddingForm::none;
  const Extents& shape = request.visible->shape;
  if (const auto form = simd::paddingFormOf({shape.data(), shape.size()}, request.batches,
                                            request.rows, request.keys, request.hasStartPositions))
    return *form;
  return context.error(formatted(
      "a mask that is neither [B], {}[3B+2], [B,T] nor [B,S,T] with B = {}, S = {} and "
      "T = {}",
      request.hasStartPositions ? "[2B], " : "", request.batches, request.rows, request.keys));
}

} // namespace

llvm::Expected<TensorView> paddingMask(KernelContext& context, const PaddingMaskRequest& request,
                                       llvm::ArrayRef<int64_t> visible) {
  auto form = formOf(context, request);
  if (!form)
    return form.takeError();
  simd::PaddingMask sum;
  sum.form = *form;
  sum.visible = visible.data();
  sum.batches = *form == simd::PaddingForm::none ? 1 : request.batches;
  sum.rows = request.rows;
  sum.keys = request.keys;
  sum.pastRows = request.pastRows;
  sum.causal = request.causal;
  sum.hidden = request.hidden;
  if (request.bias) {
    const TensorView& given = *request.bias;
    if (given.rank() != 4 || (given.shape[0] != 1 && given.shape[0] != request.batches) ||
        (given.shape[1] != 1 && given.shape[1] != request.heads) ||
        given.shape[2] != request.rows || given.shape[3] != request.keys)
      return context.error("an attention bias must be [1|B,1|H,S,T]");
    sum.batches = std::max(sum.batches, given.shape[0]);
    sum.heads = given.shape[1];
    auto floats = floatsOf(context, given);
    if (!floats)
      return floats.takeError();
    sum.bias = *floats;
    llvm::copy(broadcastStrides(given, {sum.batches, sum.heads, sum.rows, sum.keys}),
               sum.biasStrides);
  }
  auto mask =
      scratchTensor(context, ElementType::Float, {sum.batches, sum.heads, sum.rows, sum.keys});
  if (!mask)
    return mask;
  sum.write(mask->as<float>());
  return mask;
}

} // namespace kvopt::runtime
