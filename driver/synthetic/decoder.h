// Decoders of any size, with the interface and the spelling of exported ones.
#pragma once

#include "driver/synthetic/decoder_spec.h"
#include "ir/model.h"

namespace kvopt::driver {

/// A causal decoder with caches; names of inputs and outputs are those that transformers gives:
///
///   input_ids [B,S], attention_mask [B,P+S] (0 hides a position), position_ids [B,S]
///   past_key_values.N.key/value → present.N.key/value, past_latent.N → present_latent.N,
///   past_key_values.N.decoder.* → present.N.decoder.* with past_key_values.N.encoder.* only read
///   past_conv.N [B,hidden,3] → present_conv.N
///   cache_position [S], of static caches: the rows that are written; attention_mask is [B,C] then
///   logits [B,S,vocabulary]
///
/// GroupQueryAttention derives rotary positions itself: such a model has no position_ids.
///
/// Weights are random and depend on the seed and their name only. Activations stay near 1 through
/// all layers and scores have a deviation near 2, so that attention is far from even. They are
/// computed when they are read. `spec` is a resolved one; `ops` must outlive the model.
std::unique_ptr<ir::Model> generateDecoder(const ir::OpRegistry& ops, const DecoderSpec& spec);

/// Bytes of all initializers.
int64_t weightBytes(const ir::Model& model);

/// The number of nodes, those of subgraphs too.
size_t nodeCount(ir::Model& model);

/// The fewest layers that give at least `nodes` nodes. `spec` is a resolved one.
int64_t layersForNodes(const ir::OpRegistry& ops, DecoderSpec spec, size_t nodes);

} // namespace kvopt::driver
