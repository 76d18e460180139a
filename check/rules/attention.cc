// Rules of operators that attend or rotate, by their meaning in products and a softmax.
#include "check/call.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <functional>

namespace kvopt::check {
namespace {

/// Rows [B,S,H*D] as heads [B,H,S,D]; null if the width is not a multiple.
Ref asHeads(const Ref& rows, int64_t heads) {
  if (rows->rank() != 3 || heads <= 0 || rows->shape[2] % heads != 0)
    return nullptr;
  const Extents split{rows->shape[0], rows->shape[1], heads, rows->shape[2] / heads};
  return transposed(reshaped(rows, split), {0, 2, 1, 3});
}

Ref asRows(const Ref& heads) {
  const Ref moved = transposed(heads, {0, 2, 1, 3});
  return reshaped(moved, {moved->shape[0], moved->shape[1], moved->shape[2] * moved->shape[3]});
}

/// Each head of keys or values, repeated for the heads of the query that read it.
Ref repeatedHeads(const Ref& heads, int64_t times) {
  if (times == 1)
    return heads;
  Extents shape = heads->shape;
  shape[1] *= times;
  const Extents strides = stridesOf(heads->shape);
  return rearranged(heads, shape, [&](llvm::ArrayRef<int64_t> place) {
    return place[0] * strides[0] + place[1] / times * strides[1] + place[2] * strides[2] + place[3];
  });
}

/// Attention over heads.
struct Attended {
  Ref query, key, value; ///< [B,H,S,D], [B,G,T,D], [B,G,T,E]
  Ref mask;         ///< broadcasts to [B,H,S,T]; true where a key is visible, or added; or null
  double scale = 0; ///< 0 is 1 / sqrt(D)
  double softcap = 0;
  /// Whether the operator itself shows a key to a query; empty if it shows all.
  std::function<bool(int64_t batch, int64_t query, int64_t key)> shows;
};

/// The mask with `keys` columns: further keys are hidden, further columns go.
Ref maskColumns(Call& call, const Ref& mask, int64_t keys) {
  if (mask->rank() == 0)
    return nullptr;
  const auto axis = static_cast<unsigned>(mask->rank() - 1);
  const int64_t columns = mask->shape[axis];
  if (columns == keys || columns == 1)
    return mask;
  if (columns > keys)
    return rowsOf(mask, axis, 0, keys);
  auto hidden = std::make_shared<Tensor>();
  hidden->kind = mask->isBool() ? Kind::Integer : Kind::Known;
  hidden->type = mask->type;
  hidden->integers = {0};
  hidden->known = {-INFINITY};
  Extents shape = mask->shape;
  shape[axis] = keys - columns;
  return concatenated(call, {mask, broadcastTo(hidden, shape)}, axis);
}

Ref attendedRows(Call& call, const Attended& job) {
  const Field& field = call.field();
  const int64_t batch = job.query->shape[0], heads = job.query->shape[1];
  const int64_t rows = job.query->shape[2], width = job.query->shape[3];
  const int64_t keys = job.key->shape[2];
  const int64_t groups = job.key->shape[1];
  if (groups == 0 || heads % groups != 0 || job.value->shape[1] == 0 || job.value->shape[2] != keys)
    return nullptr;
  const Ref key = repeatedHeads(job.key, heads / job.key->shape[1]);
  const Ref value = repeatedHeads(job.value, heads / job.value->shape[1]);
  Ref scores = matrixProduct(call, job.query, transposed(key, {0, 1, 3, 2}));
  if (!scores)
    return nullptr;
  const double scale = job.scale == 0 ? 1 / std::sqrt(double(width)) : job.scale;
  scores = multiplyReals(call, scores, realScalar(call, scale));
  if (job.softcap != 0) {
    const Ref cap = realScalar(call, job.softcap);
    auto divided = mapReals(call, {scores, cap}, scores->shape,
                            [&](llvm::ArrayRef<Exact> x) { return field.divide(x[0], x[1]); });
    scores = multiplyReals(call, unknownOf(call, "Tanh", divided), cap);
  }
  if (job.mask) {
    Ref mask = maskColumns(call, job.mask, keys);
    if (!mask)
      return nullptr;
    if (mask->isInteger()) {
      auto added = std::make_shared<Tensor>();
      added->kind = Kind::Known;
      added->shape = mask->shape;
      for (int64_t isVisible : mask->integers)
        added->known.push_back(isVisible ? 0 : -INFINITY);
      mask = added;
    }
    scores = addReals(call, scores, mask);
  }
  if (!scores || scores->shape != Extents({batch, heads, rows, keys}))
    return nullptr;
  Extents shape{batch, heads, rows, value->shape[3]};
  if (scores->isHollow || value->isHollow)
    return hollowTensor(shape, true);
  auto seen = std::make_shared<Tensor>(*scores);
  std::vector<bool> seesNone(static_cast<size_t>(batch * heads * rows), true);
  size_t at = 0;
  forEachPlace(seen->shape, [&](llvm::ArrayRef<int64_t> place) {
    Exact& score = seen->reals[at];
    if (job.shows && !job.shows(place[0], place[2], place[3]))
      score = {0, 0, Status::MinusInfinity};
    if (score.status != Status::MinusInfinity)
      seesNone[at / static_cast<size_t>(keys)] = false;
    ++at;
  });
  auto weights = std::make_shared<Tensor>(*softmaxOf(call, seen, 3));
  for (size_t i = 0; i < weights->reals.size(); ++i)
    if (seesNone[i / static_cast<size_t>(keys)])
      weights->reals[i] = {};
  return matrixProduct(call, weights, value);
}

/// The results of an attention operator: the attended rows [B,S,H*D] or [B,H,S,D], and its caches.
Results attendedResults(Call& call, const Attended& job, bool hasRows) {
  if (!call.isNeeded(0))
    return {nullptr, job.key, job.value};
  const Ref result = attendedRows(call, job);
  if (!result)
    return call.fail("its operands do not fit");
  return {hasRows ? asRows(result) : result, job.key, job.value};
}

/// x [B,H,S,D] with its first `width` columns rotated in pairs; cosines and sines are
/// [B,S,width/2].
Ref rotated(Call& call, const Ref& x, const Ref& cosine, const Ref& sine, bool isInterleaved,
            int64_t width) {
  const Ref c = call.real(cosine), s = call.real(sine);
  if (x->isHollow || c->isHollow || s->isHollow)
    return hollowTensor(x->shape, x->isSpecial);
  const int64_t half = width / 2, columns = x->shape[3];
  if (c->rank() != 3 || c->shape != s->shape || c->shape[2] < half || c->shape[1] != x->shape[2] ||
      (c->shape[0] != 1 && c->shape[0] != x->shape[0]) || width % 2 != 0 || width > columns)
    return nullptr;
  const Field& field = call.field();
  const Extents strides = stridesOf(x->shape);
  auto result = std::make_shared<Tensor>();
  result->type = x->type;
  result->shape = x->shape;
  size_t next = 0;
  forEachPlace(x->shape, [&](llvm::ArrayRef<int64_t> place) {
    const auto at = next++;
    const int64_t column = place[3];
    if (column >= width) {
      result->reals.push_back(x->reals[at]);
      return;
    }
    const int64_t pair = isInterleaved ? column / 2 : column % half;
    const bool isFirst = isInterleaved ? column % 2 == 0 : column < half;
    const auto row = at - static_cast<size_t>(column);
    const Exact& a = x->reals[row + size_t(isInterleaved ? 2 * pair : pair)];
    const Exact& b = x->reals[row + size_t(isInterleaved ? 2 * pair + 1 : pair + half)];
    const int64_t batch = c->shape[0] == 1 ? 0 : place[0];
    const auto angle = static_cast<size_t>((batch * c->shape[1] + place[2]) * c->shape[2] + pair);
    const Exact& cos = c->reals[angle];
    const Exact& sin = s->reals[angle];
    result->reals.push_back(
        isFirst ? field.add(field.multiply(a, cos), field.negate(field.multiply(b, sin)))
                : field.add(field.multiply(b, cos), field.multiply(a, sin)));
  });
  return result;
}

/// Rows of a table [positions, width] at positions [B,S], as [B,S,width]; null if one is outside.
Ref tableRows(const Ref& table, const Ref& positions) {
  if (table->rank() != 2)
    return nullptr;
  const int64_t width = table->shape[1];
  for (int64_t position : positions->integers)
    if (position < 0 || position >= table->shape[0])
      return nullptr;
  Extents shape = positions->shape;
  shape.push_back(width);
  int64_t next = 0;
  auto rows = std::make_shared<Tensor>(*rearranged(table, shape, [&](llvm::ArrayRef<int64_t>) {
    const int64_t at = next++;
    return positions->integers[static_cast<size_t>(at / width)] * width + at % width;
  }));
  rows->isWeight = false; // entries of a table, which may also be computed
  return rows;
}

Results rotaryEmbedding(Call& call) {
  const bool isContrib = call.node.op().domain() == "com.microsoft";
  Ref x = call.real(0);
  const Ref positions = isContrib ? call.in(1) : call.in(3);
  Ref cosine = call.in(isContrib ? 2 : 1), sine = call.in(isContrib ? 3 : 2);
  if (cosine->rank() == 0)
    return call.fail("its tables do not fit");
  const int64_t written = call.integer("rotary_embedding_dim", 0);
  const int64_t width = written ? written : 2 * cosine->shape.back();
  const bool hasRows = x->rank() == 3;
  if (hasRows) {
    int64_t heads = call.integer("num_heads", 0);
    if (heads == 0)
      heads = width ? x->shape[2] / width : 0;
    x = asHeads(x, heads);
  }
  if (!x || x->rank() != 4)
    return call.unsupported("its heads are unknown");
  if (positions) {
    if (!positions->isInteger())
      return call.unsupported("its positions are unknown");
    const int64_t batch = x->shape[0], rows = x->shape[2];
    std::vector<int64_t> all;
    const bool isOffset = positions->count() == 1;
    if (!isOffset && positions->count() != batch * rows && positions->count() != rows)
      return call.fail("its positions do not fit");
    for (int64_t i = 0; i < batch * rows; ++i)
      all.push_back(isOffset ? positions->integers[0] + i % rows
                             : positions->integers[size_t(i % positions->count())]);
    const Ref places = integerTensor({batch, rows}, std::move(all));
    cosine = tableRows(cosine, places);
    sine = tableRows(sine, places);
  }
  if (!cosine || !sine)
    return call.fail("a position is outside of its tables");
  const Ref result = rotated(call, x, cosine, sine, call.integer("interleaved", 0) != 0, width);
  if (!result)
    return call.fail("its tables do not fit");
  return {hasRows ? asRows(result) : result};
}

Results attention(Call& call) {
  Attended job;
  job.query = call.real(0);
  job.key = call.real(1);
  job.value = call.real(2);
  const bool hasRows = job.query->rank() == 3;
  if (hasRows) {
    job.query = asHeads(job.query, call.integer("q_num_heads", 0));
    job.key = asHeads(job.key, call.integer("kv_num_heads", 0));
    job.value = asHeads(job.value, call.integer("kv_num_heads", 0));
  }
  if (!job.query || !job.key || !job.value || job.query->rank() != 4 || job.key->rank() != 4 ||
      job.value->rank() != 4)
    return call.unsupported("its heads are unknown");
  if (call.in(4) && call.in(5)) {
    job.key = concatenated(call, {call.real(4), job.key}, 2);
    job.value = concatenated(call, {call.real(5), job.value}, 2);
  }
  if (!job.key || !job.value)
    return call.fail("its caches do not fit");
  job.mask = call.in(3);
  job.scale = call.number("scale", 0);
  job.softcap = call.number("softcap", 0);
  const bool isCausal = call.integer("is_causal", 0) != 0;
  const int64_t rows = job.query->shape[2], keys = job.key->shape[2];
  const Ref lengths = call.in(6);
  if (lengths) {
    if (!lengths->isInteger() || lengths->count() != job.query->shape[0])
      return call.unsupported("its lengths are unknown");
    job.shows = [&, isCausal](int64_t batch, int64_t query, int64_t key) {
      const int64_t length = lengths->integers[static_cast<size_t>(batch)];
      return key < length && (!isCausal || key <= query + length - rows);
    };
  } else if (isCausal) {
    const int64_t offset = call.in(4) ? keys - rows : 0;
    job.shows = [offset](int64_t, int64_t query, int64_t key) { return key <= query + offset; };
  }
  if (call.node.results().size() > 3 && !call.node.result(3).isAbsent())
    return call.unsupported("its scores are a result");
  return attendedResults(call, job, hasRows);
}

/// A cache [B,G,C,D] with each batch row's new rows after its earlier ones.
Ref appended(Call& call, const Ref& cache, const Ref& rows, llvm::ArrayRef<int64_t> past,
             int64_t total) {
  const int64_t capacity = std::max(cache ? cache->shape[2] : 0, total), fresh = rows->shape[2];
  Ref all = rows;
  if (cache)
    all = concatenated(call, {cache, rows}, 2);
  if (!all || (all->shape[2] == 0 && capacity > 0))
    return nullptr;
  const int64_t earlier = cache ? cache->shape[2] : 0;
  Extents shape = rows->shape;
  shape[2] = capacity;
  const Extents strides = stridesOf(all->shape);
  // A place that no row has is a place of its own kind: it is never visible, and keeps row 0.
  return rearranged(all, shape, [&](llvm::ArrayRef<int64_t> place) {
    const int64_t at = place[2] - past[static_cast<size_t>(place[0])];
    const int64_t row = at >= 0 && at < fresh ? earlier + at : std::min(place[2], earlier - 1);
    return place[0] * strides[0] + place[1] * strides[1] + std::max<int64_t>(row, 0) * strides[2] +
           place[3];
  });
}

Results groupQueryAttention(Call& call) {
  const int64_t heads = call.integer("num_heads", 0), groups = call.integer("kv_num_heads", 0);
  Attended job;
  job.query = call.real(0);
  job.key = call.real(1);
  job.value = call.real(2);
  const Ref lengths = call.in(5), totals = call.in(6);
  if (call.in(11) || call.integer("smooth_softmax", 0) > 0 ||
      call.text("k_quant_type", "NONE") != "NONE" || call.text("v_quant_type", "NONE") != "NONE" ||
      call.integer("sliding_window_cache", 0) != 0 || job.query->rank() != 3 || heads <= 0 ||
      groups <= 0)
    return call.unsupported("this form of it has no rule");
  if (!job.key) {
    const int64_t width = job.query->shape[2] / (heads + 2 * groups);
    const Ref packed = job.query;
    job.query = rowsOf(packed, 2, 0, heads * width);
    job.key = rowsOf(packed, 2, heads * width, (heads + groups) * width);
    job.value = rowsOf(packed, 2, (heads + groups) * width, (heads + 2 * groups) * width);
  }
  job.query = asHeads(job.query, heads);
  job.key = asHeads(job.key, groups);
  job.value = job.value ? asHeads(job.value, groups) : nullptr;
  for (const Ref& cache : {call.in(3), call.in(4)})
    if (cache && cache->rank() != 4)
      return call.fail("its caches do not fit");
  if (!job.query || !job.key || !job.value || !lengths || !lengths->isInteger() || !totals ||
      !totals->isInteger() || totals->integers.empty())
    return call.fail("its operands do not fit");
  const int64_t batch = job.query->shape[0], rows = job.query->shape[2];
  const int64_t total = totals->integers[0];
  if (lengths->count() != batch && lengths->count() != 1)
    return call.fail("its lengths do not fit");
  for (const Ref& part : {job.key, job.value})
    if (part->shape[0] != batch || part->shape[2] != rows)
      return call.fail("its rows do not fit");
  std::vector<int64_t> past;
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t length = lengths->integers[size_t(b % lengths->count())] + 1;
    past.push_back(rows == total ? 0 : length - rows);
    if (past.back() < 0 ||
        past.back() + rows > std::max(call.in(3) ? call.in(3)->shape[2] : 0, total))
      return call.fail("a length is beyond its cache");
  }
  // The longest row has all tokens, and a single row is the longest one.
  if (batch == 1 && lengths->integers.front() + 1 != total)
    return call.fail("its total length is not that of its row");
  if (call.integer("do_rotary", 0) != 0) {
    std::vector<int64_t> positions;
    for (int64_t i = 0; i < batch * rows; ++i)
      positions.push_back(past[size_t(i / rows)] + i % rows);
    if (call.in(9) && call.in(9)->isInteger() && call.in(9)->count() == batch * rows)
      positions = call.in(9)->integers;
    const Ref places = integerTensor({batch, rows}, std::move(positions));
    const Ref cosine = call.in(7) ? tableRows(call.in(7), places) : nullptr;
    const Ref sine = call.in(8) ? tableRows(call.in(8), places) : nullptr;
    if (!cosine || !sine)
      return call.fail("a position is outside of its tables");
    const bool isInterleaved = call.integer("rotary_interleaved", 0) != 0;
    const int64_t width = 2 * call.in(7)->shape[1];
    job.query = rotated(call, job.query, cosine, sine, isInterleaved, width);
    job.key = rotated(call, job.key, cosine, sine, isInterleaved, width);
  }
  if (!job.query || !job.key)
    return call.fail("its tables do not fit");
  job.key = appended(call, call.in(3) ? call.real(3) : nullptr, job.key, past, total);
  job.value = appended(call, call.in(4) ? call.real(4) : nullptr, job.value, past, total);
  if (!job.key || !job.value)
    return call.fail("its caches do not fit");
  const int64_t window = call.integer("local_window_size", -1);
  job.mask = call.in(10);
  job.scale = call.number("scale", 0);
  job.softcap = call.number("softcap", 0);
  job.shows = [&](int64_t b, int64_t query, int64_t key) {
    const int64_t position = query + past[static_cast<size_t>(b)];
    return key <= position && key < total && (window <= 0 || key > position - window);
  };
  return attendedResults(call, job, /*hasRows=*/true);
}

Results multiHeadAttention(Call& call) {
  const int64_t heads = call.integer("num_heads", 0);
  Attended job;
  if (!call.in(1) || !call.in(2) || call.in(3) || call.in(4) || call.in(0)->rank() != 3)
    return call.unsupported("this form of it has no rule");
  job.query = asHeads(call.real(0), heads);
  job.key = call.in(1)->rank() == 4 ? call.real(1) : asHeads(call.real(1), heads);
  job.value = call.in(2)->rank() == 4 ? call.real(2) : asHeads(call.real(2), heads);
  if (job.key && job.value && call.in(6) && call.in(7)) {
    job.key = concatenated(call, {call.real(6), job.key}, 2);
    job.value = concatenated(call, {call.real(7), job.value}, 2);
  }
  if (!job.query || !job.key || !job.value)
    return call.fail("its operands do not fit");
  job.mask = call.in(5);
  job.scale = call.number("scale", 0);
  if (call.integer("unidirectional", 0) != 0) {
    const int64_t offset = job.key->shape[2] - job.query->shape[2];
    job.shows = [offset](int64_t, int64_t query, int64_t key) { return key <= query + offset; };
  }
  return attendedResults(call, job, /*hasRows=*/true);
}

} // namespace

void addAttentionRules(RuleTable& rules) {
  rules["Attention"] = attention;
  rules["RotaryEmbedding"] = rotaryEmbedding;
  rules["com.microsoft::RotaryEmbedding"] = rotaryEmbedding;
  rules["com.microsoft::GroupQueryAttention"] = groupQueryAttention;
  rules["com.microsoft::MultiHeadAttention"] = multiHeadAttention;
}

} // namespace kvopt::check
