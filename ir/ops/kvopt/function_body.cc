// The bodies, assembled from the parts that the operators share.
//
// A body cannot branch on an attribute: attributes enter as constants, and Where selects.
#include "ir/ops/kvopt/function_body.h"

#include "support/format.h"

#include "llvm/ADT/StringRef.h"

#include <cassert>

namespace kvopt::ir {
namespace {

/// Extents and small constants. Needs query, key_rows [B,G,·,D] and value_rows [B,G,·,Dv].
constexpr const char* extents = R"(
    i0 = Constant <value_ints = [0]> ()
    i1 = Constant <value_ints = [1]> ()
    i2 = Constant <value_ints = [2]> ()
    i3 = Constant <value_ints = [3]> ()
    rest = Constant <value_ints = [-1]> ()
    head_axes = Constant <value_ints = [1, 3]> ()
    row_axes = Constant <value_ints = [1, 2]> ()
    zero_index = Constant <value_int = 0> ()
    one_index = Constant <value_int = 1> ()
    zero = Constant <value_float = 0.0> ()
    one = Constant <value_float = 1.0> ()
    infinity = Constant <value = float {inf}> ()
    minus_infinity = Neg (infinity)
    query_shape = Shape (query)
    batch = Gather (query_shape, i0)
    heads = Gather (query_shape, i1)
    rows = Gather (query_shape, i2)
    width = Gather (query_shape, i3)
    rows_scalar = Squeeze (rows, i0)
)";

/// The scores of query_grouped [B,G,·,D] and keys_transposed [B,G,D,T]; `length` is T in a list.
constexpr const char* scores = R"(
    scores_grouped = MatMul (query_grouped, keys_transposed)
    scores_shape = Concat <axis = 0> (batch, heads, rows, length)
    scores = Reshape (scores_grouped, scores_shape)
    scale = Constant <value_float = @scale> ()
    scaled = Mul (scores, scale)
    softcap = Constant <value_float = @softcap> ()
    uncapped = Equal (softcap, zero)
    cap = Where (uncapped, one, softcap)
    over_cap = Div (scaled, cap)
    tanh_over_cap = Tanh (over_cap)
    soft_capped = Mul (tanh_over_cap, cap)
    capped = Where (uncapped, scaled, soft_capped)
)";

/// Attention over `keys` [B,G,T,D] and `values` [B,G,T,Dv]; `start` [1 or B,1] is the position of
/// query row 0, `longest` T as a scalar, `valid` [1 or B,T] whether a row may be seen.
constexpr const char* attention = R"(
    length = Reshape (longest, i1)
    valid_column = Unsqueeze (valid, head_axes)
    keys_as_float = Cast <to = 1> (keys)
    values_as_float = Cast <to = 1> (values)
    keys_seen = Where (valid_column, keys_as_float, zero)
    values_seen = Where (valid_column, values_as_float, zero)
    query_as_float = Cast <to = 1> (query)
    grouped_shape = Concat <axis = 0> (batch, groups, rest, width)
    query_grouped = Reshape (query_as_float, grouped_shape)
    keys_transposed = Transpose <perm = [0, 1, 3, 2]> (keys_seen)
{scores}
    mask_boolean = Constant <value_int = @mask_boolean> ()
    mask_is_additive = Equal (mask_boolean, zero_index)
    mask_as_float = Cast <to = 1> ({mask})
    mask_as_bool = Cast <to = 9> ({mask})
    mask_from_bool = Where (mask_as_bool, zero, minus_infinity)
    additive_mask = Where (mask_is_additive, mask_as_float, mask_from_bool)
    masked = Add (capped, additive_mask)
    row = Range (zero_index, rows_scalar, one_index)
    query_position = Add (start, row)
    query_column = Unsqueeze (query_position, head_axes)
    key_position = Range (zero_index, longest, one_index)
    distance = Sub (query_column, key_position)
    causal = Constant <value_int = @causal> ()
    not_causal = Equal (causal, zero_index)
    not_later = GreaterOrEqual (distance, zero_index)
    causal_visible = Or (not_causal, not_later)
    window = Constant <value_int = @window> ()
    no_window = Equal (window, zero_index)
    near = Less (distance, window)
    window_visible = Or (no_window, near)
    valid_row = Unsqueeze (valid, row_axes)
    in_frame = And (causal_visible, window_visible)
    visible = And (in_frame, valid_row)
    seen = Where (visible, masked, minus_infinity)
{top}
    top_infinite = IsInf (top)
    finite_top = Where (top_infinite, zero, top)
    below_top = Sub (seen, finite_top)
    weights = Exp (below_top)
{total_weight}
    nothing_seen = Equal (total_weight, zero)
    divisor = Where (nothing_seen, one, total_weight)
    probabilities = Div (weights, divisor)
    probability_shape = Concat <axis = 0> (batch, groups, rest, length)
    probabilities_grouped = Reshape (probabilities, probability_shape)
    output_grouped = MatMul (probabilities_grouped, values_seen)
    output_shape = Concat <axis = 0> (batch, heads, rows, value_width)
    output_as_float = Reshape (output_grouped, output_shape)
    output = Cast <to = {element}> (output_as_float)
)";

/// A sink is one more logit of a head that takes weight and has no value.
constexpr const char* sinkTop = R"(
    heads_rest = Constant <value_ints = [1, -1, 1, 1]> ()
    sinks_as_float = Cast <to = 1> (sinks)
    sink_column = Reshape (sinks_as_float, heads_rest)
    top_score = @reduce_max (seen)
    top = Max (top_score, sink_column))";

constexpr const char* sinkWeight = R"(
    seen_weight = ReduceSum <keepdims = 1> (weights, rest)
    sink_below_top = Sub (sink_column, finite_top)
    sink_weight = Exp (sink_below_top)
    total_weight = Add (seen_weight, sink_weight))";

/// The largest element of each row, for `@reduce_max (x)` in a text: the axes of ReduceMax became
/// an operand in opset 18.
std::string reducingMaximum(llvm::StringRef text, int64_t opset) {
  constexpr llvm::StringLiteral placeholder = "@reduce_max (";
  std::string result;
  for (size_t at = text.find(placeholder); at != llvm::StringRef::npos;
       at = text.find(placeholder)) {
    llvm::StringRef rest = text.drop_front(at + placeholder.size());
    llvm::StringRef operand = rest.take_until([](char c) { return c == ')'; });
    result += text.take_front(at);
    result += opset < 18 ? fmt::format("ReduceMax <axes = [-1], keepdims = 1> ({}", operand.str())
                         : fmt::format("ReduceMax <keepdims = 1> ({}, rest", operand.str());
    text = rest.drop_front(operand.size());
  }
  return result + text.str();
}

std::string attentionText(const BodyForm& form, const char* mask = "mask") {
  std::string top = "    top = @reduce_max (seen)";
  std::string weight = "    total_weight = ReduceSum <keepdims = 1> (weights, rest)";
  if (form.sinks) {
    top = sinkTop;
    weight = sinkWeight;
  }
  return fmt::format(fmt::runtime(attention), fmt::arg("scores", scores),
                     fmt::arg("top", reducingMaximum(top, form.opset)),
                     fmt::arg("total_weight", weight), fmt::arg("mask", mask),
                     fmt::arg("element", static_cast<int32_t>(form.element)));
}

/// Where new rows come to lie, as an index per slot. Needs key_past_rows [B,G,C,D].
constexpr const char* slots = R"(
    cache_shape = Shape (key_past_rows)
    capacity = Gather (cache_shape, i2)
    capacity_scalar = Squeeze (capacity, i0)
    slot = Range (zero_index, capacity_scalar, one_index)
    column_shape = Concat <axis = 0> (rest, i1)
    start = Reshape (past_length, column_shape)
    offset = Sub (slot, start)
    after_past = GreaterOrEqual (offset, zero_index)
    before_end = Less (offset, rows)
    is_new = And (after_past, before_end)
    is_new_row = Unsqueeze (is_new, head_axes)
    last_row = Sub (rows, one_index)
    not_above = Min (offset, last_row)
    source_row = Max (not_above, zero_index)
    source_column = Unsqueeze (source_row, head_axes)
    end = Add (start, rows)
    longest = ReduceMax <keepdims = 0> (end)
    longest_list = Reshape (longest, i1)
    slot_valid = Less (slot, end)
    valid = Slice (slot_valid, i0, longest_list, i1)
)";

/// The rows [B,G,C,D] of one cache; `side` is key or value. C may be 0, which a shape can say for
/// the extent at its own place only.
std::string pastRows(const std::string& side, const CacheLayout& layout) {
  const llvm::SmallVector<int64_t, 4> order = layout.rowOrder();
  if (!layout.hasFoldedHeads())
    return fmt::format("    {0}_past_rows = Transpose <perm = [{1}, {2}, {3}, {4}]> (past_{0})\n",
                       side, order[0], order[1], order[2], order[3]);
  return fmt::format(R"(
    {0}_past_shape = Shape (past_{0})
    {0}_capacity = Gather ({0}_past_shape, i{1})
    {0}_folded_rows = Transpose <perm = [{2}, {3}, {4}]> (past_{0})
    {0}_folded_column = Unsqueeze ({0}_folded_rows, i1)
    {0}_rows_shape = Concat <axis = 0> (batch, groups, i0, {0}_width)
    {0}_past_rows = Reshape ({0}_folded_column, {0}_rows_shape)
)",
                     side, layout.sequenceAxis(), order[0], order[1], order[2]);
}

/// The inverse, for the present.
std::string presentRows(const std::string& side, const CacheLayout& layout) {
  const llvm::SmallVector<int64_t, 4> back = layout.cacheOrder();
  if (!layout.hasFoldedHeads())
    return fmt::format(
        "    present_{0} = Transpose <perm = [{1}, {2}, {3}, {4}]> ({0}_present_rows)\n", side,
        back[0], back[1], back[2], back[3]);
  return fmt::format(R"(
    {0}_folded_shape = Concat <axis = 0> (rest, {0}_capacity, {0}_width)
    {0}_folded_present = Reshape ({0}_present_rows, {0}_folded_shape)
    present_{0} = Transpose <perm = [{1}, {2}, {3}]> ({0}_folded_present)
)",
                     side, back[0], back[1], back[2]);
}

/// The cache with rows of `source` where is_new_row says so.
std::string writtenRows(const std::string& side, const CacheLayout& layout,
                        const std::string& source) {
  return fmt::format(R"(
    {0}_index_shape = Concat <axis = 0> (batch, groups, capacity, {0}_width)
    {0}_index = Expand (source_column, {0}_index_shape)
    {0}_new_rows = GatherElements <axis = 2> ({1}, {0}_index)
    {0}_present_rows = Where (is_new_row, {0}_new_rows, {0}_past_rows)
)",
                     side, source) +
         presentRows(side, layout);
}

/// The cache with its new rows, and the rows that attention reads.
std::string cacheUpdate(const std::string& side, const CacheLayout& layout) {
  return writtenRows(side, layout, side + "_new") +
         fmt::format("    {0}s = Slice ({0}_present_rows, i0, longest_list, i2)\n", side);
}

/// Which rows of a ring are read, and which of those and of the new ones are then in which slot.
/// Slots are written with rows that were read before: an engine that puts the present where the
/// past lies thus reads all of it first. Needs key_past_rows [B,G,C,D].
constexpr const char* ringSlots = R"(
    cache_shape = Shape (key_past_rows)
    capacity = Gather (cache_shape, i2)
    capacity_scalar = Squeeze (capacity, i0)
    past = Reshape (past_length, i1)
    most_kept = Sub (capacity, i1)
    kept = Min (past, most_kept)
    kept_scalar = Squeeze (kept, i0)
    kept_row = Range (zero_index, kept_scalar, one_index)
    first_kept = Sub (past, kept)
    kept_position = Add (first_kept, kept_row)
    kept_slot = Mod (kept_position, capacity)
    length_list = Add (kept, rows)
    longest = Squeeze (length_list, i0)
    column_shape = Concat <axis = 0> (rest, i1)
    start = Reshape (kept, column_shape)
    all_slots = Range (zero_index, longest, one_index)
    slot_row = Unsqueeze (all_slots, i0)
    valid = GreaterOrEqual (slot_row, zero_index)
    first_column = Neg (length_list)
    no_end = Constant <value_ints = [9223372036854775807]> ()
    mask_of_keys = Slice (mask, first_column, no_end, rest)
    end = Add (past, rows)
    last_position = Sub (end, i1)
    slot = Range (zero_index, capacity_scalar, one_index)
    behind_slot = Sub (last_position, slot)
    age = Mod (behind_slot, capacity)
    slot_position = Sub (last_position, age)
    read_row = Sub (slot_position, first_kept)
    is_held = GreaterOrEqual (read_row, zero_index)
    is_new_row = Reshape (is_held, slot_column_shape)
    source_row = Max (read_row, zero_index)
    source_column = Reshape (source_row, slot_column_shape)
)";

/// The rows of a ring that attention reads, in the order of their positions.
std::string ringRows(const std::string& side) {
  return fmt::format(R"(
    {0}_kept_rows = Gather <axis = 2> ({0}_past_rows, kept_slot)
    {0}s = Concat <axis = 2> ({0}_kept_rows, {0}_new)
)",
                     side);
}

/// Extents of the new rows; needs nothing but them.
std::string newExtents(const std::string& side) {
  return fmt::format(R"(
    {0}_new_shape = Shape ({0}_new)
    {0}_width = Gather ({0}_new_shape, i3)
)",
                     side);
}

constexpr const char* groupsOfNewRows = R"(
    groups = Gather (key_new_shape, i1)
)";

/// The scales of new rows, and what to divide them by, of one side. Needs largest_product, what a
/// row's largest element becomes.
std::string scales(const std::string& side) {
  return fmt::format(R"(
    {0}_new_as_float = Cast <to = 1> ({0}_new)
    {0}_new_nan = IsNaN ({0}_new_as_float)
    {0}_new_infinite = IsInf ({0}_new_as_float)
    {0}_no_number = Or ({0}_new_nan, {0}_new_infinite)
    {0}_numbers = Where ({0}_no_number, zero, {0}_new_as_float)
    {0}_magnitudes = Abs ({0}_numbers)
    {0}_no_number_as_float = Cast <to = 1> ({0}_no_number)
    {0}_any_no_number = @reduce_max ({0}_no_number_as_float)
    {0}_row_has_no_number = Greater ({0}_any_no_number, zero)
    {0}_largest = @reduce_max ({0}_magnitudes)
    {0}_finite_scale = Div ({0}_largest, largest_product)
    {0}_scale_new = Where ({0}_row_has_no_number, not_a_number, {0}_finite_scale)
    {0}_scale_zero = Equal ({0}_finite_scale, zero)
    {0}_divisor = Where ({0}_scale_zero, one, {0}_finite_scale)
)",
                     side);
}

/// The past's codes of one side, as floats.
std::string pastCodes(const std::string& side) {
  return fmt::format("    past_{0}_code = Cast <to = 1> (past_{0})\n", side);
}

/// The codes of new rows of one side.
std::string codes(const std::string& side) {
  return fmt::format(R"(
    {0}_quotients = Div ({0}_numbers, {0}_divisor)
    {0}_rounded = Round ({0}_quotients)
    {0}_not_above = Min ({0}_rounded, largest_code)
    {0}_codes_in_range = Max ({0}_not_above, smallest_code)
    {0}_code_new = Where ({0}_row_has_no_number, zero, {0}_codes_in_range)
)",
                     side);
}

/// How the columns of one side are divided into groups (support/four_bit_row.h).
std::string fourBitGroups(const std::string& side) {
  return fmt::format(R"(
    {0}_width_and_most = Add ({0}_width, most_group_columns)
    {0}_width_up = Sub ({0}_width_and_most, i1)
    {0}_parts = Div ({0}_width_up, most_group_columns)
    {0}_width_and_parts = Add ({0}_width, {0}_parts)
    {0}_share_up = Sub ({0}_width_and_parts, i1)
    {0}_share = Div ({0}_share_up, {0}_parts)
    {0}_share_and_one = Add ({0}_share, i1)
    {0}_half = Div ({0}_share_and_one, i2)
    {0}_group_width = Mul ({0}_half, i2)
    {0}_group_bytes = Add ({0}_half, i1)
    {0}_padded_width = Mul ({0}_group_width, {0}_parts)
)",
                     side);
}

/// The codes of new rows of one side, with their multipliers, as bytes.
std::string fourBitCodes(const std::string& side) {
  return fmt::format(R"(
    {0}_row_numbers = Where ({0}_row_has_no_number, zero, {0}_numbers)
    {0}_missing = Sub ({0}_padded_width, {0}_width)
    {0}_pads = Concat <axis = 0> (i0, i0, i0, i0, i0, i0, i0, {0}_missing)
    {0}_padded = Pad ({0}_row_numbers, {0}_pads)
    {0}_grouped_shape = Concat <axis = 0> (batch, groups, rows, {0}_parts, {0}_group_width)
    {0}_grouped = Reshape ({0}_padded, {0}_grouped_shape)
    {0}_group_magnitudes = Abs ({0}_grouped)
    {0}_group_largest = @reduce_max ({0}_group_magnitudes)
    {0}_group_divisor = Unsqueeze ({0}_divisor, i3)
    {0}_smallest_whole = Mul ({0}_group_divisor, largest_code)
    {0}_ratio = Div ({0}_group_largest, {0}_smallest_whole)
    {0}_ratio_up = Ceil ({0}_ratio)
    {0}_not_below_one = Max ({0}_ratio_up, one)
    {0}_multiplier = Min ({0}_not_below_one, largest_multiplier)
    {0}_step = Mul ({0}_group_divisor, {0}_multiplier)
    {0}_quotients = Div ({0}_grouped, {0}_step)
    {0}_rounded = Round ({0}_quotients)
    {0}_not_above = Min ({0}_rounded, largest_code)
    {0}_codes_in_range = Max ({0}_not_above, smallest_code)
    {0}_stored = Add ({0}_codes_in_range, code_offset)
    {0}_lower = Slice ({0}_stored, i0, {0}_half, rest)
    {0}_upper = Slice ({0}_stored, {0}_half, {0}_group_width, rest)
    {0}_upper_bits = Mul ({0}_upper, sixteen)
    {0}_bytes = Add ({0}_lower, {0}_upper_bits)
    {0}_packed_groups = Concat <axis = -1> ({0}_bytes, {0}_multiplier)
    {0}_packed_shape = Concat <axis = 0> (batch, groups, rows, rest)
    {0}_code_new = Reshape ({0}_packed_groups, {0}_packed_shape)
)",
                     side);
}

/// The rows that four-bit codes and scales stand for, of one side.
std::string fourBitRows(const std::string& side) {
  return fmt::format(R"(
    {0}_read_shape = Concat <axis = 0> (batch, groups, rest, {0}_parts, {0}_group_bytes)
    {0}_read_groups = Reshape ({0}_codes, {0}_read_shape)
    {0}_read_bytes = Slice ({0}_read_groups, i0, {0}_half, rest)
    {0}_read_multipliers = Slice ({0}_read_groups, {0}_half, {0}_group_bytes, rest)
    {0}_read_over_sixteen = Div ({0}_read_bytes, sixteen)
    {0}_read_upper = Floor ({0}_read_over_sixteen)
    {0}_read_upper_bits = Mul ({0}_read_upper, sixteen)
    {0}_read_lower = Sub ({0}_read_bytes, {0}_read_upper_bits)
    {0}_read_stored = Concat <axis = -1> ({0}_read_lower, {0}_read_upper)
    {0}_read_codes = Sub ({0}_read_stored, code_offset)
    {0}_group_products = Mul ({0}_read_codes, {0}_read_multipliers)
    {0}_padded_shape = Concat <axis = 0> (batch, groups, rest, {0}_padded_width)
    {0}_padded_products = Reshape ({0}_group_products, {0}_padded_shape)
    {0}_products = Slice ({0}_padded_products, i0, {0}_width, rest)
    {0}s = Mul ({0}_products, {0}_scales)
)",
                     side);
}

constexpr const char* fourBitRange = R"(
    largest_product = Constant <value_float = 126.0> ()
    largest_code = Constant <value_float = 7.0> ()
    smallest_code = Constant <value_float = -7.0> ()
    largest_multiplier = Constant <value_float = 18.0> ()
    code_offset = Constant <value_float = 8.0> ()
    sixteen = Constant <value_float = 16.0> ()
    most_group_columns = Constant <value_ints = [32]> ()
    not_a_number = Sub (infinity, infinity)
)";

constexpr const char* codeRange = R"(
    largest_code = Constant <value_float = 127.0> ()
    largest_product = Identity (largest_code)
    smallest_code = Constant <value_float = -127.0> ()
    not_a_number = Sub (infinity, infinity)
)";

/// The codes and scales of new rows of one side.
std::string writtenCodes(const std::string& side, const BodyForm& form) {
  return reducingMaximum(form.fourBitCodes ? fourBitGroups(side) + scales(side) + fourBitCodes(side)
                                           : scales(side) + codes(side),
                         form.opset);
}

/// The rows that codes and scales stand for, of one side.
std::string readCodes(const std::string& side, const BodyForm& form) {
  return form.fourBitCodes ? fourBitRows(side)
                           : fmt::format("    {0}s = Mul ({0}_codes, {0}_scales)\n", side);
}

/// The present's codes of one side.
std::string presentCodes(const std::string& side, const BodyForm& form) {
  const ElementType element = form.fourBitCodes ? ElementType::UInt8 : ElementType::Int8;
  return fmt::format("    present_{0} = Cast <to = {1}> (present_{0}_code)\n", side,
                     static_cast<int32_t>(element));
}

constexpr const char* latentValues = R"(
    value_offset = Constant <value_int = @v_offset> ()
    value_columns = Constant <value_int = @v_width> ()
    value_offset_list = Reshape (value_offset, i1)
    value_width = Reshape (value_columns, i1)
    value_end = Add (value_offset_list, value_width)
    values = Slice (keys, value_offset_list, value_end, i3)
)";

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

constexpr const char* joinedSequence = R"(
    key_shape = Shape (keys)
    length_list = Gather (key_shape, i2)
    longest = Squeeze (length_list, i0)
    column_shape = Concat <axis = 0> (rest, i1)
    all_slots = Range (zero_index, longest, one_index)
    slot_row = Unsqueeze (all_slots, i0)
)";

/// The rows of all blocks and the new ones behind them; `side` is key or value.
std::string joinedBlocks(const std::string& side, size_t blocks, const CacheLayout& layout) {
  std::string text;
  std::string parts;
  for (size_t i = 0; i < blocks; ++i) {
    const std::string block = fmt::format("{}_block_{}", side, i);
    text += fmt::format("    {0}_width = Identity ({1}_width)\n", block, side);
    text += pastRows(block, layout);
    parts += block + "_past_rows, ";
  }
  return text + fmt::format("    {0}s = Concat <axis = 2> ({1}{0}_new)\n", side, parts);
}

std::string blockFormals(const std::string& side, size_t blocks) {
  std::string text;
  for (size_t i = 0; i < blocks; ++i)
    text += fmt::format(", past_{}_block_{}", side, i);
  return text;
}

constexpr const char* everyKeyValid = R"(
    earlier = Sub (length_list, rows)
    start = Reshape (earlier, column_shape)
    valid = GreaterOrEqual (slot_row, zero_index)
)";

/// The keys that any batch row reads; the mask may have columns for more.
/// How many rows of each batch row are read, and whether a row is. Needs past_length and mask.
constexpr const char* rowsByLength = R"(
    column_shape = Concat <axis = 0> (rest, i1)
    start = Reshape (past_length, column_shape)
    end = Add (start, rows)
    longest = ReduceMax <keepdims = 0> (end)
    longest_list = Reshape (longest, i1)
    all_slots = Range (zero_index, longest, one_index)
    slot_row = Unsqueeze (all_slots, i0)
    valid = Less (slot_row, end)
    mask_of_keys = Slice (mask, i0, longest_list, rest)
)";

constexpr const char* sequenceByLength = R"(
    key_shape = Shape (key)
    groups = Gather (key_shape, i1)
    value_shape = Shape (value)
    value_width = Gather (value_shape, i3)
    keys = Slice (key, i0, longest_list, i2)
    values = Slice (value, i0, longest_list, i2)
)";

/// The codes and scales that are read, of one side.
std::string codesByLength(const std::string& side) {
  return fmt::format(R"(
    {0}_read = Slice ({0}, i0, longest_list, i2)
    {0}_codes = Cast <to = 1> ({0}_read)
    {0}_scales = Slice ({0}_scale, i0, longest_list, i2)
)",
                     side);
}

/// One tile of keys. The state's type holds numbers up to `limit`; weights are counted in units of
/// 1/64.
constexpr const char* attentionTile = R"(
    key_shape = Shape (key)
    groups = Gather (key_shape, i1)
    length = Gather (key_shape, i2)
    value_shape = Shape (value)
    value_width = Gather (value_shape, i3)
    keys_as_float = Cast <to = 1> (key)
    values_as_float = Cast <to = 1> (value)
    query_as_float = Cast <to = 1> (query)
    grouped_shape = Concat <axis = 0> (batch, groups, rest, width)
    query_grouped = Reshape (query_as_float, grouped_shape)
    keys_transposed = Transpose <perm = [0, 1, 3, 2]> (keys_as_float)
{scores}
    limit = Constant <value_float = {limit}> ()
    hidden = IsInf <detect_positive = 0> (mask)
    masked = Add (capped, mask)
{clamped}    seen = Where (hidden, minus_infinity, {scores_in_range})
    top = @reduce_max (seen)
    maximum_as_float = Cast <to = 1> (maximum)
    base_before = ReduceSum <keepdims = 1> (maximum_as_float, rest)
    larger = Max (base_before, top)
    limited = Min (larger, limit)
{stored_maximum}
    above_base = Sub (seen, base)
    weights = Exp (above_base)
    decline = Sub (base_before, base)
    kept = Exp (decline)
    unit = Constant <value_float = 0.015625> ()
    weight_in_tile = ReduceSum <keepdims = 1> (weights, rest)
    sum_in_tile = Mul (weight_in_tile, unit)
    sum_as_float = Cast <to = 1> (sum)
    sum_before = Mul (sum_as_float, kept)
    total = Add (sum_before, sum_in_tile)
    next_sum = Cast <to = {state}> (total)
    nothing_seen = Equal (total, zero)
    divisor = Where (nothing_seen, one, total)
    share_before = Div (sum_before, divisor)
    unit_share = Div (unit, divisor)
    shares = Mul (weights, unit_share)
    grouped_shares_shape = Concat <axis = 0> (batch, groups, rest, length)
    shares_grouped = Reshape (shares, grouped_shares_shape)
    added_grouped = MatMul (shares_grouped, values_as_float)
    output_shape = Concat <axis = 0> (batch, heads, rows, value_width)
    added = Reshape (added_grouped, output_shape)
    output_as_float = Cast <to = 1> (output)
    output_before = Mul (output_as_float, share_before)
    output_after = Add (output_before, added)
    next_output = Cast <to = {state}> (output_after)
)";

/// How the maximum is stored as one number, and as two of float16; `base` is what is stored.
constexpr const char* maximumInOne = "    next_maximum = Identity (limited)\n"
                                     "    base = Identity (limited)";
constexpr const char* maximumInTwo = R"(
    rounded = Cast <to = 10> (limited)
    rounded_as_float = Cast <to = 1> (rounded)
    remainder = Sub (limited, rounded_as_float)
    remainder_rounded = Cast <to = 10> (remainder)
    remainder_as_float = Cast <to = 1> (remainder_rounded)
    next_maximum = Concat <axis = -1> (rounded, remainder_rounded)
    base = Add (rounded_as_float, remainder_as_float))";

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

std::string functionText(int64_t opset, const std::string& signature, const std::string& body) {
  assert(opset >= 13);
  return fmt::format("<domain: \"ai.kvopt\", opset_import: [\"\" : {}]>\n{} {{{}}}\n", opset,
                     signature, body);
}

const char* sinksFormal(const BodyForm& form) { return form.sinks ? ", sinks" : ""; }

} // namespace

std::string inPlaceKvSdpaFunctionText(const BodyForm& form, const CacheLayout& key,
                                      const CacheLayout& value) {
  const char* codes = form.int8Caches ? "_codes" : "";
  std::string signature =
      fmt::format("InPlaceKvSdpa <scale, causal, window, softcap, mask_boolean>\n"
                  "    (query, key_new{0}, value_new{0}, past_key{0}, past_value{0}, past_length, "
                  "mask{1})\n"
                  "    => (output, present_key{0}, present_value{0})",
                  codes, sinksFormal(form));
  std::string toNumbers, toCodes;
  if (form.int8Caches) {
    for (const char* part : {"key_new", "value_new", "past_key", "past_value"})
      toNumbers += fmt::format("    {0} = Cast <to = 1> ({0}_codes)\n", part);
    for (const char* part : {"present_key", "present_value"})
      toCodes += fmt::format("    {0}_codes = Cast <to = 3> ({0})\n", part);
  }
  return functionText(form.opset, signature,
                      "\n" + toNumbers + std::string(extents) + newExtents("key") +
                          newExtents("value") + groupsOfNewRows + pastRows("key", key) +
                          pastRows("value", value) + slots + cacheUpdate("key", key) +
                          cacheUpdate("value", value) + attentionText(form) + toCodes);
}

std::string ringKvSdpaFunctionText(const BodyForm& form, const CacheLayout& key,
                                   const CacheLayout& value) {
  std::string signature =
      fmt::format("RingKvSdpa <scale, causal, window, softcap, mask_boolean>\n"
                  "    (query, key_new, value_new, past_key, past_value, past_length, mask{})\n"
                  "    => (output, present_key, present_value)",
                  sinksFormal(form));
  constexpr const char* slotColumn =
      "    slot_column_shape = Constant <value_ints = [1, 1, -1, 1]> ()\n";
  return functionText(form.opset, signature,
                      std::string(extents) + newExtents("key") + newExtents("value") +
                          groupsOfNewRows + pastRows("key", key) + pastRows("value", value) +
                          slotColumn + ringSlots + ringRows("key") + ringRows("value") +
                          writtenRows("key", key, "keys") + writtenRows("value", value, "values") +
                          attentionText(form, "mask_of_keys"));
}

std::string inPlaceQuantizedKvSdpaFunctionText(const BodyForm& form, const CacheLayout& key,
                                               const CacheLayout& value) {
  std::string signature = fmt::format(
      "InPlaceQuantizedKvSdpa <scale, causal, window, softcap, mask_boolean>\n"
      "    (query, key_new, value_new, past_key, past_key_scale, past_value, past_value_scale,\n"
      "     past_length, mask{})\n"
      "    => (output, present_key, present_key_scale, present_value, present_value_scale)",
      sinksFormal(form));
  std::string body = std::string(extents) + (form.fourBitCodes ? fourBitRange : codeRange) +
                     newExtents("key") + newExtents("value") + groupsOfNewRows;
  for (const char* side : {"key", "value"})
    body += writtenCodes(side, form) + pastCodes(side);
  const std::pair<const char*, const CacheLayout*> parts[] = {
      {"key_code", &key}, {"key_scale", &key}, {"value_code", &value}, {"value_scale", &value}};
  for (const auto& [part, cache] : parts)
    body += newExtents(part) + pastRows(part, *cache);
  body += "    key_past_rows = Identity (key_code_past_rows)\n";
  body += slots;
  for (const auto& [part, cache] : parts)
    body += cacheUpdate(part, *cache);
  for (const char* side : {"key", "value"})
    body += readCodes(side, form) + presentCodes(side, form);
  return functionText(form.opset, signature, body + attentionText(form));
}

std::string inPlaceQuantizedLatentKvSdpaFunctionText(const BodyForm& form,
                                                     const CacheLayout& cache) {
  std::string signature = fmt::format(
      "InPlaceQuantizedLatentKvSdpa <scale, causal, window, softcap, mask_boolean, v_offset, "
      "v_width>\n"
      "    (query, key_new, past_key, past_key_scale, past_length, mask{})\n"
      "    => (output, present_key, present_key_scale)",
      sinksFormal(form));
  std::string body = std::string(extents) + (form.fourBitCodes ? fourBitRange : codeRange) +
                     newExtents("key") + groupsOfNewRows + writtenCodes("key", form) +
                     pastCodes("key");
  for (const char* part : {"key_code", "key_scale"})
    body += newExtents(part) + pastRows(part, cache);
  body += "    key_past_rows = Identity (key_code_past_rows)\n";
  body += slots;
  for (const char* part : {"key_code", "key_scale"})
    body += cacheUpdate(part, cache);
  return functionText(form.opset, signature,
                      body + readCodes("key", form) + presentCodes("key", form) + latentValues +
                          attentionText(form));
}

std::string inPlaceLatentKvSdpaFunctionText(const BodyForm& form, const CacheLayout& cache) {
  std::string signature = fmt::format(
      "InPlaceLatentKvSdpa <scale, causal, window, softcap, mask_boolean, v_offset, v_width>\n"
      "    (query, key_new, past_key, past_length, mask{})\n"
      "    => (output, present_key)",
      sinksFormal(form));
  return functionText(form.opset, signature,
                      std::string(extents) + newExtents("key") + groupsOfNewRows +
                          pastRows("key", cache) + slots + cacheUpdate("key", cache) +
                          latentValues + attentionText(form));
}

std::string blockKvSdpaFunctionText(const BodyForm& form, size_t blocks, const CacheLayout& key,
                                    const CacheLayout& value) {
  // The operand `sinks` has a place of its own even where it is absent.
  std::string signature = fmt::format("BlockKvSdpa <scale, causal, window, softcap, mask_boolean>\n"
                                      "    (query, key_new, value_new, mask, sinks{}{})\n"
                                      "    => (output)",
                                      blockFormals("key", blocks), blockFormals("value", blocks));
  return functionText(form.opset, signature,
                      std::string(extents) + newExtents("key") + newExtents("value") +
                          groupsOfNewRows + joinedBlocks("key", blocks, key) +
                          joinedBlocks("value", blocks, value) + joinedSequence + everyKeyValid +
                          attentionText(form));
}

std::string blockLatentKvSdpaFunctionText(const BodyForm& form, size_t blocks,
                                          const CacheLayout& cache) {
  std::string signature = fmt::format(
      "BlockLatentKvSdpa <scale, causal, window, softcap, mask_boolean, v_offset, v_width>\n"
      "    (query, key_new, mask, sinks{}) => (output)",
      blockFormals("key", blocks));
  return functionText(form.opset, signature,
                      std::string(extents) + newExtents("key") + groupsOfNewRows +
                          joinedBlocks("key", blocks, cache) + latentValues + joinedSequence +
                          everyKeyValid + attentionText(form));
}

std::string quantizeRowsFunctionText(int64_t opset) {
  BodyForm form;
  form.opset = opset;
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
                      std::string(constants) + codeRange + writtenCodes("row", form) + results);
}

std::string quantizedSdpaFunctionText(const BodyForm& form) {
  std::string signature = fmt::format(
      "QuantizedSdpa <scale, causal, window, softcap, mask_boolean, v_width>\n"
      "    (query, key, key_scale, value, value_scale, past_length, mask{}) => (output)",
      sinksFormal(form));
  constexpr const char* widths = R"(
    key_shape = Shape (key)
    groups = Gather (key_shape, i1)
    key_width = Identity (width)
    value_columns = Constant <value_int = @v_width> ()
    value_width = Reshape (value_columns, i1)
)";
  std::string body =
      std::string(extents) + (form.fourBitCodes ? fourBitRange : "") + widths + rowsByLength;
  for (const char* side : {"key", "value"})
    body += codesByLength(side) + (form.fourBitCodes ? fourBitGroups(side) : "") +
            readCodes(side, form);
  return functionText(form.opset, signature, body + attentionText(form, "mask_of_keys"));
}

std::string sdpaFunctionText(const BodyForm& form) {
  const char* more = form.lengths ? ", sinks, past_length" : sinksFormal(form);
  std::string signature = fmt::format("Sdpa <scale, causal, window, softcap, mask_boolean>\n"
                                      "    (query, key, value, mask{}) => (output)",
                                      more);
  return functionText(form.opset, signature,
                      form.lengths ? std::string(extents) + rowsByLength + sequenceByLength +
                                         attentionText(form, "mask_of_keys")
                                   : std::string(extents) + wholeSequence + everyKeyValid +
                                         attentionText(form));
}

std::string attentionTileFunctionText(int64_t opset, ElementType state) {
  const bool isHalf = state == ElementType::Float16;
  // Masks of float32 hide keys by finite numbers that the maximum must reach where they hide all.
  constexpr const char* clamped = "    lowest = Neg (limit)\n"
                                  "    in_range = Max (masked, lowest)\n";
  const std::string body =
      fmt::format(fmt::runtime(attentionTile), fmt::arg("scores", scores),
                  fmt::arg("limit", isHalf ? "65504.0" : "3.4028234663852886e+38"),
                  fmt::arg("clamped", isHalf ? clamped : ""),
                  fmt::arg("scores_in_range", isHalf ? "in_range" : "masked"),
                  fmt::arg("stored_maximum", isHalf ? maximumInTwo : maximumInOne),
                  fmt::arg("state", static_cast<int32_t>(state)));
  return functionText(opset,
                      "AttentionTile <scale, softcap>\n"
                      "    (query, key, value, mask, output, maximum, sum)\n"
                      "    => (next_output, next_maximum, next_sum)",
                      std::string(extents) + reducingMaximum(body, opset));
}

std::string appendRowsFunctionText(int64_t opset, ElementType element) {
  return functionText(
      opset, "AppendRows (past, fresh, past_length) => (present)",
      fmt::format(fmt::runtime(appendRows), fmt::arg("element", static_cast<int32_t>(element))));
}

} // namespace kvopt::ir
