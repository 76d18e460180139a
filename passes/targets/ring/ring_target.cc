// The target `ring`: the target `kvopt` with no more rows in a cache than attention reads.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa<window = W>(q, present_key, present_value[, mask])
//   after    o, present_key, present_value =
//                ai.kvopt.RingKvSdpa<window = W>(q, k, v, past_key, past_value, past_length, mask)
//
// Past and present are one buffer of W slots, where W is the proved window of the attention, or one
// more than the rows that the model itself keeps:
//
//   before   joined = Concat<2>(past_key, k)   present_key = Slice(joined, [-K], [...], [2])
//            o = ai.kvopt.Sdpa(q, joined, ...)
//   after    the same with K + 1 slots; readers of the past's rows get Min(past_length, K)
//
// Layers without a window, and caches that a ring cannot hold (shared, latent, in branches), become
// what the target `kvopt` makes of them.
#include "passes/targets/kvopt/kvopt_lowering.h"
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/ring/window_target.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class RingTarget final : public WindowTarget {
public:
  llvm::StringRef name() const override { return "ring"; }
  llvm::StringRef summary() const override {
    return "RingKvSdpa with its function body: as many rows as the window, for any context";
  }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return supportsKvoptSite(site, true);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    if (llvm::Error error = checkKvoptSites(sites, true))
      return error;
    return KvoptLowering(model, options, journal, {CacheRows::AsDeclared, /*asRings=*/true})
        .run(sites);
  }
};

} // namespace

void register_ring(TargetRegistry& registry) { registry.add(std::make_unique<RingTarget>()); }

} // namespace kvopt::targets
