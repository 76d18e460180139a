// Finds attention sites and their caches, and notes them for later passes.
#include "passes/attention_builder.h"
#include "passes/pass.h"

namespace kvopt {
namespace {

class DetectSites final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    context.sites = explainedSites(model, context);
    for (const AttentionSite& site : context.sites)
      for (const auto* cache : {&site.key, &site.value})
        if (*cache)
          refineCache(**cache);
    for (const AttentionSite& site : context.sites)
      context.count("detect-sites", site.isMatched() ? "matched" : "missed");
    return llvm::Error::success();
  }

private:
  /// What is appended has the past's extents but for the sequence's.
  static void refineCache(const CacheUpdate& cache) {
    if (!cache.update || cache.update->operands().size() < 2 ||
        cache.update->operand(0) != cache.past ||
        (!cache.update->is("Concat") && !cache.update->is("ai.kvopt::AppendRows")))
      return;
    const Value& rows = *cache.update->operand(1);
    refineCacheType(*cache.past, rows, cache.axis);
    refineCacheType(cache.update->result(), rows, cache.axis);
  }
};

} // namespace

void register_detect_sites(PassRegistry& registry) {
  registry.add(
      {"detect-sites", "Finds attention sites and their caches.", {}, [](const PassOptions&) {
         return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<DetectSites>());
       }});
}

} // namespace kvopt
