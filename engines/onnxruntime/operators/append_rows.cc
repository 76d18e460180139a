// AppendRows: each batch row's valid past rows, followed by its new rows and zeros.
#include "engines/onnxruntime/operators/attention_settings.h"
#include "engines/onnxruntime/operators/present.h"
#include "engines/onnxruntime/operators/row_operators.h"

#include <cstring>

namespace kvopt::onnxruntime {

namespace {

enum AppendOperand : unsigned { Past, Fresh, ValidLength };

class AppendRows : public Operation {
public:
  void compute(Call& call) const override {
    const Tensor past = call.input(Past), fresh = call.input(Fresh);
    bool fits = past.rank() == 4 && fresh.rank() == 4 && past.type == fresh.type &&
                elementBytes(past.type) != 0;
    for (const size_t axis : {0u, 1u, 3u})
      fits = fits && past.shape[axis] == fresh.shape[axis];
    if (!fits)
      call.fail("new rows " + std::string(elementName(fresh.type)) + textOf(fresh.shape) +
                " do not fit a past " + elementName(past.type) + textOf(past.shape));
    const HeadRows before = rowsOf(past), added = rowsOf(fresh);
    const std::vector<int64_t> lengths = pastLengths(call, ValidLength, added.batches);
    for (const int64_t length : lengths)
      if (length < 0 || length > before.rows)
        call.fail("a past length of " + std::to_string(length) + " does not fit " +
                  std::to_string(before.rows) + " rows");
    int64_t total = 0;
    if (__builtin_add_overflow(before.rows, added.rows, &total))
      call.fail("the present is too large");
    const Present present = presentOf(call, 0, &past, past.type,
                                      {added.batches, added.heads, total, added.width}, notice);
    const HeadRows after = rowsOf(present.tensor);
    if (after.count() == 0)
      return;
    call.forEach(added.batches * added.heads, after.count(), [&](int64_t unit) {
      const int64_t batch = unit / added.heads, head = unit % added.heads;
      const int64_t valid = lengths[static_cast<size_t>(batch)];
      if (present.isInPlace)
        clearRows(after, batch, head, valid + added.rows);
      else
        fillHead(before, after, batch, head, valid, added.rows);
      if (added.rows > 0)
        std::memcpy(after.row(batch, head, valid), added.row(batch, head, 0),
                    static_cast<size_t>(added.rows * added.rowBytes()));
    });
  }

private:
  CopyNotice notice{CopyNotice::Presents::longer};
};

/// Element types of rows, with which a library of custom operators can be asked.
constexpr ElementType rowTypes[] = {f32,
                                    f16,
                                    bf16,
                                    int8,
                                    uint8,
                                    int64,
                                    ONNX_TENSOR_ELEMENT_DATA_TYPE_INT32,
                                    ONNX_TENSOR_ELEMENT_DATA_TYPE_DOUBLE};

} // namespace

Offer appendRows(const NodeDescription& node) {
  for (const auto& [name, value] : node.attributes)
    if (!isNeutral(value))
      return Offer::refused("attribute " + name);
  const ElementType type = node.typeOf(Past);
  if (elementBytes(type) == 0 || node.typeOf(Fresh) != type)
    return Offer::refused(std::string("rows of ") + elementName(type));
  if (node.typeOf(ValidLength) != int64)
    return Offer::refused("type of past_length");
  return {std::make_unique<AppendRows>(), ""};
}

std::vector<OperatorTypes> appendRowsTypes() {
  std::vector<OperatorTypes> all;
  for (const ElementType type : rowTypes)
    all.push_back({{{type}, {type}, {int64}}, {{type}}});
  return all;
}

} // namespace kvopt::onnxruntime
