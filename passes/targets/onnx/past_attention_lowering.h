// PastAttentionLowering: writes sites with ONNX's Attention of opset 23, caches growing.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/targets/target.h"

namespace kvopt::targets {

/// nullopt if PastAttentionLowering can write the site, otherwise why not. Says nothing of the rest
/// of the model.
std::optional<pattern::MatchFailure> supportsPastAttention(const analysis::AttentionSite& site);

/// Lowers sites of one model of opset 23 or newer, each of which supportsPastAttention. A cache
/// [B,G,P,D] that grows by concatenation goes into the node; others are joined before it, and keys
/// behind a row's position are hidden by a mask.
class PastAttentionLowering {
public:
  PastAttentionLowering(ir::Model& lowered, pattern::Journal& editJournal);

  llvm::Expected<ir::Manifest> run(llvm::ArrayRef<analysis::AttentionSite*> sites);

private:
  llvm::Error lowerWithPast(analysis::AttentionSite& site);
  llvm::Error lowerJoined(analysis::AttentionSite& site);
  void describe(const analysis::AttentionSite& site);

  ir::Model& model;
  ir::Graph& graph;
  pattern::Journal& journal;
  ir::Manifest manifest;
};

} // namespace kvopt::targets
