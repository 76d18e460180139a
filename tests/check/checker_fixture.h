// Models and manifests for tests of the checker.
#pragma once

#include "tests/check/checked_models.h"

namespace kvopt::check {

/// One attention layer with a growing cache, spelled out. `%` is replaced by the scale.
inline constexpr const char* grown = R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[B, S, 8] inputs_embeds, float[B, 1, P, 8] past_key, float[B, 1, P, 8] past_value)
  => (float[B, 1, S, 8] attended, float[B, 1, T, 8] present_key, float[B, 1, T, 8] present_value)
<int64[1] one = {1}, float scale = {0.5}>
{
  rows = Unsqueeze (inputs_embeds, one)
  present_key = Concat <axis = 2> (past_key, rows)
  present_value = Concat <axis = 2> (past_value, rows)
  turned = Transpose <perm = [0, 1, 3, 2]> (present_key)
  product = MatMul (rows, turned)
  scores = Mul (product, scale)
  weights = Softmax <axis = -1> (scores)
  attended = MatMul (weights, present_value)
}
)";

/// The same with a stable softmax, and the scale on the query.
inline constexpr const char* respelled = R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[B, S, 8] inputs_embeds, float[B, 1, P, 8] past_key, float[B, 1, P, 8] past_value)
  => (float[B, 1, S, 8] attended, float[B, 1, T, 8] present_key, float[B, 1, T, 8] present_value)
<int64[1] axis = {1}, float half = {0.5}, int64[1] last = {3}>
{
  new_rows = Unsqueeze (inputs_embeds, axis)
  present_key = Concat <axis = 2> (past_key, new_rows)
  present_value = Concat <axis = 2> (past_value, new_rows)
  query = Mul (half, new_rows)
  columns = Transpose <perm = [0, 1, 3, 2]> (present_key)
  logits = MatMul (query, columns)
  top = ReduceMax <axes = [3]> (logits)
  below = Sub (logits, top)
  powers = Exp (below)
  total = ReduceSum (powers, last)
  sums = MatMul (powers, present_value)
  attended = Div (sums, total)
}
)";

inline ir::Manifest growing() {
  ir::Manifest manifest;
  for (const char* role : {"key", "value"}) {
    ir::ManifestCache cache;
    cache.role = std::string(role) == "key" ? ir::CacheRole::Key : ir::CacheRole::Value;
    cache.past = std::string("past_") + role;
    cache.present = std::string("present_") + role;
    cache.shape = {std::string("B"), int64_t(1), std::string("P"), int64_t(8)};
    manifest.caches.push_back(cache);
  }
  return manifest;
}

inline CheckReport check(const std::string& before, const std::string& after) {
  auto first = read(before), second = read(after);
  if (!first || !second)
    return {};
  const ir::Manifest manifest = growing();
  return checkModels({*first, manifest}, {*second, manifest});
}

/// The same in buffers, whose valid rows past_length counts.
inline constexpr const char* buffered = R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[B, S, 8] inputs_embeds, float[B, 1, C, 8] past_key, float[B, 1, C, 8] past_value,
   int64 past_length)
  => (float[B, 1, S, 8] attended, float[B, 1, C, 8] present_key, float[B, 1, C, 8] present_value)
<int64[1] one = {1}, int64[1] two = {2}, int64[1] zero = {0}, int64[1] all = {-1},
 float scale = {0.5}>
{
  rows = Unsqueeze (inputs_embeds, one)
  start = Reshape (past_length, all)
  shape = Shape (rows)
  count = Gather (shape, two)
  end = Add (start, count)
  extents = Shape (past_key)
  capacity = Gather (extents, two)
  key_head = Slice (past_key, zero, start, two)
  key_tail = Slice (past_key, end, capacity, two)
  present_key = Concat <axis = 2> (key_head, rows, key_tail)
  value_head = Slice (past_value, zero, start, two)
  value_tail = Slice (past_value, end, capacity, two)
  present_value = Concat <axis = 2> (value_head, rows, value_tail)
  keys = Slice (present_key, zero, end, two)
  values = Slice (present_value, zero, end, two)
  turned = Transpose <perm = [0, 1, 3, 2]> (keys)
  product = MatMul (rows, turned)
  scores = Mul (product, scale)
  weights = Softmax <axis = -1> (scores)
  attended = MatMul (weights, values)
}
)";

/// The manifest of `buffered`, with a symbolic or a fixed number of rows.
inline ir::Manifest inBuffers(ir::LengthFeed feed, ir::ManifestExtent rows = std::string("C")) {
  ir::Manifest manifest = growing();
  manifest.contract = ir::CacheUpdate::InPlace;
  for (ir::ManifestCache& cache : manifest.caches) {
    cache.storage = ir::BufferCache{};
    cache.shape[2] = rows;
  }
  manifest.lengths.push_back({"past_length", ir::ElementType::Int64, {}, feed});
  return manifest;
}

/// Respelled attention whose result is multiplied by 1, or by 2 where `condition` holds.
inline std::string switched(const std::string& condition) {
  return edited(edited(respelled, "int64[1] last = {3}>",
                       "int64[1] last = {3}, int64 zero = {0}, int64 two = {2}, int64 limit = "
                       "{30}, float whole = {1}, float twice = {2}>"),
                "attended = Div (sums, total)",
                "extents = Shape (present_key) batch = Gather (extents, zero) rows = Gather "
                "(extents, two) " +
                    condition +
                    " factor = Where (switches, twice, whole) "
                    "quotient = Div (sums, total) attended = Mul (quotient, factor)");
}

} // namespace kvopt::check
