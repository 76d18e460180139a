// Decoders that compute whole sequences, encoders, and attention to another sequence alone.
#include "driver/forms/without_caches.h"

#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::driver {
using namespace analysis;

namespace {

bool isCausal(const AttentionSite& site) {
  return site.mask && (site.mask->causal == Proof::Proved || site.mask->causalIf);
}

} // namespace

std::optional<Recommendation> recommendWithoutCaches(const std::string& path,
                                                     const SiteList& sites) {
  const auto isUnchanged = [](const AttentionSite& site) { return site.hasUnchangedKeys; };
  const auto readsItsOwn = [](const AttentionSite& site) { return !site.isCross; };
  if (sites.empty() || !llvm::all_of(sites, isUnchanged))
    return std::nullopt;
  if (llvm::none_of(sites, readsItsOwn))
    return Recommendation{"every attention layer only reads keys and values that no step changes; "
                          "nothing to rewrite",
                          ""};
  if (llvm::all_of(sites,
                   [&](const AttentionSite& site) { return !readsItsOwn(site) || isCausal(site); }))
    return Recommendation{"the decoder computes the whole sequence at every step; give it caches",
                          formatted("kvopt add-cache {} -o OUT.onnx", path)};
  if (llvm::any_of(sites, [&](const AttentionSite& site) {
        return readsItsOwn(site) && site.mask && site.mask->causal == Proof::Unproven;
      }))
    return Recommendation{
        "there are no caches, and whether attention is causal is not proved; only "
        "a decoder can have caches",
        formatted("kvopt add-cache {} -o OUT.onnx", path)};
  return Recommendation{"attention is not causal and has no caches: this looks like an encoder; "
                        "nothing to rewrite (kvopt add-cache is for decoders)",
                        ""};
}

} // namespace kvopt::driver
