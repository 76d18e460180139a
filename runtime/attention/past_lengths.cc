// Reading of the lengths of the batch rows' pasts.
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
          formatted("past length {} and {} query rows do not fit {} keys", length, rows, keys));
    length = total;
  }
  return lengths;
}

llvm::Expected<CacheLengths> cacheLengths(KernelContext& context, unsigned operand, int64_t batches,
                                          int64_t rows, int64_t capacity) {
  auto before = pastLengths(context, operand, batches);
  if (!before)
    return before.takeError();
  auto after = scratchIntegers(context, before->size());
  if (!after)
    return after.takeError();
  for (size_t i = 0; i < before->size(); ++i) {
    int64_t length = (*before)[i];
    if (length < 0 || __builtin_add_overflow(length, rows, &(*after)[i]) || (*after)[i] > capacity)
      return context.error(formatted("past length {} and {} new rows exceed the capacity of {} "
                                     "rows",
                                     length, rows, capacity));
  }
  return CacheLengths{*before, *after};
}

} // namespace kvopt::runtime
