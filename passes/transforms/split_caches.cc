// split-caches: cuts a cache that holds several into one for each (see cut_caches.cc).
#include "passes/transforms/cut_caches.h"

namespace kvopt::transforms {
using namespace ir;
using namespace passes;

namespace {

class SplitCaches final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override { return cutCaches(model, context); }
};

} // namespace

void register_split_caches(PassRegistry& registry) {
  registry.add({"split-caches",
                "Cuts a cache that holds several into one for each.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<SplitCaches>());
                }});
}

} // namespace kvopt::transforms
