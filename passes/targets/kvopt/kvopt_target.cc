// The target `kvopt`: cached attention in one operator, past and present one buffer.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa(q, present_key, present_value[, mask])
//   after    o, present_key, present_value =
//                ai.kvopt.InPlaceKvSdpa(q, k, v, past_key, past_value, past_length, mask)
//
// Past inputs and present outputs get the extent `capacity` on the sequence axis; readers of a
// past's shape get `past_length` in that place. A latent cache becomes InPlaceLatentKvSdpa. Other
// attention that reads the same cache becomes ai.kvopt.Sdpa over the present, with past_length.
//
// Caches of int8 stay int8, where attention reads a Cast of them.
//
// Caches of fixed extents that a ScatterElements, ScatterND, or TensorScatter writes stay as they
// are: where past and present are one buffer, these operators write the new rows and no more.
// Attention over them, and attention without a cache, stays ai.kvopt.Sdpa.
#include "passes/targets/kvopt/kvopt_lowering.h"
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/target.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class KvoptTarget final : public Target {
public:
  llvm::StringRef name() const override { return "kvopt"; }
  llvm::StringRef summary() const override {
    return "InPlaceKvSdpa with its function body: past and present in one buffer";
  }

  bool takesSharedCaches() const override { return true; }
  bool takesCodes() const override { return true; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return supportsKvoptSite(site);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    if (llvm::Error error = checkKvoptSites(sites))
      return error;
    return KvoptLowering(model, options, journal).run(sites);
  }
};

} // namespace

void register_kvopt(TargetRegistry& registry) { registry.add(std::make_unique<KvoptTarget>()); }

} // namespace kvopt::targets
