// Attention and rotations, written with the building blocks of other operators.
#include "meaning/definitions.h"
#include "meaning/operators/products.h"
#include "meaning/operators/reductions.h"
#include "support/format.h"

#include <limits>

namespace kvopt::meaning {

namespace {

using Type = ir::ElementType;

/// [B, S, heads*D] as [B, heads, S, D], and back.
Tensor headsOf(Call& call, const Tensor& rows, int64_t heads) {
  if (rows.rank() != 3 || heads < 1) {
    call.refuse("the operand is not [B, S, heads*D], or the number of heads is not given");
    return rows;
  }
  return transposed(reshaped(call.formulas(), rows,
                             {rows.extent(0), rows.extent(1), call.integer(heads),
                              quotient(rows.extent(2), heads)}),
                    {0, 2, 1, 3});
}
Tensor rowsOf(Call& call, const Tensor& heads) {
  const Tensor rows = transposed(heads, {0, 2, 1, 3});
  return reshaped(call.formulas(), rows,
                  {rows.extent(0), rows.extent(1), rows.extent(2) * rows.extent(3)});
}

/// Of as many axes.
Tensor concatenated(Call& call, const Tensor& a, const Tensor& b, unsigned axis) {
  const Scalar first = a.extent(axis);
  Scalars extents;
  for (unsigned each = 0; each < b.rank(); ++each)
    extents.push_back(each == axis ? first + b.extent(axis)
                                   : call.equalExtents(a.extent(each), b.extent(each), [&] {
                                       return formatted("extents of axis {} differ", each);
                                     }));
  return Tensor(extents, a.type(), [=](Index index) {
    return select(
        index[axis] < first, [&] { return a.at(index); },
        [&] { return b.at(replaced(index, axis, index[axis] - first)); });
  });
}

/// What attention computes, all of it [B, heads, S, T].
struct Attended {
  Tensor scores, capped, masked, weights;
  Tensor result; ///< [B, heads, S, D of values]
};
struct Attending {
  Tensor query, key, value; ///< [B, heads, S, D], [B, groups, T, D], [B, groups, T, D']
  Scalar scale;
  double cap = 0;
  std::function<Scalar(Index)> isVisible; ///< at [b, h, i, j]; none: all are
  Tensor bias;                            ///< broadcasts, or none
  Tensor sinks;                           ///< [heads]: a score without a value, or none
  bool hasEmptySink = false;              ///< the same with 0
};

/// softmax (cap (scale q k) + bias, where it is visible) v. A row that sees nothing is 0.
Attended attend(Call& call, const Attending& parts) {
  const Tensor query = parts.query, key = parts.key, value = parts.value;
  const Type type = query.type();
  const Scalar depth = call.equalExtents(query.extent(3), key.extent(3),
                                         "widths of query and key differ"),
               count = key.extent(2), group = quotient(query.extent(1), key.extent(1));
  call.equalExtents(count, value.extent(2), "lengths of key and value differ");
  const Scalars extents = {query.extent(0), query.extent(1), query.extent(2), count};
  Attended all;
  all.scores = call.named(Tensor(extents, type, [=, scale = parts.scale](Index i) {
    const Scalar dot = sum(depth, [&](Scalar d) {
      return query.at({i[0], i[1], i[2], d}) * key.at({i[0], quotient(i[1], group), i[3], d});
    });
    return dot * scale;
  }));
  all.capped =
      parts.cap == 0 ? all.scores : call.elementwise({all.scores}, type, [cap = parts.cap](auto x) {
        return apply(Function::HyperbolicTangent, x[0] / cap) * cap;
      });
  const double lowest = -std::numeric_limits<double>::infinity();
  all.masked = Tensor(extents, type, [=, capped = all.capped](Index index) {
    auto score = [&] {
      const Scalar x = capped.at(index);
      return parts.bias ? x + parts.bias.at(broadcastIndex(parts.bias, index)) : x;
    };
    if (!parts.isVisible)
      return score();
    return select(
        parts.isVisible(index), [&] { return score(); }, [&] { return index[0].real(lowest); });
  });
  const Tensor masked = call.named(all.masked);
  const Tensor most =
      call.named(Tensor({extents[0], extents[1], extents[2]}, Type::Double, [=](Index index) {
        Scalar largest = reduce(Reduction::Maximum, count,
                                [&](Scalar j) { return masked.at(joined(index, {j})); });
        if (parts.sinks)
          largest = maximum(largest, parts.sinks.at({index[1]}));
        return parts.hasEmptySink ? maximum(largest, 0) : largest;
      }));
  const Tensor powers = call.named(Tensor(extents, Type::Double, [=](Index index) {
    const Scalar top = most.at(index.take_front(3));
    return select(
        same(top, lowest), [&] { return top.real(0); },
        [&] { return apply(Function::Exponential, masked.at(index) - top); });
  }));
  const Tensor totals =
      call.named(Tensor({extents[0], extents[1], extents[2]}, Type::Double, [=](Index index) {
        Scalar total = sum(count, [&](Scalar j) { return powers.at(joined(index, {j})); });
        if (parts.sinks)
          total = total + apply(Function::Exponential, parts.sinks.at({index[1]}) - most.at(index));
        if (parts.hasEmptySink)
          total = total + apply(Function::Exponential, -most.at(index));
        return total;
      }));
  all.weights = call.named(Tensor(extents, Type::Double, [=](Index index) {
    const Scalar total = totals.at(index.take_front(3));
    return select(
        same(total, 0), [&] { return total.real(0); }, [&] { return powers.at(index) / total; });
  }));
  all.result =
      call.named(Tensor({extents[0], extents[1], extents[2], value.extent(3)}, type,
                        [=, weights = all.weights](Index i) {
                          return sum(count, [&](Scalar j) {
                            const Scalar weight = weights.at({i[0], i[1], i[2], j});
                            return weight * value.at({i[0], quotient(i[1], group), j, i[3]});
                          });
                        }));
  return all;
}

Scalar scaleOf(Call& call, const Tensor& query) {
  const double written = call.realAttribute("scale", 0);
  return written != 0 ? call.real(written)
                      : 1.0 / apply(Function::SquareRoot, toReal(query.extent(3)));
}

/// ONNX's Attention (23 to 25). Windows (25) are numbers of keys before and after the one at the
/// query's place; -1 is all. Result 3 is what `qk_matmul_output_mode` says: 0 the scores, 1 capped,
/// 2 with the mask, 3 the weights.
void defineAttention(Call& call) {
  call.ignoreAttributes({"softmax_precision", "q_num_heads", "kv_num_heads"});
  const Type type = call[0].type();
  call.type(0, type);
  const bool isFlat = call[0].rank() == 3;
  for (unsigned operand : {0u, 1u, 2u})
    if (call[operand].rank() != 3 && call[operand].rank() != 4)
      return call.reject(
          formatted("operand {} is {}, not of rank 3 or 4", operand, call.text(operand)));
  if (call.has(4) && (!call.hasRank(4, 4) || !call.hasRank(5, 4)))
    return;
  if (isFlat)
    call.extents(0, type,
                 {call[0].extent(0), call[0].extent(1),
                  Scalar(call.formulas(), call.formulas().unknown(Sort::Integer))});
  Attending parts;
  parts.query = isFlat ? headsOf(call, call[0], call.integerAttribute("q_num_heads", 0)) : call[0];
  const int64_t groups = call.integerAttribute("kv_num_heads", 0);
  parts.key = call[1].rank() == 3 ? headsOf(call, call[1], groups) : call[1];
  parts.value = call[2].rank() == 3 ? headsOf(call, call[2], groups) : call[2];
  if (call.isRefused())
    return;
  const bool hasPast = call.has(4) && call.has(5);
  if (hasPast && (call[4].rank() != 4 || call[5].rank() != 4))
    return call.refuse("caches do not have 4 axes");
  const Scalar past = hasPast ? call[4].extent(2) : call.integer(0);
  if (hasPast) {
    parts.key = concatenated(call, call[4], parts.key, 2);
    parts.value = concatenated(call, call[5], parts.value, 2);
  }
  parts.scale = scaleOf(call, parts.query);
  parts.cap = call.realAttribute("softcap", 0);
  const bool isCausal = call.integerAttribute("is_causal", 0) != 0;
  const int64_t left = call.opset() < 25 ? -1 : call.integerAttribute("left_window_size", -1),
                right = call.opset() < 25 ? -1 : call.integerAttribute("right_window_size", -1);
  const bool hasPlaces = isCausal || left >= 0 || right >= 0;
  const Tensor mask = call.has(3) ? call[3] : Tensor(), lengths = call.has(6) ? call[6] : Tensor();
  // A mask with fewer columns than keys hides the others.
  const Scalar columns = mask && mask.rank() > 0 ? mask.extent(mask.rank() - 1) : call.integer(1);
  const bool isShort = mask && columns.number() != parts.key.extent(2).number() && !columns.is(1);
  const bool isBoolean = mask && mask.type() == Type::Bool;
  const Scalar queries = parts.query.extent(2);
  if (hasPlaces || lengths || isBoolean || isShort)
    parts.isVisible = [=](Index index) {
      Scalar all = index[0].boolean(true);
      if (hasPlaces) {
        // With valid lengths, the last query is at the last valid key.
        const Scalar offset = lengths && !hasPast ? lengths.at({index[0]}) - queries : past;
        const Scalar ahead = index[3] - index[2] - offset;
        if (isCausal)
          all = both(all, ahead <= 0);
        if (left >= 0)
          all = both(all, ahead >= -static_cast<double>(left));
        if (right >= 0)
          all = both(all, ahead <= static_cast<double>(right));
      }
      if (lengths)
        all = both(all, index[3] < lengths.at({index[0]}));
      if (isShort)
        all = both(all, index[3] < columns);
      if (isBoolean)
        all = select(
            all, [&] { return mask.at(broadcastIndex(mask, index)); },
            [&] { return index[0].boolean(false); });
      return all;
    };
  if (mask && !isBoolean)
    parts.bias = mask;
  const Attended all = attend(call, parts);
  if (call.isRefused())
    return;
  const Tensor key = parts.key, value = parts.value;
  call.result(0, isFlat ? rowsOf(call, all.result) : all.result);
  call.result(1, key);
  call.result(2, value);
  const int64_t mode = call.integerAttribute("qk_matmul_output_mode", 0);
  call.result(3, mode == 0   ? all.scores
                 : mode == 1 ? all.capped
                 : mode == 2 ? all.masked
                             : Tensor(listed(all.weights.extents()), parts.query.type(),
                                      [weights = all.weights](Index i) { return weights.at(i); }));
}

/// Pairs of columns turned by an angle: (x, y) becomes (x cos - y sin, x sin + y cos). Pairs are
/// columns 2k and 2k + 1 where it is interleaved, else k and k + half. What is beyond `width`
/// stays. The functions give cosine and sine of pair k at [b, s].
Tensor rotated(const Tensor& heads, Scalar width, bool isInterleaved,
               std::function<Scalar(Scalar b, Scalar s, Scalar k)> cosine,
               std::function<Scalar(Scalar b, Scalar s, Scalar k)> sine) {
  const Scalar half = quotient(width, 2);
  return Tensor(listed(heads.extents()), heads.type(), [=](Index i) {
    const Scalar column = i[3];
    auto at = [&](Scalar place) { return heads.at(replaced(i, 3, place)); };
    auto turned = [&] {
      const Scalar pair = isInterleaved ? quotient(column, 2) : remainder(column, half);
      const Scalar isFirst = isInterleaved ? same(remainder(column, 2), 0) : column < half;
      const Scalar step = isInterleaved ? column.integer(1) : half;
      const Scalar c = cosine(i[0], i[2], pair), s = sine(i[0], i[2], pair);
      return select(
          isFirst, [&] { return at(column) * c - at(column + step) * s; },
          [&] { return at(column) * c + at(column - step) * s; });
    };
    return select(
        column < width, [&] { return turned(); }, [&] { return at(column); });
  });
}

/// A table [rows, pairs] at positions, or [B, S, pairs] without.
std::function<Scalar(Scalar, Scalar, Scalar)>
tableAt(const Tensor& table, std::function<Scalar(Scalar b, Scalar s)> position) {
  return [=](Scalar b, Scalar s, Scalar k) {
    return position ? table.at({position(b, s), k}) : table.at({b, s, k});
  };
}

/// ONNX's (operands x, cosines, sines, positions) and com.microsoft's (x, positions, cosines,
/// sines).
void defineRotaryEmbedding(Call& call) {
  call.ignoreAttributes({"num_heads", "scale", "is_packed_batching"});
  const bool isContrib = !call.node().op().isOnnx();
  const Tensor x = call[0], cosines = call[isContrib ? 2 : 1], sines = call[isContrib ? 3 : 2];
  const unsigned positionOperand = isContrib ? 1 : 3;
  const Tensor positions = call.has(positionOperand) ? call[positionOperand] : Tensor();
  const int64_t written = call.integerAttribute("rotary_embedding_dim", 0);
  if (cosines.rank() < 2 || sines.rank() < 2)
    return call.refuse("the tables have fewer than two axes");
  const Scalar pairs = cosines.extent(cosines.rank() - 1);
  const bool isFlat = x.rank() == 3;
  int64_t count = call.integerAttribute("num_heads", 0);
  if (isFlat && count == 0) {
    const std::optional<int64_t> all = quotient(x.extent(2), pairs * 2.0).number();
    count = written == 0 ? all.value_or(0) : 0;
  }
  const Tensor heads = isFlat ? headsOf(call, x, count) : x;
  if (call.isRefused() || heads.rank() != 4)
    return call.reject("the operand has neither 3 nor 4 axes");
  std::function<Scalar(Scalar, Scalar)> position;
  if (positions)
    position = [=](Scalar b, Scalar s) {
      return positions.rank() == 2 ? positions.at({b, s}) : positions.at({b.integer(0)}) + s;
    };
  const Scalar width = written != 0 ? call.integer(written) : heads.extent(3);
  const Tensor all = rotated(heads, width, call.integerAttribute("interleaved", 0) != 0,
                             tableAt(cosines, position), tableAt(sines, position));
  call.result(isFlat ? rowsOf(call, all) : all);
}

/// Columns of a packed projection, from `first` heads of width d on.
Tensor columnsOf(const Tensor& packed, Scalar first, Scalar width) {
  return Tensor({packed.extent(0), packed.extent(1), width}, packed.type(), [=](Index index) {
    return packed.at({index[0], index[1], index[2] + first});
  });
}

/// com.microsoft's GroupQueryAttention: rows of the past are valid up to seqlens_k + 1 - S in each
/// batch row, and new rows follow them.
void defineGroupQueryAttention(Call& call) {
  call.ignoreAttributes({"k_quant_type", "v_quant_type", "kv_cache_bit_width", "rotary_interleaved",
                         "qk_norm_epsilon", "qk_output"});
  const int64_t heads = call.integerAttribute("num_heads", 0),
                groups = call.integerAttribute("kv_num_heads", 0);
  if (heads < 1 || groups < 1 || call[0].rank() != 3 || !call.has(5) || !call.has(6))
    return call.refuse("the numbers of heads or the lengths are not given");
  if (call.integerAttribute("sliding_window_cache", 0) != 0)
    return call.refuse("caches of the last rows are not defined");
  if (call.integerAttribute("causal", 1) == 0)
    return call.refuse("keys after a query are not defined");
  for (unsigned operand = 12; operand < call.count(); ++operand)
    if (call.has(operand))
      return call.refuse("scales of caches and norms of queries and keys are not defined");
  if (call.textAttribute("k_quant_type", "NONE") != "NONE" ||
      call.textAttribute("v_quant_type", "NONE") != "NONE")
    return call.refuse("quantized caches are not defined");
  Tensor query = call[0], key = call.has(1) ? call[1] : Tensor(),
         value = call.has(2) ? call[2] : Tensor();
  if (!key) {
    const Scalar width = quotient(query.extent(2), heads + 2 * groups);
    const Tensor packed = query;
    query = columnsOf(packed, call.integer(0), width * static_cast<double>(heads));
    key =
        columnsOf(packed, width * static_cast<double>(heads), width * static_cast<double>(groups));
    value = columnsOf(packed, width * static_cast<double>(heads + groups),
                      width * static_cast<double>(groups));
  }
  Attending parts;
  parts.query = headsOf(call, query, heads);
  Tensor newKey = headsOf(call, key, groups), newValue = headsOf(call, value, groups);
  if (call.isRefused())
    return;
  const Tensor pastKey = call.has(3) ? call[3] : Tensor(),
               pastValue = call.has(4) ? call[4] : Tensor(), lengths = call[5];
  if ((pastKey && pastKey.rank() != 4) || (pastValue && pastValue.rank() != 4))
    return call.refuse("caches do not have 4 axes");
  const Scalar steps = parts.query.extent(2);
  const Scalar capacity = maximum(pastKey ? pastKey.extent(2) : call.integer(0), call.single(6));
  auto pastRows = [=](Scalar b) {
    const Scalar total = lengths.rank() == 1 ? lengths.at({b}) : lengths.at({b, b.integer(0)});
    return total + 1.0 - steps;
  };
  if (call.integerAttribute("do_rotary", 0) != 0) {
    if (!call.has(7) || !call.has(8) || !call.hasRank(7, 2) || !call.hasRank(8, 2))
      return call.reject("no tables for the rotation are given");
    const Tensor positions = call.has(9) ? call[9] : Tensor();
    const std::function<Scalar(Scalar, Scalar)> position = [=](Scalar b, Scalar s) {
      return positions ? positions.at({b, s}) : maximum(pastRows(b), 0) + s;
    };
    const bool isInterleaved = call.integerAttribute("rotary_interleaved", 0) != 0;
    const Scalar width = call[7].extent(1) * 2.0;
    const auto cosine = tableAt(call[7], position), sine = tableAt(call[8], position);
    parts.query = call.named(rotated(parts.query, width, isInterleaved, cosine, sine));
    newKey = call.named(rotated(newKey, width, isInterleaved, cosine, sine));
  }
  auto cache = [&](const Tensor& past, const Tensor& rows) {
    return call.named(Tensor({rows.extent(0), rows.extent(1), capacity, rows.extent(3)},
                             rows.type(), [=](Index i) {
                               const Scalar row = i[2] - maximum(pastRows(i[0]), 0);
                               return select(
                                   row < 0, [&] { return past ? past.at(i) : row.real(0); },
                                   [&] {
                                     return select(
                                         row < steps, [&] { return rows.at(replaced(i, 2, row)); },
                                         [&] {
                                           // Beyond the rows a buffer keeps what it has.
                                           if (!past)
                                             return row.real(0);
                                           return select(
                                               i[2] < past.extent(2), [&] { return past.at(i); },
                                               [&] { return row.real(0); });
                                         });
                                   });
                             }));
  };
  parts.key = cache(pastKey, newKey);
  parts.value = cache(pastValue, newValue);
  parts.scale = scaleOf(call, parts.query);
  parts.cap = call.realAttribute("softcap", 0);
  const int64_t window = call.integerAttribute("local_window_size", -1);
  parts.isVisible = [=](Index i) {
    // A first prompt that is padded on the right has rows without a past.
    const Scalar place = maximum(pastRows(i[0]), 0) + i[2];
    const Scalar isBefore = i[3] <= place;
    return window > 0 ? both(isBefore, i[3] > place - static_cast<double>(window)) : isBefore;
  };
  if (call.has(10))
    parts.bias = call[10];
  if (call.has(11))
    parts.sinks = call[11];
  parts.hasEmptySink = call.integerAttribute("smooth_softmax", 0) == 1;
  const Attended all = attend(call, parts);
  if (call.isRefused())
    return;
  call.result(0, rowsOf(call, all.result));
  call.result(1, parts.key);
  call.result(2, parts.value);
}

/// com.microsoft's MultiHeadAttention without packed operands: query [B, S, W], key and value rows
/// or heads, a bias for all three, a mask of keys (not 0 is visible) and an additive one.
void defineMultiHeadAttention(Call& call) {
  call.ignoreAttributes({"mask_filter_value"});
  const int64_t heads = call.integerAttribute("num_heads", 0);
  if (call[0].rank() != 3 || !call.has(1) || !call.has(2))
    return call.refuse("packed operands are not defined");
  Tensor query = call[0], key = call[1], value = call[2];
  if (call.has(3)) {
    const Tensor bias = call[3];
    const Scalar width = query.extent(2);
    auto biased = [&](const Tensor& rows, Scalar first) {
      return Tensor(listed(rows.extents()), rows.type(),
                    [=](Index i) { return rows.at(i) + bias.at({i[2] + first}); });
    };
    query = biased(query, call.integer(0));
    if (key.rank() == 3)
      key = biased(key, width);
    if (value.rank() == 3)
      value = biased(value, width * 2.0);
  }
  Attending parts;
  parts.query = headsOf(call, query, heads);
  parts.key = key.rank() == 3 ? headsOf(call, key, heads) : key;
  parts.value = value.rank() == 3 ? headsOf(call, value, heads) : value;
  if (call.isRefused() || parts.key.rank() != 4 || parts.value.rank() != 4)
    return call.refuse("packed operands are not defined");
  const bool hasPast = call.has(6) && call.has(7);
  if (hasPast && (!call.hasRank(6, 4) || !call.hasRank(7, 4)))
    return;
  const Scalar past = hasPast ? call[6].extent(2) : call.integer(0);
  if (hasPast) {
    parts.key = concatenated(call, call[6], parts.key, 2);
    parts.value = concatenated(call, call[7], parts.value, 2);
  }
  parts.scale = scaleOf(call, parts.query);
  const Tensor padding = call.has(4) ? call[4] : Tensor();
  if (padding && padding.rank() == 1)
    return call.refuse("a mask that is a list of lengths is not defined");
  const double hidden = call.realAttribute("mask_filter_value", -10000);
  const bool isCausal = call.integerAttribute("unidirectional", 0) != 0;
  if (isCausal)
    parts.isVisible = [=](Index i) { return i[3] <= i[2] + past; };
  const Tensor bias = call.has(5) ? call[5] : Tensor();
  if (padding || bias)
    parts.bias = Tensor(
        {parts.query.extent(0), parts.query.extent(1), parts.query.extent(2), parts.key.extent(2)},
        query.type(), [=](Index i) {
          Scalar all = bias ? bias.at(broadcastIndex(bias, i)) : i[0].real(0);
          if (!padding)
            return all;
          const Scalar isShown =
              toBoolean(padding.rank() == 2   ? padding.at({i[0], i[3]})
                        : padding.rank() == 3 ? padding.at({i[0], i[2], i[3]})
                                              : padding.at(broadcastIndex(padding, i)));
          return all + select(isShown, all.real(0), all.real(hidden));
        });
  const Attended all = attend(call, parts);
  if (call.isRefused())
    return;
  call.result(0, rowsOf(call, all.result));
  call.result(1, parts.key);
  call.result(2, parts.value);
}

/// Codes of 2, 4 or 8 bits in blocks of K: a scale for each block, and a zero point that is packed
/// like the codes (the middle of the codes without one).
void defineMatMulNBits(Call& call) {
  call.ignoreAttributes({"accuracy_level"});
  const int64_t bits = call.integerAttribute("bits", 4),
                block = call.integerAttribute("block_size", 32),
                rows = call.integerAttribute("N", 0), depth = call.integerAttribute("K", 0);
  if (rows < 1 || depth < 1)
    return call.reject("K and N should be positive");
  if ((bits != 2 && bits != 4 && bits != 8) || block < 1)
    return call.refuse("codes of such bits or blocks are not defined");
  if (call.has(4))
    return call.refuse("an order of groups is not defined");
  const Tensor codes = call[1], scales = call[2], zeros = call.has(3) ? call[3] : Tensor();
  const int64_t perByte = 8 / bits, blocks = (depth + block - 1) / block,
                levels = int64_t(1) << bits;
  const int64_t zeroBytes = (blocks + perByte - 1) / perByte;
  Formulas& f = call.formulas();
  // The code at a place of a list of bytes.
  auto codeIn = [=](Scalar byte, Scalar place) {
    const Scalar shift = remainder(place, perByte);
    Scalar power = place.integer(1);
    for (int64_t k = perByte - 1; k > 0; --k)
      power = select(same(shift, static_cast<double>(k)), place.integer(int64_t(1) << (bits * k)),
                     power);
    return remainder(quotient(byte, power), levels);
  };
  const Tensor list = reshaped(f, codes, {codes.count(f)}),
               factors = reshaped(f, scales, {scales.count(f)});
  const Tensor points = zeros ? reshaped(f, zeros, {zeros.count(f)}) : Tensor();
  const bool isPacked = zeros && sortOf(zeros.type()) == Sort::Integer;
  const Tensor weights =
      call.named(Tensor({call.integer(depth), call.integer(rows)}, Type::Double, [=](Index index) {
        const Scalar k = index[0], n = index[1];
        const Scalar which = quotient(k, block), inner = remainder(k, block);
        const Scalar number = n * static_cast<double>(blocks) + which;
        const int64_t bytes = (block + perByte - 1) / perByte;
        const Scalar code = codeIn(
            list.at({number * static_cast<double>(bytes) + quotient(inner, perByte)}), inner);
        Scalar zero = k.real(static_cast<double>(levels / 2));
        if (isPacked)
          zero = toReal(codeIn(
              points.at({n * static_cast<double>(zeroBytes) + quotient(which, perByte)}), which));
        else if (points)
          zero = points.at({number});
        return (toReal(code) - zero) * factors.at({number});
      }));
  const Tensor product = matrixProduct(call, call[0], weights, call[0].type());
  if (!call.has(5))
    return call.result(product);
  call.result(call.elementwise({call.named(product), call[5]}, call[0].type(),
                               [](auto x) { return x[0] + x[1]; }));
}

} // namespace

void register_attention(Definitions& all) {
  all.add("Attention", defineAttention, 23);
  all.add("RotaryEmbedding", defineRotaryEmbedding, 23);
  all.add("com.microsoft::RotaryEmbedding", defineRotaryEmbedding);
  all.add("com.microsoft::GroupQueryAttention", defineGroupQueryAttention);
  all.add("com.microsoft::MultiHeadAttention", defineMultiHeadAttention);
  all.add("com.microsoft::MatMulNBits", defineMatMulNBits);
}

} // namespace kvopt::meaning
