// Attention over caches of fixed capacity, to which new rows are appended.
//
//   present[b,g,j,:] = new[b,g,j - p(b),:]   for p(b) <= j < p(b) + S,  past[b,g,j,:] otherwise
//   output           = Sdpa over rows [0, p(b) + S)             with p = past_length, [1] or [B]
//
// If the past may be overwritten, only the new rows are written.
#include "runtime/attention/cache_stores.h"
#include "runtime/attention/past_lengths.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

llvm::Error attendInBuffer(KernelContext& context, const CacheOperator& op) {
  auto caches = CacheStores::open(context, op);
  if (!caches)
    return caches.takeError();
  auto lengths = cacheLengths(context, op.pastLength(), context.in(CacheOperator::query).shape[0],
                              caches->rows(),
                              std::min(caches->keys().capacity(), caches->values().capacity()));
  if (!lengths)
    return lengths.takeError();
  auto operands = attentionOperands(context, op.mask(), op.sinks());
  if (!operands)
    return operands.takeError();
  if (llvm::Error error = caches->attendToPasts(context, *operands))
    return error;
  operands->totalLengths = lengths->after;
  if (llvm::Error error = checkAttention(context, *operands))
    return error;

  auto output = caches->output(context);
  if (!output)
    return output.takeError();
  const auto appended = [&](int64_t batch) {
    const int64_t slot = lengths->before[static_cast<size_t>(batch)];
    return llvm::SmallVector<RowSpan, 2>{{0, slot, caches->rows()}};
  };
  if (llvm::Error error = caches->write(context, appended, *operands))
    return error;
  return runAttention(context, *operands, *output);
}

} // namespace kvopt::runtime
