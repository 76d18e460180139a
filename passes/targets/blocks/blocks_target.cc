// The target `blocks[:SIZE]`: each cache in blocks of SIZE tokens, which are inputs of their own.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa(q, present_key, present_value[, mask])
//   after    o = ai.kvopt.BlockKvSdpa(q, k, v, mask, , past_key_block_0, …, past_key_block_tail,
//                                     past_value_block_0, …, past_value_block_tail)
//            present_key = k   present_value = v
//
// A block holds 0 to SIZE rows. Outputs that were presents give the new rows, which whoever drives
// the model appends to its blocks. Nothing is ever joined, but in the body of BlockKvSdpa, and for
// layouts that it does not take: those get one Concat, and ai.kvopt.Sdpa.
#include "passes/targets/blocks/block_lowering.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

class BlocksTarget final : public Target {
public:
  llvm::StringRef name() const override { return "blocks"; }
  llvm::StringRef summary() const override {
    return "BlockKvSdpa with its function body: caches in blocks, blocks:SIZE tokens each";
  }
  bool takesBlockSize() const override { return true; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    return supportsBlocks(site, BlockAttention::Fused);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    return BlockLowering(model, options, journal, name().str(), BlockAttention::Fused).run(sites);
  }
};

} // namespace

void register_blocks(TargetRegistry& registry) { registry.add(std::make_unique<BlocksTarget>()); }

} // namespace kvopt::targets
