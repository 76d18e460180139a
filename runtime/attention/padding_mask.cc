// Sum of a bias, hidden keys and a causal limit.
#include "runtime/attention/padding_mask.h"

#include "runtime/attention/attention_heads.h"
#include "runtime/kernels/support/broadcast.h"
#include "runtime/kernels/support/float_operand.h"
#include "support/format.h"

#include <limits>

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

namespace {

enum class Form { None, Lengths, Ranges, Keys, Pairs };

llvm::Expected<Form> formOf(KernelContext& context, const PaddingMaskRequest& request) {
  if (!request.visible)
    return Form::None;
  const Extents& shape = request.visible->shape;
  if (shape == Extents{request.batches} || shape == Extents{3 * request.batches + 2})
    return Form::Lengths;
  if (request.hasStartPositions && shape == Extents{2 * request.batches})
    return Form::Ranges;
  if (shape == Extents{request.batches, request.keys})
    return Form::Keys;
  if (shape == Extents{request.batches, request.rows, request.keys})
    return Form::Pairs;
  return context.error(fmt::format(
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
  Extents shape{*form == Form::None ? 1 : request.batches, 1, request.rows, request.keys};
  const float* bias = nullptr;
  Extents biasStrides;
  if (request.bias) {
    const TensorView& given = *request.bias;
    if (given.rank() != 4 || (given.shape[0] != 1 && given.shape[0] != request.batches) ||
        (given.shape[1] != 1 && given.shape[1] != request.heads) ||
        given.shape[2] != request.rows || given.shape[3] != request.keys)
      return context.error("an attention bias must be [1|B,1|H,S,T]");
    shape[0] = std::max(shape[0], given.shape[0]);
    shape[1] = given.shape[1];
    auto floats = floatsOf(context, given);
    if (!floats)
      return floats.takeError();
    bias = *floats;
    biasStrides = broadcastStrides(given, shape);
  }
  auto mask = scratchTensor(context, ElementType::Float, shape);
  if (!mask)
    return mask;
  auto isVisible = [&](int64_t batch, int64_t row, int64_t key) {
    switch (*form) {
    case Form::None:
      return true;
    case Form::Lengths:
      return key < visible[static_cast<size_t>(batch)];
    case Form::Ranges:
      return key < visible[static_cast<size_t>(batch)] &&
             key >= visible[static_cast<size_t>(request.batches + batch)];
    case Form::Keys:
      return visible[static_cast<size_t>(batch * request.keys + key)] > 0;
    case Form::Pairs:
      return visible[static_cast<size_t>((batch * request.rows + row) * request.keys + key)] > 0;
    }
    return true;
  };
  float* out = mask->as<float>();
  for (int64_t batch = 0; batch < shape[0]; ++batch)
    for (int64_t head = 0; head < shape[1]; ++head)
      for (int64_t row = 0; row < request.rows; ++row)
        for (int64_t key = 0; key < request.keys; ++key) {
          float value = isVisible(batch, row, key) ? 0.0f : request.hidden;
          if (request.causal && row + 1 < request.rows && key > request.pastRows + row)
            value = std::numeric_limits<float>::lowest();
          if (bias)
            value += bias[batch * biasStrides[0] + head * biasStrides[1] + row * biasStrides[2] +
                          key * biasStrides[3]];
          *out++ = value;
        }
  return mask;
}

} // namespace kvopt::runtime
