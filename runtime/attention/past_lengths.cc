// Reads the lengths of the batch rows' pasts.
#include "runtime/attention/past_lengths.h"

#include "support/format.h"

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

llvm::Expected<IntegerList> pastLengths(KernelContext& context, unsigned operand, int64_t batches) {
  const TensorView& lengths = context.in(operand);
  if (lengths.element != ElementType::Int64 || lengths.rank() > 1 ||
      (lengths.elementCount() != 1 && lengths.elementCount() != batches))
    return context.error("past_length must be int64 of shape [1] or [batch]");
  auto result = scratchIntegers(context, static_cast<size_t>(batches));
  if (!result)
    return result;
  for (int64_t batch = 0; batch < batches; ++batch)
    (*result)[static_cast<size_t>(batch)] =
        lengths.as<int64_t>()[lengths.elementCount() == 1 ? 0 : batch];
  return result;
}

llvm::Expected<IntegerList> totalLengths(KernelContext& context, unsigned operand, int64_t batches,
                                         int64_t rows, int64_t keys) {
  auto lengths = pastLengths(context, operand, batches);
  if (!lengths)
    return lengths.takeError();
  for (int64_t& length : *lengths) {
    int64_t total = 0;
    if (__builtin_add_overflow(length, rows, &total) || total < 0 || total > keys)
      return context.error(
          fmt::format("past length {} and {} query rows do not fit {} keys", length, rows, keys));
    length = total;
  }
  return lengths;
}

} // namespace kvopt::runtime
