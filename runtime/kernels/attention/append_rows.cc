// ai.kvopt::AppendRows: each batch row's valid past rows, followed by its new rows and zeros.
#include "runtime/attention/past_lengths.h"
#include "support/format.h"

#include <cstring>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error check(const KernelContext& context, const TensorView& past, const TensorView& fresh) {
  if (past.rank() != 4 || fresh.rank() != 4)
    return context.error("past and fresh rows must have rank 4");
  if (past.element != fresh.element)
    return context.error(formatted("past and fresh rows have element types {} and {}",
                                   onnxName(past.element), onnxName(fresh.element)));
  for (unsigned axis : {0u, 1u, 3u})
    if (past.shape[axis] != fresh.shape[axis])
      return context.error(formatted("extents {} and {} of past and fresh rows differ on axis {}",
                                     past.shape[axis], fresh.shape[axis], axis));
  return llvm::Error::success();
}

llvm::Error appendRows(KernelContext& context) {
  const TensorView& past = context.in(0);
  const TensorView& fresh = context.in(1);
  if (llvm::Error error = check(context, past, fresh))
    return error;
  int64_t batches = fresh.shape[0];
  int64_t heads = fresh.shape[1];
  auto lengths = pastLengths(context, 2, batches);
  if (!lengths)
    return lengths.takeError();
  for (int64_t length : *lengths)
    if (length < 0 || length > past.shape[2])
      return context.error(
          formatted("a past length of {} does not fit {} rows", length, past.shape[2]));
  int64_t rows = 0;
  if (__builtin_add_overflow(past.shape[2], fresh.shape[2], &rows))
    return context.error("the number of rows does not fit");
  auto present = context.output(0, fresh.element, {batches, heads, rows, fresh.shape[3]});
  if (!present)
    return present.takeError();
  if (present->elementCount() == 0)
    return llvm::Error::success();
  int64_t rowBytes = fresh.shape[3] * static_cast<int64_t>(*byteWidth(fresh.element));
  context.parallelFor(batches * heads, [&](int64_t unit) {
    int64_t valid = (*lengths)[static_cast<size_t>(unit / heads)];
    int64_t added = fresh.shape[2];
    std::byte* to = present->data + unit * rows * rowBytes;
    auto bytes = [&](int64_t count) { return static_cast<size_t>(count * rowBytes); };
    if (valid != 0)
      std::memcpy(to, past.data + unit * past.shape[2] * rowBytes, bytes(valid));
    if (added != 0)
      std::memcpy(to + valid * rowBytes, fresh.data + unit * added * rowBytes, bytes(added));
    std::memset(to + (valid + added) * rowBytes, 0, bytes(rows - valid - added));
  });
  return llvm::Error::success();
}

} // namespace

void register_append_rows(KernelRegistry& registry) {
  registry.add("ai.kvopt::AppendRows", 1, appendRows);
}

} // namespace kvopt::kernels
