// QuantizeRows: int8 codes of rows along the last axis, with a scale each.
#include "engines/onnxruntime/operators/row_operators.h"
#include "runtime/simd/quantize_row.h"

namespace kvopt::onnxruntime {

namespace {

class QuantizeRows : public Operation {
public:
  void compute(Call& call) const override {
    const Tensor rows = call.input(0);
    const std::optional<simd::FloatStorage> storage = storageOf(rows.type);
    call.require(storage && rows.rank() > 0,
                 "rows must be float, float16 or bfloat16, and have an axis");
    Shape ofScales = rows.shape;
    ofScales.back() = 1;
    const Tensor codes = call.output(0, int8, rows.shape);
    const Tensor scales = call.output(1, f32, ofScales);
    const int64_t width = rows.shape.back(), rowBytes = width * elementBytes(rows.type);
    call.forEach(scales.count(), rows.count(), [&](int64_t row) {
      scales.as<float>()[row] =
          simd::quantizeRow(rows.data + row * rowBytes, *storage, static_cast<size_t>(width),
                            codes.as<int8_t>() + row * width);
    });
  }
};

} // namespace

Offer quantizeRows(const NodeDescription& node) {
  for (const auto& [name, value] : node.attributes)
    if (!isNeutral(value))
      return Offer::refused("attribute " + name);
  if (!storageOf(node.typeOf(0)))
    return Offer::refused(std::string("rows of ") + elementName(node.typeOf(0)));
  return {std::make_unique<QuantizeRows>(), ""};
}

std::vector<OperatorTypes> quantizeRowsTypes() {
  std::vector<OperatorTypes> all;
  for (const ElementType type : queryTypes)
    all.push_back({{{type}}, {{int8}, {f32}}});
  return all;
}

} // namespace kvopt::onnxruntime
