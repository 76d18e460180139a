// Reads the attention of an exported graph, before any operator is rewritten, by evaluation at
// small sizes: the cache elements that each query row reads, and the keys that are hidden from it.
#include "passes/analysis/evaluation/attention_reading.h"
#include "passes/pass.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;

namespace {

class ReadAttention final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    context.exportedAttention = std::make_shared<const ExportedAttention>(
        readExportedAttention(model.graph(), context.interface));
    return llvm::Error::success();
  }
};

} // namespace

void register_read_attention(PassRegistry& registry) {
  registry.add({"read-attention",
                "Evaluates which elements the exported attention reads and hides.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<ReadAttention>());
                }});
}

} // namespace kvopt::transforms
