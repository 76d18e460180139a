// ai.kvopt::InPlaceQuantizedKvSdpa: InPlaceKvSdpa over caches of codes, with a scale for each row.
//
// A row x (the key or value of one token and head, in f32) is kept as codes q and a scale s:
//
//   s = max_d |x[d]| / 127,   q[d] = x[d] / s to the nearest integer, halves to the even one,
//                                    at most 127 and at least -127;   it stands for s q[d]
//
// Quotients are those of f32, rounded once each, so that every engine writes the same bytes.
//   A row of zeros has the scale 0 and codes 0, as has one that is so small that s is 0.
//   A row with a NaN or an infinity has the scale NaN and codes 0: all of it stands for NaN.
// |x[d] - s q[d]| <= s / 2, but for two roundings of f32 and for rows below 127 * 2^-149.
//
// Where past_key and past_value are uint8, not int8, codes have four bits, and equal groups of at
// most 32 columns have a multiplier m, a whole number, each:
//
//   s = max_d |x[d]| / 126,   m = max_group |x[d]| / (7 s) rounded up, at most 18 and at least 1
//   q[d] = x[d] / (s m) to the nearest integer, halves to the even one, at most 7 and at least -7;
//          it stands for s m q[d]
//
// support/four_bit_row.h says how a row lies in bytes, which must be side by side. Rows of zeros
// and rows without a number are as above, with m = 1. m q fits a byte, so that attention over such
// rows is attention over rows of int8.
//
// past_key and past_value are laid out as ir/cache_layout.h says for key_axis and value_axis.
// past_key_scale and past_value_scale are float and of the same extents, with one column: the scale
// of the row beside it. New rows are of the query's type, or of another floating-point one. Only
// rows [past_length, past_length + S) of the four are written, and no row at or after that is read.
// Attention is that of InPlaceKvSdpa over the rows that codes and scales stand for.
#include "ir/ops/kvopt/attention_shapes.h"

namespace kvopt::ir {

void register_in_place_quantized_kv_sdpa(OpRegistry& registry) {
  defineQuantizedKvSdpa(registry, "InPlaceQuantizedKvSdpa").shape([](ShapeContext& context) {
    return inferQuantizedKvSdpa(context, /*isRing=*/false);
  });
}

} // namespace kvopt::ir
