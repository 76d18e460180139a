// The parts of a generated decoder. Each chooses among the spellings of a table of its own.
#pragma once

#include "tests/generated/decoder_graph.h"

namespace kvopt::generated {

/// Projections of a layer, [B,S,heads,D].
struct NewRows {
  ir::Value* query;
  ir::Value* key;
  ir::Value* value;
};

/// Keys and values of past and new tokens, [B,G,T,D].
struct JoinedRows {
  ir::Value* key;
  ir::Value* value;
};

NewRows projected(DecoderGraph& g, ir::Value& x);
/// Attention's result [B,H,S,D] as [B,S,hidden].
ir::Value& mergedHeads(DecoderGraph& g, ir::Value& x);

/// Prepares the rotation of all layers.
struct Rotation {
  ir::Value* cosine = nullptr; ///< [·,S,1,D/2]
  ir::Value* sine = nullptr;
};
Rotation rotationOf(DecoderGraph& g);
/// x [B,S,heads,D] turned by its positions.
ir::Value& rotated(DecoderGraph& g, ir::Value& x, const Rotation& rotation);

struct CacheLayout;
struct CachePair;

/// How caches are laid out, one way for all layers.
class CacheForm {
public:
  explicit CacheForm(DecoderGraph& g);
  /// The inputs of a layer's caches: one or two.
  std::vector<ir::Value*> addPasts(DecoderGraph& g, size_t layer) const;
  /// Joins new rows to pasts; adds the layer's presents to `presents`.
  JoinedRows updated(DecoderGraph& g, const NewRows& rows, llvm::ArrayRef<ir::Value*> pasts,
                     std::vector<ir::Value*>& presents) const;
  const CacheAxes& axes() const { return pairedAxes; }

private:
  const CacheLayout* layout;
  const CachePair* pair;
  CacheAxes pairedAxes;
};

/// Past and new rows, one after the other.
ir::Value& appended(DecoderGraph& g, ir::Value& past, ir::Value& fresh);
/// The past with rows replaced at DecoderGraph::queryRows.
ir::Value& written(DecoderGraph& g, ir::Value& past, ir::Value& fresh);

/// bool, true where a query sees a key.
ir::Value& seenKeys(DecoderGraph& g);
/// Scores with those of keys that are not seen hidden.
ir::Value& masked(DecoderGraph& g, ir::Value& scores, ir::Value& seen);

/// [B,G,T,D] with each head `repeats` times.
ir::Value& repeated(DecoderGraph& g, ir::Value& x);

/// Attention of a query [B,H,S,D].
ir::Value& attended(DecoderGraph& g, ir::Value& query, const JoinedRows& rows);

} // namespace kvopt::generated
