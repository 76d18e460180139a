// The target `latent`: the target `kvopt` with one compressed row for each token in the place of
// the keys and values of every head.
//
// Keys and values that are products of one row of fewer columns with constant weights, as in
// multi-head latent attention, are not cached but computed from: their weights move to the query
// and to what is attended to (passes/rows/latent_caches.h). Other attention becomes what the
// target `kvopt` makes of it.
#include "passes/rows/latent_rows.h"
#include "passes/targets/kvopt/kvopt_lowering.h"
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/target.h"

namespace kvopt::targets {
using namespace analysis;
using namespace rows;
using namespace ir;
using namespace pattern;

namespace {

class LatentTarget final : public Target {
public:
  llvm::StringRef name() const override { return "latent"; }
  llvm::StringRef summary() const override {
    return "InPlaceLatentKvSdpa: compressed rows in the place of every head's keys and values";
  }

  bool takesSharedCaches() const override { return true; }
  bool compressesCaches() const override { return true; }

  bool serves(const AttentionSite& site) const override {
    return site.isLatent() || findValueColumns(site) ||
           std::holds_alternative<LatentRows>(findLatentRows(site));
  }
  MatchFailure nothingToDo(const AttentionSite& site) const override {
    return std::get<MatchFailure>(findLatentRows(site));
  }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return supportsKvoptSite(site);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    if (llvm::Error error = checkKvoptSites(sites))
      return error;
    auto manifest = KvoptLowering(model, options, journal).run(sites);
    if (manifest)
      manifest->target = name().str();
    return manifest;
  }
};

} // namespace

void register_latent(TargetRegistry& registry) { registry.add(std::make_unique<LatentTarget>()); }

} // namespace kvopt::targets
