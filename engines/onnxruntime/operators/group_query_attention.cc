// GroupQueryAttention over the engine's tensors: append, rotation, attention.
//
// runtime/kernels/attention/group_query_attention.cc describes operands, lengths and presents.
#include "engines/onnxruntime/operators/group_query_attention.h"

#include "engines/onnxruntime/operators/group_query_rows.h"
#include "engines/onnxruntime/operators/present.h"
#include "runtime/simd/fixed_scale_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kvopt::onnxruntime {
using namespace simd;
using namespace gqa;

namespace {

constexpr ElementType floatType = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;

class GroupQueryAttention : public Operation {
public:
  explicit GroupQueryAttention(const GqaSettings& ofNode) : settings(ofNode) {}
  void compute(Call& call) const override;

private:
  FixedScales scalesOf(Call& call, unsigned operand, bool perColumn, int64_t width) const;
  std::optional<Tensor> past(Call& call, unsigned operand, const GqaRows& fresh,
                             const GqaLengths& lengths) const;
  ElementType cacheType(ElementType fresh) const;
  /// Everything but the memory of query, caches and output. Refers to `lengths`.
  AttentionView viewOf(Call& call, const GqaRows& fresh, const GqaLengths& lengths) const;
  void setMask(Call& call, const GqaRows& fresh, const GqaLengths& lengths,
               AttentionView& view) const;
  void attend(Call& call, AttentionView view, const FixedScales& keys, const FixedScales& values,
              const Tensor& output) const;

  GqaSettings settings;
  CopyNotice notice;
};

FixedScales GroupQueryAttention::scalesOf(Call& call, unsigned operand, bool perColumn,
                                          int64_t width) const {
  const Tensor given = call.input(operand);
  const int64_t expected = perColumn ? settings.groups * width : 1;
  if (given.type != floatType || given.count() != expected)
    call.fail(std::string(operand == KeyScale ? "k_scale" : "v_scale") + " has " +
              std::to_string(given.count()) + " numbers of type " + elementName(given.type) +
              "; it should be " + std::to_string(expected) + " of type float");
  return {given.as<float>(), perColumn, width};
}

ElementType GroupQueryAttention::cacheType(ElementType fresh) const {
  if (!settings.codes)
    return fresh;
  return *settings.codes == CodeForm::bytes ? ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8
                                            : ONNX_TENSOR_ELEMENT_DATA_TYPE_UINT8;
}

std::optional<Tensor> GroupQueryAttention::past(Call& call, unsigned operand, const GqaRows& fresh,
                                                const GqaLengths& lengths) const {
  if (!call.has(operand)) {
    for (const int64_t length : lengths.held)
      if (length > 0)
        call.fail("a past length of " + std::to_string(length) + " without a past");
    return std::nullopt;
  }
  Tensor given = call.input(operand);
  const ElementType type = cacheType(fresh.key.type);
  const int64_t width =
      settings.codes ? codeRowBytes(*settings.codes, fresh.key.width) : fresh.key.width;
  if (given.type != type || given.rank() != 4 || given.shape[0] != fresh.query.batches ||
      given.shape[1] != settings.groups || given.shape[3] != width)
    call.fail("a past is " + std::string(elementName(given.type)) + textOf(given.shape) +
              "; it should be " + elementName(type) + "[" + std::to_string(fresh.query.batches) +
              "," + std::to_string(settings.groups) + ",capacity," + std::to_string(width) + "]");
  for (const int64_t length : lengths.held)
    if (length > given.shape[2])
      call.fail("a past length of " + std::to_string(length) + " and a past of " +
                std::to_string(given.shape[2]) + " rows");
  return given;
}

void GroupQueryAttention::setMask(Call& call, const GqaRows& fresh, const GqaLengths& lengths,
                                  AttentionView& view) const {
  if (!call.has(Bias))
    return;
  const Tensor bias = call.input(Bias);
  const Shape& shape = bias.shape;
  const HeadRows& query = fresh.query;
  if (bias.rank() != 4 || (shape[0] != 1 && shape[0] != query.batches) ||
      (shape[1] != 1 && shape[1] != query.heads) || shape[2] != query.rows ||
      shape[3] != lengths.longest || !storageOf(bias.type))
    call.fail("attention_bias is " + textOf(shape) +
              "; it should be [1|B,1|H,S,total_sequence_length]");
  view.maskKind = MaskKind::additive;
  view.maskStorage = *storageOf(bias.type);
  view.mask = bias.data;
  const int64_t head = shape[2] * shape[3];
  view.maskStrides = {shape[0] == 1 ? 0 : shape[1] * head, shape[1] == 1 ? 0 : head, shape[3], 1};
}

AttentionView GroupQueryAttention::viewOf(Call& call, const GqaRows& fresh,
                                          const GqaLengths& lengths) const {
  AttentionView view;
  view.batches = fresh.query.batches;
  view.queryHeads = settings.heads;
  view.kvHeads = settings.groups;
  view.queryRows = fresh.query.rows;
  view.keyWidth = fresh.query.width;
  view.valueWidth = view.keyWidth;
  view.totalLengths = (settings.causal ? lengths.total : lengths.valid).data();
  view.totalLength = view.batches == 0
                         ? 0
                         : *std::max_element(view.totalLengths, view.totalLengths + view.batches);
  view.causal = settings.causal;
  view.window = settings.window;
  view.softcap = settings.softcap;
  view.scale =
      settings.scale != 0.0f ? settings.scale : 1.0f / std::sqrt(static_cast<float>(view.keyWidth));
  setMask(call, fresh, lengths, view);
  if (call.has(HeadSink)) {
    const Tensor sinks = call.input(HeadSink);
    call.require(sinks.count() == settings.heads, "head_sink must be one number per query head");
    view.sinks = call.floats(sinks);
  } else if (settings.hasZeroSink) {
    auto* zeros = call.scratchTensor(floatType, {settings.heads}).as<float>();
    std::fill_n(zeros, settings.heads, 0.0f);
    view.sinks = zeros;
  }
  return view;
}

void GroupQueryAttention::attend(Call& call, AttentionView view, const FixedScales& keys,
                                 const FixedScales& values, const Tensor& output) const {
  if (output.count() == 0)
    return;
  const int64_t rows = view.batches * view.queryHeads * view.queryRows;
  const int64_t perGroup = settings.heads / settings.groups;
  float scales[2];
  if (settings.codes) {
    scales[0] = keys.perColumn ? commonScale(keys, settings.groups) : keys.numbers[0];
    scales[1] = values.perColumn ? 1.0f : values.numbers[0];
    view.keyScales = &scales[0];
    view.valueScales = &scales[1];
  }
  const auto forEachRow = [&](const auto& body) {
    call.forEach(view.batches * view.queryHeads, rows * view.keyWidth, [&](int64_t unit) {
      for (int64_t row = 0; row < view.queryRows; ++row)
        body(unit / view.queryHeads, unit % view.queryHeads, row);
    });
  };
  if (settings.codes && keys.perColumn) {
    const HeadRows from{
        static_cast<std::byte*>(const_cast<void*>(view.query)),
        view.queryStorage == FloatStorage::f32 ? floatType : ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT16,
        0,
        0,
        0,
        0,
        view.queryStrides};
    const HeadRows to = rowsOf(call.scratchTensor(
        floatType, {view.batches, view.queryHeads, view.queryRows, view.keyWidth}));
    const FloatStorage storage = view.queryStorage;
    forEachRow([&](int64_t batch, int64_t head, int64_t row) {
      multiplyByScales(from.row(batch, head, row), storage, keys, head / perGroup, scales[0],
                       reinterpret_cast<float*>(to.row(batch, head, row)));
    });
    view.query = to.data;
    view.queryStorage = FloatStorage::f32;
    view.queryStrides = to.strides;
  }
  if (!settings.codes || !values.perColumn)
    return call.attend({&view, 1});
  const FloatStorage storage = view.outputStorage;
  const HeadRows result = rowsOfHeads(output, settings.heads, 0, settings.heads);
  Tensor sums = output;
  if (storage != FloatStorage::f32)
    sums = call.scratchTensor(floatType, output.shape);
  const HeadRows numbers = rowsOfHeads(sums, settings.heads, 0, settings.heads);
  view.output = sums.data;
  view.outputStorage = FloatStorage::f32;
  call.attend({&view, 1});
  forEachRow([&](int64_t batch, int64_t head, int64_t row) {
    auto* from = reinterpret_cast<float*>(numbers.row(batch, head, row));
    multiplyByScales(from, FloatStorage::f32, values, head / perGroup, 1.0f, from);
    storeNumbers(from, storage, view.keyWidth, result.row(batch, head, row));
  });
}

void GroupQueryAttention::compute(Call& call) const {
  const Tensor query = call.input(Query);
  const auto storage = storageOf(query.type);
  call.require(storage.has_value(), "the query must be float, float16 or bfloat16");
  GqaRows fresh = gqaRows(call, settings, query);
  const int64_t batches = fresh.query.batches, rows = fresh.query.rows, width = fresh.query.width;
  const int64_t heads = settings.heads, groups = settings.groups;
  FixedScales keyScales, valueScales;
  if (settings.codes) {
    keyScales = scalesOf(call, KeyScale, settings.keyScalesPerColumn, width);
    valueScales = scalesOf(call, ValueScale, settings.valueScalesPerColumn, width);
  }
  const GqaLengths lengths = gqaLengths(call, fresh);
  call.require(call.has(PastKey) == call.has(PastValue),
               "a past of keys without one of values, or the reverse");
  const std::optional<Tensor> pastKey = past(call, PastKey, fresh, lengths);
  const std::optional<Tensor> pastValue = past(call, PastValue, fresh, lengths);
  const int64_t capacity = std::max(pastKey ? pastKey->shape[2] : 0, lengths.longest);
  call.require(!pastKey || pastKey->shape == pastValue->shape,
               "the pasts of keys and values differ in length");
  const GqaAngles angles = settings.rotates ? gqaAngles(call, fresh, lengths) : GqaAngles();

  AttentionView view = viewOf(call, fresh, lengths);
  if (settings.normalizes) {
    fresh.query = normalized(call, fresh.query, QueryNormWeight, settings.normEpsilon);
    fresh.key = normalized(call, fresh.key, KeyNormWeight, settings.normEpsilon);
  }

  // Nothing is written before all checks, because the past may be overwritten.
  const ElementType held = cacheType(fresh.key.type);
  const int64_t heldWidth = settings.codes ? codeRowBytes(*settings.codes, width) : width;
  const Shape shape{batches, groups, capacity, heldWidth};
  const Present key = presentOf(call, 1, pastKey ? &*pastKey : nullptr, held, shape, notice);
  const Present value = presentOf(call, 2, pastValue ? &*pastValue : nullptr, held, shape, notice);
  const HeadRows keys = rowsOf(key.tensor), values = rowsOf(value.tensor);
  const HeadRows oldKeys = pastKey ? rowsOf(*pastKey) : HeadRows();
  const HeadRows oldValues = pastValue ? rowsOf(*pastValue) : HeadRows();
  HeadRows rotatedQuery = fresh.query;
  if (settings.rotates)
    rotatedQuery = rowsOf(call.scratchTensor(query.type, {batches, heads, rows, width}));
  HeadRows rotatedKey = fresh.key;
  if (settings.rotates && settings.codes)
    rotatedKey = rowsOf(call.scratchTensor(query.type, {batches, groups, fresh.key.rows, width}));

  const auto rotate = [&](const HeadRows& from, int64_t batch, int64_t head, int64_t row,
                          std::byte* to) {
    rotateRow(from.row(batch, head, row), to, *storage, width,
              angles.of(batch * rows + row, settings.interleaved));
  };
  const auto appendHead = [&](int64_t batch, int64_t head, bool isKey) {
    const HeadRows& to = isKey ? keys : values;
    const HeadRows& from = isKey ? fresh.key : fresh.value;
    const int64_t first = lengths.held[static_cast<size_t>(batch)];
    if (!(isKey ? key : value).isInPlace)
      fillHead(isKey ? oldKeys : oldValues, to, batch, head, first, from.rows);
    for (int64_t row = 0; row < from.rows; ++row) {
      std::byte* slot = to.row(batch, head, first + row);
      const bool rotates = isKey && settings.rotates;
      if (settings.codes) {
        const std::byte* numbers = from.row(batch, head, row);
        if (rotates) {
          rotate(from, batch, head, row, rotatedKey.row(batch, head, row));
          numbers = rotatedKey.row(batch, head, row);
        }
        writeFixedScaleRow(numbers, *storage, isKey ? keyScales : valueScales, head,
                           *settings.codes, slot);
      } else if (rotates) {
        rotate(from, batch, head, row, slot);
      } else {
        std::memcpy(slot, from.row(batch, head, row), static_cast<size_t>(from.rowBytes()));
      }
    }
  };
  const int64_t units = heads + 2 * groups;
  const int64_t copied =
      (key.isInPlace ? 0 : keys.count()) + (value.isInPlace ? 0 : values.count());
  call.forEach(batches * units, batches * units * rows * width + copied, [&](int64_t unit) {
    const int64_t batch = unit / units, part = unit % units;
    if (part >= heads)
      return appendHead(batch, (part - heads) / 2, (part - heads) % 2 == 0);
    for (int64_t row = 0; row < rows && settings.rotates; ++row)
      rotate(fresh.query, batch, part, row, rotatedQuery.row(batch, part, row));
  });

  const Tensor output = call.output(0, query.type, {batches, rows, heads * width});
  view.query = rotatedQuery.data;
  view.queryStorage = *storage;
  view.queryStrides = rotatedQuery.strides;
  view.key = keys.data;
  view.value = values.data;
  view.keyStrides = keys.strides;
  view.valueStrides = values.strides;
  view.cacheStorage = settings.codes ? FloatStorage::f32 : *storage;
  view.codeForm = settings.codes.value_or(CodeForm::bytes);
  view.output = output.data;
  view.outputStorage = *storage;
  view.outputStrides = rowsOfHeads(output, heads, 0, heads).strides;
  attend(call, view, keyScales, valueScales, output);
}

} // namespace

Offer groupQueryAttention(const NodeDescription& node) {
  GqaSettings settings;
  if (std::string reason = readSettings(node, settings); !reason.empty())
    return Offer::refused(std::move(reason));
  return {std::make_unique<GroupQueryAttention>(settings), ""};
}

} // namespace kvopt::onnxruntime
