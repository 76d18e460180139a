// The bodies of operators over rows as they are.
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
                      "\n" + toNumbers + std::string(extentsText) + newExtentsText("key") +
                          newExtentsText("value") + groupsOfNewRowsText + pastRowsText("key", key) +
                          pastRowsText("value", value) + slotsText + cacheUpdateText("key", key) +
                          cacheUpdateText("value", value) + attentionText(form) + toCodes);
}

std::string ringKvSdpaFunctionText(const BodyForm& form, const CacheLayout& key,
                                   const CacheLayout& value) {
  std::string signature =
      fmt::format("RingKvSdpa <scale, causal, window, softcap, mask_boolean>\n"
                  "    (query, key_new, value_new, past_key, past_value, past_length, mask{})\n"
                  "    => (output, present_key, present_value)",
                  sinksFormal(form));
  return functionText(form.opset, signature,
                      std::string(extentsText) + newExtentsText("key") + newExtentsText("value") +
                          groupsOfNewRowsText + pastRowsText("key", key) +
                          pastRowsText("value", value) + ringSlotsText + ringRowsText("key") +
                          ringRowsText("value") + writtenRowsText("key", key, "keys") +
                          writtenRowsText("value", value, "values") +
                          attentionText(form, "mask_of_keys"));
}

std::string inPlaceLatentKvSdpaFunctionText(const BodyForm& form, const CacheLayout& cache) {
  std::string signature = fmt::format(
      "InPlaceLatentKvSdpa <scale, causal, window, softcap, mask_boolean, v_offset, v_width>\n"
      "    (query, key_new, past_key, past_length, mask{})\n"
      "    => (output, present_key)",
      sinksFormal(form));
  return functionText(form.opset, signature,
                      std::string(extentsText) + newExtentsText("key") + groupsOfNewRowsText +
                          pastRowsText("key", cache) + slotsText + cacheUpdateText("key", cache) +
                          latentValuesText + attentionText(form));
}

std::string blockKvSdpaFunctionText(const BodyForm& form, size_t blocks, const CacheLayout& key,
                                    const CacheLayout& value) {
  // The operand `sinks` has a place of its own even where it is absent.
  std::string signature = fmt::format("BlockKvSdpa <scale, causal, window, softcap, mask_boolean>\n"
                                      "    (query, key_new, value_new, mask, sinks{}{})\n"
                                      "    => (output)",
                                      blockFormals("key", blocks), blockFormals("value", blocks));
  return functionText(form.opset, signature,
                      std::string(extentsText) + newExtentsText("key") + newExtentsText("value") +
                          groupsOfNewRowsText + joinedBlocksText("key", blocks, key) +
                          joinedBlocksText("value", blocks, value) + joinedSequenceText +
                          everyKeyValidText + attentionText(form));
}

std::string blockLatentKvSdpaFunctionText(const BodyForm& form, size_t blocks,
                                          const CacheLayout& cache) {
  std::string signature = fmt::format(
      "BlockLatentKvSdpa <scale, causal, window, softcap, mask_boolean, v_offset, v_width>\n"
      "    (query, key_new, mask, sinks{}) => (output)",
      blockFormals("key", blocks));
  return functionText(form.opset, signature,
                      std::string(extentsText) + newExtentsText("key") + groupsOfNewRowsText +
                          joinedBlocksText("key", blocks, cache) + latentValuesText +
                          joinedSequenceText + everyKeyValidText + attentionText(form));
}

std::string sdpaFunctionText(const BodyForm& form) {
  const char* more = form.lengths ? ", sinks, past_length" : sinksFormal(form);
  std::string signature = fmt::format("Sdpa <scale, causal, window, softcap, mask_boolean>\n"
                                      "    (query, key, value, mask{}) => (output)",
                                      more);
  return functionText(form.opset, signature,
                      form.lengths ? std::string(extentsText) + rowsByLengthText +
                                         sequenceByLength + attentionText(form, "mask_of_keys")
                                   : std::string(extentsText) + wholeSequence + everyKeyValidText +
                                         attentionText(form));
}

std::string appendRowsFunctionText(int64_t opset, ElementType element) {
  return functionText(
      opset, "AppendRows (past, fresh, past_length) => (present)",
      fmt::format(fmt::runtime(appendRows), fmt::arg("element", static_cast<int32_t>(element))));
}

} // namespace kvopt::ir
