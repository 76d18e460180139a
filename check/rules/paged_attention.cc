// Rule of com.microsoft::PagedAttention: attention of packed tokens over rows in blocks.
//
// Position p of sequence b is slot block_table[b, p / block_size] * block_size + p % block_size of
// the caches [blocks,block_size,G,D]. New rows are written before any row is read.
#include "check/rules/attended.h"
#include "ir/ops/contrib/paged_operands.h"

#include <algorithm>

namespace kvopt::check {
using namespace ir::paged;

namespace {

/// Whether the node has no operand or attribute that only other forms of the operator have.
bool isPlain(const Call& call) {
  for (unsigned i = SineCache + 1; i < call.operands.size(); ++i)
    if (call.in(i))
      return false;
  for (const char* name : {"k_quant_type", "v_quant_type"})
    if (call.text(name, "NONE") != "NONE")
      return false;
  for (const char* name : {"k_cache_dtype", "v_cache_dtype"})
    if (!call.text(name, "").empty())
      return false;
  return call.text("kv_cache_layout", "SEPARATE") == "SEPARATE" &&
         call.integer("v_head_size", 0) == 0 && call.integer("rotary_offset", 0) == 0 &&
         call.integer("local_window_size", -1) != 0;
}

/// Where the tokens of each sequence are.
struct Sequences {
  std::vector<int64_t> starts, past, table;
  int64_t columns = 0, blocks = 0, blockSize = 0;

  size_t count() const { return past.size(); }
  int64_t added(size_t sequence) const { return starts[sequence + 1] - starts[sequence]; }
  int64_t total(size_t sequence) const { return past[sequence] + added(sequence); }
  int64_t slot(size_t sequence, int64_t position) const {
    return table[sequence * static_cast<size_t>(columns) +
                 static_cast<size_t>(position / blockSize)] *
               blockSize +
           position % blockSize;
  }
};

/// nullopt, with the call's failure, if the operator refuses them.
std::optional<Sequences> sequencesOf(Call& call, int64_t tokens) {
  for (unsigned operand : {CumulativeLengths, PastLengths, BlockTable})
    if (!call.in(operand) || !call.in(operand)->isInteger()) {
      call.unsupported("its lengths or blocks are unknown");
      return std::nullopt;
    }
  Sequences all{call.in(CumulativeLengths)->integers, call.in(PastLengths)->integers,
                call.in(BlockTable)->integers};
  auto fail = [&](const char* why) {
    call.fail(why);
    return std::nullopt;
  };
  const Extents& table = call.in(BlockTable)->shape;
  if (all.starts.size() != all.count() + 1 || table.size() != 2 ||
      table[0] != static_cast<int64_t>(all.count()) || all.starts.front() != 0 ||
      all.starts.back() != tokens)
    return fail("its lengths do not fit");
  all.columns = table[1];
  all.blocks = call.in(KeyCache)->shape[0];
  all.blockSize = call.in(KeyCache)->shape[1];
  for (size_t i = 0; i < all.count(); ++i) {
    if (all.past[i] < 0 || all.added(i) < 0)
      return fail("a length is negative");
    if (all.added(i) > 0 && (all.past[i] > mostElements || all.blockSize == 0 ||
                             all.total(i) > all.columns * all.blockSize))
      return fail("its table of blocks has no room for its tokens");
    for (int64_t position = 0; all.added(i) > 0 && position < all.total(i);
         position += all.blockSize)
      if (const int64_t slot = all.slot(i, position);
          slot < 0 || slot >= all.blocks * all.blockSize)
        return fail("its table names a block that the caches do not have");
  }
  return all;
}

/// For each slot, the new token that is written to it, or -1; nullopt if two tokens are.
std::optional<std::vector<int64_t>> writersOf(const Sequences& sequences) {
  std::vector<int64_t> writers(static_cast<size_t>(sequences.blocks * sequences.blockSize), -1);
  for (size_t i = 0; i < sequences.count(); ++i)
    for (int64_t token = 0; token < sequences.added(i); ++token) {
      int64_t& writer = writers[static_cast<size_t>(sequences.slot(i, sequences.past[i] + token))];
      if (writer >= 0)
        return std::nullopt;
      writer = sequences.starts[i] + token;
    }
  return writers;
}

/// A cache with rows [1,G,N,D] in the slots of their tokens; null if they do not fit.
Ref written(Call& call, const Ref& cache, const Ref& rows, llvm::ArrayRef<int64_t> writers) {
  if (rows->shape[1] != cache->shape[2] || rows->shape[3] != cache->shape[3])
    return nullptr;
  const auto slots = static_cast<int64_t>(writers.size());
  const int64_t heads = cache->shape[2], width = cache->shape[3];
  const Ref flat = reshaped(cache, {slots, heads, width});
  const Ref tokens = reshaped(transposed(rows, {0, 2, 1, 3}), {rows->shape[2], heads, width});
  const Ref all = concatenated(call, {flat, tokens}, 0);
  if (!all)
    return nullptr;
  return rearranged(all, cache->shape, [&](llvm::ArrayRef<int64_t> place) {
    const int64_t slot = place[0] * cache->shape[1] + place[1];
    const int64_t writer = writers[static_cast<size_t>(slot)];
    return ((writer < 0 ? slot : slots + writer) * heads + place[2]) * width + place[3];
  });
}

/// The rows [1,G,T,D] of a sequence.
Ref rowsOfSequence(const Ref& cache, const Sequences& sequences, size_t which) {
  const int64_t heads = cache->shape[2], width = cache->shape[3];
  const Extents shape{1, heads, sequences.total(which), width};
  return rearranged(cache, shape, [&](llvm::ArrayRef<int64_t> place) {
    return (sequences.slot(which, place[2]) * heads + place[1]) * width + place[3];
  });
}

/// Query and new keys with the rotation of their positions; false if the tables do not fit.
bool rotate(Call& call, const Sequences& sequences, Ref& query, Ref& key) {
  if (call.integer("do_rotary", 0) == 0)
    return true;
  std::vector<int64_t> positions;
  for (size_t i = 0; i < sequences.count(); ++i)
    for (int64_t token = 0; token < sequences.added(i); ++token)
      positions.push_back(sequences.past[i] + token);
  const auto count = static_cast<int64_t>(positions.size());
  const Ref places = integerTensor({1, count}, std::move(positions));
  const Ref cosine = call.in(CosineCache) ? tableRows(call, CosineCache, places) : nullptr;
  const Ref sine = call.in(SineCache) ? tableRows(call, SineCache, places) : nullptr;
  if (!cosine || !sine)
    return false;
  const bool isInterleaved = call.integer("rotary_interleaved", 0) != 0;
  const int64_t width = 2 * call.in(CosineCache)->shape[1];
  query = rotated(call, query, cosine, sine, isInterleaved, width);
  key = rotated(call, key, cosine, sine, isInterleaved, width);
  return query && key;
}

} // namespace

Results pagedAttention(Call& call) {
  const int64_t heads = call.integer("num_heads", 0), groups = call.integer("kv_num_heads", 0);
  if (!isPlain(call) || heads <= 0 || groups <= 0 || call.in(Query)->rank() != 2 ||
      !call.in(KeyCache) || !call.in(ValueCache) || !call.in(ir::paged::Key) != !call.in(Value))
    return call.unsupported("this form of it has no rule");
  auto packed = [&](unsigned operand) { // [N,H*D] as rows of one batch row
    const Ref tokens = call.real(operand);
    return tokens->rank() == 2 ? reshaped(tokens, {1, tokens->shape[0], tokens->shape[1]}) : tokens;
  };
  const Ref query = packed(Query);
  Attended job;
  if (call.in(ir::paged::Key)) {
    job.query = asHeads(query, heads);
    job.key = asHeads(packed(ir::paged::Key), groups);
    job.value = asHeads(packed(Value), groups);
  } else if (const Ref all = asHeads(query, heads + 2 * groups)) {
    job.query = rowsOf(all, 1, 0, heads);
    job.key = rowsOf(all, 1, heads, heads + groups);
    job.value = rowsOf(all, 1, heads + groups, heads + 2 * groups);
  }
  Ref keys = call.real(KeyCache), values = call.real(ValueCache);
  const int64_t tokens = query->shape[1];
  if (!job.query || !job.key || !job.value || keys->rank() != 4 || keys->shape != values->shape ||
      job.key->shape[2] != tokens || job.value->shape[2] != tokens)
    return call.fail("its operands do not fit");
  const auto sequences = sequencesOf(call, tokens);
  if (!sequences)
    return {};
  const auto writers = writersOf(*sequences);
  if (!writers)
    return call.fail("two tokens are written to one place");
  if (!rotate(call, *sequences, job.query, job.key))
    return call.fail("its tables do not fit");
  keys = written(call, keys, job.key, *writers);
  values = written(call, values, job.value, *writers);
  if (!keys || !values)
    return call.fail("its rows do not fit its caches");
  const bool isCausal = call.integer("is_causal", 1) != 0;
  const int64_t window = call.integer("local_window_size", -1);
  job.scale = call.number("scale", 0);
  job.softcap = call.number("softcap", 0);
  std::vector<Ref> parts;
  for (size_t i = 0; i < sequences->count(); ++i) {
    if (sequences->added(i) == 0)
      continue;
    Attended own = job;
    own.query = rowsOf(job.query, 2, sequences->starts[i], sequences->starts[i + 1]);
    own.key = rowsOfSequence(keys, *sequences, i);
    own.value = rowsOfSequence(values, *sequences, i);
    own.shows = [past = sequences->past[i], isCausal, window](int64_t, int64_t token, int64_t key) {
      const int64_t position = past + token;
      return (!isCausal || key <= position) && (window < 0 || key > position - window);
    };
    const Ref result = attendedRows(call, own);
    if (!result)
      return call.fail("its operands do not fit");
    parts.push_back(asRows(result));
  }
  if (parts.empty())
    return call.unsupported("it has no token");
  const Ref output = concatenated(call, parts, 1);
  if (!output)
    return call.unsupported("its result is too large");
  return {reshaped(output, {tokens, output->shape[2]}), keys, values};
}

} // namespace kvopt::check
