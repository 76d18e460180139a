// Rules of operators that attend or rotate, by their meaning in products and a softmax.
#include "check/rules/attended.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::check {
namespace {

/// The results of an attention operator: the attended rows [B,S,H*D] or [B,H,S,D], and its caches.
Results attendedResults(Call& call, const Attended& job, bool hasRows) {
  if (!call.isNeeded(0))
    return {nullptr, job.key, job.value};
  const Ref result = attendedRows(call, job);
  if (!result)
    return call.fail("its operands do not fit");
  return {hasRows ? asRows(result) : result, job.key, job.value};
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
    if (heads == 0 && isContrib)
      heads = width ? x->shape[2] / width : 0;
    x = asHeads(x, heads);
  }
  if (!x)
    return call.fail("its number of heads does not fit");
  if (x->rank() != 4)
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
    cosine = tableRows(call, isContrib ? 2 : 1, places);
    sine = tableRows(call, isContrib ? 3 : 2, places);
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
    if (call.in(9)) {
      if (!call.in(9)->isInteger() || call.in(9)->count() != batch * rows)
        return call.unsupported("its positions are unknown");
      positions = call.in(9)->integers;
    }
    const Ref places = integerTensor({batch, rows}, std::move(positions));
    const Ref cosine = call.in(7) ? tableRows(call, 7, places) : nullptr;
    const Ref sine = call.in(8) ? tableRows(call, 8, places) : nullptr;
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
  rules["com.microsoft::PagedAttention"] = pagedAttention;
}

} // namespace kvopt::check
