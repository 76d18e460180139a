// Attention, and writing of rows to caches.
#include "ir/ops/kvopt/function_body_parts.h"

#include "support/format.h"

#include <cassert>

namespace kvopt::ir {
namespace {

/// Attention over `keys` [B,G,T,D] and `values` [B,G,T,Dv]. `start` [1 or B,1] is the position of
/// query row 0, `longest` is T as a scalar, and `valid` [1 or B,T] is true for visible rows.
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

/// A sink is an additional logit of a head that has a weight but no value.
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

/// The inverse, for the present.
std::string presentRows(const std::string& side, const CacheLayout& layout) {
  const llvm::SmallVector<int64_t, 4> back = layout.cacheOrder();
  if (!layout.hasFoldedHeads())
    return formatted(
        "    present_{0} = Transpose <perm = [{1}, {2}, {3}, {4}]> ({0}_present_rows)\n", side,
        back[0], back[1], back[2], back[3]);
  return formatted(R"(
    {0}_folded_shape = Concat <axis = 0> (rest, {0}_capacity, {0}_width)
    {0}_folded_present = Reshape ({0}_present_rows, {0}_folded_shape)
    present_{0} = Transpose <perm = [{1}, {2}, {3}]> ({0}_folded_present)
)",
                   side, back[0], back[1], back[2]);
}

} // namespace

std::string reducingMaximum(llvm::StringRef text, int64_t opset) {
  constexpr llvm::StringLiteral placeholder = "@reduce_max (";
  std::string result;
  for (size_t at = text.find(placeholder); at != llvm::StringRef::npos;
       at = text.find(placeholder)) {
    llvm::StringRef rest = text.drop_front(at + placeholder.size());
    llvm::StringRef operand = rest.take_until([](char c) { return c == ')'; });
    result += text.take_front(at);
    result += opset < 18 ? formatted("ReduceMax <axes = [-1], keepdims = 1> ({}", operand.str())
                         : formatted("ReduceMax <keepdims = 1> ({}, rest", operand.str());
    text = rest.drop_front(operand.size());
  }
  return result + text.str();
}

std::string attentionText(const BodyForm& form, const char* mask) {
  std::string top = "    top = @reduce_max (seen)";
  std::string weight = "    total_weight = ReduceSum <keepdims = 1> (weights, rest)";
  if (form.sinks) {
    top = sinkTop;
    weight = sinkWeight;
  }
  return formattedAs(attention, named("scores", scoresText),
                     named("top", reducingMaximum(top, form.opset)), named("total_weight", weight),
                     named("mask", mask), named("element", static_cast<int32_t>(form.element)));
}

std::string pastRowsText(const std::string& side, const CacheLayout& layout) {
  const llvm::SmallVector<int64_t, 4> order = layout.rowOrder();
  if (!layout.hasFoldedHeads())
    return formatted("    {0}_past_rows = Transpose <perm = [{1}, {2}, {3}, {4}]> (past_{0})\n",
                     side, order[0], order[1], order[2], order[3]);
  return formatted(R"(
    {0}_past_shape = Shape (past_{0})
    {0}_capacity = Gather ({0}_past_shape, i{1})
    {0}_folded_rows = Transpose <perm = [{2}, {3}, {4}]> (past_{0})
    {0}_folded_column = Unsqueeze ({0}_folded_rows, i1)
    {0}_rows_shape = Concat <axis = 0> (batch, groups, i0, {0}_width)
    {0}_past_rows = Reshape ({0}_folded_column, {0}_rows_shape)
)",
                   side, layout.sequenceAxis(), order[0], order[1], order[2]);
}

std::string writtenRowsText(const std::string& side, const CacheLayout& layout,
                            const std::string& source) {
  return formatted(R"(
    {0}_index_shape = Concat <axis = 0> (batch, groups, capacity, {0}_width)
    {0}_index = Expand (source_column, {0}_index_shape)
    {0}_new_rows = GatherElements <axis = 2> ({1}, {0}_index)
    {0}_present_rows = Where (is_new_row, {0}_new_rows, {0}_past_rows)
)",
                   side, source) +
         presentRows(side, layout);
}

std::string cacheUpdateText(const std::string& side, const CacheLayout& layout) {
  return writtenRowsText(side, layout, side + "_new") +
         formatted("    {0}s = Slice ({0}_present_rows, i0, longest_list, i2)\n", side);
}

std::string ringRowsText(const std::string& side) {
  return formatted(R"(
    {0}_kept_rows = Gather <axis = 2> ({0}_past_rows, kept_slot)
    {0}s = Concat <axis = 2> ({0}_kept_rows, {0}_new)
)",
                   side);
}

std::string blockFormals(const std::string& side, size_t blocks) {
  std::string text;
  for (size_t i = 0; i < blocks; ++i)
    text += formatted(", past_{}_block_{}", side, i);
  return text;
}

std::string joinedBlocksText(const std::string& side, size_t blocks, const CacheLayout& layout) {
  std::string text;
  std::string parts;
  for (size_t i = 0; i < blocks; ++i) {
    const std::string block = formatted("{}_block_{}", side, i);
    text += formatted("    {0}_width = Identity ({1}_width)\n", block, side);
    text += pastRowsText(block, layout);
    parts += block + "_past_rows, ";
  }
  return text + formatted("    {0}s = Concat <axis = 2> ({1}{0}_new)\n", side, parts);
}

std::string newExtentsText(const std::string& side) {
  return formatted(R"(
    {0}_new_shape = Shape ({0}_new)
    {0}_width = Gather ({0}_new_shape, i3)
)",
                   side);
}

std::string functionText(int64_t opset, const std::string& signature, const std::string& body) {
  assert(opset >= 13);
  return formatted("<domain: \"ai.kvopt\", opset_import: [\"\" : {}]>\n{} {{{}}}\n", opset,
                   signature, body);
}

const char* sinksFormal(const BodyForm& form) { return form.sinks ? ", sinks" : ""; }

} // namespace kvopt::ir
