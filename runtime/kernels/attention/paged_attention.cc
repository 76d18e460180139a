// com.microsoft::PagedAttention: attention of packed tokens over caches in blocks.
//
//   query [N,H*D], key and value [N,G*D]; or only query [N,(H+2G)*D], which holds all three
//   Tokens [c(b), c(b+1)) belong to sequence b, with c = cumulative_sequence_length; its token i is
//   at position p = past_seqlens[b] + i.
//   Position p of sequence b is slot block_table[b, p / block_size] * block_size + p % block_size
//   of the caches [blocks,block_size,G,D]. With slot_mapping [N], new rows go to its slots, and -1
//   drops them.
//   output [N,H*D] = Sdpa of each sequence's queries over its positions, including the new ones,
//   causal with window local_window_size, softcap and head_sink            (formula: AttentionView)
//   q_norm_weight, k_norm_weight: norms of the heads' rows, before the rotation
//   do_rotary: queries and new keys are rotated by p, from element rotary_offset on
//
// All new rows are written before any row is read. Blocks may be shared and in any order; the sums
// equal those of attention over contiguous rows bit for bit. Everything is checked before the first
// byte is written. ONNX Runtime documents float16 and bfloat16; this kernel also supports float.
#include "ir/ops/contrib/paged_operands.h"
#include "runtime/attention/attention_call.h"
#include "runtime/attention/attention_heads.h"
#include "runtime/attention/head_normalization.h"
#include "runtime/attention/rotary.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>

namespace kvopt::kernels {
using namespace ir;
using namespace ir::paged;
using namespace runtime;

namespace {

bool isOn(const Node& node, llvm::StringRef flag) { return node.intAttr(flag, 0) == 1; }

/// Fails for attributes and operands that the kernel does not support.
llvm::Error checkSupported(const KernelContext& context) {
  const Node& node = context.node();
  if (const llvm::StringRef layout = node.stringAttr("kv_cache_layout", "SEPARATE");
      layout != "SEPARATE")
    return context.error(formatted("kv_cache_layout {} is not supported", layout.str()));
  if (const int64_t width = node.intAttr("v_head_size", 0); width != 0)
    return context.error(
        formatted("v_head_size {}, which is for kv_cache_layout LATENT, is not supported", width));
  if (context.has(KeyScale) || context.has(ValueScale) ||
      node.stringAttr("k_quant_type", "NONE") != "NONE" ||
      node.stringAttr("v_quant_type", "NONE") != "NONE")
    return context.error("a quantized cache (k_scale, v_scale, k_quant_type, v_quant_type) is not "
                         "supported");
  if (!context.has(ValueCache))
    return context.error("value_cache is absent without kv_cache_layout LATENT");
  for (const char* name : {"k_cache_dtype", "v_cache_dtype"})
    if (const llvm::StringRef type = node.stringAttr(name, "");
        !type.empty() && type != onnxName(context.in(KeyCache).element))
      return context.error(formatted("{} {} with a cache of {} is not supported", name, type.str(),
                                     onnxName(context.in(KeyCache).element)));
  if (!context.wants(1) || !context.wants(2))
    return context.error("key_cache_out and value_cache_out are not read: the caches would stay as "
                         "they were");
  const int64_t causal = node.intAttr("is_causal", 1);
  if (causal != 0 && causal != 1)
    return context.error(formatted("is_causal {} is neither 0 nor 1", causal));
  if (node.intAttr("local_window_size", -1) == 0)
    return context.error("a local_window_size of 0 hides every key");
  const int64_t heads = node.intAttr("num_heads", 0);
  const int64_t groups = node.intAttr("kv_num_heads", 0);
  constexpr int64_t most = int64_t{1} << 30;
  if (heads <= 0 || groups <= 0 || heads > most || heads % groups != 0)
    return context.error(
        formatted("num_heads {} is not a positive multiple of kv_num_heads {}", heads, groups));
  return llvm::Error::success();
}

/// The new tokens' rows as one batch row: [1,H,N,D] and [1,G,N,D].
struct PackedRows {
  TensorView query, key, value;
};

/// View of [N,H*D] as [1,H,N,D].
TensorView tokensAsHeads(const TensorView& tokens, int64_t heads) {
  TensorView batch = tokens;
  batch.shape.insert(batch.shape.begin(), 1);
  batch.strides.insert(batch.strides.begin(), 0);
  return viewOfHeads(batch, heads);
}

llvm::Expected<PackedRows> packedRows(const KernelContext& context) {
  const int64_t heads = context.node().intAttr("num_heads", 0);
  const int64_t groups = context.node().intAttr("kv_num_heads", 0);
  const TensorView& query = context.in(Query);
  if (context.has(Key) != context.has(ir::paged::Value))
    return context.error("a key without a value, or the other way round");
  const bool isPacked = !context.has(Key);
  const int64_t all = isPacked ? heads + 2 * groups : heads;
  if (query.rank() != 2 || query.shape[1] % all != 0)
    return context.error(formatted("the query must be [N,{}*D]", all));
  const TensorView rows = tokensAsHeads(query, all);
  if (rows.shape[3] == 0)
    return context.error("a head width of 0 is not supported");
  PackedRows packed;
  if (isPacked) {
    packed = {slicedAxis(rows, 1, 0, heads), slicedAxis(rows, 1, heads, groups),
              slicedAxis(rows, 1, heads + groups, groups)};
  } else {
    const Extents expected{query.shape[0], groups * rows.shape[3]};
    if (context.in(Key).shape != expected || context.in(ir::paged::Value).shape != expected)
      return context.error(formatted("key and value must be [N,kv_num_heads*D] = [{},{}]",
                                     expected[0], expected[1]));
    packed = {rows, tokensAsHeads(context.in(Key), groups),
              tokensAsHeads(context.in(ir::paged::Value), groups)};
  }
  const TensorView& cache = context.in(KeyCache);
  if (cache.rank() != 4 || cache.shape != context.in(ValueCache).shape ||
      cache.shape[2] != groups || cache.shape[3] != rows.shape[3])
    return context.error(formatted("key_cache and value_cache must be "
                                   "[blocks,block_size,kv_num_heads,D] with {} heads of width {}",
                                   groups, rows.shape[3]));
  for (ElementType element :
       {packed.key.element, packed.value.element, cache.element, context.in(ValueCache).element})
    if (element != query.element)
      return context.error("query, key, value, key_cache and value_cache must be of one element "
                           "type");
  return packed;
}

/// Location of the tokens of each sequence.
struct Sequences {
  IntegerList starts; ///< [B+1]
  IntegerList past;   ///< [B]
  IntegerList table;  ///< [B,columns]
  int64_t columns = 0;
  int64_t blocks = 0;
  int64_t blockSize = 0;

  size_t count() const { return past.size(); }
  int64_t newTokens(size_t sequence) const { return starts[sequence + 1] - starts[sequence]; }
  int64_t total(size_t sequence) const { return past[sequence] + newTokens(sequence); }
  int64_t blockOf(size_t sequence, int64_t position) const {
    return table[sequence * static_cast<size_t>(columns) +
                 static_cast<size_t>(position / blockSize)];
  }
  int64_t slotOf(size_t sequence, int64_t position) const {
    return blockOf(sequence, position) * blockSize + position % blockSize;
  }
};

/// Checks that every block that a sequence reads or writes is in the cache.
llvm::Error checkTable(const KernelContext& context, const Sequences& sequences) {
  const int64_t most = sequences.columns * sequences.blockSize;
  for (size_t b = 0; b < sequences.count(); ++b) {
    const int64_t past = sequences.past[b];
    const int64_t added = sequences.newTokens(b);
    if (past < 0 || added < 0)
      return context.error(formatted("sequence {} has past_seqlens {} and {} new tokens by "
                                     "cumulative_sequence_length",
                                     b, past, added));
    if (added == 0)
      continue;
    if (past > most || added > most - past)
      return context.error(formatted("sequence {} has {} tokens and {} new ones, and block_table "
                                     "room for {}",
                                     b, past, added, most));
    for (int64_t position = 0; position < past + added; position += sequences.blockSize)
      if (const int64_t block = sequences.blockOf(b, position);
          block < 0 || block >= sequences.blocks)
        return context.error(formatted("block_table names block {} for position {} of sequence "
                                       "{}, and there are {} blocks",
                                       block, position, b, sequences.blocks));
  }
  return llvm::Error::success();
}

llvm::Expected<Sequences> sequencesOf(KernelContext& context, int64_t tokens) {
  Sequences sequences;
  for (auto [operand, list] : {std::pair(CumulativeLengths, &sequences.starts),
                               {PastLengths, &sequences.past},
                               {BlockTable, &sequences.table}}) {
    auto given = integerListOf(context, operand);
    if (!given)
      return given.takeError();
    *list = *given;
  }
  const Extents& table = context.in(BlockTable).shape;
  const auto batches = static_cast<int64_t>(sequences.past.size());
  if (context.in(PastLengths).rank() != 1 ||
      context.in(CumulativeLengths).shape != Extents{batches + 1} || table.size() != 2 ||
      table[0] != batches)
    return context.error("cumulative_sequence_length must be [B+1], past_seqlens [B] and "
                         "block_table [B,blocks per sequence]");
  const TensorView& cache = context.in(KeyCache);
  sequences.columns = table[1];
  sequences.blocks = cache.shape[0];
  sequences.blockSize = cache.shape[1];
  if (sequences.starts.front() != 0 || sequences.starts.back() != tokens)
    return context.error(formatted("cumulative_sequence_length goes from {} to {}, and there are "
                                   "{} tokens",
                                   sequences.starts.front(), sequences.starts.back(), tokens));
  int64_t room = 0;
  if (__builtin_mul_overflow(sequences.columns, sequences.blockSize, &room))
    return context.error("block_table has too many columns");
  if (llvm::Error error = checkTable(context, sequences))
    return error;
  return sequences;
}

/// Slot of each new token's row, -1 for none. Slots are distinct.
llvm::Expected<IntegerList> slotsOf(KernelContext& context, const Sequences& sequences,
                                    int64_t tokens) {
  auto slots = scratchIntegers(context, static_cast<size_t>(tokens));
  if (!slots)
    return slots;
  if (context.has(SlotMapping)) {
    auto given = integerListOf(context, SlotMapping);
    if (!given)
      return given.takeError();
    if (context.in(SlotMapping).shape != Extents{tokens})
      return context.error(formatted("slot_mapping must be [N] = [{}]", tokens));
    const int64_t most = sequences.blocks * sequences.blockSize;
    for (int64_t slot : *given)
      if (slot < -1 || slot >= most)
        return context.error(
            formatted("slot_mapping names slot {}, and there are {} slots", slot, most));
    llvm::copy(*given, slots->begin());
  } else {
    for (size_t b = 0; b < sequences.count(); ++b)
      for (int64_t i = 0; i < sequences.newTokens(b); ++i)
        (*slots)[static_cast<size_t>(sequences.starts[b] + i)] =
            sequences.slotOf(b, sequences.past[b] + i);
  }
  auto sorted = scratchIntegers(context, slots->size());
  if (!sorted)
    return sorted;
  llvm::copy(*slots, sorted->begin());
  llvm::sort(*sorted);
  for (size_t i = 1; i < sorted->size(); ++i)
    if ((*sorted)[i] >= 0 && (*sorted)[i] == (*sorted)[i - 1])
      return context.error(formatted("two new tokens go to slot {} of the caches: by block_table "
                                     "or slot_mapping, sequences write to one block",
                                     (*sorted)[i]));
  return slots;
}

/// Rotates query and new keys into scratch memory.
llvm::Error rotate(KernelContext& context, PackedRows& rows, const Sequences& sequences) {
  const Node& node = context.node();
  if (!context.has(CosineCache) || !context.has(SineCache))
    return context.error("do_rotary needs cos_cache and sin_cache");
  const int64_t width = rows.query.shape[3];
  const int64_t offset = node.intAttr("rotary_offset", 0);
  if (offset < 0 || offset > width)
    return context.error(formatted("rotary_offset {} is outside of heads {} wide", offset, width));
  auto table = rotaryTable(context, CosineCache, SineCache, width - offset,
                           isOn(node, "rotary_interleaved"));
  if (!table)
    return table.takeError();
  auto positions = scratchIntegers(context, static_cast<size_t>(rows.query.shape[2]));
  if (!positions)
    return positions.takeError();
  for (size_t b = 0; b < sequences.count(); ++b)
    for (int64_t i = 0; i < sequences.newTokens(b); ++i)
      (*positions)[static_cast<size_t>(sequences.starts[b] + i)] = sequences.past[b] + i;
  if (llvm::Error error = checkPositions(context, *table, *positions))
    return error;
  for (TensorView* tensor : {&rows.query, &rows.key}) {
    auto rotated = scratchTensor(context, tensor->element, tensor->shape);
    if (!rotated)
      return rotated.takeError();
    copyRows(slicedAxis(*tensor, 3, 0, offset), slicedAxis(*rotated, 3, 0, offset));
    if (llvm::Error error =
            rotateHeads(context, slicedAxis(*tensor, 3, offset, width - offset),
                        slicedAxis(*rotated, 3, offset, width - offset), *table, *positions))
      return error;
    *tensor = *rotated;
  }
  return llvm::Error::success();
}

/// Writes row t of [1,G,N,D] to slot slots[t] of a cache. Returns the number of bytes.
int64_t writeSlots(const TensorView& rows, const TensorView& cache, llvm::ArrayRef<int64_t> slots) {
  const auto elementBytes = static_cast<int64_t>(*byteWidth(rows.element));
  const int64_t rowBytes = rows.shape[3] * elementBytes;
  int64_t written = 0;
  for (size_t t = 0; t < slots.size(); ++t) {
    if (slots[t] < 0)
      continue;
    for (int64_t head = 0; head < rows.shape[1]; ++head)
      std::memcpy(cache.data + slots[t] * cache.strides[1] * elementBytes +
                      head * cache.strides[2] * elementBytes,
                  rows.data + elementBytes * (head * rows.strides[1] +
                                              static_cast<int64_t>(t) * rows.strides[2]),
                  static_cast<size_t>(rowBytes));
    written += rows.shape[1] * rowBytes;
  }
  return written;
}

/// Sets scale, frontier and sinks of every sequence.
llvm::Expected<AttentionOperands> commonOperands(KernelContext& context, const PackedRows& rows,
                                                 std::optional<TensorView>& sinks) {
  const Node& node = context.node();
  AttentionOperands operands;
  operands.causal = node.intAttr("is_causal", 1) == 1;
  operands.window = std::max<int64_t>(0, node.intAttr("local_window_size", -1));
  operands.softcap = std::max(0.0f, node.floatAttr("softcap", 0.0f));
  operands.scale = node.floatAttr("scale", 0.0f);
  if (operands.scale == 0.0f)
    operands.scale =
        1.0f / std::sqrt(static_cast<float>(std::max<int64_t>(rows.query.shape[3], 1)));
  if (const TensorView* given = context.input(HeadSink)) {
    if (given->shape != Extents{rows.query.shape[1]})
      return context.error("head_sink must be one number per query head");
    auto floats = floatsOf(context, *given);
    if (!floats)
      return floats.takeError();
    // The call only reads it.
    sinks = TensorView::contiguous(ElementType::Float, given->shape,
                                   reinterpret_cast<std::byte*>(const_cast<float*>(*floats)));
    operands.sinks = &*sinks;
  }
  operands.query = rows.query;
  // Placeholders with the number of rows of one batch row; attention reads the segments.
  operands.key = rows.key;
  operands.value = rows.value;
  if (llvm::Error error = checkAttention(context, operands))
    return error;
  return operands;
}

/// Calls `begins(position, block)` for each block of a sequence, in the order of positions, that is
/// not adjacent in memory to the previous one. Returns their number.
template <class Begins>
size_t forEachRunOfBlocks(const Sequences& sequences, size_t sequence, Begins begins) {
  size_t count = 0;
  int64_t expected = -1;
  for (int64_t position = 0; position < sequences.total(sequence);
       position += sequences.blockSize) {
    const int64_t block = sequences.blockOf(sequence, position);
    if (block != expected) {
      begins(position, block);
      ++count;
    }
    expected = block + 1;
  }
  return count;
}

llvm::Error attend(KernelContext& context, const AttentionOperands& common,
                   const Sequences& sequences, const TensorView& keys, const TensorView& values,
                   const TensorView& output) {
  size_t most = 0;
  size_t running = 0;
  for (size_t b = 0; b < sequences.count(); ++b)
    if (sequences.newTokens(b) != 0) {
      most += forEachRunOfBlocks(sequences, b, [](int64_t, int64_t) {});
      ++running;
    }
  auto segments = scratchSegments(context, most);
  if (!segments)
    return segments.takeError();
  auto memory = context.scratch(running * sizeof(simd::AttentionView));
  if (!memory)
    return memory.takeError();
  llvm::MutableArrayRef views(reinterpret_cast<simd::AttentionView*>(memory->data()), running);
  const simd::RowStrides strides{0, keys.strides[2], keys.strides[1]};
  const int64_t blockBytes = keys.strides[0] * *byteWidth(keys.element);
  size_t filled = 0;
  size_t next = 0;
  for (size_t b = 0; b < sequences.count(); ++b) {
    if (sequences.newTokens(b) == 0)
      continue;
    const size_t first = filled;
    forEachRunOfBlocks(sequences, b, [&](int64_t position, int64_t block) {
      (*segments)[filled++] = {position, keys.data + block * blockBytes,
                               values.data + block * blockBytes, strides, strides};
    });
    AttentionOperands operands = common;
    auto ownRows = [&](const TensorView& rows) {
      return slicedAxis(rows, 2, sequences.starts[b], sequences.newTokens(b));
    };
    operands.query = ownRows(common.query);
    operands.segments = segments->subspan(first, filled - first);
    operands.segmentTokens = sequences.total(b);
    new (&views[next++]) simd::AttentionView(attentionView(operands, ownRows(output)));
  }
  return runAttentions(context, views);
}

llvm::Error pagedAttention(KernelContext& context) {
  if (llvm::Error error = checkSupported(context))
    return error;
  auto rows = packedRows(context);
  if (!rows)
    return rows.takeError();
  const int64_t tokens = rows->query.shape[2];
  auto sequences = sequencesOf(context, tokens);
  if (!sequences)
    return sequences.takeError();
  auto slots = slotsOf(context, *sequences, tokens);
  if (!slots)
    return slots.takeError();
  if (llvm::Error error = normalizeHeads(context, rows->query, rows->key,
                                         {QueryNormWeight, KeyNormWeight, "qk_norm_epsilon"}))
    return error;
  if (isOn(context.node(), "do_rotary"))
    if (llvm::Error error = rotate(context, *rows, *sequences))
      return error;
  std::optional<TensorView> sinks;
  auto operands = commonOperands(context, *rows, sinks);
  if (!operands)
    return operands.takeError();

  auto output =
      context.output(0, rows->query.element, {tokens, rows->query.shape[1] * rows->query.shape[3]});
  if (!output)
    return output.takeError();
  auto keys = context.outputInPlace(1, KeyCache);
  if (!keys)
    return keys.takeError();
  auto values = context.outputInPlace(2, ValueCache);
  if (!values)
    return values.takeError();
  // Nothing is written before all checks, because the caches may be overwritten.
  context.noteCacheWrite(writeSlots(rows->key, *keys, *slots) +
                         writeSlots(rows->value, *values, *slots));
  if (tokens == 0)
    return llvm::Error::success();
  return attend(context, *operands, *sequences, *keys, *values,
                tokensAsHeads(*output, rows->query.shape[1]));
}

} // namespace

void register_paged_attention(KernelRegistry& registry) {
  registry.add("com.microsoft::PagedAttention", 1, pagedAttention);
}

} // namespace kvopt::kernels
