// PastAttentionLowering: writes sites as ONNX's Attention of opset 23, with growing caches.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/targets/target.h"

namespace kvopt::targets {

/// nullopt if PastAttentionLowering can write the site; otherwise the reason. Does not consider the
/// rest of the model.
std::optional<pattern::MatchFailure> supportsPastAttention(const analysis::AttentionSite& site);

/// Lowers sites of one model of opset 23 or newer; supportsPastAttention must hold for each. The
/// node itself concatenates a cache [B,G,P,D]. Other caches are joined before the node, and a mask
/// hides the keys after a row's position.
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
