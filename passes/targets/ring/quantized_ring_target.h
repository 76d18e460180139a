// QuantizedRingTarget: what targets have in common that keep rings of codes.
#pragma once

#include "passes/targets/kvopt/kvopt_lowering.h"
#include "passes/targets/ring/window_target.h"

namespace kvopt::targets {

/// Writes ai.kvopt::RingQuantizedKvSdpa where the target `ring` writes RingKvSdpa, and other sites
/// as the target of the same codes without rings does.
class QuantizedRingTarget : public WindowTarget {
public:
  bool quantizesCaches() const override { return true; }
  std::optional<pattern::MatchFailure> supports(const analysis::AttentionSite& site,
                                                const ir::Model& model) const override;
  llvm::Expected<ir::Manifest> lower(ir::Model& model,
                                     llvm::ArrayRef<analysis::AttentionSite*> sites,
                                     const LowerOptions& options,
                                     pattern::Journal& journal) const override;

protected:
  explicit QuantizedRingTarget(CacheRows keptAs) : form{keptAs, /*asRings=*/true} {}

private:
  CacheForm form;
};

} // namespace kvopt::targets
