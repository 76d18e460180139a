// The parts of generated decoders: lengths and masks, rotation, attention of every kind.
#pragma once

#include "driver/synthetic/graph_builder.h"

namespace kvopt::driver {

/// What the layers of one decoder share. S new tokens after P earlier ones, T = P + S. Lengths are
/// scalars in TorchScript's spelling and lists of one in the others.
struct DecoderContext {
  DecoderContext(GraphBuilder& builder, const DecoderSpec& decoder)
      : build(builder), spec(decoder) {}

  GraphBuilder& build;
  const DecoderSpec& spec;
  ir::Value* tokens = nullptr;    ///< int64 [B,S]
  ir::Value* padding = nullptr;   ///< int64 [B,T], 0 hides a key
  ir::Value* positions = nullptr; ///< int64 [B,S]
  ir::Value* slots = nullptr;     ///< int64 [S], of static caches: where new rows are written
  ir::Value* batch = nullptr;
  ir::Value* sequence = nullptr;
  ir::Value* past = nullptr;
  ir::Value* total = nullptr;
  /// [B,1,S,T]: bool for the operator Attention, otherwise added to scores.
  ir::Value* mask = nullptr;
  /// [B,1,S,D] for primitive spellings, [B,S,D/2] for RotaryEmbedding, tables [positions,D/2] for
  /// GroupQueryAttention.
  ir::Value* cosine = nullptr;
  ir::Value* sine = nullptr;
  /// For GroupQueryAttention, int32: T - 1 by batch row [B], and the mask's length.
  ir::Value* lastKeys = nullptr;
  ir::Value* maskLength = nullptr;
  /// Caches in the order of the graph's inputs, and what becomes of them, as far as layers are
  /// made. Where a branch ignores the pasts there are none.
  std::vector<ir::Value*> pasts;
  std::vector<ir::Value*> presents;

  /// The past whose present is to come after `ahead` others.
  ir::Value& nextPast(size_t ahead = 0) const { return *pasts[presents.size() + ahead]; }
  bool isOperator() const { return spec.spelling == DecoderSpelling::Attention; }
  bool isContrib() const { return spec.spelling == DecoderSpelling::GroupQueryAttention; }
};

/// batch, sequence, past and total, from the embedded tokens [B,S,·] and the first cache
/// [B,·,P,·] (null: P is 0).
void addLengths(DecoderContext& context, ir::Value& embedded, ir::Value* cache);
/// mask: key j is seen by query i iff j <= i + P, j > i + P - window, and no padding.
void addMask(DecoderContext& context);
/// lastKeys and maskLength.
void addKeyCounts(DecoderContext& context);

/// cosine and sine for `width` columns.
void addRotation(DecoderContext& context, int64_t width);
/// x [B,heads,S,width] with columns i and i + width/2 turned by position · 10000^(-2i/width).
ir::Value& rotated(const DecoderContext& context, ir::Value& x, int64_t heads, int64_t width);

/// [B,S,heads·width] → [B,heads,S,width], and back.
ir::Value& headsApart(const DecoderContext& context, ir::Value& x, int64_t heads, int64_t width);
ir::Value& headsTogether(const DecoderContext& context, ir::Value& x, int64_t columns);
/// Keys or values with those of the next past; the result becomes its present.
ir::Value& appended(DecoderContext& context, ir::Value& rows);

/// softmax(q kᵀ · scale + mask) v with q [B,H,S,D], k [B,G,T,D], v [B,G,T,Dv] → [B,H,S,Dv]; groups
/// are repeated before the products where the spelling does that. `mask` may be null.
ir::Value& attend(const DecoderContext& context, ir::Value& query, ir::Value& keys,
                  ir::Value& values, int64_t groups, int64_t width, double scale, ir::Value* mask);

/// The attention of one layer on normed x [B,S,hidden], with its projections.
ir::Value& selfAttention(DecoderContext& context, ir::Value& x, int64_t layer);
/// Over keys and values of an encoder, which are graph inputs.
ir::Value& crossAttention(DecoderContext& context, ir::Value& x, int64_t layer, ir::Value& keys,
                          ir::Value& values);
/// With latent keys and values.
ir::Value& latentAttention(DecoderContext& context, ir::Value& x, int64_t layer);

/// How many columns of the past the state of a convolution keeps.
inline constexpr int64_t convolutionColumns = 3;
/// What stands in attention's place in some layers of a hybrid: y · conv(u · v) for projections u,
/// v, y of x, with a filter of three taps for each column. Its state [B,hidden,3] is the last three
/// columns of u · v.
ir::Value& shortConvolution(DecoderContext& context, ir::Value& x, int64_t layer);
inline bool isConvolution(const DecoderSpec& spec, int64_t layer) {
  return spec.kind == DecoderKind::Hybrid && layer % 2 == 0;
}

/// How many times larger weights are to make queries and keys whose scores have a deviation of 2,
/// so that attention is neither even nor on one key.
inline constexpr double scoreGain = 1.4142135623730951;
/// Of the last projection of a part of a layer: all parts together add about as much as the
/// embedding.
double residualGain(const DecoderSpec& spec);

} // namespace kvopt::driver
