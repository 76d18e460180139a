// Attention over caches in one buffer each: new rows are written after the past ones.
#include "engines/onnxruntime/operators/cache_call.h"

namespace kvopt::onnxruntime {

namespace {

class BufferCall : public CacheCall {
public:
  using CacheCall::CacheCall;

  void run() {
    const std::vector<int64_t> total = operands.setLengths(call, form.pastLength(), capacity());
    if (operands.mask)
      operands.mask->apply(call, operands.view);
    openPresents();
    forEachHead(writtenElements(), [&](CacheSide& side, int64_t batch, int64_t head) {
      const int64_t end = total[static_cast<size_t>(batch)], past = end - rows();
      fill(side, past, end, batch, head);
      writeSpan(side, side.after, {0, past, rows()}, batch, head);
    });
    setSlots(keys().after, values().after);
    operands.attend(call);
  }
};

} // namespace

void attendInBuffer(Call& call, const CacheSettings& settings, const CopyNotice& notice) {
  BufferCall(call, settings, notice).run();
}

} // namespace kvopt::onnxruntime
