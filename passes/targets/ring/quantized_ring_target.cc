// Writing of rings of codes.
#include "passes/targets/ring/quantized_ring_target.h"

#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/quantized/quantized_support.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

std::optional<MatchFailure> QuantizedRingTarget::supports(const AttentionSite& site,
                                                          const Model&) const {
  return supportsQuantizedSite(site, form);
}

llvm::Expected<Manifest> QuantizedRingTarget::lower(Model& model,
                                                    llvm::ArrayRef<AttentionSite*> sites,
                                                    const LowerOptions& options,
                                                    Journal& journal) const {
  if (llvm::Error error = checkKvoptSites(sites, true))
    return error;
  return KvoptLowering(model, options, journal, form).run(sites);
}

} // namespace kvopt::targets
