// The parts of generated decoders: lengths, masks, rotation, and all kinds of attention.
#pragma once

#include "driver/synthetic/graph_builder.h"

namespace kvopt::driver {

/// Values that the layers of one decoder share, for S new tokens after P earlier ones, T = P + S.
/// Lengths are scalars in TorchScript's spelling and lists of one element in the others.
struct DecoderContext {
  DecoderContext(GraphBuilder& builder, const DecoderSpec& decoder)
      : build(builder), spec(decoder) {}

  GraphBuilder& build;
  const DecoderSpec& spec;
  ir::Value* tokens = nullptr;    ///< int64 [B,S]
  ir::Value* padding = nullptr;   ///< int64 [B,T], 0 hides a key
  ir::Value* positions = nullptr; ///< int64 [B,S]
  ir::Value* slots = nullptr;     ///< int64 [S], for static caches: indices of the new rows
  ir::Value* batch = nullptr;
  ir::Value* sequence = nullptr;
  ir::Value* past = nullptr;
  ir::Value* total = nullptr;
  /// Mask [B,1,S,T]: bool for the operator Attention, otherwise a number that is added to scores.
  ir::Value* mask = nullptr;
  /// Cosines and sines: [B,1,S,D] for primitive spellings, [B,S,D/2] for RotaryEmbedding, tables
  /// [positions,D/2] for GroupQueryAttention.
  ir::Value* cosine = nullptr;
  ir::Value* sine = nullptr;
  /// Operands of GroupQueryAttention, int32: T - 1 for each batch row [B], and the mask's length.
  ir::Value* lastKeys = nullptr;
  ir::Value* maskLength = nullptr;
  /// Caches in the order of the graph's inputs, and the presents of the layers made so far. A
  /// branch that ignores the pasts has none.
  std::vector<ir::Value*> pasts;
  std::vector<ir::Value*> presents;

  /// The past whose present will follow after `ahead` others.
  ir::Value& nextPast(size_t ahead = 0) const { return *pasts[presents.size() + ahead]; }
  bool isOperator() const { return spec.spelling == DecoderSpelling::Attention; }
  bool isContrib() const { return spec.spelling == DecoderSpelling::GroupQueryAttention; }
};

/// Sets batch, sequence, past and total from the embedded tokens [B,S,·] and the first cache
/// [B,·,P,·] (null: P is 0).
void addLengths(DecoderContext& context, ir::Value& embedded, ir::Value* cache);
/// Sets the mask: query i sees key j iff j <= i + P, j > i + P - window, and j is not padding.
void addMask(DecoderContext& context);
/// Sets lastKeys and maskLength.
void addKeyCounts(DecoderContext& context);

/// Sets cosine and sine for `width` columns.
void addRotation(DecoderContext& context, int64_t width);
/// x [B,heads,S,width] with columns i and i + width/2 rotated by the angle position ·
/// 10000^(-2i/width).
ir::Value& rotated(const DecoderContext& context, ir::Value& x, int64_t heads, int64_t width);

/// Splits heads, [B,S,heads·width] → [B,heads,S,width], and joins them again.
ir::Value& headsApart(const DecoderContext& context, ir::Value& x, int64_t heads, int64_t width);
ir::Value& headsTogether(const DecoderContext& context, ir::Value& x, int64_t columns);
/// Rows of the next past, followed by new `rows` of keys or values; the result becomes its present.
ir::Value& appended(DecoderContext& context, ir::Value& rows);

/// softmax(q kᵀ · scale + mask) v with q [B,H,S,D], k [B,G,T,D], v [B,G,T,Dv] → [B,H,S,Dv]; groups
/// are repeated before the products where the spelling does that. `mask` may be null.
ir::Value& attend(const DecoderContext& context, ir::Value& query, ir::Value& keys,
                  ir::Value& values, int64_t groups, int64_t width, double scale, ir::Value* mask);

/// The attention of one layer on normed x [B,S,hidden], with its projections.
ir::Value& selfAttention(DecoderContext& context, ir::Value& x, int64_t layer);
/// Attention of one layer over keys and values of an encoder, which are graph inputs.
ir::Value& crossAttention(DecoderContext& context, ir::Value& x, int64_t layer, ir::Value& keys,
                          ir::Value& values);
/// Attention of one layer with latent keys and values.
ir::Value& latentAttention(DecoderContext& context, ir::Value& x, int64_t layer);

/// Number of earlier columns in the state of a convolution.
inline constexpr int64_t convolutionColumns = 3;
/// The convolution that replaces attention in some layers of a hybrid: y · conv(u · v) for
/// projections u, v, y of x, with a filter of three taps for each column. Its state [B,hidden,3]
/// holds the last three columns of u · v.
ir::Value& shortConvolution(DecoderContext& context, ir::Value& x, int64_t layer);
inline bool isConvolution(const DecoderSpec& spec, int64_t layer) {
  return spec.kind == DecoderKind::Hybrid && layer % 2 == 0;
}

/// Factor on the weights of queries and keys that gives scores a deviation of 2, so that attention
/// is neither even nor on a single key.
inline constexpr double scoreGain = 1.4142135623730951;
/// Gain of the last projection of a part of a layer: all parts together add about as much as the
/// embedding.
double residualGain(const DecoderSpec& spec);

} // namespace kvopt::driver
