// ai.kvopt::InPlaceKvSdpa: appends rows to a cache and attends over it, without copying the past.
//
//   present[b,g,j,:] = new[b,g,j - p(b),:]   for p(b) <= j < p(b) + S,  past[b,g,j,:] otherwise
//   output           = Sdpa over rows [0, p(b) + S)             with p = past_length, [1] or [B]
//
// Where the runtime may overwrite the past, the new rows are all that is written. Everything is
// checked before the first byte is: after an error the cache is what it was.
#include "runtime/attention_call.h"
#include "runtime/past_lengths.h"

#include <cstring>
#include <fmt/format.h>

namespace kvopt {
namespace {

constexpr unsigned rowAxis = 2;

/// One of the two caches of a node.
struct CacheOperands {
  const char* name;
  const TensorView& fresh; ///< [B,G,S,width]
  const TensorView& past;  ///< [B,G,C,width], or [B,G,width,C] when transposed
  bool transposed;

  int64_t capacity() const { return past.shape[transposed ? 3 : 2]; }
  int64_t width() const { return past.shape[transposed ? 2 : 3]; }
};

llvm::Error checkCache(const KernelContext& context, const CacheOperands& cache) {
  if (cache.fresh.rank() != 4 || cache.past.rank() != 4)
    return context.error(fmt::format("new rows and cache of the {} must have rank 4", cache.name));
  if (cache.fresh.element != cache.past.element)
    return context.error(fmt::format("new rows and cache of the {} have element types {} and {}",
                                     cache.name, onnxName(cache.fresh.element),
                                     onnxName(cache.past.element)));
  if (cache.fresh.shape[0] != cache.past.shape[0] || cache.fresh.shape[1] != cache.past.shape[1])
    return context.error(fmt::format(
        "new rows [{}, {}, …] and cache [{}, {}, …] of the {} differ in batch size or heads",
        cache.fresh.shape[0], cache.fresh.shape[1], cache.past.shape[0], cache.past.shape[1],
        cache.name));
  if (cache.fresh.shape[3] != cache.width())
    return context.error(fmt::format("new rows of the {} are {} wide, those of the cache {}",
                                     cache.name, cache.fresh.shape[3], cache.width()));
  return llvm::Error::success();
}

/// The storage of a present: the past's own where it may be overwritten. One that nobody reads
/// still has to be attended over, so it gets temporary memory.
llvm::Expected<TensorView> presentStorage(KernelContext& context, unsigned result,
                                          unsigned operand) {
  if (context.wants(result))
    return context.outputInPlace(result, operand);
  const TensorView& past = context.in(operand);
  auto memory = context.scratch(static_cast<size_t>(past.byteSize()));
  if (!memory)
    return memory.takeError();
  if (!memory->empty())
    std::memcpy(memory->data(), past.data, memory->size());
  return TensorView::contiguous(past.element, past.shape, memory->data());
}

/// Writes the new rows at each batch row's length, and nothing else.
void appendRows(KernelContext& context, const CacheOperands& cache, const TensorView& present,
                llvm::ArrayRef<int64_t> lengths) {
  const TensorView& fresh = cache.fresh;
  auto elementBytes = static_cast<int64_t>(*byteWidth(fresh.element));
  int64_t rows = fresh.shape[rowAxis];
  int64_t width = fresh.shape[3];
  auto offset = [&](int64_t elements) { return elements * elementBytes; };
  for (int64_t batch = 0; batch < fresh.shape[0]; ++batch)
    for (int64_t head = 0; head < fresh.shape[1]; ++head) {
      const std::byte* from =
          fresh.data + offset(batch * fresh.strides[0] + head * fresh.strides[1]);
      std::byte* to = present.data + offset(batch * present.strides[0] + head * present.strides[1]);
      int64_t first = lengths[static_cast<size_t>(batch)];
      if (!cache.transposed) {
        if (rows * width != 0)
          std::memcpy(to + offset(first * present.strides[2]), from,
                      static_cast<size_t>(offset(rows * width)));
        continue;
      }
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < width; ++column)
          std::memcpy(to + offset(column * present.strides[2] + first + row),
                      from + offset(row * width + column), static_cast<size_t>(elementBytes));
    }
  context.noteCacheWrite(offset(fresh.elementCount()));
}

llvm::Error inPlaceKvSdpa(KernelContext& context) {
  const Node& node = context.node();
  const TensorView& query = context.in(0);
  int64_t keyAxis = node.intAttr("key_axis", 2);
  int64_t valueAxis = node.intAttr("value_axis", 2);
  if ((keyAxis != 2 && keyAxis != 3) || valueAxis != 2)
    return context.error(
        fmt::format("key_axis {} and value_axis {} are not supported", keyAxis, valueAxis));
  CacheOperands key{"keys", context.in(1), context.in(3), keyAxis == 3};
  CacheOperands value{"values", context.in(2), context.in(4), false};
  if (llvm::Error error = checkCache(context, key))
    return error;
  if (llvm::Error error = checkCache(context, value))
    return error;
  int64_t rows = key.fresh.shape[rowAxis];
  if (rows != value.fresh.shape[rowAxis] || query.rank() != 4 || rows != query.shape[rowAxis])
    return context.error(fmt::format("{} new key rows, {} new value rows and the query's rows must "
                                     "be as many",
                                     rows, value.fresh.shape[rowAxis]));
  auto lengths = pastLengths(context, 5, query.shape[0]);
  if (!lengths)
    return lengths.takeError();
  llvm::SmallVector<int64_t, 4> totals;
  for (int64_t length : *lengths) {
    int64_t total = 0;
    if (length < 0 || __builtin_add_overflow(length, rows, &total) || total > key.capacity() ||
        total > value.capacity())
      return context.error(fmt::format("past length {} and {} new rows exceed the capacity of {} "
                                       "rows",
                                       length, rows, std::min(key.capacity(), value.capacity())));
    totals.push_back(total);
  }
  const TensorView* mask = context.input(6);
  bool isBoolean = mask && mask->element == ElementType::Bool;
  if (mask && isBoolean != (node.intAttr("mask_boolean", 0) != 0))
    return context.error("mask_boolean does not agree with the mask's element type");

  AttentionOperands operands;
  operands.query = query;
  operands.key = key.past;
  operands.value = value.past;
  operands.keyTransposed = key.transposed;
  operands.mask = mask;
  operands.sinks = context.input(7);
  operands.totalLengths = totals;
  operands.scale = node.floatAttr("scale", 1.0f);
  operands.causal = node.intAttr("causal", 0) != 0;
  operands.window = node.intAttr("window", 0);
  operands.softcap = node.floatAttr("softcap", 0.0f);
  if (llvm::Error error = checkAttention(context, operands))
    return error;

  auto output = context.output(0, query.element,
                               {query.shape[0], query.shape[1], query.shape[2], value.width()});
  if (!output)
    return output.takeError();
  auto presentKey = presentStorage(context, 1, 3);
  if (!presentKey)
    return presentKey.takeError();
  auto presentValue = presentStorage(context, 2, 4);
  if (!presentValue)
    return presentValue.takeError();
  appendRows(context, key, *presentKey, *lengths);
  appendRows(context, value, *presentValue, *lengths);
  operands.key = *presentKey;
  operands.value = *presentValue;
  return runAttention(context, operands, *output);
}

} // namespace

void register_in_place_kv_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::InPlaceKvSdpa", 1, inPlaceKvSdpa);
}

} // namespace kvopt
