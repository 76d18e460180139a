// Targets that keep each cache in blocks of SIZE tokens, which are separate inputs, for kvopt's
// operators: `blocks[:SIZE]`, and `int8-blocks[:SIZE]` with rows as int8 codes.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa(q, present_key, present_value[, mask])
//   after    o = ai.kvopt.BlockKvSdpa(q, k, v, mask, , past_key_block_0, …, past_key_block_tail,
//                                     past_value_block_0, …, past_value_block_tail)
//            present_key = k   present_value = v
//
// A block holds 0 to SIZE rows. Outputs that were presents return the new rows, which the caller
// appends to its blocks. Rows are joined only in the body of BlockKvSdpa, and for layouts that it
// does not support: those get one Concat, and ai.kvopt.Sdpa. With codes:
//
//   after    present_key, present_key_scale = ai.kvopt.QuantizeRows(k)   …value likewise
//            o = ai.kvopt.BlockQuantizedKvSdpa(
//                q, present_key, present_value, mask, , present_key_scale, present_value_scale,
//                past_key_block_0, …, past_value_block_0, …,
//                past_key_scale_block_0, …, past_value_scale_block_0, …)
//
// Codes and scales are separate caches, each fed in blocks.
#include "ir/ops/kvopt/cache_function_body.h"
#include "ir/ops/kvopt/quantized_function_body.h"
#include "ir/shapes/shape_rules.h"
#include "passes/targets/blocks/block_lowering.h"
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/support/cache_rows.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// The blocks that replace the cache of keys or of values.
struct SideBlocks {
  SiteCache* update;
  std::vector<Value*> rows;
  // For quantized rows:
  std::vector<Value*> scales;
  Value* newCodes = nullptr;  ///< [B,G,S,D]
  Value* newScales = nullptr; ///< [B,G,S,1]
};

/// Attention over blocks or, for layouts that the operator does not support, ai.kvopt::Sdpa over
/// one Concat of all blocks and the new rows.
class KvoptBlocks final : public BlockLowering {
public:
  KvoptBlocks(Model& lowered, const LowerOptions& options, Journal& editJournal,
              std::string targetName, const RowCode* keptAs)
      : BlockLowering(lowered, options, editJournal, std::move(targetName)), code(keptAs) {}

private:
  bool hasCodes() const { return code != nullptr; }
  CacheOperator operatorOf(const AttentionSite& site) const {
    return {CachePlace::Blocks, code,
            site.isLatent() ? CacheSharing::Latent : CacheSharing::KeysAndValues};
  }

  /// Whether the kernel supports the layout of all blocks, and the body is written for it.
  bool canFuse(const AttentionSite& site) {
    if (supportsKvoptSite(site) || !site.addsQueryRows() || isSplit(*site.key) ||
        isSplit(*site.value) || unflattened(site.key->layout) || unflattened(site.value->layout))
      return false;
    const CacheLayout keys = *inPlaceLayout(site.key->layout, !site.isLatent());
    const CacheLayout values =
        site.isLatent() ? CacheLayout::ofAttention() : *inPlaceLayout(site.value->layout, false);
    std::optional<std::pair<CacheLayout, CacheLayout>>& layouts =
        site.isLatent() ? latentLayouts : fusedLayouts;
    if (!layouts)
      layouts.emplace(keys, values);
    return *layouts == std::pair(keys, values);
  }

  llvm::Error attend(AttentionSite& site) override {
    Rewriter rewriter(site.node->graph(), ruleName, journal);
    return operands.complete(*site.node, rewriter);
  }

  llvm::Error attendToBlocks(AttentionSite& site) override {
    // Must be decided before the graph's caches are split.
    const bool isFused = canFuse(site);
    assert((isFused || !hasCodes()) && "codes are not joined");
    Rewriter rewriter(graph, ruleName, journal);
    llvm::SmallVector<SideBlocks, 2> sides;
    const CacheRole firstRole = site.isLatent() ? CacheRole::Latent : CacheRole::Key;
    for (auto [update, role] :
         {std::pair(&*site.key, firstRole), std::pair(&*site.value, CacheRole::Value)}) {
      if (hasCodes() && role == CacheRole::Value && site.isLatent())
        continue;
      sides.push_back(hasCodes() ? storeCodes(site, *update, role, rewriter)
                                 : SideBlocks{update, splitCache(site, *update, role)});
    }
    return isFused ? fuse(site, sides, rewriter) : attend(site);
  }

  llvm::Error fuse(AttentionSite& site, llvm::ArrayRef<SideBlocks> caches, Rewriter& rewriter) {
    const CacheOperator op = operatorOf(site);
    const llvm::ArrayRef<SideBlocks> sides = caches.take_front(op.sides());
    Node& sdpa = *site.node;
    Value& mask = operands.mask(sdpa);
    AttributeList attributes = KvoptOperands::attributes(sdpa, mask);
    attributes.add("key_axis", site.key->axis);
    if (op.isLatent()) {
      attributes.add("v_offset", site.value->firstColumn);
      attributes.add("v_width", *site.value->columns.value());
    } else {
      attributes.add("value_axis", site.value->axis);
    }
    llvm::SmallVector<Value*, 32> inputs{sdpa.operand(0)};
    for (const SideBlocks& side : sides)
      inputs.push_back(hasCodes() ? side.newCodes
                                  : &canonicalNewRows(site, *side.update, rewriter));
    inputs.push_back(&mask);
    inputs.push_back(operands.sinks(sdpa));
    for (const SideBlocks& side : sides)
      if (hasCodes())
        inputs.push_back(side.newScales);
    for (const SideBlocks& side : sides)
      inputs.append(side.rows.begin(), side.rows.end());
    for (const SideBlocks& side : sides)
      inputs.append(side.scales.begin(), side.scales.end());
    Node& fused = rewriter.create(op.name(), inputs, attributes, op.resultCount(), "attention");
    recordSiteOrigin(fused, site, rewriter);
    const BodyForm form = operands.bodyForm(sdpa);
    if (std::optional<MatchFailure> failure = rewriter.replace(sdpa.result(), fused.result()))
      return unsupported("site {}: {}", site.id(), failure->str());
    site.node = &fused;
    const auto& [keys, values] = op.isLatent() ? *latentLayouts : *fusedLayouts;
    const CacheBody body{keys, values, sides.front().rows.size()};
    if (llvm::Error error =
            operands.addFunction(op.name(), [&] { return cacheFunctionText(op, form, body); }))
      return error;
    if (!hasCodes())
      return llvm::Error::success();
    return operands.addFunction("ai.kvopt::QuantizeRows", [&] {
      return quantizeRowsFunctionText(model.graph().opsetVersion());
    });
  }

  SideBlocks storeCodes(const AttentionSite& site, SiteCache& update, CacheRole role,
                        Rewriter& rewriter) {
    SideBlocks made{&update, splitCache(site, update, role)};
    const CacheLayout layout = *inPlaceLayout(update.layout, true);
    Node& rounding = rewriter.create("ai.kvopt::QuantizeRows",
                                     {&canonicalNewRows(site, update, rewriter)}, {}, 2, "codes");
    made.newCodes = &rounding.result(0);
    made.newScales = &rounding.result(1);
    ManifestCache codes = std::move(manifest.caches.back());
    manifest.caches.pop_back();
    codes.dtype = ElementType::Int8;
    ManifestCache scales = codes;
    scales.role = scaleRole(role);
    scales.dtype = ElementType::Float;
    scales.past += "_scale";
    scales.present = graph.freshName(codes.present + "_scale");
    scales.shape[layout.columnAxis()] = int64_t{1};
    BlockCache inBlocks;
    for (Value* block : made.rows) {
      Shape shape = shapeOf(block->type());
      block->setType(TensorType(ElementType::Int8, shape));
      shape[layout.columnAxis()] = Dim::fixed(1);
      Value& scale = graph.addInput(graph.freshName(block->name().str() + "_scale"),
                                    TensorType(ElementType::Float, std::move(shape)));
      made.scales.push_back(&scale);
      inBlocks.inputs.push_back(scale.name().str());
    }
    scales.storage = std::move(inBlocks);
    update.output = &outputRows(*made.newCodes, layout, rewriter);
    Value& scaleRows = outputRows(*made.newScales, layout, rewriter);
    for (unsigned slot = 0; slot < graph.outputs().size(); ++slot)
      if (graph.outputs()[slot] == update.present) {
        graph.rename(*update.present, graph.freshName(codes.present + "_rows"));
        graph.setOutput(slot, *update.output);
      }
    graph.rename(*update.output, codes.present);
    graph.rename(scaleRows, scales.present);
    graph.addOutput(scaleRows);
    update.present = update.output;
    manifest.caches.push_back(std::move(codes));
    manifest.caches.push_back(std::move(scales));
    return made;
  }

  /// [B,G,S,·] in the layout of the cache, as a new value.
  static Value& outputRows(Value& rows, const CacheLayout& layout, Rewriter& rewriter) {
    Value& ordered = transposed(rows, layout.cacheOrder(), rewriter);
    return &ordered == &rows ? rewriter.create("Identity", {&rows}, {}, 1, "new_rows").result()
                             : ordered;
  }

  void prepareModel() override {
    model.opsets.try_emplace(kvoptDomain, 1);
    // Model-local functions require IR version 8.
    model.irVersion = std::max<int64_t>(model.irVersion, 8);
  }

  const RowCode* code; ///< null: rows are stored as they are
  /// Layouts that the function bodies are written for.
  std::optional<std::pair<CacheLayout, CacheLayout>> fusedLayouts;
  std::optional<std::pair<CacheLayout, CacheLayout>> latentLayouts;
};

/// Reason why the caches of a site cannot be quantized blocks, although they could be blocks.
std::optional<MatchFailure> codeBlocksObstacle(const AttentionSite& site) {
  if (std::optional<MatchFailure> failure = supportsKvoptSite(site))
    return failure;
  if (!site.grows())
    return std::nullopt;
  auto refuse = [&](ReasonCode code, std::string expected, std::string found) {
    return MatchFailure{code, site.key->past->name().str(), std::move(expected), std::move(found),
                        "--to blocks keeps rows as they are, --to int8 has them in one buffer"};
  };
  if (!site.addsQueryRows())
    return refuse(ReasonCode::ShapeMismatch, "the same number of new rows as the query has",
                  site.node->operand(1)->type().str());
  for (const auto* cache : {&site.key, &site.value}) {
    const bool isTransposable = cache == &site.key && !site.isLatent();
    const auto layout = inPlaceLayout((*cache)->layout, isTransposable);
    if (!layout || layout->hasFoldedHeads())
      return refuse(ReasonCode::LayoutUnsupported, "an axis for the heads",
                    (*cache)->layout.text());
  }
  return std::nullopt;
}

class BlocksTarget final : public Target {
public:
  explicit BlocksTarget(const RowCode* keptAs) : code(keptAs) {}

  llvm::StringRef name() const override { return quantizesCaches() ? "int8-blocks" : "blocks"; }
  llvm::StringRef summary() const override {
    return quantizesCaches()
               ? "BlockQuantizedKvSdpa with its function body: int8 rows with a scale each, in "
                 "blocks of SIZE tokens, int8-blocks:SIZE"
               : "BlockKvSdpa with its function body: caches in blocks of SIZE tokens, blocks:SIZE";
  }
  int64_t defaultSize() const override { return defaultBlockSize; }
  bool needsCapacity() const override { return true; }
  bool usesOwnOperators() const override { return true; }
  bool quantizesCaches() const override { return code != nullptr; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    if (site.failure)
      return site.failure;
    if (std::optional<MatchFailure> failure = doesNotGrow(site))
      return failure;
    if (quantizesCaches()) {
      if (std::optional<MatchFailure> failure = blocksObstacle(site))
        return failure;
      return codeBlocksObstacle(site);
    }
    if (std::optional<MatchFailure> failure = KvoptOperands::obstacle(*site.node))
      return failure;
    return blocksObstacle(site);
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    if (quantizesCaches())
      if (llvm::Error error = checkKvoptSites(sites))
        return error;
    return KvoptBlocks(model, options, journal, name().str(), code).run(sites);
  }

private:
  const RowCode* code; ///< null: rows are stored as they are
};

} // namespace

void register_blocks(TargetRegistry& registry) {
  for (const RowCode* code : {static_cast<const RowCode*>(nullptr), &int8Rows})
    registry.add(std::make_unique<BlocksTarget>(code));
}

} // namespace kvopt::targets
