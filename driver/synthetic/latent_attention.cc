// Latent attention: keys and values are linear in a row of few columns. Caches hold the expanded
// keys and values, or the row itself.
#include "driver/synthetic/decoder_parts.h"

#include "support/format.h"

#include <cmath>

namespace kvopt::driver {
using namespace ir;

namespace {

struct LatentParts {
  std::string name;
  Value* plainQuery = nullptr;   ///< [B,H,S,D]
  Value* rotatedQuery = nullptr; ///< [B,H,S,R]
  Value* latent = nullptr;       ///< normed, [B,S,L]
  Value* rotatedKey = nullptr;   ///< shared by all heads, [B,1,S,R]
};

Node& split(const DecoderContext& context, Value& x, int64_t first, int64_t second) {
  return context.build.node("Split", {&x, &context.build.ints({first, second})}, {{"axis", -1}},
                            0b11);
}

LatentParts projectLatent(const DecoderContext& context, Value& x, int64_t layer) {
  const DecoderSpec& spec = context.spec;
  GraphBuilder& build = context.build;
  LatentParts parts;
  parts.name = formatted("model.layers.{}.self_attn", layer);
  const int64_t width = spec.headWidth + spec.ropeWidth;
  Value& queries =
      build.linear(x, parts.name + ".q_proj", spec.hidden, spec.heads * width, scoreGain);
  Node& query = split(context, headsApart(context, queries, spec.heads, width), spec.headWidth,
                      spec.ropeWidth);
  parts.plainQuery = &query.result(0);
  parts.rotatedQuery = &rotated(context, query.result(1), spec.heads, spec.ropeWidth);
  Value& compressed = build.linear(x, parts.name + ".kv_a_proj_with_mqa", spec.hidden,
                                   spec.latentWidth + spec.ropeWidth, scoreGain);
  Node& row = split(context, compressed, spec.latentWidth, spec.ropeWidth);
  parts.latent = &build.rmsNorm(row.result(0), parts.name + ".kv_a_layernorm", spec.latentWidth);
  Value& key = headsApart(context, row.result(1), 1, spec.ropeWidth);
  parts.rotatedKey = &rotated(context, key, 1, spec.ropeWidth);
  return parts;
}

double scoreScale(const DecoderSpec& spec) {
  return 1.0 / std::sqrt(static_cast<double>(spec.headWidth + spec.ropeWidth));
}

/// Attention that caches keys and values of every head.
Value& expandedAttention(DecoderContext& context, const LatentParts& parts) {
  const DecoderSpec& spec = context.spec;
  GraphBuilder& build = context.build;
  const int64_t width = spec.headWidth + spec.valueWidth;
  Value& both = build.linear(*parts.latent, parts.name + ".kv_b_proj", spec.latentWidth,
                             spec.heads * width, scoreGain);
  Node& rows =
      split(context, headsApart(context, both, spec.heads, width), spec.headWidth, spec.valueWidth);
  Value& shape =
      build.concatLists({&build.listed(*context.batch), &build.ints({spec.heads}),
                         &build.listed(*context.sequence), &build.ints({spec.ropeWidth})});
  Value& everyHead = build.op("Expand", {parts.rotatedKey, &shape});
  Value& key = build.op("Concat", {&rows.result(0), &everyHead}, {{"axis", -1}});
  Value& query = build.op("Concat", {parts.plainQuery, parts.rotatedQuery}, {{"axis", -1}});
  Value& keys = appended(context, key);
  Value& values = appended(context, rows.result(1));
  return attend(context, query, keys, values, spec.heads, spec.headWidth + spec.ropeWidth,
                scoreScale(spec), context.mask);
}

/// Attention that caches one row of latent and rotated columns for all heads. Projections apply to
/// queries and results instead of keys and values.
Value& absorbedAttention(DecoderContext& context, const LatentParts& parts) {
  const DecoderSpec& spec = context.spec;
  GraphBuilder& build = context.build;
  const double deviation = scoreGain / std::sqrt(static_cast<double>(spec.latentWidth));
  Value& row =
      build.op("Concat", {&build.unsqueeze(*parts.latent, {1}), parts.rotatedKey}, {{"axis", -1}});
  Value& rows = appended(context, row);
  Value& down =
      build.weight(parts.name + ".w_uk", {spec.heads, spec.headWidth, spec.latentWidth}, deviation);
  Value& up = build.weight(parts.name + ".w_uv", {spec.heads, spec.latentWidth, spec.valueWidth},
                           deviation);
  Value& absorbed = build.op("MatMul", {parts.plainQuery, &down});
  Value& query = build.op("Concat", {&absorbed, parts.rotatedQuery}, {{"axis", -1}});
  Value& turned = build.transpose(rows, {0, 1, 3, 2});
  Value* scores = &build.op("MatMul", {&query, &turned});
  scores = &build.op("Mul", {scores, &build.real(scoreScale(spec))});
  scores = &build.op("Add", {scores, context.mask});
  Value& shares = build.op("Softmax", {&build.toFloat(*scores)}, {{"axis", -1}});
  Value& start = build.ints({0});
  Value& latents = build.slice(rows, start, build.ints({spec.latentWidth}), 3);
  Value& mixed = build.op("MatMul", {&build.toReal(shares), &latents});
  return build.op("MatMul", {&mixed, &up});
}

} // namespace

Value& latentAttention(DecoderContext& context, Value& x, int64_t layer) {
  const DecoderSpec& spec = context.spec;
  const LatentParts parts = projectLatent(context, x, layer);
  Value& mixed = spec.kind == DecoderKind::MlaLatent ? absorbedAttention(context, parts)
                                                     : expandedAttention(context, parts);
  const int64_t wide = spec.heads * spec.valueWidth;
  return context.build.linear(headsTogether(context, mixed, wide), parts.name + ".o_proj", wide,
                              spec.hidden, residualGain(spec));
}

} // namespace kvopt::driver
