// Writing of caches of codes.
#include "passes/targets/quantized/quantized_target.h"

#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/quantized/quantized_support.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

std::optional<MatchFailure> QuantizedTarget::supports(const AttentionSite& site,
                                                      const Model&) const {
  return supportsQuantizedSite(site, {rows});
}

llvm::Expected<Manifest> QuantizedTarget::lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                                const LowerOptions& options,
                                                Journal& journal) const {
  if (llvm::Error error = checkKvoptSites(sites))
    return error;
  return KvoptLowering(model, options, journal, {rows}).run(sites);
}

} // namespace kvopt::targets
