// Checks of heads, and copies of growing caches.
#include "engines/onnxruntime/operators/attention_heads.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

namespace kvopt::onnxruntime {

HeadRows headsOf(const Call& call, const Tensor& tensor, int64_t heads, const char* what) {
  if (tensor.rank() == 4)
    return rowsOf(tensor);
  if (tensor.rank() != 3 || heads <= 0 || tensor.shape[2] % heads != 0)
    call.fail(std::string(what) + " is " + textOf(tensor.shape) +
              "; it should be [B,S,H*D] or [B,H,S,D] with " + std::to_string(heads) + " heads");
  return rowsOfHeads(tensor, heads, 0, heads);
}

std::optional<Tensor> pastOf(const Call& call, unsigned operand, const HeadRows& fresh) {
  if (!call.has(operand))
    return std::nullopt;
  Tensor past = call.input(operand);
  if (past.type != fresh.type || past.rank() != 4 || past.shape[0] != fresh.batches ||
      past.shape[1] != fresh.heads || past.shape[3] != fresh.width)
    call.fail("a past is " + std::string(elementName(past.type)) + textOf(past.shape) +
              "; it should be " + elementName(fresh.type) + "[" + std::to_string(fresh.batches) +
              "," + std::to_string(fresh.heads) + ",past," + std::to_string(fresh.width) + "]");
  return past;
}

void JoinedRows::copyHead(int64_t batch, int64_t head) const {
  if (!isCopied)
    return;
  if (!isInPlace)
    fillHead(past, rows, batch, head, past.rows, fresh.rows);
  for (int64_t row = 0; row < fresh.rows && fresh.width > 0; ++row)
    std::memcpy(rows.row(batch, head, past.rows + row), fresh.row(batch, head, row),
                static_cast<size_t>(fresh.rowBytes()));
}

JoinedRows joinedRows(Call& call, unsigned result, const std::optional<Tensor>& past,
                      const HeadRows& fresh, const CopyNotice& notice) {
  JoinedRows joined{fresh, past ? rowsOf(*past) : HeadRows(), fresh};
  if (!past && !call.wants(result))
    return joined;
  int64_t rows = 0;
  if (__builtin_add_overflow(joined.past.rows, fresh.rows, &rows))
    call.fail("the present is too large");
  const Present present = presentOf(call, result, past ? &*past : nullptr, fresh.type,
                                    {fresh.batches, fresh.heads, rows, fresh.width}, notice);
  joined.rows = rowsOf(present.tensor);
  joined.isCopied = true;
  joined.isInPlace = present.isInPlace;
  return joined;
}

simd::AttentionView viewOfHeads(const Call& call, const HeadRows& query, const HeadRows& key,
                                const HeadRows& value) {
  call.require(query.batches == key.batches && key.batches == value.batches,
               "query, key and value differ in batch size");
  call.require(query.type == key.type && key.type == value.type && storageOf(query.type),
               "query, key and value differ in element type, or are not floating-point");
  call.require(key.heads == value.heads && key.rows == value.rows,
               "key and value differ in their number of heads or in length");
  call.require(key.heads > 0 && query.heads % key.heads == 0,
               "the query's heads are not a multiple of the heads of key and value");
  call.require(query.width == key.width && key.width > 0, "query and key differ in width");
  simd::AttentionView view;
  view.batches = query.batches;
  view.queryHeads = query.heads;
  view.kvHeads = key.heads;
  view.queryRows = query.rows;
  view.keyWidth = key.width;
  view.valueWidth = value.width;
  view.totalLength = key.rows;
  view.queryStorage = view.cacheStorage = view.outputStorage = *storageOf(query.type);
  view.query = query.data;
  view.key = key.data;
  view.value = value.data;
  view.queryStrides = query.strides;
  view.keyStrides = key.strides;
  view.valueStrides = value.strides;
  view.scale = 1.0f / std::sqrt(static_cast<float>(key.width));
  return view;
}

namespace {

/// The part of the view for one batch row and one head of keys and values.
simd::AttentionView headOf(const simd::AttentionView& view, int64_t batch, int64_t head) {
  const auto moved = [](const void* data, int64_t elements, simd::FloatStorage storage) {
    const int64_t bytes = storage == simd::FloatStorage::f32 ? 4 : 2;
    return static_cast<std::byte*>(const_cast<void*>(data)) + elements * bytes;
  };
  const int64_t group = view.queryHeads / view.kvHeads, first = head * group;
  simd::AttentionView part = view;
  part.batches = part.kvHeads = 1;
  part.queryHeads = group;
  part.totalLength = view.totalLengthOf(batch);
  part.totalLengths = nullptr;
  part.query = moved(view.query, batch * view.queryStrides.batch + first * view.queryStrides.head,
                     view.queryStorage);
  part.key = moved(view.key, batch * view.keyStrides.batch + head * view.keyStrides.head,
                   view.cacheStorage);
  part.value = moved(view.value, batch * view.valueStrides.batch + head * view.valueStrides.head,
                     view.cacheStorage);
  part.output =
      moved(view.output, batch * view.outputStrides.batch + first * view.outputStrides.head,
            view.outputStorage);
  const int64_t column = batch * view.maskStrides.batch + first * view.maskStrides.head;
  if (view.maskKind == simd::MaskKind::boolean)
    part.mask = static_cast<const uint8_t*>(view.mask) + column;
  else if (view.maskKind == simd::MaskKind::additive)
    part.mask = moved(view.mask, column, view.maskStorage);
  if (view.sinks)
    part.sinks = view.sinks + first;
  return part;
}

/// Copies and attends to one head after the other, while its rows are in the processor's caches.
void attendByHead(Call& call, const JoinedRows& keys, const JoinedRows& values,
                  const simd::AttentionView& view) {
  const int64_t heads = view.kvHeads, units = view.batches * heads;
  size_t bytes = 0;
  for (int64_t unit = 0; unit < units; ++unit) {
    const auto size = simd::AttentionJob(headOf(view, unit / heads, unit % heads)).scratchBytes(1);
    if (!size || *size > static_cast<size_t>(INT64_MAX) / 2)
      call.fail("the scratch memory does not fit in the address space");
    bytes = std::max(bytes, *size);
  }
  const int64_t workers = std::min(units, Call::mostThreads());
  std::vector<std::span<std::byte>> memory;
  for (int64_t worker = 0; worker < workers; ++worker)
    memory.push_back(call.scratch(static_cast<int64_t>(bytes)));
  std::atomic<int64_t> next{0};
  call.parallelFor(workers, [&](int64_t worker) {
    for (int64_t unit = next++; unit < units; unit = next++) {
      keys.copyHead(unit / heads, unit % heads);
      values.copyHead(unit / heads, unit % heads);
      simd::AttentionJob job(headOf(view, unit / heads, unit % heads));
      job.start(memory[static_cast<size_t>(worker)]);
      for (int64_t part = 0; part < job.units(); ++part)
        job.run(part, 0, part + 1);
    }
  });
}

} // namespace

void attendInto(Call& call, const JoinedRows& keys, const JoinedRows& values,
                const HeadRows& output, simd::AttentionView view) {
  view.output = output.data;
  view.outputStrides = output.strides;
  const int64_t units = view.batches * view.kvHeads;
  const bool isCopied = keys.isCopied || values.isCopied;
  if (isCopied && output.count() != 0 && units >= Call::mostThreads())
    return attendByHead(call, keys, values, view);
  if (isCopied)
    call.forEach(units, keys.rows.count() + values.rows.count(), [&](int64_t unit) {
      keys.copyHead(unit / view.kvHeads, unit % view.kvHeads);
      values.copyHead(unit / view.kvHeads, unit % view.kvHeads);
    });
  if (output.count() != 0)
    call.attend({&view, 1});
}

} // namespace kvopt::onnxruntime
