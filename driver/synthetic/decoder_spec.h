// DecoderSpec: description of a decoder to generate.
#pragma once

#include "ir/element_type.h"

#include "llvm/Support/Error.h"

namespace kvopt::driver {

/// The family of a generated decoder.
enum class DecoderKind {
  Llama,          ///< rotary positions, grouped key/value heads, RMS norm, gated SiLU
  Window,         ///< the same; each query sees only the last `window` keys
  Mla,            ///< keys and values are expanded from a latent row and cached expanded (DeepSeek)
  MlaLatent,      ///< the same; latent rows are cached, and projections absorb the expansion
  EncoderDecoder, ///< learned positions, cross-attention over rows of an encoder (Whisper)
  Hybrid,         ///< llama with a gated short convolution in every other layer (LFM2)
  PackedQkv,      ///< one projection for queries, keys and values, learned positions, GELU (GPT-2)
};

/// The spelling of attention, norms and rotation.
enum class DecoderSpelling {
  /// Primitive operators, with Constant nodes, shapes read by Shape and Gather, no-op casts,
  /// computed halves of a rotation, and heads repeated through a computed shape.
  TorchScript,
  /// Primitive operators, with initializers for constants, one Shape node per extent for all
  /// layers, and constant halves of a rotation.
  Dynamo,
  /// ONNX's Attention with past and present, RotaryEmbedding and RMSNormalization (opset 23).
  Attention,
  /// com.microsoft's GroupQueryAttention, whose past and present are one buffer. It includes the
  /// rotation, and norms include the addition before them.
  GroupQueryAttention,
};

/// The caches of a decoder. All kinds but Growing require primitive spellings of Llama and Window.
enum class DecoderCache {
  Growing,  ///< all rows, joined with the new ones
  Static,   ///< `maxPositions` rows, into which new ones are scattered at `cache_position`
  LastRows, ///< for DecoderKind::Window: the last window - 1 of the joined rows
  None,     ///< no caches: every step receives the whole sequence
};

/// Properties of a decoder. An extent or opset of 0 means the default; see resolved().
struct DecoderSpec {
  DecoderKind kind = DecoderKind::Llama;
  DecoderSpelling spelling = DecoderSpelling::TorchScript;
  /// Element type of activations, caches and weights: float32, float16 or bfloat16.
  ir::ElementType real = ir::ElementType::Float;
  /// Whether linear layers have blocks of 32 four-bit numbers (com.microsoft::MatMulNBits).
  bool fourBit = false;
  /// Whether linear layers hold weights [out,in] and a Transpose, as PyTorch's exporter writes
  /// weights that it does not fold.
  bool transposedWeights = false;
  int64_t layers = 2;
  int64_t hidden = 64;
  int64_t heads = 4;
  int64_t kvHeads = 0; ///< divides heads
  /// Columns of queries and keys; for latent attention, without the rotated part.
  int64_t headWidth = 0;
  int64_t intermediate = 0; ///< columns within the feed-forward part
  int64_t vocabulary = 256;
  int64_t maxPositions = 2048; ///< rows of position tables
  int64_t window = 0;
  int64_t ropeWidth = 0;   ///< latent attention: columns of a key that are rotated
  int64_t valueWidth = 0;  ///< latent attention: columns of a head's value
  int64_t latentWidth = 0; ///< latent attention: columns of a row before expansion
  int64_t opset = 0;
  uint64_t seed = 0;
  /// Whether two decoders are merged, as for runtimes that reject an empty past: an If on a bool
  /// input, with a branch that ignores the pasts. Requires a primitive spelling of Llama or Window.
  bool merged = false;
  DecoderCache cache = DecoderCache::Growing;
  /// Number of bits of the codes in caches of keys and values, 8 or 4, with constant scales; 0:
  /// caches hold numbers of `real`. GroupQueryAttention quantizes by itself. Primitive spellings of
  /// Llama and Window quantize to 8 bits with QuantizeLinear and DequantizeLinear.
  int64_t codeBits = 0;
  /// Whether codes have a scale for each column of a head, instead of a single one.
  bool columnScales = false;

  bool isLatent() const { return kind == DecoderKind::Mla || kind == DecoderKind::MlaLatent; }
  bool isRotary() const {
    return kind != DecoderKind::PackedQkv && kind != DecoderKind::EncoderDecoder;
  }
  bool isPrimitive() const {
    return spelling == DecoderSpelling::TorchScript || spelling == DecoderSpelling::Dynamo;
  }
};

/// The spec with defaults instead of zeros. Heads divide the hidden width. There is one key/value
/// head for every four heads if that divides evenly, and for every head in kinds without groups.
/// The feed-forward part has four times the hidden width, half of a head is rotated, and a latent
/// row has the width of four heads. Fails with a usage error for negative or absurd extents, and
/// for combinations that do not describe a decoder.
llvm::Expected<DecoderSpec> resolved(DecoderSpec spec);

} // namespace kvopt::driver
