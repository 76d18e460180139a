// ai.kvopt::RingKvSdpa: attention over the last rows of a ring and the new ones, which then take
// the place of the oldest.
//
// A single token is written first, to the slot of the one that it no longer sees; the order of keys
// does not matter, so that attention then reads the slots as they lie. Several tokens need rows
// that they overwrite: kept and new rows are put in order in temporary memory, and written behind
// that. Everything is checked before the first byte is written: after an error the cache is what it
// was.
#include "runtime/attention/past_lengths.h"
#include "runtime/attention/ring_cache.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Expected<int64_t> pastLength(KernelContext& context, int64_t batches) {
  auto lengths = pastLengths(context, 5, batches);
  if (!lengths)
    return lengths.takeError();
  if (lengths->empty())
    return 0;
  if (llvm::any_of(*lengths, [&](int64_t length) { return length != lengths->front(); }))
    return context.error("batch rows of different lengths do not share a ring");
  return lengths->front();
}

class RingAttention {
public:
  RingAttention(KernelContext& nodeContext, RingCache keyRing, RingCache valueRing)
      : context(nodeContext), key(std::move(keyRing)), value(std::move(valueRing)) {}

  llvm::Error run(int64_t past) {
    auto given = attentionOperands(context, 6, 7);
    if (!given)
      return given.takeError();
    operands = std::move(*given);
    attended = key.kept() + key.cache().rows();
    if (operands.mask) {
      auto columns = lastColumns(context, *operands.mask, attended);
      if (!columns)
        return columns.takeError();
      mask = std::move(*columns);
      operands.mask = &mask;
    }
    return key.cache().rows() == 1 && !isNarrowed() ? single(past) : several();
  }

private:
  /// Whether a token sees less than the slots hold.
  bool isNarrowed() const { return operands.window != 0 && operands.window < attended; }

  llvm::Error single(int64_t past) {
    const TensorView& query = operands.query;
    auto totals = scratchIntegers(context, static_cast<size_t>(query.shape[0]));
    if (!totals)
      return totals.takeError();
    std::fill(totals->begin(), totals->end(), attended);
    operands.totalLengths = *totals;
    operands.causal = false;
    operands.window = 0;
    operands.keyTransposed = key.cache().isTransposed();
    operands.key = key.cache().pastSlots();
    operands.value = value.cache().pastSlots();
    // Slot s holds the key of column (s - slot of the oldest) mod C.
    const int64_t oldest = key.slotOf(past - key.kept());
    if (operands.mask && mask.rank() != 0 && mask.shape.back() != 1 && oldest != 0) {
      auto rotated = rotatedColumns(context, mask, key.slotCount() - oldest);
      if (!rotated)
        return rotated.takeError();
      mask = std::move(*rotated);
    }
    if (llvm::Error error = checkAttention(context, operands))
      return error;
    auto output = makeOutput();
    if (!output)
      return output.takeError();
    if (llvm::Error error = write())
      return error;
    return runAttention(context, operands, *output);
  }

  llvm::Error several() {
    auto keys = key.inOrder(context);
    if (!keys)
      return keys.takeError();
    auto values = value.inOrder(context);
    if (!values)
      return values.takeError();
    operands.key = std::move(*keys);
    operands.value = std::move(*values);
    if (llvm::Error error = checkAttention(context, operands))
      return error;
    auto output = makeOutput();
    if (!output)
      return output.takeError();
    if (llvm::Error error = runAttention(context, operands, *output))
      return error;
    return write();
  }

  llvm::Expected<TensorView> makeOutput() {
    const TensorView& query = operands.query;
    return context.output(0, query.element,
                          {query.shape[0], query.shape[1], query.shape[2], value.cache().width()});
  }

  llvm::Error write() {
    auto presentKey = key.write(context);
    if (!presentKey)
      return presentKey.takeError();
    auto presentValue = value.write(context);
    if (!presentValue)
      return presentValue.takeError();
    operands.key = std::move(*presentKey);
    operands.value = std::move(*presentValue);
    return llvm::Error::success();
  }

  KernelContext& context;
  RingCache key;
  RingCache value;
  AttentionOperands operands;
  TensorView mask;
  int64_t attended = 0;
};

llvm::Error ringKvSdpa(KernelContext& context) {
  const TensorView& query = context.in(0);
  if (query.rank() != 4)
    return context.error("the query must have rank 4");
  auto past = pastLength(context, query.shape[0]);
  if (!past)
    return past.takeError();
  auto key = RingCache::create(context, {"keys", 1, 3, 1, "key_axis"}, *past);
  if (!key)
    return key.takeError();
  auto value = RingCache::create(context, {"values", 2, 4, 2, "value_axis"}, *past);
  if (!value)
    return value.takeError();
  if (value->cache().isTransposed())
    return context.error("values with the sequence on the last axis are not supported");
  if (key->cache().rows() != value->cache().rows() || key->cache().rows() != query.shape[2])
    return context.error(fmt::format("{} new key rows, {} new value rows and the query's rows must "
                                     "be as many",
                                     key->cache().rows(), value->cache().rows()));
  if (key->slotCount() != value->slotCount())
    return context.error(
        fmt::format("{} slots for keys and {} for values", key->slotCount(), value->slotCount()));
  return RingAttention(context, std::move(*key), std::move(*value)).run(*past);
}

} // namespace

void register_ring_kv_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::RingKvSdpa", 1, ringKvSdpa);
}

} // namespace kvopt::kernels
