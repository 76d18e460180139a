// QuantizedTarget: what targets have in common that keep rows of caches as codes.
#pragma once

#include "passes/targets/kvopt/kvopt_lowering.h"
#include "passes/targets/target.h"

namespace kvopt::targets {

/// Writes ai.kvopt::InPlaceQuantizedKvSdpa. Caches become codes of extent `capacity`; their scales
/// are inputs and outputs of their own. What is computed is no longer the same: each element of a
/// key or value is off by up to half a step of its code. Attention that only reads another one's
/// cache becomes ai.kvopt::QuantizedSdpa; attention without a cache stays ai.kvopt::Sdpa.
class QuantizedTarget : public Target {
public:
  bool quantizesCaches() const override { return true; }
  bool takesSharedCaches() const override { return true; }
  std::optional<pattern::MatchFailure> supports(const analysis::AttentionSite& site,
                                                const ir::Model& model) const override;
  llvm::Expected<ir::Manifest> lower(ir::Model& model,
                                     llvm::ArrayRef<analysis::AttentionSite*> sites,
                                     const LowerOptions& options,
                                     pattern::Journal& journal) const override;

protected:
  explicit QuantizedTarget(CacheRows keptAs) : rows(keptAs) {}

private:
  CacheRows rows;
};

} // namespace kvopt::targets
