// The text of what the decoders of cache tests compute before and behind their caches.
#pragma once

#include <string>

namespace kvopt {

/// Nodes that make `hidden` [B,S,W] of the inputs input_ids [B,S] and table [1,1,W]. `last` is {2}.
inline const std::string decoderHidden = R"(
  last = Constant <value_ints = [2]> ()
  ids = Cast <to = 1> (input_ids)
  column = Unsqueeze (ids, last)
  angle = Mul (column, table)
  hidden = Sin (angle)
)";

/// Nodes that make the query `q` [B,4,S,4] and new rows of keys `x_k` and of values `x_v`,
/// [B,S,2,4], of the inputs input_ids [B,S], table [1,1,16], wq [1,16,16], wk and wv [1,16,8].
inline const std::string decoderProjections = decoderHidden + R"(
  qm = MatMul (hidden, wq)
  km = MatMul (hidden, wk)
  vm = MatMul (hidden, wv)
  q_shape = Constant <value_ints = [0, 0, 4, 4]> ()
  kv_shape = Constant <value_ints = [0, 0, 2, 4]> ()
  qr = Reshape (qm, q_shape)
  q = Transpose <perm = [0, 2, 1, 3]> (qr)
  x_k = Reshape (km, kv_shape)
  x_v = Reshape (vm, kv_shape)
)";

/// Nodes that make `logits` [B,S,10] of the query `q` and of `keys` and `values` [B,2,T,4], with
/// the input wo [1,16,10].
inline const std::string decoderResults = R"(
  o = ai.kvopt.Sdpa <scale = 0.5, causal = 1> (q, keys, values)
  ot = Transpose <perm = [0, 2, 1, 3]> (o)
  o_shape = Constant <value_ints = [0, 0, 16]> ()
  om = Reshape (ot, o_shape)
  logits = MatMul (om, wo)
)";

} // namespace kvopt
