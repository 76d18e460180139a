// The target `int8-blocks[:SIZE]`: the target `blocks` with rows kept as int8, a scale for each.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa(q, present_key, present_value[, mask])
//   after    present_key, present_key_scale = ai.kvopt.QuantizeRows(k)   …value likewise
//            o = ai.kvopt.BlockQuantizedKvSdpa(
//                q, present_key, present_value, mask, , present_key_scale, present_value_scale,
//                past_key_block_0, …, past_value_block_0, …,
//                past_key_scale_block_0, …, past_value_scale_block_0, …)
//
// Blocks of scales are fed as blocks of codes are: each of both is a cache.
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

/// What a cache has become.
struct CodeBlocks {
  std::vector<Value*> codes;
  std::vector<Value*> scales;
  Value* newCodes;  ///< [B,G,S,D]
  Value* newScales; ///< [B,G,S,1]
};

class Int8Blocks final : public BlockLowering {
public:
  using BlockLowering::BlockLowering;

private:
  llvm::Error attend(AttentionSite& site) override {
    Rewriter rewriter(site.node->graph(), ruleName, journal);
    return operands.complete(*site.node, rewriter);
  }

  llvm::Error attendToBlocks(AttentionSite& site) override {
    Node& sdpa = *site.node;
    Rewriter rewriter(graph, ruleName, journal);
    const CodeBlocks keys = storeCodes(site, *site.key, CacheRole::Key, rewriter);
    const CodeBlocks values = storeCodes(site, *site.value, CacheRole::Value, rewriter);
    Value& mask = operands.mask(sdpa);
    AttributeList attributes = KvoptOperands::attributes(sdpa, mask);
    attributes.add("key_axis", site.key->axis);
    attributes.add("value_axis", site.value->axis);
    llvm::SmallVector<Value*, 32> inputs{sdpa.operand(0), keys.newCodes,        values.newCodes,
                                         &mask,           operands.sinks(sdpa), keys.newScales,
                                         values.newScales};
    for (const auto* blocks : {&keys.codes, &values.codes, &keys.scales, &values.scales})
      inputs.append(blocks->begin(), blocks->end());
    Node& fused =
        rewriter.create("ai.kvopt::BlockQuantizedKvSdpa", inputs, attributes, 1, "attention");
    recordSiteOrigin(fused, site, rewriter);
    const BodyForm form = operands.bodyForm(sdpa);
    if (std::optional<MatchFailure> failure = rewriter.replace(sdpa.result(), fused.result()))
      return unsupported("site {}: {}", site.id(), failure->str());
    site.node = &fused;
    const CacheLayout keyLayout = *inPlaceLayout(site.key->layout, true);
    const CacheLayout valueLayout = *inPlaceLayout(site.value->layout, true);
    if (llvm::Error error = operands.addFunction("ai.kvopt::BlockQuantizedKvSdpa", [&] {
          return blockQuantizedKvSdpaFunctionText(form, keys.codes.size(), keyLayout, valueLayout);
        }))
      return error;
    return operands.addFunction("ai.kvopt::QuantizeRows", [&] {
      return quantizeRowsFunctionText(model.graph().opsetVersion());
    });
  }

  CodeBlocks storeCodes(const AttentionSite& site, SiteCache& update, CacheRole role,
                        Rewriter& rewriter) {
    CodeBlocks made;
    made.codes = splitCache(site, update, role);
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
    scales.blocks.clear();
    for (Value* block : made.codes) {
      Shape shape = shapeOf(block->type());
      block->setType(TensorType(ElementType::Int8, shape));
      shape[layout.columnAxis()] = Dim::fixed(1);
      Value& scale = graph.addInput(graph.freshName(block->name().str() + "_scale"),
                                    TensorType(ElementType::Float, std::move(shape)));
      made.scales.push_back(&scale);
      scales.blocks.push_back(scale.name().str());
    }
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

  /// [B,G,S,·] laid out as the cache, as a value of its own.
  static Value& outputRows(Value& rows, const CacheLayout& layout, Rewriter& rewriter) {
    Value& ordered = transposed(rows, layout.cacheOrder(), rewriter);
    return &ordered == &rows ? rewriter.create("Identity", {&rows}, {}, 1, "new_rows").result()
                             : ordered;
  }

  void prepareModel() override {
    model.opsets.try_emplace(kvoptDomain, 1);
    // Model-local functions exist since IR version 8.
    model.irVersion = std::max<int64_t>(model.irVersion, 8);
  }
};

class Int8BlocksTarget final : public Target {
public:
  llvm::StringRef name() const override { return "int8-blocks"; }
  llvm::StringRef summary() const override {
    return "BlockQuantizedKvSdpa with its function body: int8 rows with a scale each, in blocks, "
           "int8-blocks:SIZE tokens each";
  }
  int64_t defaultSize() const override { return defaultBlockSize; }
  bool needsCapacity() const override { return true; }
  bool quantizesCaches() const override { return true; }

  std::optional<MatchFailure> supports(const AttentionSite& site, const Model&) const override {
    if (site.failure)
      return site.failure;
    if (std::optional<MatchFailure> failure = doesNotGrow(site))
      return failure;
    if (std::optional<MatchFailure> failure = blocksObstacle(site))
      return failure;
    if (std::optional<MatchFailure> failure = supportsKvoptSite(site))
      return failure;
    if (!site.grows())
      return std::nullopt;
    auto refuse = [&](ReasonCode code, std::string expected, std::string found) {
      return MatchFailure{code, site.key->past->name().str(), std::move(expected), std::move(found),
                          "--to blocks keeps rows as they are, --to int8 has them in one buffer"};
    };
    if (site.isLatent())
      return refuse(ReasonCode::TargetLacksFeature, "a cache of keys and one of values",
                    "one latent cache");
    if (!site.addsQueryRows())
      return refuse(ReasonCode::ShapeMismatch, "as many new rows as the query has",
                    site.node->operand(1)->type().str());
    for (const auto* cache : {&site.key, &site.value}) {
      const auto layout = inPlaceLayout((*cache)->layout, cache == &site.key);
      if (!layout || layout->hasFoldedHeads())
        return refuse(ReasonCode::LayoutUnsupported, "an axis for the heads",
                      (*cache)->layout.text());
    }
    return std::nullopt;
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    if (llvm::Error error = checkKvoptSites(sites))
      return error;
    return Int8Blocks(model, options, journal, name().str()).run(sites);
  }
};

} // namespace

void register_int8_blocks(TargetRegistry& registry) {
  registry.add(std::make_unique<Int8BlocksTarget>());
}

} // namespace kvopt::targets
