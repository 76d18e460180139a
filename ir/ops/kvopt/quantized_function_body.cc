// Function bodies of operators over quantized rows that other operators store.
#include "ir/ops/kvopt/quantized_function_body.h"

#include "ir/ops/kvopt/code_row_parts.h"
#include "ir/ops/kvopt/function_body_parts.h"
#include "support/format.h"

namespace kvopt::ir {

std::string quantizeRowsFunctionText(int64_t opset) {
  constexpr const char* constants = R"(
    rest = Constant <value_ints = [-1]> ()
    zero = Constant <value_float = 0.0> ()
    one = Constant <value_float = 1.0> ()
    infinity = Constant <value = float {inf}> ()
)";
  constexpr const char* results = R"(
    codes = Cast <to = 3> (row_code_new)
    scales = Identity (row_scale_new)
)";
  return functionText(opset, "QuantizeRows (row_new) => (codes, scales)",
                      std::string(constants) + int8Rows.constantsText +
                          writtenCodesText("row", int8Rows, opset) + results);
}

std::string quantizedSdpaFunctionText(const BodyForm& form) {
  std::string signature =
      formatted("QuantizedSdpa <scale, causal, window, softcap, mask_boolean, v_width>\n"
                "    (query, key, key_scale, value, value_scale, past_length, mask{}) => (output)",
                sinksFormal(form));
  constexpr const char* widths = R"(
    key_shape = Shape (key)
    groups = Gather (key_shape, i1)
    key_width = Identity (width)
    value_columns = Constant <value_int = @v_width> ()
    value_width = Reshape (value_columns, i1)
)";
  // Codes of int8 are read without any constants.
  const char* constants = form.code == &int8Rows ? "" : form.code->constantsText;
  std::string body = std::string(extentsText) + constants + widths + rowsByLengthText;
  for (const char* side : {"key", "value"})
    body += codesByLengthText(side) + codeColumnsText(side, *form.code) +
            readCodesText(side, *form.code);
  return functionText(form.opset, signature, body + attentionText(form, "mask_of_keys"));
}

} // namespace kvopt::ir
