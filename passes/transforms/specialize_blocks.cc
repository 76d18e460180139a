// Creates the variant of a model with caches in blocks of fixed extents that has `past` blocks.
//
//   before   joined = Concat(past_block_0, past_block_1, past_block_tail, new)   past_rows = 40
//   after    joined = Concat(past_block_0, new)                                  past_rows = 16
//
//   specialize-blocks{past=1}
#include "passes/pass.h"
#include "passes/targets/blocks/block_variant.h"
#include "support/diagnostic.h"

namespace kvopt::transforms {
using namespace ir;
using namespace passes;
using namespace targets;

namespace {

class SpecializeBlocks final : public Pass {
public:
  explicit SpecializeBlocks(int64_t blocks) : past(blocks) {}

  llvm::Error run(Model& model, PassContext& context) override {
    auto manifest = manifestOf(model);
    if (!manifest)
      return manifest.takeError();
    if (!*manifest || (*manifest)->variants.empty())
      return usageError("the model has no variants: its caches are not in blocks of fixed extents")
          .hint("lower{to=pyramid:SIZE capacity=TOKENS} creates a model with variants");
    context.count("specialize-blocks", "models");
    return keepPastBlocks(model, **manifest, past);
  }

private:
  int64_t past;
};

llvm::Expected<std::unique_ptr<Pass>> makePass(const PassOptions& given) {
  const auto found = given.find("past");
  int64_t past = 0;
  if (found == given.end() || llvm::StringRef(found->second).getAsInteger(10, past) || past < 0)
    return usageError("specialize-blocks needs past=BLOCKS");
  return std::make_unique<SpecializeBlocks>(past);
}

} // namespace

void register_specialize_blocks(PassRegistry& registry) {
  registry.add({"specialize-blocks",
                "Keeps only some blocks of caches in blocks with fixed extents.",
                {"past"},
                makePass});
}

} // namespace kvopt::transforms
