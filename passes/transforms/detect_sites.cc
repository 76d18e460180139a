// Finds attention sites and their caches, and records them for later passes.
#include "passes/pass.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;

namespace {

class DetectSites final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    context.sites = explainedSites(model, context);
    for (const AttentionSite& site : context.sites)
      context.count("detect-sites", site.isMatched() ? "matched" : "missed");
    return llvm::Error::success();
  }
};

} // namespace

void register_detect_sites(PassRegistry& registry) {
  registry.add(
      {"detect-sites", "Finds attention layers and their caches.", {}, [](const PassOptions&) {
         return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<DetectSites>());
       }});
}

} // namespace kvopt::transforms
