// Attention over the last rows of a ring and the new ones, which then take the place of the oldest.
//
// A single token is written first, to the slot of the one that it no longer sees; the order of keys
// does not matter, so that attention then reads the slots as they lie. Several tokens need rows
// that they overwrite: kept and new rows are put in order in temporary memory, and written behind
// that. Everything is checked before the first byte is written: after an error the cache is what it
// was.
#pragma once

#include "runtime/attention/ring_cache.h"
#include "support/format.h"

#include <algorithm>

namespace kvopt::runtime {

/// `Ring` is RingCache or QuantizedRing.
template <class Ring> class RingAttention {
public:
  RingAttention(KernelContext& nodeContext, Ring keyRing, Ring valueRing)
      : context(nodeContext), key(std::move(keyRing)), value(std::move(valueRing)) {}

  /// `maskOperand` is that of the mask; the sinks are behind it.
  llvm::Error run(unsigned maskOperand) {
    if (llvm::Error error = check())
      return error;
    auto given = attentionOperands(context, maskOperand, maskOperand + 1);
    if (!given)
      return given.takeError();
    operands = std::move(*given);
    operands.fourBitColumns = value.cache().width();
    attended = key.positions().kept() + key.cache().rows();
    if (operands.mask) {
      auto columns = lastColumns(context, *operands.mask, attended);
      if (!columns)
        return columns.takeError();
      mask = std::move(*columns);
      operands.mask = &mask;
    }
    return key.cache().rows() == 1 && !isNarrowed() ? single() : several();
  }

private:
  llvm::Error check() const {
    const InPlaceCache& keys = key.cache();
    const InPlaceCache& values = value.cache();
    if (values.isTransposed())
      return context.error("values with the sequence on the last axis are not supported");
    if (keys.rows() != values.rows() || keys.rows() != context.in(0).shape[2])
      return context.error(fmt::format("{} new key rows, {} new value rows and the query's rows "
                                       "must be as many",
                                       keys.rows(), values.rows()));
    if (keys.capacity() != values.capacity())
      return context.error(
          fmt::format("{} slots for keys and {} for values", keys.capacity(), values.capacity()));
    return llvm::Error::success();
  }

  /// Whether a token sees less than the slots hold.
  bool isNarrowed() const { return operands.window != 0 && operands.window < attended; }

  llvm::Error single() {
    const TensorView& query = operands.query;
    auto totals = kernels::scratchIntegers(context, static_cast<size_t>(query.shape[0]));
    if (!totals)
      return totals.takeError();
    std::fill(totals->begin(), totals->end(), attended);
    operands.totalLengths = *totals;
    operands.causal = false;
    operands.window = 0;
    attendTo(key.pastSlots(), value.pastSlots(), operands);
    // Slot s holds the key of column (s - slot of the oldest) mod C.
    const int64_t oldest = key.positions().slotOf(key.positions().past - key.positions().kept());
    if (operands.mask && mask.rank() != 0 && mask.shape.back() != 1 && oldest != 0) {
      auto rotated = rotatedColumns(context, mask, key.positions().slotCount - oldest);
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
    attendTo(*keys, *values, operands);
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
    attendTo(*presentKey, *presentValue, operands);
    return llvm::Error::success();
  }

  KernelContext& context;
  Ring key;
  Ring value;
  AttentionOperands operands;
  TensorView mask;
  int64_t attended = 0;
};

} // namespace kvopt::runtime
