// PastAttentionLowering: writes sites with ONNX's Attention of opset 23, caches growing.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/targets/target.h"

namespace kvopt {

/// nullopt if PastAttentionLowering can write the site, otherwise why not. Says nothing of the rest
/// of the model.
std::optional<MatchFailure> supportsPastAttention(const AttentionSite& site);

/// Lowers sites of one model of opset 23 or newer, each of which supportsPastAttention. A cache
/// [B,G,P,D] that grows by concatenation goes into the node; others are joined before it, and keys
/// behind a row's position are hidden by a mask.
class PastAttentionLowering {
public:
  PastAttentionLowering(Model& lowered, Journal& editJournal);

  llvm::Expected<Manifest> run(llvm::ArrayRef<AttentionSite*> sites);

private:
  llvm::Error lowerWithPast(AttentionSite& site);
  llvm::Error lowerJoined(AttentionSite& site);
  void describe(const AttentionSite& site);

  Model& model;
  Graph& graph;
  Journal& journal;
  Manifest manifest;
};

} // namespace kvopt
