// Decoders of any size, with the interface and the spelling of exported decoders.
#pragma once

#include "driver/synthetic/decoder_spec.h"
#include "ir/model.h"

namespace kvopt::driver {

/// A causal decoder with caches. Its inputs and outputs have the names that transformers uses:
///
///   input_ids [B,S], attention_mask [B,P+S] (0 hides a position), position_ids [B,S]
///   past_key_values.N.key/value → present.N.key/value, past_latent.N → present_latent.N,
///   past_key_values.N.decoder.* → present.N.decoder.* with past_key_values.N.encoder.* only read
///   past_conv.N [B,hidden,3] → present_conv.N cache_position [S] for static caches: the rows to
///   write; attention_mask is [B,C] then logits [B,S,vocabulary]
///
/// A model with GroupQueryAttention has no position_ids, because the operator derives rotary
/// positions itself.
///
/// Weights are random, depend only on the seed and their name, and are computed when they are read.
/// Activations stay near 1 through all layers, and scores have a deviation near 2, so that
/// attention is far from even. `spec` must be resolved; `ops` must outlive the model.
std::unique_ptr<ir::Model> generateDecoder(const ir::OpRegistry& ops, const DecoderSpec& spec);

/// Number of bytes of all initializers.
int64_t weightBytes(const ir::Model& model);

/// Number of nodes, including those of subgraphs.
size_t nodeCount(ir::Model& model);

/// The smallest number of layers with at least `nodes` nodes. `spec` must be resolved.
int64_t layersForNodes(const ir::OpRegistry& ops, DecoderSpec spec, size_t nodes);

} // namespace kvopt::driver
