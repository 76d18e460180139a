// The target `int8`: the target `kvopt` with rows of caches kept as int8, a scale for each.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa(q, present_key, present_value[, mask])
//   after    o, present_key, present_key_scale, present_value, present_value_scale =
//                ai.kvopt.InPlaceQuantizedKvSdpa(q, k, v, past_key, past_key_scale, past_value,
//                                                past_value_scale, past_length, mask)
//
// Caches become int8 of extent `capacity`; the scales are inputs and outputs of their own. What is
// computed is no longer the same: each element of a key or value is off by up to half a scale.
// Attention without a cache of its own stays ai.kvopt.Sdpa.
#include "passes/targets/kvopt/kvopt_lowering.h"
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/support/cache_rows.h"
#include "passes/targets/target.h"
#include "support/diagnostic.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class Int8Target final : public Target {
public:
  llvm::StringRef name() const override { return "int8"; }
  llvm::StringRef summary() const override {
    return "InPlaceQuantizedKvSdpa with its function body: int8 rows with a scale each, in one "
           "buffer";
  }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    if (std::optional<MatchFailure> failure = supportsKvoptSite(site))
      return failure;
    if (std::optional<MatchFailure> failure = doesNotGrow(site))
      return failure;
    auto refuse = [&](ReasonCode code, std::string expected, std::string found) {
      return MatchFailure{code, site.node->name().str(), std::move(expected), std::move(found),
                          "--to kvopt keeps the cache as it is declared"};
    };
    for (const auto* cache : {&site.key, &site.value})
      if (*cache && unflattened((*cache)->layout))
        return refuse(ReasonCode::LayoutUnsupported, "an axis for the heads",
                      (*cache)->layout.text());
    if (site.isLatent())
      return refuse(ReasonCode::TargetLacksFeature, "separate caches of keys and values",
                    "one latent cache");
    if (site.grows() && site.node->graph().parentNode())
      return refuse(ReasonCode::InSubgraph, "attention in the main graph",
                    "attention in a branch of " + site.node->graph().parentNode()->describe());
    return std::nullopt;
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    if (llvm::Error error = checkKvoptSites(sites))
      return error;
    return KvoptLowering(model, options, journal, CacheRows::Quantized).run(sites);
  }
};

} // namespace

void register_int8(TargetRegistry& registry) { registry.add(std::make_unique<Int8Target>()); }

} // namespace kvopt::targets
