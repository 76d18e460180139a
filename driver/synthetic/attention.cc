// Attention over caches of keys and values, and over an encoder's.
#include "driver/synthetic/decoder_parts.h"

#include "support/format.h"

#include <cmath>
#include <limits>

namespace kvopt::driver {
using namespace ir;

namespace {

/// Repeats heads, [B,G,T,D] → [B,G·repeats,T,D], as PyTorch's repeat_kv is exported.
Value& repeatedHeads(const DecoderContext& context, Value& cache, int64_t groups, int64_t repeats,
                     int64_t width) {
  if (repeats == 1)
    return cache;
  GraphBuilder& build = context.build;
  const bool isScript = context.spec.spelling == DecoderSpelling::TorchScript;
  Value& five = build.unsqueeze(cache, {2});
  Value& rows = build.listed(isScript ? build.extent(cache, 0) : *context.batch);
  Value& length = build.listed(isScript ? build.extent(cache, 2) : *context.total);
  Value& wide = build.concatLists(
      {&rows, &build.ints({groups}), &build.ints({repeats}), &length, &build.ints({width})});
  Value* target = &wide;
  if (isScript) {
    Value& ones =
        build.op("ConstantOfShape", {&build.op("Shape", {&wide})}, {{"value", int64Tensor({1})}});
    Value& minus = build.op("Mul", {&ones, &build.integer(-1)});
    target = &build.op("Where", {&build.op("Equal", {&wide, &minus}), &ones, &wide});
  }
  Value& expanded = build.op("Expand", {&five, target});
  return build.reshape(expanded,
                       {&rows, &build.ints({groups * repeats}), &length, &build.ints({width})});
}

std::string layerName(int64_t layer, const char* part) {
  return formatted("model.layers.{}.{}", layer, part);
}

struct Projections {
  Value* query = nullptr; ///< [B,S,heads·width], or queries, keys and values side by side
  Value* key = nullptr;
  Value* value = nullptr;
};

Projections project(const DecoderContext& context, Value& x, int64_t layer) {
  const DecoderSpec& spec = context.spec;
  GraphBuilder& build = context.build;
  const int64_t wide = spec.heads * spec.headWidth;
  const int64_t narrow = spec.kvHeads * spec.headWidth;
  Projections made;
  if (spec.kind == DecoderKind::PackedQkv) {
    made.query = &build.linear(x, layerName(layer, "self_attn.qkv_proj"), spec.hidden,
                               wide + 2 * narrow, scoreGain, true);
    return made;
  }
  const bool hasBias = spec.kind == DecoderKind::EncoderDecoder;
  made.query =
      &build.linear(x, layerName(layer, "self_attn.q_proj"), spec.hidden, wide, scoreGain, hasBias);
  made.key = &build.linear(x, layerName(layer, "self_attn.k_proj"), spec.hidden, narrow, scoreGain);
  made.value =
      &build.linear(x, layerName(layer, "self_attn.v_proj"), spec.hidden, narrow, 1.0, hasBias);
  return made;
}

void splitPacked(const DecoderContext& context, Projections& projected) {
  const DecoderSpec& spec = context.spec;
  const int64_t narrow = spec.kvHeads * spec.headWidth;
  Value& widths = context.build.ints({spec.heads * spec.headWidth, narrow, narrow});
  Node& split = context.build.node("Split", {projected.query, &widths}, {{"axis", 2}}, 0b111);
  projected = {&split.result(0), &split.result(1), &split.result(2)};
}

/// The scales of the next cache after `ahead` others: one number, or with columnScales one for each
/// of `columns` columns. Codes cover numbers up to four times a deviation of 1.
Value& cacheScales(const DecoderContext& context, int64_t columns, size_t ahead = 0) {
  const DecoderSpec& spec = context.spec;
  const double usual = 4.0 / (spec.codeBits == 8 ? 127 : 7);
  const size_t cache = context.presents.size() + ahead;
  if (!spec.columnScales)
    return context.build.single(usual);
  std::vector<float> scales;
  for (int64_t column = 0; column < columns; ++column)
    scales.push_back(static_cast<float>(
        usual * (1 + 0.5 * std::sin(static_cast<double>(column) + static_cast<double>(cache)))));
  return context.build.constant(floatTensor(scales));
}

/// Attention by com.microsoft's operator, with one buffer for past and present.
Value& contribAttention(DecoderContext& context, const Projections& projected, float scale) {
  const DecoderSpec& spec = context.spec;
  const bool isRotary = spec.isRotary();
  llvm::SmallVector<Value*, 14> operands{
      projected.query,      projected.key,    projected.value,   &context.nextPast(),
      &context.nextPast(1), context.lastKeys, context.maskLength};
  if (isRotary)
    operands.append({context.cosine, context.sine});
  llvm::SmallVector<AttributeSpec, 9> attributes{
      {"num_heads", spec.heads},
      {"kv_num_heads", spec.kvHeads},
      {"scale", scale},
      {"local_window_size", spec.window == 0 ? -1 : spec.window},
      {"do_rotary", isRotary ? 1 : 0},
      {"rotary_interleaved", 0}};
  if (spec.codeBits != 0) {
    operands.resize(12, nullptr);
    const int64_t columns = spec.kvHeads * spec.headWidth;
    operands.append({&cacheScales(context, columns), &cacheScales(context, columns, 1)});
    const std::string type = spec.columnScales ? "PER_CHANNEL" : "PER_TENSOR";
    attributes.append(
        {{"k_quant_type", type}, {"v_quant_type", type}, {"kv_cache_bit_width", spec.codeBits}});
  }
  Node& fused =
      context.build.node("com.microsoft::GroupQueryAttention", operands, attributes, 0b111);
  context.presents.push_back(&fused.result(1));
  context.presents.push_back(&fused.result(2));
  return fused.result(0);
}

/// Attention by ONNX's operator with past and present; heads are not repeated.
Value& operatorAttention(DecoderContext& context, Value& query, Value& key, Value& value,
                         float scale) {
  Node& fused = context.build.node(
      "Attention", {&query, &key, &value, context.mask, &context.nextPast(), &context.nextPast(1)},
      {{"scale", scale}, {"is_causal", 0}}, 0b111);
  context.presents.push_back(&fused.result(1));
  context.presents.push_back(&fused.result(2));
  return fused.result(0);
}

} // namespace

double residualGain(const DecoderSpec& spec) {
  const int64_t parts = spec.kind == DecoderKind::EncoderDecoder ? 3 : 2;
  return 2.0 / std::sqrt(static_cast<double>(parts * spec.layers));
}

Value& headsApart(const DecoderContext& context, Value& x, int64_t heads, int64_t width) {
  GraphBuilder& build = context.build;
  const bool isScript = context.spec.spelling == DecoderSpelling::TorchScript;
  Value& rows = build.listed(isScript ? build.extent(x, 0) : *context.batch);
  Value& length = build.listed(isScript ? build.extent(x, 1) : *context.sequence);
  Value& split = build.reshape(x, {&rows, &length, &build.ints({heads}), &build.ints({width})});
  return build.transpose(split, {0, 2, 1, 3});
}

Value& headsTogether(const DecoderContext& context, Value& x, int64_t columns) {
  GraphBuilder& build = context.build;
  Value& tokenMajor = build.transpose(x, {0, 2, 1, 3});
  Value& rows = build.listed(*context.batch);
  return build.reshape(tokenMajor,
                       {&rows, &build.listed(*context.sequence), &build.ints({columns})});
}

namespace {

/// The next past with `rows` written to their slots.
Value& scattered(const DecoderContext& context, Value& rows) {
  GraphBuilder& build = context.build;
  Value& column = build.unsqueeze(*context.slots, {0, 1, 3});
  Value& index = build.op("Expand", {&column, &build.op("Shape", {&rows})});
  return build.op("ScatterElements", {&context.nextPast(), &index, &rows}, {{"axis", 2}});
}

/// The next past with `rows` written into it or joined to it; the result becomes its present.
Value& appendedRows(DecoderContext& context, Value& rows) {
  if (context.slots) {
    Value& present = scattered(context, rows);
    context.presents.push_back(&present);
    return present;
  }
  Value* joined = &rows;
  if (!context.pasts.empty())
    joined = &context.build.op("Concat", {&context.nextPast(), &rows}, {{"axis", -2}});
  else if (context.spec.spelling == DecoderSpelling::TorchScript)
    joined = &context.build.op("Concat", {&rows}, {{"axis", -2}});
  Value* present = joined;
  if (context.spec.cache == DecoderCache::LastRows) {
    GraphBuilder& build = context.build;
    Value& end = build.ints({std::numeric_limits<int64_t>::max()});
    present = &build.slice(*joined, build.ints({1 - context.spec.window}), end, 2);
  }
  context.presents.push_back(present);
  return *joined;
}

} // namespace

Value& appended(DecoderContext& context, Value& rows) {
  const DecoderSpec& spec = context.spec;
  if (spec.codeBits == 0)
    return appendedRows(context, rows);
  GraphBuilder& build = context.build;
  Value& scales = cacheScales(context, spec.headWidth);
  std::vector<int64_t> shape;
  if (spec.columnScales)
    shape.push_back(spec.headWidth);
  std::vector<std::byte> zeros(static_cast<size_t>(spec.columnScales ? spec.headWidth : 1));
  Value& zero =
      build.constant(llvm::cantFail(makeTensor(ElementType::Int8, shape, std::move(zeros))));
  Value& codes = build.op("QuantizeLinear", {&rows, &scales, &zero}, {{"axis", 3}});
  return build.op("DequantizeLinear", {&appendedRows(context, codes), &scales, &zero},
                  {{"axis", 3}});
}

Value& attend(const DecoderContext& context, Value& query, Value& keys, Value& values,
              int64_t groups, int64_t width, double scale, Value* mask) {
  GraphBuilder& build = context.build;
  if (context.isOperator())
    return build.op("Attention", {&query, &keys, &values, mask},
                    {{"scale", static_cast<float>(scale)}, {"is_causal", 0}});
  const int64_t repeats = context.spec.heads / groups;
  Value& repeatedKeys = repeatedHeads(context, keys, groups, repeats, width);
  Value& turned = build.transpose(repeatedKeys, {0, 1, 3, 2});
  Value& repeatedValues = repeatedHeads(context, values, groups, repeats, width);
  Value* scores = &build.op("MatMul", {&query, &turned});
  scores = &build.op("Mul", {scores, &build.real(scale)});
  if (mask)
    scores = &build.op("Add", {scores, mask});
  Value& shares = build.op("Softmax", {&build.toFloat(*scores)}, {{"axis", -1}});
  return build.op("MatMul", {&build.toReal(shares), &repeatedValues});
}

Value& selfAttention(DecoderContext& context, Value& x, int64_t layer) {
  const DecoderSpec& spec = context.spec;
  const double scale = 1.0 / std::sqrt(static_cast<double>(spec.headWidth));
  const int64_t wide = spec.heads * spec.headWidth;
  Projections projected = project(context, x, layer);
  Value* mixed = nullptr;
  if (context.isContrib()) {
    mixed = &contribAttention(context, projected, static_cast<float>(scale));
  } else {
    if (!projected.key)
      splitPacked(context, projected);
    Value* query = &headsApart(context, *projected.query, spec.heads, spec.headWidth);
    Value* key = &headsApart(context, *projected.key, spec.kvHeads, spec.headWidth);
    Value& value = headsApart(context, *projected.value, spec.kvHeads, spec.headWidth);
    if (spec.isRotary()) {
      query = &rotated(context, *query, spec.heads, spec.headWidth);
      key = &rotated(context, *key, spec.kvHeads, spec.headWidth);
    }
    if (context.isOperator()) {
      mixed = &operatorAttention(context, *query, *key, value, static_cast<float>(scale));
    } else {
      Value& keys = appended(context, *key);
      Value& values = appended(context, value);
      mixed =
          &attend(context, *query, keys, values, spec.kvHeads, spec.headWidth, scale, context.mask);
    }
    mixed = &headsTogether(context, *mixed, wide);
  }
  return context.build.linear(*mixed, layerName(layer, "self_attn.o_proj"), wide, spec.hidden,
                              residualGain(spec), !spec.isRotary());
}

Value& crossAttention(DecoderContext& context, Value& x, int64_t layer, Value& keys,
                      Value& values) {
  const DecoderSpec& spec = context.spec;
  const int64_t wide = spec.heads * spec.headWidth;
  // An encoder's keys are not as large as the decoder's own: numbers in [-1, 1).
  Value& projected = context.build.linear(x, layerName(layer, "encoder_attn.q_proj"), spec.hidden,
                                          wide, 2 * std::sqrt(3.0), true);
  Value& query = headsApart(context, projected, spec.heads, spec.headWidth);
  Value& mixed = attend(context, query, keys, values, spec.heads, spec.headWidth,
                        1.0 / std::sqrt(static_cast<double>(spec.headWidth)), nullptr);
  Value& joined = headsTogether(context, mixed, wide);
  return context.build.linear(joined, layerName(layer, "encoder_attn.out_proj"), wide, spec.hidden,
                              residualGain(spec), true);
}

} // namespace kvopt::driver
