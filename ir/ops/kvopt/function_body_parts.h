// Parts of function bodies that several operators share: texts of nodes, which read and define
// values by name. A body cannot branch on an attribute, so attributes become constants, and Where
// selects.
#pragma once

#include "ir/cache_layout.h"
#include "ir/ops/kvopt/function_body.h"

#include "llvm/ADT/StringRef.h"

namespace kvopt::ir {

/// Extents and small constants. Requires query.
inline constexpr const char* extentsText = R"(
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

/// Scores of query_grouped [B,G,·,D] and keys_transposed [B,G,D,T]; `length` is T in a list.
inline constexpr const char* scoresText = R"(
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

/// Replaces `@reduce_max (x)` in a text by the largest element of each row. In opset 18, the axes
/// of ReduceMax became an operand.
std::string reducingMaximum(llvm::StringRef text, int64_t opset);

/// Attention of `query` over `keys` [B,G,T,D] and `values` [B,G,T,Dv], with the value named `mask`
/// as its mask. Requires `start`, the position of query row 0 [1 or B,1]; `longest`, T as a scalar;
/// and `valid` [1 or B,T], true for visible rows.
std::string attentionText(const BodyForm& form, const char* mask = "mask");

/// Destination of new rows: an index per slot. Requires key_past_rows [B,G,C,D].
inline constexpr const char* slotsText = R"(
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

/// Rows [B,G,C,D] of one cache; `side` is key or value. C may be 0, which a Reshape can only copy
/// from an axis at the same index.
std::string pastRowsText(const std::string& side, const CacheLayout& layout);

/// The cache with rows of `source` where is_new_row is true.
std::string writtenRowsText(const std::string& side, const CacheLayout& layout,
                            const std::string& source);

/// The cache with its new rows, and the rows that attention reads.
std::string cacheUpdateText(const std::string& side, const CacheLayout& layout);

/// Rows of a ring that are read, and the slots of those and of the new rows. Slots are written with
/// rows that were already read, so an engine that puts the present in the memory of the past reads
/// all of the past first. Requires key_past_rows [B,G,C,D].
inline constexpr const char* ringSlotsText = R"(
    slot_column_shape = Constant <value_ints = [1, 1, -1, 1]> ()
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

/// Rows of a ring that attention reads, in the order of their positions.
std::string ringRowsText(const std::string& side);

/// Extents of the new rows. Requires only the new rows.
std::string newExtentsText(const std::string& side);

/// Number of groups of heads, from key_new_shape.
inline constexpr const char* groupsOfNewRowsText = R"(
    groups = Gather (key_new_shape, i1)
)";

/// Values of a latent cache: columns of its keys.
inline constexpr const char* latentValuesText = R"(
    value_offset = Constant <value_int = @v_offset> ()
    value_columns = Constant <value_int = @v_width> ()
    value_offset_list = Reshape (value_offset, i1)
    value_width = Reshape (value_columns, i1)
    value_end = Add (value_offset_list, value_width)
    values = Slice (keys, value_offset_list, value_end, i3)
)";

/// Number of rows that are read per batch row, and whether a row is read. Requires past_length and
/// mask.
inline constexpr const char* rowsByLengthText = R"(
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

/// Operands in a signature for `blocks` blocks of one side, each after a comma.
std::string blockFormals(const std::string& side, size_t blocks);

/// Rows of all blocks, followed by the new rows.
std::string joinedBlocksText(const std::string& side, size_t blocks, const CacheLayout& layout);

/// Number of rows. Requires keys.
inline constexpr const char* joinedSequenceText = R"(
    key_shape = Shape (keys)
    length_list = Gather (key_shape, i2)
    longest = Squeeze (length_list, i0)
    column_shape = Concat <axis = 0> (rest, i1)
    all_slots = Range (zero_index, longest, one_index)
    slot_row = Unsqueeze (all_slots, i0)
)";

/// Marks all rows as valid; the new rows are the last ones. Requires length_list, column_shape and
/// slot_row.
inline constexpr const char* everyKeyValidText = R"(
    earlier = Sub (length_list, rows)
    start = Reshape (earlier, column_shape)
    valid = GreaterOrEqual (slot_row, zero_index)
)";

/// A complete function. `signature` is the name with attributes, operands and results; `body` is
/// the nodes.
std::string functionText(int64_t opset, const std::string& signature, const std::string& body);

/// The operand `sinks` in a signature, after a comma, or an empty string.
const char* sinksFormal(const BodyForm& form);

} // namespace kvopt::ir
