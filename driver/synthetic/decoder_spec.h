// DecoderSpec: what a generated decoder is to look like.
#pragma once

#include "ir/element_type.h"

#include "llvm/Support/Error.h"

namespace kvopt::driver {

/// The family of a generated decoder.
enum class DecoderKind {
  Llama,          ///< rotary positions, grouped key/value heads, RMS norm, gated SiLU
  Window,         ///< the same, each query seeing the last `window` keys only
  Mla,            ///< keys and values from a latent row, cached expanded (DeepSeek)
  MlaLatent,      ///< the same with the latent rows cached and the expansion absorbed
  EncoderDecoder, ///< learned positions, a second attention over rows of an encoder (Whisper)
  Hybrid,         ///< llama with a gated short convolution in every other layer (LFM2)
  PackedQkv,      ///< one projection for queries, keys and values, learned positions, GELU (GPT-2)
};

/// How attention, norms and rotation are spelled.
enum class DecoderSpelling {
  /// Primitive operators. Constant nodes, shapes read with Shape and Gather, no-op casts, halves of
  /// a rotation computed, heads repeated through a computed shape.
  TorchScript,
  /// Primitive operators. Constants as initializers, one Shape node per extent shared by all
  /// layers, constant halves.
  Dynamo,
  /// ONNX's Attention with past and present, RotaryEmbedding and RMSNormalization (opset 23).
  Attention,
  /// com.microsoft's GroupQueryAttention, whose past and present are one buffer, with rotation
  /// inside and norms that add.
  GroupQueryAttention,
};

/// What a decoder keeps of earlier tokens. All but Growing are for primitive spellings of Llama and
/// Window.
enum class DecoderCache {
  Growing,  ///< all rows, joined with the new ones
  Static,   ///< `maxPositions` rows, into which new ones are scattered at `cache_position`
  LastRows, ///< of kind Window: the last window - 1 of the joined rows
  None,     ///< nothing: every step gets the whole sequence
};

/// Extents of 0 and an opset of 0 stand for a default: see resolved().
struct DecoderSpec {
  DecoderKind kind = DecoderKind::Llama;
  DecoderSpelling spelling = DecoderSpelling::TorchScript;
  /// Of activations, caches and weights: float32, float16 or bfloat16.
  ir::ElementType real = ir::ElementType::Float;
  /// Linear layers in blocks of 32 four-bit numbers (com.microsoft::MatMulNBits).
  bool fourBit = false;
  /// Linear layers hold [out,in] and a Transpose of it, as PyTorch's exporter leaves weights that
  /// it does not fold.
  bool transposedWeights = false;
  int64_t layers = 2;
  int64_t hidden = 64;
  int64_t heads = 4;
  int64_t kvHeads = 0;      ///< divides heads
  int64_t headWidth = 0;    ///< of queries and keys; for latent attention without the rotated part
  int64_t intermediate = 0; ///< of the feed-forward part
  int64_t vocabulary = 256;
  int64_t maxPositions = 2048; ///< rows of tables of positions
  int64_t window = 0;
  int64_t ropeWidth = 0;   ///< latent attention: columns of a key that are rotated
  int64_t valueWidth = 0;  ///< latent attention: columns of a head's value
  int64_t latentWidth = 0; ///< latent attention: columns of a row before expansion
  int64_t opset = 0;
  uint64_t seed = 0;
  /// Two decoders in one, as merged for runtimes that cannot take an empty past: an If on a bool
  /// input, with a branch that ignores the pasts. For primitive spellings of Llama and Window.
  bool merged = false;
  DecoderCache cache = DecoderCache::Growing;
  /// Caches of keys and values hold codes of 8 or 4 bits, whose scales are constants; 0: numbers of
  /// `real`. GroupQueryAttention quantizes them itself, primitive spellings of Llama and Window
  /// with QuantizeLinear and DequantizeLinear, to 8 bits.
  int64_t codeBits = 0;
  /// Codes have a scale for each column of a head instead of one for all.
  bool columnScales = false;

  bool isLatent() const { return kind == DecoderKind::Mla || kind == DecoderKind::MlaLatent; }
  bool isRotary() const {
    return kind != DecoderKind::PackedQkv && kind != DecoderKind::EncoderDecoder;
  }
  bool isPrimitive() const {
    return spelling == DecoderSpelling::TorchScript || spelling == DecoderSpelling::Dynamo;
  }
};

/// The same without zeros: heads share the hidden width, a quarter as many key/value heads as heads
/// where that goes (as many in the kinds that are not grouped), four times the hidden width
/// between, half a head rotated, four heads' width of latent columns. Fails with a usage error for
/// extents that are negative or absurd, and for combinations that make no decoder.
llvm::Expected<DecoderSpec> resolved(DecoderSpec spec);

} // namespace kvopt::driver
