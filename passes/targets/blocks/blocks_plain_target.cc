// The target `blocks-plain[:SIZE]`: each cache in blocks of SIZE tokens, joined by ONNX's Concat.
//
//   before   present_key = Concat<2>(past_key, k)
//            o = ai.kvopt.Sdpa(q, present_key, …)
//   after    joined = Concat<2>(past_key_block_0, …, past_key_block_tail, k)   present_key = k
//            o = MatMul(Softmax(… MatMul(q, Transpose(joined)) …), …)
//
// Standard operators only: for every engine.
#include "passes/targets/blocks/spelled_blocks.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class BlocksPlainTarget final : public Target {
public:
  llvm::StringRef name() const override { return "blocks-plain"; }
  llvm::StringRef summary() const override {
    return "Concat, MatMul and Softmax, for every engine: caches in blocks of SIZE tokens, "
           "blocks-plain:SIZE";
  }
  int64_t defaultSize() const override { return defaultBlockSize; }
  bool needsCapacity() const override { return true; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return supportsSpelledBlocks(site);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    return SpelledBlocks(model, options, journal, name().str()).run(sites);
  }
};

} // namespace

void register_blocks_plain(TargetRegistry& registry) {
  registry.add(std::make_unique<BlocksPlainTarget>());
}

} // namespace kvopt::targets
