// The target `tiles[:SIZE]`: attention block by block, with a state in between, so that a host can
// run it between parts of the decoder whose extents are all fixed (host flash attention).
//
//   before   present_key = Concat<2>(past_key, k)
//            o = ai.kvopt::Sdpa<causal = 1>(q, present_key, …)
//   after    o1, m1, s1 =
//                ai.kvopt::AttentionTile(q, past_key_block_0, …, mask[0:SIZE], 0, lowest, 0)
//            o2, m2, s2 = ai.kvopt::AttentionTile(q, k, …, mask[capacity:], o1, m1, s1)
//            o = Cast(o2)                                             present_key = k
//
// The lowered model is the whole model, which every engine runs. AttentionCut determines the cuts.
#include "ir/movement.h"
#include "ir/ops/kvopt/attention_tile_body.h"
#include "ir/shapes/shape_inference.h"
#include "passes/targets/blocks/attention_cut.h"
#include "passes/targets/blocks/fixed_blocks.h"
#include "passes/targets/blocks/input_extents.h"
#include "passes/targets/blocks/tiled_attention.h"
#include "support/diagnostic.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// Nodes between the joined rows and an operand of attention, first to last.
llvm::SmallVector<Node*, 4> nodesBehind(const Value& joined, const Value& operand) {
  llvm::SmallVector<Node*, 4> nodes;
  for (const Value* value = &operand; value != &joined; value = movedOperand(*nodes.back())) {
    assert(value->producer() && "the joined rows are ancestors of their attention");
    nodes.push_back(value->producer());
  }
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

class TiledBlocks final : public FixedBlocks {
public:
  TiledBlocks(Model& lowered, const LowerOptions& options, Journal& editJournal,
              std::string targetName)
      : FixedBlocks(lowered, options, editJournal, std::move(targetName)), state(options.state) {}

private:
  /// The operand for each block and for the new rows, separately.
  static std::vector<Value*> rowsOf(const SiteCache& update, const Value& operand,
                                    Rewriter& rewriter) {
    const Node& concat = *update.writer;
    const auto nodes = nodesBehind(concat.result(), operand);
    std::vector<Value*> rows;
    for (const Use& part : concat.operands()) {
      Value* moved = part.value();
      for (const Node* node : nodes)
        moved = &rewriter.createLike(*node, operandsMoving(*node, *moved), "tile_rows").result();
      rows.push_back(moved);
    }
    return rows;
  }

  Value& spell(const AttentionSite& site, Rewriter& rewriter) override {
    if (!site.grows())
      return SpelledBlocks::spell(site, rewriter);
    TiledRows rows;
    rows.keys = rowsOf(*site.key, *site.node->operand(1), rewriter);
    rows.values = rowsOf(*site.value, *site.node->operand(2), rewriter);
    for (const Dim& extent : blockRows)
      rows.rows.push_back(*extent.value());
    return tileAttention(*site.node, rows, gappedKeys(), state, rewriter);
  }

  llvm::Error attend(AttentionSite& site) override {
    if (llvm::Error error = SpelledBlocks::attend(site))
      return error;
    if (!site.grows())
      return llvm::Error::success();
    return operands.addFunction("ai.kvopt::AttentionTile", [&] {
      return attentionTileFunctionText(model.graph().opsetVersion(), state);
    });
  }

  void prepareModel() override {
    model.opsets.try_emplace(kvoptDomain, 1);
    // Model-local functions require IR version 8.
    model.irVersion = std::max<int64_t>(model.irVersion, 8);
  }

  /// Computes shapes from extents of inputs, so that parts need not receive them.
  void takeExtentsFromInputs() {
    llvm::StringSet<> blocks;
    for (const ManifestCache& cache : manifest.caches)
      for (const std::string& block : cache.blocks())
        blocks.insert(block);
    const InputExtents inputs(graph, blocks);
    for (Node& node : llvm::make_early_inc_range(graph.nodes()))
      if (node.is("Shape") && !node.operand(0)->isGraphInput())
        if (Value* extents = inputs.spell(node))
          node.result().replaceAllUsesWith(*extents);
    graph.eraseDeadNodes();
  }

  llvm::Error describeVariants() override {
    if (!pastRows)
      return llvm::Error::success();
    takeExtentsFromInputs();
    if (llvm::Error error = inferShapes(graph))
      return error;
    ManifestVariant whole;
    whole.pastBlocks = static_cast<int64_t>(blockRows.size());
    whole.pastRows = *capacity;
    manifest.variants.push_back(std::move(whole));
    auto cut = AttentionCut::create(model, manifest, state);
    if (!cut)
      return cut.takeError();
    manifest.tiles = cut->description();
    return llvm::Error::success();
  }

  ElementType state;
};

class TilesTarget final : public Target {
public:
  llvm::StringRef name() const override { return "tiles"; }
  llvm::StringRef summary() const override {
    return "a decoder cut around attention, and tiles with fixed extents of SIZE tokens that a "
           "host loops over, tiles:SIZE";
  }
  int64_t defaultSize() const override { return defaultBlockSize; }
  bool needsCapacity() const override { return true; }
  bool hasTileState() const override { return true; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    if (std::optional<MatchFailure> failure = supportsFixedBlocks(site))
      return failure;
    if (site.grows() && !takesBlocksApart(site))
      return MatchFailure{ReasonCode::LayoutUnsupported, site.key->past->name().str(),
                          "a past that can reach attention block by block",
                          "nodes before the new rows are joined that move all of it at once",
                          "--to pyramid joins the blocks first"};
    return std::nullopt;
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    return TiledBlocks(model, options, journal, name().str()).run(sites);
  }
};

} // namespace

void register_tiles(TargetRegistry& registry) { registry.add(std::make_unique<TilesTarget>()); }

} // namespace kvopt::targets
