// Bodies of attention over given rows, and of appending rows.
#include "ir/ops/kvopt/function_body_parts.h"
#include "support/format.h"

namespace kvopt::ir {

namespace {

constexpr const char* wholeSequence = R"(
    key_shape = Shape (key)
    groups = Gather (key_shape, i1)
    length_list = Gather (key_shape, i2)
    longest = Squeeze (length_list, i0)
    value_shape = Shape (value)
    value_width = Gather (value_shape, i3)
    column_shape = Concat <axis = 0> (rest, i1)
    all_slots = Range (zero_index, longest, one_index)
    slot_row = Unsqueeze (all_slots, i0)
    keys = Identity (key)
    values = Identity (value)
)";

constexpr const char* sequenceByLength = R"(
    key_shape = Shape (key)
    groups = Gather (key_shape, i1)
    value_shape = Shape (value)
    value_width = Gather (value_shape, i3)
    keys = Slice (key, i0, longest_list, i2)
    values = Slice (value, i0, longest_list, i2)
)";

/// Every row of the present is a row of [past; fresh], or zero.
constexpr const char* appendRows = R"(
    i0 = Constant <value_ints = [0]> ()
    i1 = Constant <value_ints = [1]> ()
    i2 = Constant <value_ints = [2]> ()
    rest = Constant <value_ints = [-1]> ()
    head_axes = Constant <value_ints = [1, 3]> ()
    zero_index = Constant <value_int = 0> ()
    one_index = Constant <value_int = 1> ()
    zero_float = Constant <value_float = 0.0> ()
    zero = Cast <to = {element}> (zero_float)
    past_shape = Shape (past)
    capacity = Gather (past_shape, i2)
    joined = Concat <axis = 2> (past, fresh)
    joined_shape = Shape (joined)
    total = Gather (joined_shape, i2)
    total_scalar = Squeeze (total, i0)
    slot = Range (zero_index, total_scalar, one_index)
    column_shape = Concat <axis = 0> (rest, i1)
    start = Reshape (past_length, column_shape)
    offset = Sub (slot, start)
    is_past = Less (offset, i0)
    fresh_row = Add (offset, capacity)
    source = Where (is_past, slot, fresh_row)
    is_row = Less (source, total)
    some_row = Where (is_row, source, i0)
    source_column = Unsqueeze (some_row, head_axes)
    index = Expand (source_column, joined_shape)
    rows = GatherElements <axis = 2> (joined, index)
    is_row_column = Unsqueeze (is_row, head_axes)
    present = Where (is_row_column, rows, zero)
)";

} // namespace

std::string sdpaFunctionText(const BodyForm& form) {
  const char* more = form.lengths ? ", sinks, past_length" : sinksFormal(form);
  std::string signature = formatted("Sdpa <scale, causal, window, softcap, mask_boolean>\n"
                                    "    (query, key, value, mask{}) => (output)",
                                    more);
  return functionText(form.opset, signature,
                      form.lengths ? std::string(extentsText) + rowsByLengthText +
                                         sequenceByLength + attentionText(form, "mask_of_keys")
                                   : std::string(extentsText) + wholeSequence + everyKeyValidText +
                                         attentionText(form));
}

std::string appendRowsFunctionText(int64_t opset, ElementType element) {
  return functionText(opset, "AppendRows (past, fresh, past_length) => (present)",
                      formattedAs(appendRows, named("element", static_cast<int32_t>(element))));
}

} // namespace kvopt::ir
