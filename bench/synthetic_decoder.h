// Decoders of any size as exporters spell them, for measurements and for tests of whole models.
#pragma once

#include "ir/model.h"

namespace kvopt {

/// Whose habits a synthetic decoder has.
enum class Spelling {
  /// Constant nodes, shapes read with Shape and Gather, no-op casts, half-way rotation with
  /// computed halves, expansion of heads through a computed shape.
  TorchScript,
  /// Constants as initializers, one Shape node per extent shared by all layers, constant halves.
  Dynamo,
};

struct SyntheticDecoder {
  Spelling spelling = Spelling::TorchScript;
  unsigned layers = 2;
  int64_t heads = 4;
  int64_t groups = 2;
  int64_t width = 4;
  int64_t vocabulary = 32;
  /// Two decoders in one, as merged for runtimes that cannot take an empty past: an If on a bool
  /// input, with a branch that ignores the pasts.
  bool merged = false;
};

/// A causal decoder with rotary positions, grouped key/value heads, an additive mask and growing
/// caches, inputs and outputs named as transformers names them. Weights repeat a short pattern: the
/// numbers are finite, and different from layer to layer. Requires heads % groups == 0 and an even
/// width. `ops` must outlive the model.
std::unique_ptr<Model> syntheticDecoder(const OpRegistry& ops, const SyntheticDecoder& options);

/// The number of nodes, those of subgraphs too.
size_t nodeCount(Model& model);

/// The fewest layers that give at least `nodes` nodes.
unsigned layersForNodes(const OpRegistry& ops, SyntheticDecoder options, size_t nodes);

} // namespace kvopt
