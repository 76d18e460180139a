// Checks of heads, and copies of growing caches.
#include "engines/onnxruntime/attention_heads.h"

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

HeadRows joinedRows(Call& call, unsigned result, const std::optional<Tensor>& past,
                    const HeadRows& fresh, const CopyNotice& notice) {
  if (!past && !call.wants(result))
    return fresh;
  const int64_t pastRows = past ? past->shape[2] : 0;
  int64_t rows = 0;
  if (__builtin_add_overflow(pastRows, fresh.rows, &rows))
    call.fail("the present is too large");
  const Present present = presentOf(call, result, past ? &*past : nullptr, fresh.type,
                                    {fresh.batches, fresh.heads, rows, fresh.width}, notice);
  const HeadRows joined = rowsOf(present.tensor);
  const HeadRows old = past ? rowsOf(*past) : HeadRows();
  const int64_t written = present.isInPlace ? fresh.count() : joined.count();
  call.forEach(fresh.batches * fresh.heads, written, [&](int64_t unit) {
    const int64_t batch = unit / fresh.heads, head = unit % fresh.heads;
    if (!present.isInPlace)
      fillHead(old, joined, batch, head, pastRows, fresh.rows);
    for (int64_t row = 0; row < fresh.rows && fresh.width > 0; ++row)
      std::memcpy(joined.row(batch, head, pastRows + row), fresh.row(batch, head, row),
                  static_cast<size_t>(fresh.rowBytes()));
  });
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

void attendInto(Call& call, const HeadRows& output, simd::AttentionView view) {
  if (output.count() == 0)
    return;
  view.output = output.data;
  view.outputStrides = output.strides;
  call.attend({&view, 1});
}

} // namespace kvopt::onnxruntime
