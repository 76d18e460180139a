// Attention over given rows: all of them or, by past_length, the first ones of each batch row.
#include "engines/onnxruntime/operators/sdpa.h"

#include "engines/onnxruntime/operators/attention_settings.h"
#include "runtime/simd/code_form.h"

namespace kvopt::onnxruntime {

namespace {

/// Operands of Sdpa.
struct Given {
  enum : unsigned { Query, Key, Values, Mask, Sinks, PastLength };
};
/// Operands of QuantizedSdpa.
struct Coded {
  enum : unsigned { Query, Key, KeyScale, Values, ValueScale, PastLength, Mask, Sinks };
};

/// Makes the mask that of the attention: one column for each of `keys` keys, or for each key that
/// is read.
void applyMask(const Call& call, AttentionOperands& operands, int64_t keys) {
  std::optional<AttentionMask>& mask = operands.mask;
  if (mask && mask->columns() == keys)
    mask->keepFirst(call, operands.view.totalLength);
  if (mask)
    mask->apply(call, operands.view);
}

class Sdpa : public Operation {
public:
  explicit Sdpa(const AttentionSettings& ofNode) : settings(ofNode) {}
  void compute(Call& call) const override {
    AttentionOperands operands(call, settings, Given::Mask, Given::Sinks);
    const Tensor key = call.input(Given::Key), value = call.input(Given::Values);
    operands.setNumbers(call, key, value);
    std::vector<int64_t> lengths;
    if (call.has(Given::PastLength))
      lengths = operands.setLengths(call, Given::PastLength, key.shape[2]);
    applyMask(call, operands, key.shape[2]);
    operands.attend(call);
  }

private:
  AttentionSettings settings;
};

class QuantizedSdpa : public Operation {
public:
  QuantizedSdpa(const AttentionSettings& ofNode, int64_t columnsOfValues)
      : settings(ofNode), valueWidth(columnsOfValues) {}
  void compute(Call& call) const override {
    AttentionOperands operands(call, settings, Coded::Mask, Coded::Sinks);
    const Tensor key = call.input(Coded::Key), value = call.input(Coded::Values);
    operands.setRows(call, key, value);
    simd::AttentionView& view = operands.view;
    view.valueWidth = valueWidth;
    view.codeForm = key.type == uint8 ? simd::CodeForm::fourBitRows : simd::CodeForm::bytes;
    call.require(key.shape[3] == simd::codeRowBytes(view.codeForm, view.keyWidth) &&
                     value.shape[3] == simd::codeRowBytes(view.codeForm, valueWidth),
                 "codes do not have the query's columns, or v_width columns");
    view.keyScales = scalesOf(call, Coded::KeyScale, key, view.keyScaleStrides);
    view.valueScales = scalesOf(call, Coded::ValueScale, value, view.valueScaleStrides);
    const std::vector<int64_t> lengths = operands.setLengths(call, Coded::PastLength, key.shape[2]);
    applyMask(call, operands, key.shape[2]);
    operands.attend(call);
  }

private:
  const float* scalesOf(const Call& call, unsigned operand, const Tensor& codes,
                        simd::RowStrides& strides) const {
    const Tensor scales = call.input(operand);
    Shape shape = codes.shape;
    shape.back() = 1;
    if (scales.type != f32 || scales.shape != shape)
      call.fail("scales " + textOf(scales.shape) + " for codes " + textOf(codes.shape) +
                "; they should be float, one per row");
    strides = rowsOf(scales).strides;
    return scales.as<float>();
  }

  AttentionSettings settings;
  int64_t valueWidth;
};

std::string reasonAgainstSdpa(const NodeDescription& node) {
  const ElementType rows = node.typeOf(Given::Key);
  if (node.typeOf(Given::Values) != rows || !(storageOf(rows) || rows == int8))
    return std::string("keys of ") + elementName(rows);
  return node.has(Given::PastLength) && node.typeOf(Given::PastLength) != int64
             ? "type of past_length"
             : "";
}

std::string reasonAgainstQuantized(const NodeDescription& node) {
  const ElementType codes = node.typeOf(Coded::Key);
  if (node.typeOf(Coded::Values) != codes || (codes != int8 && codes != uint8))
    return std::string("codes of ") + elementName(codes);
  if (node.typeOf(Coded::KeyScale) != f32 || node.typeOf(Coded::ValueScale) != f32)
    return "type of scales";
  if (node.typeOf(Coded::PastLength) != int64)
    return "type of past_length";
  return node.integer("v_width", 0) < 1 ? "attribute v_width" : "";
}

} // namespace

Offer sdpa(const NodeDescription& node) {
  AttentionSettings settings;
  std::string reason = readAttributes(node, {}, settings);
  if (reason.empty())
    reason = reasonAgainstTypes(node, Given::Mask, Given::Sinks);
  if (reason.empty())
    reason = reasonAgainstSdpa(node);
  if (!reason.empty())
    return Offer::refused(std::move(reason));
  return {std::make_unique<Sdpa>(settings), ""};
}

std::vector<OperatorTypes> sdpaTypes() {
  using Count = TypedFormal::Count;
  std::vector<OperatorTypes> all;
  for (const NumberTypes& types : numberTypes)
    all.push_back({{{types.query},
                    {types.rows},
                    {types.rows},
                    {anyType, Count::optional},
                    {f32, Count::optional},
                    {int64, Count::optional}},
                   {{types.query}}});
  return all;
}

Offer quantizedSdpa(const NodeDescription& node) {
  AttentionSettings settings;
  std::string reason = readAttributes(node, {"v_width"}, settings);
  if (reason.empty())
    reason = reasonAgainstTypes(node, Coded::Mask, Coded::Sinks);
  if (reason.empty())
    reason = reasonAgainstQuantized(node);
  if (!reason.empty())
    return Offer::refused(std::move(reason));
  // Without the attribute, the operator takes an additive mask.
  settings.hasBooleanMask = settings.hasBooleanMask.value_or(false);
  return {std::make_unique<QuantizedSdpa>(settings, node.integer("v_width", 0)), ""};
}

std::vector<OperatorTypes> quantizedSdpaTypes() {
  using Count = TypedFormal::Count;
  std::vector<OperatorTypes> all;
  for (const ElementType query : queryTypes)
    for (const ElementType codes : {int8, uint8})
      all.push_back({{{query},
                      {codes},
                      {f32},
                      {codes},
                      {f32},
                      {int64},
                      {anyType, Count::optional},
                      {f32, Count::optional}},
                     {{query}}});
  return all;
}

} // namespace kvopt::onnxruntime
