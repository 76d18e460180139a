// Decoders of one layer whose keys and queries are rotated by their positions, in every spelling.
#pragma once

#include "support/format.h"
#include "tests/equivalence/caches/decoder_text.h"

#include <cmath>
#include <string>
#include <vector>

namespace kvopt {

/// How `qr` and `kr` are made of `q` [B,4,S,8] and `k` [B,2,S,8]. In the text of `rotation`, which
/// is used for both, @ stands for q and k, and # for the number of heads.
struct RotationSpelling {
  const char* name;
  /// What both read: made of `position_ids` [B,S] as `cos` and `sin`, say.
  std::string common;
  std::string rotation;
  /// More inputs, each with a comma behind it.
  std::string inputs = "int64[B, S] position_ids, ";
  /// More constants, each with a comma behind it.
  std::string constants;
  int opset = 17;
};

/// frequencies[i] for position p of a table with so many columns: cosines or sines, the same for
/// both halves of a row of `columns`.
inline std::string waveTable(int rows, int columns, bool isSine, int period) {
  const double frequencies[] = {1.0, 0.3125, 0.09375, 0.03125};
  std::string text;
  for (int row = 0; row < rows; ++row)
    for (int column = 0; column < columns; ++column) {
      const double angle = row * frequencies[column % period];
      text += formatted("{}{:.9g}", text.empty() ? "" : ", ",
                        isSine ? std::sin(angle) : std::cos(angle));
    }
  return text;
}

/// `angles` [B,S,4] of position_ids.
inline const std::string rotationAngles = R"(
  positions_f = Cast <to = 1> (position_ids)
  positions_row = Unsqueeze (positions_f, l1)
  angles_t = MatMul (frequencies, positions_row)
  angles = Transpose <perm = [0, 2, 1]> (angles_t)
)";

/// `cos` and `sin` [B,1,S,8] for halves.
inline const std::string rotationWaves = rotationAngles + R"(
  both = Concat <axis = -1> (angles, angles)
  cos_r = Cos (both)
  sin_r = Sin (both)
  cos = Unsqueeze (cos_r, l1)
  sin = Unsqueeze (sin_r, l1)
)";

/// `c` and `s` [B,1,S,4] for pairs.
inline const std::string rotationHalfWaves = rotationAngles + R"(
  cos_r = Cos (angles)
  sin_r = Sin (angles)
  c = Unsqueeze (cos_r, l1)
  s = Unsqueeze (sin_r, l1)
)";

inline const std::string turnedHalves = R"(
  @lo = Slice (@, l0, l4, l3)
  @hi = Slice (@, l4, l8, l3)
  @neg = Neg (@hi)
  @turned = Concat <axis = -1> (@neg, @lo)
)";

inline const std::string sumOfProducts = R"(
  @straight = Mul (@, cos)
  @across = Mul (@turned, sin)
  @r = Add (@straight, @across)
)";

/// Nodes of the decoder that a test may replace: what projections read, and what goes from the
/// rotation to the cache and to attention.
struct RotatedDecoderParts {
  std::string inner = "  inner = Identity (hidden)\n";
  std::string keys = "  new_k = Identity (kr)\n";
  std::string values = "  new_v = Identity (v)\n";
  std::string queries = "  new_q = Identity (qr)\n";
  /// The caches' types, and how `keys` and `values` [B,2,T,8] are made of `new_k` and `new_v`.
  std::string pastKey = "float[B, 2, P, 8]";
  std::string pastValue = "float[B, 2, P, 8]";
  std::string joins = R"(
  all_k = Concat <axis = 2> (past_k, new_k)
  all_v = Concat <axis = 2> (past_v, new_v)
  keys = Identity (all_k)
  values = Identity (all_v)
)";
  std::string attention = "  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (new_q, keys, values)\n";
};

inline std::string replacedAll(std::string text, char from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, 1, to);
  return text;
}

inline std::string rotatedDecoderText(const RotationSpelling& spelling,
                                      const RotatedDecoderParts& parts = {}) {
  const auto rotationOf = [&](const char* name, const char* heads) {
    return replacedAll(replacedAll(spelling.rotation, '@', name), '#', heads);
  };
  return "<ir_version: 8, opset_import: [\"\" : " + std::to_string(spelling.opset) +
         ", \"ai.kvopt\" : 1, \"com.microsoft\" : 1]>\n"
         "decoder (int64[B, S] input_ids, " +
         spelling.inputs + parts.pastKey + " past_k, " + parts.pastValue +
         " past_v, float[1, 1, 16] table, float[1, 16, 32] wq, float[1, 16, 16] wk, "
         "float[1, 16, 16] wv, float[1, 32, 10] wo)\n"
         "  => (float[B, S, 10] logits, float[] all_k, float[] all_v)\n"
         "<" +
         spelling.constants +
         "int64 i0 = {0}, int64 i1 = {1}, int64 i2 = {2}, int64[1] l0 = {0}, int64[1] l1 = {1}, "
         "int64[1] l2 = {2}, int64[1] l3 = {3}, int64[1] l4 = {4}, int64[1] l8 = {8}, "
         "float[1, 4, 1] frequencies = {1.0, 0.3125, 0.09375, 0.03125}>\n{" +
         decoderHidden + parts.inner + R"(
  qm = MatMul (inner, wq)
  km = MatMul (inner, wk)
  vm = MatMul (inner, wv)
  q_shape = Constant <value_ints = [0, 0, 4, 8]> ()
  kv_shape = Constant <value_ints = [0, 0, 2, 8]> ()
  q_rows = Reshape (qm, q_shape)
  q = Transpose <perm = [0, 2, 1, 3]> (q_rows)
  k_rows = Reshape (km, kv_shape)
  k = Transpose <perm = [0, 2, 1, 3]> (k_rows)
  v_rows = Reshape (vm, kv_shape)
  v = Transpose <perm = [0, 2, 1, 3]> (v_rows)
)" + spelling.common +
         rotationOf("q", "4") + rotationOf("k", "2") + parts.queries + parts.keys + parts.values +
         parts.joins + parts.attention +
         R"(
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  o_shape = Constant <value_ints = [0, 0, 32]> ()
  om = Reshape (ot, o_shape)
  logits = MatMul (om, wo)
})";
}

/// Every spelling that is recognized.
inline std::vector<RotationSpelling> rotationSpellings() {
  const std::string tables = "float[64, 8] cos_table = {" + waveTable(64, 8, false, 4) +
                             "}, float[64, 8] sin_table = {" + waveTable(64, 8, true, 4) + "}, ";
  const std::string halfTables = "float[64, 4] cos_table = {" + waveTable(64, 4, false, 4) +
                                 "}, float[64, 4] sin_table = {" + waveTable(64, 4, true, 4) +
                                 "}, ";
  const std::string narrowTables = "float[64, 2] cos_table = {" + waveTable(64, 2, false, 2) +
                                   "}, float[64, 2] sin_table = {" + waveTable(64, 2, true, 2) +
                                   "}, ";
  const std::string stacked = R"(
  @a_c = Mul (@even, c)
  @b_s = Mul (@odd, s)
  @b_c = Mul (@odd, c)
  @a_s = Mul (@even, s)
  @first = Sub (@a_c, @b_s)
  @second = Add (@b_c, @a_s)
  @first_u = Unsqueeze (@first, l4)
  @second_u = Unsqueeze (@second, l4)
  @stacked = Concat <axis = -1> (@first_u, @second_u)
  @extents = Constant <value_ints = [0, 0, 0, 8]> ()
  @r = Reshape (@stacked, @extents)
)";
  const std::string lookedUp = R"(
  cos_r = Gather (cos_table, position_ids)
  sin_r = Gather (sin_table, position_ids)
  cos = Unsqueeze (cos_r, l1)
  sin = Unsqueeze (sin_r, l1)
)";
  const std::string countedOn = R"(
  past_extents = Shape (past_k)
  past_length = Gather (past_extents, i2)
  step_extents = Shape (input_ids)
  step_length = Gather (step_extents, i1)
  total_length = Add (past_length, step_length)
)";
  std::vector<RotationSpelling> all;
  all.push_back({"HalvesBySlice", rotationWaves, turnedHalves + sumOfProducts});
  all.push_back({"HalvesBySplit", rotationWaves, R"(
  @lo, @hi = Split <axis = -1> (@)
  @neg = Neg (@hi)
  @turned = Concat <axis = -1> (@neg, @lo)
)" + sumOfProducts});
  all.push_back({"HalvesWithSigns", rotationWaves, R"(
  @lo = Slice (@, l0, l4, l3)
  @hi = Slice (@, l4, l8, l3)
  @swapped = Concat <axis = -1> (@hi, @lo)
  @turned = Mul (@swapped, signs)
)" + sumOfProducts,
                 "int64[B, S] position_ids, ", "float[8] signs = {-1, -1, -1, -1, 1, 1, 1, 1}, "});
  std::string matrix;
  for (int row = 0; row < 8; ++row)
    for (int column = 0; column < 8; ++column)
      matrix += formatted("{}{}", matrix.empty() ? "" : ", ",
                          row == column + 4   ? -1
                          : column == row + 4 ? 1
                                              : 0);
  all.push_back({"HalvesByMatrix", rotationWaves, R"(
  @turned = MatMul (@, turn)
)" + sumOfProducts,
                 "int64[B, S] position_ids, ", "float[8, 8] turn = {" + matrix + "}, "});
  all.push_back({"ScaledWaves", rotationWaves + R"(
  factor = Constant <value_float = 1.25> ()
  cos_s = Mul (cos, factor)
  sin_s = Mul (sin, factor)
)",
                 turnedHalves + R"(
  @straight = Mul (@, cos_s)
  @across = Mul (@turned, sin_s)
  @r = Add (@straight, @across)
)"});
  all.push_back({"TwoProductsForEachHalf", rotationHalfWaves, R"(
  @lo = Slice (@, l0, l4, l3)
  @hi = Slice (@, l4, l8, l3)
  @a_c = Mul (@lo, c)
  @b_s = Mul (@hi, s)
  @b_c = Mul (@hi, c)
  @a_s = Mul (@lo, s)
  @first = Sub (@a_c, @b_s)
  @second = Add (@b_c, @a_s)
  @r = Concat <axis = -1> (@first, @second)
)"});
  all.push_back({"NeighborsByStrides", rotationHalfWaves, R"(
  @even = Slice (@, l0, l8, l3, l2)
  @odd = Slice (@, l1, l8, l3, l2)
)" + stacked});
  all.push_back({"NeighborsByGather", rotationHalfWaves, R"(
  @pairs_shape = Constant <value_ints = [0, 0, 0, 4, 2]> ()
  @pairs = Reshape (@, @pairs_shape)
  @even = Gather <axis = 4> (@pairs, i0)
  @odd = Gather <axis = 4> (@pairs, i1)
)" + stacked});
  all.push_back({"NeighborsThatBecomeHalves", rotationWaves, R"(
  @pairs_shape = Constant <value_ints = [0, 0, 0, 4, 2]> ()
  @pairs = Reshape (@, @pairs_shape)
  @apart = Transpose <perm = [0, 1, 2, 4, 3]> (@pairs)
  @back_shape = Constant <value_ints = [0, 0, 0, 8]> ()
  @x = Reshape (@apart, @back_shape)
  @lo = Slice (@x, l0, l4, l3)
  @hi = Slice (@x, l4, l8, l3)
  @neg = Neg (@hi)
  @turned = Concat <axis = -1> (@neg, @lo)
  @straight = Mul (@x, cos)
  @across = Mul (@turned, sin)
  @r = Add (@straight, @across)
)"});
  const std::string half = R"(
  @a, @b = Split <axis = -1> (@turning)
  @neg = Neg (@b)
  @turned = Concat <axis = -1> (@neg, @a)
  @straight = Mul (@turning, cos)
  @across = Mul (@turned, sin)
  @moved = Add (@straight, @across)
)";
  const std::string narrow = R"(
  positions_f = Cast <to = 1> (position_ids)
  positions_column = Unsqueeze (positions_f, l2)
  angles = Mul (positions_column, few)
  both = Concat <axis = -1> (angles, angles)
  cos_r = Cos (both)
  sin_r = Sin (both)
  cos = Unsqueeze (cos_r, l1)
  sin = Unsqueeze (sin_r, l1)
)";
  const std::string few = "float[2] few = {1.0, 0.25}, ";
  all.push_back({"FirstColumns", narrow, R"(
  @turning, @rest = Split <axis = -1> (@)
)" + half + R"(
  @r = Concat <axis = -1> (@moved, @rest)
)",
                 "int64[B, S] position_ids, ", few});
  all.push_back({"LastColumns", narrow, R"(
  @rest, @turning = Split <axis = -1> (@)
)" + half + R"(
  @r = Concat <axis = -1> (@rest, @moved)
)",
                 "int64[B, S] position_ids, ", few});
  all.push_back({"TablesByGather", lookedUp, turnedHalves + sumOfProducts,
                 "int64[B, S] position_ids, ", tables});
  all.push_back({"TablesBySlice", countedOn + R"(
  begin = Unsqueeze (past_length, l0)
  end = Unsqueeze (total_length, l0)
  cos_rows = Slice (cos_table, begin, end, l0)
  sin_rows = Slice (sin_table, begin, end, l0)
  length_list = Unsqueeze (step_length, l0)
  rows_shape = Concat <axis = 0> (length_list, l8)
  cos = Reshape (cos_rows, rows_shape)
  sin = Reshape (sin_rows, rows_shape)
)",
                 turnedHalves + sumOfProducts, "", tables});
  all.push_back({"CountedByRange", countedOn + R"(
  places = Range (past_length, total_length, i1)
  places_f = Cast <to = 1> (places)
  flat = Reshape (frequencies, flat_shape)
  angles = Einsum <equation = "i,j->ij"> (places_f, flat)
  both = Concat <axis = -1> (angles, angles)
  cos = Cos (both)
  sin = Sin (both)
)",
                 turnedHalves + sumOfProducts, "", "int64[1] flat_shape = {4}, "});
  all.push_back({"CountedByStep", countedOn + R"(
  places = Range (i0, step_length, i1)
  later = Add (places, past_length)
  places_f = Cast <to = 1> (later)
  place_column = Unsqueeze (places_f, l1)
  angles = Mul (place_column, flat)
  both = Concat <axis = -1> (angles, angles)
  cos = Cos (both)
  sin = Sin (both)
)",
                 turnedHalves + sumOfProducts, "",
                 "float[4] flat = {1.0, 0.3125, 0.09375, 0.03125}, "});
  all.push_back({"CountedByMask", R"(
  counted = CumSum (attention_mask, i1)
  from_0 = Sub (counted, i1)
  is_hidden = Equal (attention_mask, i0)
  shown = Where (is_hidden, i1, from_0)
  step_extents = Shape (input_ids)
  step_length = Gather (step_extents, l1)
  back = Neg (step_length)
  latest = Slice (shown, back, far, l1)
  position_ids = Reshape (latest, step_extents)
)" + rotationWaves,
                 turnedHalves + sumOfProducts, "int64[B, T] attention_mask, ",
                 "int64[1] far = {9223372036854775807}, "});
  for (const auto& [name, interleaved] :
       {std::pair("ContribHalves", 0), std::pair("ContribNeighbors", 1)})
    all.push_back({name, "",
                   formatted("  @r = com.microsoft.RotaryEmbedding <interleaved = {}> (@, "
                             "position_ids, cos_table, sin_table)\n",
                             interleaved),
                   "int64[B, S] position_ids, ", halfTables});
  all.push_back({"ContribFirstColumns", "",
                 "  @r = com.microsoft.RotaryEmbedding <rotary_embedding_dim = 4, num_heads = #> "
                 "(@, position_ids, cos_table, sin_table)\n",
                 "int64[B, S] position_ids, ", narrowTables});
  for (const auto& [name, interleaved] :
       {std::pair("OnnxHalves", 0), std::pair("OnnxNeighbors", 1)})
    all.push_back({name, "",
                   formatted("  @r = RotaryEmbedding <interleaved = {}> (@, cos_table, "
                             "sin_table, position_ids)\n",
                             interleaved),
                   "int64[B, S] position_ids, ", halfTables, 23});
  all.push_back({"OnnxWithWaves", rotationAngles + R"(
  cos_r = Cos (angles)
  sin_r = Sin (angles)
)",
                 "  @r = RotaryEmbedding (@, cos_r, sin_r)\n", "int64[B, S] position_ids, ", "",
                 23});
  all.push_back({"NotRotated", "", "  @r = Identity (@)\n", ""});
  return all;
}

} // namespace kvopt
