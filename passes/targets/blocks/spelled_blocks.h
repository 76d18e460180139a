// SpelledBlocks: attention in standard operators over one Concat of all blocks and the new rows.
#pragma once

#include "passes/targets/blocks/block_lowering.h"

namespace kvopt::targets {

/// nullopt if SpelledBlocks can write the site; otherwise the reason.
std::optional<pattern::MatchFailure> supportsSpelledBlocks(const analysis::AttentionSite& site);

class SpelledBlocks : public BlockLowering {
public:
  using BlockLowering::BlockLowering;

protected:
  llvm::Error attend(analysis::AttentionSite& site) override;
  void finishModel(int64_t irVersion) override;

  /// The output of the site's attention, computed before its node.
  virtual ir::Value& spell(const analysis::AttentionSite& site, pattern::Rewriter& rewriter);
};

} // namespace kvopt::targets
