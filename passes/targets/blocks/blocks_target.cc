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
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/support/cache_rows.h"
#include "support/diagnostic.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// ai.kvopt::BlockKvSdpa or BlockLatentKvSdpa, or, where they do not take the layout,
/// ai.kvopt::Sdpa over one Concat of all blocks and the new rows.
class FusedBlocks final : public BlockLowering {
public:
  using BlockLowering::BlockLowering;

private:
  /// Whether the kernel finds the rows of all blocks, and the body is written for their layouts.
  bool canFuse(const AttentionSite& site) {
    if (supportsKvoptSite(site) || !site.addsQueryRows() || isSplit(*site.key) ||
        isSplit(*site.value) || unflattened(site.key->layout) || unflattened(site.value->layout))
      return false;
    if (site.isLatent()) {
      const CacheLayout layout = *inPlaceLayout(site.key->layout, false);
      if (!latentLayout)
        latentLayout = layout;
      return *latentLayout == layout;
    }
    const std::pair<CacheLayout, CacheLayout> layouts{*inPlaceLayout(site.key->layout, true),
                                                      *inPlaceLayout(site.value->layout, false)};
    if (!fusedLayouts)
      fusedLayouts = layouts;
    return *fusedLayouts == layouts;
  }

  llvm::Error attend(AttentionSite& site) override {
    Rewriter rewriter(site.node->graph(), ruleName, journal);
    return operands.complete(*site.node, rewriter);
  }

  llvm::Error attendToBlocks(AttentionSite& site) override {
    // Decided by what the graph is like before its caches are taken apart.
    const bool isFused = canFuse(site);
    const CacheRole role = site.isLatent() ? CacheRole::Latent : CacheRole::Key;
    const Blocks keys = splitCache(site, *site.key, role);
    const Blocks values = splitCache(site, *site.value, CacheRole::Value);
    return isFused ? fuse(site, keys, values) : attend(site);
  }

  llvm::Error fuse(AttentionSite& site, const Blocks& keys, const Blocks& values) {
    Node& sdpa = *site.node;
    Rewriter rewriter(graph, ruleName, journal);
    Value& mask = operands.mask(sdpa);
    AttributeList attributes = KvoptOperands::attributes(sdpa, mask);
    attributes.add("key_axis", site.key->axis);
    llvm::SmallVector<Value*, 16> inputs{sdpa.operand(0),
                                         &canonicalNewRows(site, *site.key, rewriter)};
    if (site.isLatent()) {
      attributes.add("v_offset", site.value->firstColumn);
      attributes.add("v_width", *site.value->columns.value());
    } else {
      attributes.add("value_axis", site.value->axis);
      inputs.push_back(&canonicalNewRows(site, *site.value, rewriter));
    }
    inputs.push_back(&mask);
    inputs.push_back(operands.sinks(sdpa));
    inputs.append(keys.begin(), keys.end());
    if (!site.isLatent())
      inputs.append(values.begin(), values.end());
    const OpName op = site.isLatent() ? "ai.kvopt::BlockLatentKvSdpa" : "ai.kvopt::BlockKvSdpa";
    Node& fused = rewriter.create(op, inputs, attributes, 1, "attention");
    recordSiteOrigin(fused, site, rewriter);
    const BodyForm form = operands.bodyForm(sdpa);
    if (std::optional<MatchFailure> failure = rewriter.replace(sdpa.result(), fused.result()))
      return unsupported("site {}: {}", site.id(), failure->str());
    site.node = &fused;
    return operands.addFunction(op, [&] {
      return site.isLatent() ? blockLatentKvSdpaFunctionText(form, keys.size(), *latentLayout)
                             : blockKvSdpaFunctionText(form, keys.size(), fusedLayouts->first,
                                                       fusedLayouts->second);
    });
  }

  void prepareModel() override {
    model.opsets.try_emplace(kvoptDomain, 1);
    // Model-local functions exist since IR version 8.
    model.irVersion = std::max<int64_t>(model.irVersion, 8);
  }

  /// The layouts that the function body is written for.
  std::optional<std::pair<CacheLayout, CacheLayout>> fusedLayouts;
  std::optional<CacheLayout> latentLayout;
};

class BlocksTarget final : public Target {
public:
  llvm::StringRef name() const override { return "blocks"; }
  llvm::StringRef summary() const override {
    return "BlockKvSdpa with its function body: caches in blocks, blocks:SIZE tokens each";
  }
  int64_t defaultSize() const override { return defaultBlockSize; }
  bool needsCapacity() const override { return true; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    if (site.failure)
      return site.failure;
    if (std::optional<MatchFailure> failure = doesNotGrow(site))
      return failure;
    if (std::optional<MatchFailure> failure = KvoptOperands::obstacle(*site.node))
      return failure;
    return blocksObstacle(site);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    return FusedBlocks(model, options, journal, name().str()).run(sites);
  }
};

} // namespace

void register_blocks(TargetRegistry& registry) { registry.add(std::make_unique<BlocksTarget>()); }

} // namespace kvopt::targets
