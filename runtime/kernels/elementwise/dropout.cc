// Dropout in inference mode: output = data; mask = true everywhere.
//
// Versions: from opset 7 (before, an attribute selected inference; from 12 on, the operand
// training_mode does). The mask has the data's type before opset 10. Training with a ratio other
// than 0 drops elements at random and is not supported.
#include "runtime/kernels/support/element_dispatch.h"

#include <cstring>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

template <class T> void fillOnes(const TensorView& view) {
  std::fill_n(view.as<T>(), view.elementCount(), store<T>(1));
}

llvm::Error checkInference(KernelContext& context) {
  const TensorView* training = context.inputCount() > 2 ? context.input(2) : nullptr;
  if (!training)
    return llvm::Error::success();
  if (training->element != ElementType::Bool || training->elementCount() != 1)
    return context.error("training_mode is not one bool");
  if (*training->as<uint8_t>() == 0)
    return llvm::Error::success();
  return context.error("training mode drops elements at random: only inference is executed");
}

llvm::Error dropout(KernelContext& context) {
  if (llvm::Error error = checkInference(context))
    return error;
  const TensorView& data = context.in(0);
  auto output = context.output(0, data.element, data.shape);
  if (!output)
    return output.takeError();
  if (data.elementCount() != 0)
    std::memcpy(output->data, data.data, static_cast<size_t>(data.byteSize()));
  if (!context.wants(1))
    return llvm::Error::success();
  if (context.opset() >= 10) {
    auto mask = context.output(1, ElementType::Bool, data.shape);
    if (!mask)
      return mask.takeError();
    std::fill_n(mask->as<uint8_t>(), mask->elementCount(), uint8_t{1});
    return llvm::Error::success();
  }
  return dispatch(FloatTypes(), context, data.element, [&](auto tag) -> llvm::Error {
    auto mask = context.output(1, data.element, data.shape);
    if (!mask)
      return mask.takeError();
    fillOnes<typename decltype(tag)::Type>(*mask);
    return llvm::Error::success();
  });
}

} // namespace

void register_dropout(KernelRegistry& registry) { registry.add("Dropout", 7, dropout); }

} // namespace kvopt::kernels
