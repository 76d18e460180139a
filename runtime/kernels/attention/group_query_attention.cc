// com.microsoft::GroupQueryAttention, as ONNX Runtime's CPU kernel computes it.
//
//   query [B,S,H*D], key and value [B,S,G*D], or all three packed into the query [B,S,(H+2G)*D]
//   past_key, past_value [B,G,P,D]: rows after a batch row's past length are unused capacity
//   seqlens_k[b] + 1 = T(b), the number of tokens of batch row b including the new ones;
//     total_sequence_length >= every T(b). With total_sequence_length = S this is a prompt: the
//     past length is 0 for every row, and rows shorter than S are padded on the right. Otherwise
//     the past length is T(b) - S.
//   present [B,G,max(P, total_sequence_length),D]: the past rows, then the new ones, then zeros, or
//     the previous contents if the present is the past's own memory
//
// With sliding_window_cache = 1, the past holds the last P rows of each batch row, from its first
// slot on, and so does the present, [B,G,P,D]: attention reads them and the new rows.
//
// If key and value have no rows, the past already holds all T(b) rows, written by another layer's
// attention; the present is the past.
//
// With q_norm_weight and k_norm_weight [D], the rows of query and key are first divided by their
// root mean square (plus qk_norm_epsilon under the root) and multiplied by the weights. With
// do_rotary, row s of query and key is then rotated by position past length + s, or
// position_ids[b,s], or in a prompt position_ids[0,0] + s; the present holds rotated keys. Row s
// sees the keys up to its own position, with local_window_size w > 0 the last w of them; with
// causal = 0 it sees all T(b) keys. attention_bias [1|B,1|H,S,total] is added after the softcap.
// smooth_softmax is a sink with logit 0 for every head; head_sink [H] gives the logits.
//
// If k_quant_type and v_quant_type are PER_TENSOR or PER_CHANNEL, pasts and presents hold codes:
// int8 with kv_cache_bit_width 8; with 4, two four-bit codes in one byte of uint8, so that rows
// have half the number of elements (CodeForm::nibbles). k_scale and v_scale are float, with one
// number, or one for each head and column, in any shape. The present's new rows are the codes of
// the rotated keys (rounded as in runtime/attention/fixed_scales.h), and attention reads the
// numbers that codes represent, including those of the new rows. Unused rows of a new present are
// zero bytes.
//
// Only the value 1 sets a flag: ONNX Runtime treats other numbers as unset, and its optimizer
// writes -1. A softcap or a window below zero is also unset.
#include "ir/ops/contrib/group_query_operands.h"
#include "runtime/attention/attention_call.h"
#include "runtime/attention/attention_heads.h"
#include "runtime/attention/fixed_scales.h"
#include "runtime/attention/head_normalization.h"
#include "runtime/attention/rotary.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "support/format.h"

#include <algorithm>
#include <cmath>

namespace kvopt::kernels {
using namespace ir;
using namespace ir::gqa;
using namespace runtime;

namespace {

bool isOn(const Node& node, llvm::StringRef flag) { return node.intAttr(flag, 0) == 1; }

/// The new rows, [B,H,S,D] and [B,G,S,D].
struct NewRows {
  TensorView query, key, value;
};

llvm::Expected<NewRows> newRows(const KernelContext& context, int64_t heads, int64_t groups) {
  const TensorView& query = context.in(Query);
  if (query.rank() != 3)
    return context.error("the query must be [B,S,width]");
  if (context.has(Key) != context.has(gqa::Value))
    return context.error("a key without a value, or the other way round");
  if (!context.has(Key)) {
    auto packed = headsOf(context, query, heads + 2 * groups, "the packed query");
    if (!packed)
      return packed.takeError();
    return NewRows{slicedAxis(*packed, 1, 0, heads), slicedAxis(*packed, 1, heads, groups),
                   slicedAxis(*packed, 1, heads + groups, groups)};
  }
  const TensorView& key = context.in(Key);
  const TensorView& value = context.in(gqa::Value);
  if (key.rank() != 3 || value.rank() != 3)
    return context.error("key and value must be [B,S,G*D]");
  auto queryHeads = headsOf(context, query, heads, "the query");
  if (!queryHeads)
    return queryHeads.takeError();
  auto keyHeads = headsOf(context, key, groups, "the key");
  if (!keyHeads)
    return keyHeads.takeError();
  auto valueHeads = headsOf(context, value, groups, "the value");
  if (!valueHeads)
    return valueHeads.takeError();
  // The past contains all rows.
  const bool isShared = key.shape[1] == 0 && context.has(PastKey);
  const Extents expected{query.shape[0], groups, isShared ? 0 : query.shape[1],
                         queryHeads->shape[3]};
  if (keyHeads->shape != expected || valueHeads->shape != expected)
    return context.error("query, key and value differ in batch size, length or width");
  return NewRows{*queryHeads, *keyHeads, *valueHeads};
}

struct Lengths {
  Extents past;        ///< number of valid rows of the past, per batch row
  Extents total;       ///< number including the new rows and padding
  Extents valid;       ///< number without padding
  int64_t longest = 0; ///< total_sequence_length
  bool isPrompt = false;
};

llvm::Expected<Lengths> lengthsOf(KernelContext& context, int64_t batches, int64_t rows) {
  auto given = integerListOf(context, SequenceLengths);
  if (!given)
    return given.takeError();
  auto longest = integerOf(context, TotalLength);
  if (!longest)
    return longest.takeError();
  if (static_cast<int64_t>(given->size()) != batches)
    return context.error("seqlens_k must be one number per batch row");
  if (*longest < rows)
    return context.error(
        formatted("total_sequence_length {} is less than {} new rows", *longest, rows));
  Lengths lengths;
  lengths.longest = *longest;
  lengths.isPrompt = *longest == rows;
  for (int64_t lessOne : *given) {
    if (lessOne < 0 || lessOne >= *longest)
      return context.error(
          formatted("seqlens_k {} does not fit total_sequence_length {}", lessOne, *longest));
    const int64_t total = lengths.isPrompt ? rows : lessOne + 1;
    if (total < rows)
      return context.error(
          formatted("seqlens_k {} with {} new rows leaves no past", lessOne, rows));
    lengths.total.push_back(total);
    lengths.valid.push_back(lessOne + 1);
    lengths.past.push_back(total - rows);
  }
  return lengths;
}

/// Position of every [b, s]. Positions of a prompt count from the first of position_ids, as ONNX
/// Runtime documents.
llvm::Expected<IntegerList> positionsOf(KernelContext& context, const Lengths& lengths,
                                        int64_t rows) {
  if (context.has(PositionIds)) {
    auto given = integerListOf(context, PositionIds);
    if (!given)
      return given;
    if (given->size() != lengths.past.size() * static_cast<size_t>(rows))
      return context.error("position_ids must be [B,S]");
    if (lengths.isPrompt && !given->empty()) {
      const int64_t first = given->front();
      for (size_t i = 0; i < given->size(); ++i)
        if (__builtin_add_overflow(first, static_cast<int64_t>(i) % rows, &(*given)[i]))
          return context.error("a number of position_ids is too large");
    }
    return given;
  }
  auto positions = scratchIntegers(context, lengths.past.size() * static_cast<size_t>(rows));
  if (!positions)
    return positions;
  int64_t* next = positions->data();
  for (int64_t past : lengths.past)
    for (int64_t row = 0; row < rows; ++row)
      *next++ = past + row;
  return positions;
}

/// Elements of a cache's rows.
struct HeldRows {
  ElementType element;
  int64_t width;
};

/// Whether the model does not declare that past and present have the same number of rows. Both then
/// hold all.
bool isDeclaredToGrow(const ir::Node& node) {
  const ir::Value* past = node.operand(PastKey);
  if (!past || node.results().size() < 2 || node.results()[1].isAbsent())
    return false;
  const auto &before = past->type(), &after = node.results()[1].type();
  constexpr unsigned rows = 2;
  return before.hasRank() && after.hasRank() && before.rank() == 4 && after.rank() == 4 &&
         !before.shape()[rows].isKnownEqual(after.shape()[rows]);
}

/// Lengths of a cache of the last rows (sliding_window_cache).
struct SlidingLengths {
  Lengths held;         ///< those of the rows that the cache holds, and of the new ones
  int64_t capacity = 0; ///< 0 for a cache of all rows
  bool isFull = false;  ///< whether new rows push out others

  SlidingLengths(const KernelContext& context, const Lengths& all, int64_t rows) : held(all) {
    const TensorView* past = context.input(PastKey);
    if (!isOn(context.node(), "sliding_window_cache") || !past || past->rank() != 4 || rows == 0 ||
        isDeclaredToGrow(context.node()))
      return;
    capacity = past->shape[2];
    held.longest = rows;
    for (size_t batch = 0; batch < held.past.size(); ++batch) {
      const int64_t dropped = held.past[batch] - std::min(held.past[batch], capacity);
      held.past[batch] -= dropped;
      held.total[batch] -= dropped;
      held.valid[batch] -= dropped;
      held.longest = std::max(held.longest, held.total[batch]);
    }
    isFull = held.longest > capacity;
  }
};

/// Fails for a cache of the last rows that attention or an operand needs more of.
llvm::Error checkSliding(const KernelContext& context, const SlidingLengths& sliding,
                         const Lengths& all, bool hasCodes) {
  if (sliding.capacity == 0)
    return llvm::Error::success();
  const int64_t window = context.node().intAttr("local_window_size", -1);
  if (window <= 0 || window > sliding.capacity)
    return context.error(formatted("sliding_window_cache with {} rows and a local_window_size of "
                                   "{}",
                                   sliding.capacity, window));
  if (sliding.isFull && (hasCodes || context.has(Bias)))
    return context.error(
        "sliding_window_cache that is full, with quantized rows or attention_bias, "
        "is not supported");
  if (context.has(Bias) && sliding.held.longest != all.longest)
    return context.error("sliding_window_cache with attention_bias is not supported");
  return llvm::Error::success();
}

/// The last rows of a cache, in the present of a cache that slides.
llvm::Error keepLast(KernelContext& context, unsigned result, const TensorView& joined,
                     const SlidingLengths& sliding) {
  if (!context.wants(result))
    return llvm::Error::success();
  auto present =
      context.output(result, joined.element,
                     {joined.shape[0], joined.shape[1], sliding.capacity, joined.shape[3]});
  if (!present)
    return present.takeError();
  for (int64_t batch = 0; batch < joined.shape[0]; ++batch) {
    const int64_t total = sliding.held.total[static_cast<size_t>(batch)];
    const int64_t kept = std::min(total, sliding.capacity);
    const TensorView own = slicedAxis(*present, 0, batch, 1);
    copyRows(slicedAxis(slicedAxis(joined, 0, batch, 1), 2, total - kept, kept),
             slicedAxis(own, 2, 0, kept));
    clearRows(slicedAxis(own, 2, kept, sliding.capacity - kept));
  }
  return llvm::Error::success();
}

/// The present without the new rows; in temporary memory if it `isTemporary`.
llvm::Expected<TensorView> presentWithout(KernelContext& context, unsigned result, unsigned operand,
                                          const TensorView& fresh, const HeldRows& of,
                                          const Lengths& lengths, bool isTemporary) {
  const TensorView* past = context.input(operand);
  const int64_t rows = fresh.shape[2];
  if (past &&
      (past->rank() != 4 || past->shape[0] != fresh.shape[0] || past->shape[1] != fresh.shape[1] ||
       past->shape[3] != of.width || past->element != of.element))
    return context.error(formatted("a past must be {} [B,G,P,{}] with the batch size and groups "
                                   "of the new rows",
                                   onnxName(of.element), of.width));
  const int64_t held = past ? past->shape[2] : 0;
  for (int64_t length : lengths.past)
    if (length > held)
      return context.error(formatted("a past length of {} and a past of {} rows", length, held));
  const int64_t capacity = std::max(held, lengths.longest);
  if (past && rows == 0 && held == capacity && !context.wants(result))
    return *past;
  std::optional<TensorView> present;
  if (past && held == capacity && context.wants(result)) {
    auto storage = context.outputInPlace(result, operand);
    if (!storage || storage->data == past->data)
      return storage;
    present = *storage;
  } else {
    const Extents shape{fresh.shape[0], fresh.shape[1], capacity, of.width};
    auto storage = isTemporary ? scratchTensor(context, of.element, shape)
                               : outputOrScratch(context, result, of.element, shape);
    if (!storage)
      return storage;
    present = *storage;
  }
  for (int64_t batch = 0; batch < fresh.shape[0]; ++batch) {
    const int64_t valid = lengths.past[static_cast<size_t>(batch)];
    const TensorView own = slicedAxis(*present, 0, batch, 1);
    if (valid != 0)
      copyRows(slicedAxis(slicedAxis(*past, 0, batch, 1), 2, 0, valid),
               slicedAxis(own, 2, 0, valid));
    clearRows(slicedAxis(own, 2, valid + rows, capacity - valid - rows));
  }
  return *present;
}

/// Slots of the new rows in batch row `batch` of a present.
TensorView placeOf(const TensorView& present, const Lengths& lengths, int64_t batch, int64_t rows) {
  return slicedAxis(slicedAxis(present, 0, batch, 1), 2, lengths.past[static_cast<size_t>(batch)],
                    rows);
}

/// Rotates query and key: the query into scratch memory, the key into the present, which holds
/// `held` rows, or into scratch memory if there is no present.
llvm::Error rotate(KernelContext& context, NewRows& fresh, const TensorView* presentKey,
                   const Lengths& lengths, const Lengths& held) {
  if (!context.has(CosineCache) || !context.has(SineCache))
    return context.error("do_rotary needs cos_cache and sin_cache");
  const bool interleaved = isOn(context.node(), "rotary_interleaved");
  auto table = rotaryTable(context, CosineCache, SineCache, fresh.query.shape[3], interleaved);
  if (!table)
    return table.takeError();
  const int64_t rows = fresh.query.shape[2];
  auto positions = positionsOf(context, lengths, rows);
  if (!positions)
    return positions.takeError();
  if (llvm::Error error = checkPositions(context, *table, *positions))
    return error;
  auto rotated = scratchTensor(context, fresh.query.element, fresh.query.shape);
  if (!rotated)
    return rotated.takeError();
  if (llvm::Error error = rotateHeads(context, fresh.query, *rotated, *table, *positions))
    return error;
  fresh.query = *rotated;
  llvm::ArrayRef<int64_t> all = *positions;
  if (fresh.key.shape[2] == 0)
    return llvm::Error::success();
  if (!presentKey) {
    auto key = scratchTensor(context, fresh.key.element, fresh.key.shape);
    if (!key)
      return key.takeError();
    if (llvm::Error error = rotateHeads(context, fresh.key, *key, *table, all))
      return error;
    fresh.key = *key;
    return llvm::Error::success();
  }
  for (int64_t batch = 0; batch < fresh.key.shape[0]; ++batch)
    if (llvm::Error error = rotateHeads(
            context, slicedAxis(fresh.key, 0, batch, 1), placeOf(*presentKey, held, batch, rows),
            *table, all.slice(static_cast<size_t>(batch * rows), static_cast<size_t>(rows))))
      return error;
  return llvm::Error::success();
}

void append(const TensorView& fresh, const TensorView& present, const Lengths& lengths) {
  for (int64_t batch = 0; batch < fresh.shape[0]; ++batch)
    copyRows(slicedAxis(fresh, 0, batch, 1), placeOf(present, lengths, batch, fresh.shape[2]));
}

void appendCodes(KernelContext& context, const TensorView& fresh, const simd::FixedScales& scales,
                 simd::CodeForm form, const TensorView& present, const Lengths& lengths) {
  for (int64_t batch = 0; batch < fresh.shape[0]; ++batch)
    writeCodes(context, scales, form, slicedAxis(fresh, 0, batch, 1),
               placeOf(present, lengths, batch, fresh.shape[2]));
}

/// Size in a cache of the rows of `fresh`, in bytes.
int64_t bytesOf(const TensorView& fresh, const HeldRows& of) {
  return fresh.shape[0] * fresh.shape[1] * fresh.shape[2] * of.width * *byteWidth(of.element);
}

/// Logits of the sinks as float [H]; nullopt if there are none.
llvm::Expected<std::optional<TensorView>> sinksOf(KernelContext& context, int64_t heads) {
  const TensorView* given = context.input(HeadSink);
  if (!given && !isOn(context.node(), "smooth_softmax"))
    return std::nullopt;
  if (given) {
    auto floats = floatsOf(context, *given);
    if (!floats)
      return floats.takeError();
    // The call only reads it.
    return TensorView::contiguous(ElementType::Float, given->shape,
                                  reinterpret_cast<std::byte*>(const_cast<float*>(*floats)));
  }
  auto zeros = scratchTensor(context, ElementType::Float, {heads});
  if (!zeros)
    return zeros.takeError();
  std::fill_n(zeros->as<float>(), heads, 0.0f);
  return *zeros;
}

/// Names of the attribute and operand that describe the quantization of a cache.
struct QuantizationNames {
  const char* type; ///< attribute
  const char* scale;
  unsigned scaleOperand;
};

/// Whether a cache is quantized; an error for types that the operator does not define. ONNX Runtime
/// ignores the case of letters.
llvm::Expected<bool> isQuantized(const KernelContext& context, const QuantizationNames& names) {
  const llvm::StringRef type = context.node().stringAttr(names.type, "NONE");
  if (type.equals_insensitive("PER_TENSOR") || type.equals_insensitive("PER_CHANNEL"))
    return true;
  if (!type.equals_insensitive("NONE"))
    return context.error(formatted("{} {} is not supported: it should be NONE, PER_TENSOR or "
                                   "PER_CHANNEL",
                                   names.type, type.str()));
  if (context.has(names.scaleOperand))
    return context.error(formatted("{} without {} is not supported", names.scale, names.type));
  return false;
}

/// Scales of a quantized cache with `groups` heads of `width` columns.
llvm::Expected<simd::FixedScales> scalesOf(const KernelContext& context,
                                           const QuantizationNames& names, int64_t groups,
                                           int64_t width) {
  const TensorView* given = context.input(names.scaleOperand);
  if (!given)
    return context.error(formatted("{} needs {}", names.type, names.scale));
  simd::FixedScales scales;
  scales.perColumn =
      context.node().stringAttr(names.type, "NONE").equals_insensitive("PER_CHANNEL");
  scales.width = width;
  const int64_t expected = scales.perColumn ? groups * width : 1;
  if (given->element != ElementType::Float || given->elementCount() != expected)
    return context.error(formatted("{} has {} numbers of type {}; it should be {} of type {}",
                                   names.scale, given->elementCount(), onnxName(given->element),
                                   expected, onnxName(ElementType::Float)));
  scales.numbers = given->as<float>();
  return scales;
}

/// Quantization of the caches; nullopt if they hold numbers.
llvm::Expected<std::optional<FixedScaleCaches>> quantizationOf(const KernelContext& context,
                                                               int64_t groups, int64_t width) {
  constexpr QuantizationNames ofKeys = {"k_quant_type", "k_scale", KeyScale};
  constexpr QuantizationNames ofValues = {"v_quant_type", "v_scale", ValueScale};
  auto keys = isQuantized(context, ofKeys);
  if (!keys)
    return keys.takeError();
  auto values = isQuantized(context, ofValues);
  if (!values)
    return values.takeError();
  const int64_t bits = context.node().intAttr("kv_cache_bit_width", 0);
  if (*keys != *values)
    return context.error("of k_quant_type and v_quant_type, one is NONE and the other is not");
  if (!*keys && bits != 0)
    return context.error(
        formatted("kv_cache_bit_width {} without a quantized cache is not supported", bits));
  if (!*keys)
    return std::nullopt;
  if (bits != 8 && bits != 4)
    return context.error(formatted(
        "kv_cache_bit_width {} of a quantized cache is not supported: it should be 8 or 4", bits));
  auto keyScales = scalesOf(context, ofKeys, groups, width);
  if (!keyScales)
    return keyScales.takeError();
  auto valueScales = scalesOf(context, ofValues, groups, width);
  if (!valueScales)
    return valueScales.takeError();
  return FixedScaleCaches{*keyScales, *valueScales,
                          bits == 8 ? simd::CodeForm::bytes : simd::CodeForm::nibbles};
}

llvm::Error checkSupported(const KernelContext& context) {
  const Node& node = context.node();
  if (context.wants(3))
    return context.error("the result output_qk is not supported");
  const int64_t causal = node.intAttr("causal", 1);
  const int64_t window = node.intAttr("local_window_size", -1);
  if (causal != 0 && causal != 1)
    return context.error(formatted("causal {} is neither 0 nor 1", causal));
  if (causal == 0 && window != -1)
    return context.error(formatted("local_window_size {} without causal", window));
  if (window == 0)
    return context.error("a local_window_size of 0 hides every key");
  if (context.has(PastKey) != context.has(PastValue))
    return context.error("a past of keys without one of values, or the other way round");
  const int64_t heads = node.intAttr("num_heads", 0);
  const int64_t groups = node.intAttr("kv_num_heads", 0);
  constexpr int64_t most = int64_t{1} << 30;
  if (heads <= 0 || groups <= 0 || heads > most || heads % groups != 0)
    return context.error(
        formatted("num_heads {} is not a positive multiple of kv_num_heads {}", heads, groups));
  return llvm::Error::success();
}

llvm::Error groupQueryAttention(KernelContext& context) {
  const Node& node = context.node();
  if (llvm::Error error = checkSupported(context))
    return error;
  const int64_t heads = node.intAttr("num_heads", 0);
  auto fresh = newRows(context, heads, node.intAttr("kv_num_heads", 0));
  if (!fresh)
    return fresh.takeError();
  const Extents shape = fresh->query.shape;
  auto quantization = quantizationOf(context, fresh->key.shape[1], shape[3]);
  if (!quantization)
    return quantization.takeError();
  const FixedScaleCaches* codes = *quantization ? &**quantization : nullptr;
  const HeldRows of = codes ? HeldRows{codes->element(), codes->rowElements(shape[3])}
                            : HeldRows{fresh->key.element, shape[3]};
  auto lengths = lengthsOf(context, shape[0], shape[2]);
  if (!lengths)
    return lengths.takeError();
  if (llvm::Error error = normalizeHeads(context, fresh->query, fresh->key,
                                         {QueryNormWeight, KeyNormWeight, "qk_norm_epsilon"}))
    return error;
  SlidingLengths sliding(context, *lengths, fresh->key.shape[2]);
  if (llvm::Error error = checkSliding(context, sliding, *lengths, codes != nullptr))
    return error;
  Lengths& held = sliding.held;
  if (fresh->key.shape[2] == 0)
    held.past = held.total;
  auto key = presentWithout(context, 1, PastKey, fresh->key, of, held, sliding.isFull);
  if (!key)
    return key.takeError();
  auto value = presentWithout(context, 2, PastValue, fresh->value, of, held, sliding.isFull);
  if (!value)
    return value.takeError();
  if (key->shape != value->shape)
    return context.error("the pasts of keys and values differ in length");

  AttentionOperands operands;
  operands.query = fresh->query;
  operands.key = *key;
  operands.value = *value;
  operands.causal = node.intAttr("causal", 1) != 0;
  // Padding rows of a prompt see additional keys if this keeps the frontier in place.
  operands.totalLengths = operands.causal ? held.total : held.valid;
  operands.window = std::max<int64_t>(0, node.intAttr("local_window_size", -1));
  operands.softcap = std::max(0.0f, node.floatAttr("softcap", 0.0f));
  operands.scale = node.floatAttr("scale", 0.0f);
  if (operands.scale == 0.0f)
    operands.scale = 1.0f / std::sqrt(static_cast<float>(std::max<int64_t>(shape[3], 1)));
  auto sinks = sinksOf(context, heads);
  if (!sinks)
    return sinks.takeError();
  if (*sinks)
    operands.sinks = &**sinks;
  TensorView bias;
  if (const TensorView* given = context.input(Bias)) {
    if (given->rank() != 4 || given->shape[3] != lengths->longest)
      return context.error("attention_bias must be [1|B,1|H,S,total_sequence_length]");
    // All batch rows may be shorter than the width of the bias.
    bias = slicedAxis(*given, 3, 0,
                      shape[0] == 0 ? 0
                                    : *std::max_element(operands.totalLengths.begin(),
                                                        operands.totalLengths.end()));
    operands.mask = &bias;
  }
  if (codes)
    if (llvm::Error error = setRowScales(context, *codes, operands))
      return error;
  if (llvm::Error error = checkAttention(context, operands))
    return error;
  // Nothing is written before all checks, because the past may be overwritten.
  const bool rotates = isOn(node, "do_rotary");
  if (rotates)
    if (llvm::Error error = rotate(context, *fresh, codes ? nullptr : &*key, *lengths, held))
      return error;
  if (codes) {
    appendCodes(context, fresh->key, codes->key, codes->form, *key, held);
    appendCodes(context, fresh->value, codes->value, codes->form, *value, held);
  } else {
    if (!rotates)
      append(fresh->key, *key, held);
    append(fresh->value, *value, held);
  }
  operands.query = fresh->query;
  if (context.has(PastKey) && context.in(PastKey).data == key->data)
    context.noteCacheWrite(bytesOf(fresh->key, of) + bytesOf(fresh->value, of));
  auto output = context.output(0, fresh->query.element, {shape[0], shape[2], shape[1] * shape[3]});
  if (!output)
    return output.takeError();
  if (codes)
    return runFixedScaleAttention(context, *codes, operands, *output);
  if (llvm::Error error = runAttention(context, operands, viewOfHeads(*output, heads)))
    return error;
  if (!sliding.isFull)
    return llvm::Error::success();
  if (llvm::Error error = keepLast(context, 1, *key, sliding))
    return error;
  return keepLast(context, 2, *value, sliding);
}

} // namespace

void register_group_query_attention(KernelRegistry& registry) {
  registry.add("com.microsoft::GroupQueryAttention", 1, groupQueryAttention);
}

} // namespace kvopt::kernels
