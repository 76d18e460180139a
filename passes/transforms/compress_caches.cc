// Caches the compressed rows of multi-head latent attention instead of the keys and values of every
// head (passes/rows/latent_caches.h).
#include "passes/transforms/compressed_caches.h"

namespace kvopt::transforms {
using namespace ir;
using namespace passes;

namespace {

class CompressCaches final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    return compressCaches(model, context);
  }
};

} // namespace

void register_compress_caches(PassRegistry& registry) {
  registry.add(
      {"compress-caches",
       "Caches compressed rows instead of the keys and values that are computed from them.",
       {},
       [](const PassOptions&) {
         return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<CompressCaches>());
       }});
}

} // namespace kvopt::transforms
