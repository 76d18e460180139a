// Operands and results are contiguous tensors in memory on both sides.
#include "runtime/exec/run_definition.h"

#include "meaning/numbers/node_numbers.h"

namespace kvopt::runtime {

llvm::Error runDefinition(void (*definition)(meaning::Call&), KernelContext& context) {
  std::vector<meaning::Array> arrays(context.inputCount());
  std::vector<const meaning::Array*> operands;
  for (unsigned k = 0; k < context.inputCount(); ++k) {
    const TensorView* view = context.input(k);
    if (view) {
      arrays[k].type = view->element;
      arrays[k].extents.assign(view->shape.begin(), view->shape.end());
      arrays[k].data = view->data;
    }
    operands.push_back(view ? &arrays[k] : nullptr);
  }
  return meaning::computeNode(definition, context.node(), context.opset(), operands,
                              [&](unsigned result, ir::ElementType type,
                                  llvm::ArrayRef<int64_t> extents) -> llvm::Expected<std::byte*> {
                                if (!context.wants(result))
                                  return nullptr;
                                llvm::Expected<TensorView> output =
                                    context.output(result, type, extents);
                                if (!output)
                                  return output.takeError();
                                return output->data;
                              });
}

} // namespace kvopt::runtime
