// The target `pyramid[:SIZE]`: caches in blocks whose extents are fixed, in a variant of the model
// for each number of blocks that may hold tokens.
//
//   before   present_key = Concat<2>(past_key, k)
//            o = ai.kvopt.Sdpa<causal = 1>(q, present_key, …)
//   after    joined = Concat<2>(past_key_block_0, …, past_key_block_tail, k)   present_key = k
//            o = MatMul(Softmax(Where(visible, MatMul(q, Transpose(joined)), -inf)), …)
//
// `visible` is rebuilt from `past_length`: rows of blocks that are no tokens are hidden. For
// engines that compile graphs for fixed extents. What is lowered is the largest variant;
// specialize-blocks makes the others of it.
#include "passes/targets/blocks/block_lowering.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class PyramidTarget final : public Target {
public:
  llvm::StringRef name() const override { return "pyramid"; }
  llvm::StringRef summary() const override {
    return "a variant for each number of past blocks, of fixed extents, pyramid:SIZE tokens";
  }
  bool takesBlockSize() const override { return true; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return supportsBlocks(site, BlockAttention::Fixed);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    return BlockLowering(model, options, journal, name().str(), BlockAttention::Fixed).run(sites);
  }
};

} // namespace

void register_pyramid(TargetRegistry& registry) { registry.add(std::make_unique<PyramidTarget>()); }

} // namespace kvopt::targets
