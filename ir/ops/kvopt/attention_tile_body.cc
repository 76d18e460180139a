// Function body of AttentionTile.
#include "ir/ops/kvopt/attention_tile_body.h"

#include "ir/ops/kvopt/function_body_parts.h"
#include "support/format.h"

namespace kvopt::ir {

namespace {

/// One tile of keys. `limit` is the largest finite number of the state's type. Weights are in units
/// of 1/64.
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

/// Storage of the maximum as one number, and as two of float16; `base` is the stored value.
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

} // namespace

std::string attentionTileFunctionText(int64_t opset, ElementType state) {
  const bool isHalf = state == ElementType::Float16;
  // Masks of float32 hide keys with finite numbers; if all keys are hidden, the maximum must reach
  // these numbers.
  constexpr const char* clamped = "    lowest = Neg (limit)\n"
                                  "    in_range = Max (masked, lowest)\n";
  const std::string body =
      formattedAs(attentionTile, named("scores", scoresText),
                  named("limit", isHalf ? "65504.0" : "3.4028234663852886e+38"),
                  named("clamped", isHalf ? clamped : ""),
                  named("scores_in_range", isHalf ? "in_range" : "masked"),
                  named("stored_maximum", isHalf ? maximumInTwo : maximumInOne),
                  named("state", static_cast<int32_t>(state)));
  return functionText(opset,
                      "AttentionTile <scale, softcap>\n"
                      "    (query, key, value, mask, output, maximum, sum)\n"
                      "    => (next_output, next_maximum, next_sum)",
                      std::string(extentsText) + reducingMaximum(body, opset));
}

} // namespace kvopt::ir
