// Lowering to ai.kvopt's operators.
#include "passes/targets/kvopt/kvopt_lowering.h"

#include "ir/shapes/shape_inference.h"
#include "ir/shapes/shape_rules.h"
#include "passes/targets/support/cache_rows.h"
#include "passes/targets/support/padded_query.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace builders;
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

constexpr const char* ruleName = "lower-kvopt";

} // namespace

KvoptLowering::KvoptLowering(Model& lowered, const LowerOptions& options, Journal& editJournal,
                             CacheRows keptAs)
    : model(lowered), graph(lowered.graph()), fixedCapacity(options.capacity), journal(editJournal),
      cacheRows(keptAs), operands(lowered) {}

llvm::Expected<Manifest> KvoptLowering::run(llvm::ArrayRef<AttentionSite*> sites) {
  // The definitions of kvopt's operators are found only where their domain is imported.
  model.opsets.try_emplace(kvoptDomain, 1);
  model.markEdited();
  // Model-local functions exist since IR version 8.
  model.irVersion = std::max<int64_t>(model.irVersion, 8);
  manifest.target = cacheRows == CacheRows::Quantized ? "int8" : "kvopt";
  for (const AttentionSite* site : sites) {
    operands.see(*site);
    if (site->grows() && !length)
      length.emplace(graph, site->key->past->type().dim(site->key->axis), fixedCapacity);
  }
  for (AttentionSite* site : sites) {
    if (!site->grows()) {
      Rewriter rewriter(site->node->graph(), ruleName, journal);
      if (llvm::Error error = operands.complete(*site->node, rewriter))
        return error;
      continue;
    }
    if (llvm::Error error = site->isLatent() ? lowerLatent(*site) : lowerCached(*site))
      return error;
  }
  finishManifest();
  graph.eraseDeadNodes();
  for (const auto& [present, type] : presentTypes)
    if (present->hasUses() && !present->producer()->is("If"))
      return unsupported("the cache '{}' is still read by {}", present->name(),
                         (*present->uses().begin()).user().describe());
  if (llvm::Error error = operands.addAppendRows())
    return error;
  if (llvm::Error error = inferShapes(graph))
    return error;
  for (auto& [value, type] : presentTypes)
    value->setType(type);
  return std::move(manifest);
}

void KvoptLowering::rewireShapeReaders(const AttentionSite& site) {
  // In the main graph, where readers in every branch see what they get.
  Rewriter rewriter(graph, ruleName, journal);
  length->rewireShapeReaders(*site.key->past, site.key->axis, rewriter);
  length->rewireShapeReaders(*site.value->past, site.value->axis, rewriter);
}

llvm::Error KvoptLowering::lowerCached(AttentionSite& site) {
  rewireShapeReaders(site);
  Node& sdpa = *site.node;
  Rewriter rewriter(sdpa.graph(), ruleName, journal);
  AttentionBuilder build(rewriter);
  PaddedQuery padded(site, build);
  Value& mask = padded.mask(operands.mask(sdpa));
  AttributeList attributes = KvoptOperands::attributes(sdpa, mask);
  attributes.add("key_axis", site.key->axis);
  attributes.add("value_axis", site.value->axis);
  const bool isQuantized = cacheRows == CacheRows::Quantized;
  llvm::SmallVector<Value*, 10> inputs{&padded.query(),
                                       &canonicalNewRows(site, *site.key, rewriter),
                                       &canonicalNewRows(site, *site.value, rewriter)};
  for (const SiteCache* update : {&*site.key, &*site.value}) {
    inputs.push_back(update->past);
    if (isQuantized)
      inputs.push_back(&addScale(*update));
  }
  inputs.push_back(&pastLengthOf(*site.key));
  inputs.push_back(&mask);
  if (Value* sinks = operands.sinks(sdpa))
    inputs.push_back(sinks);
  BodyForm form = operands.bodyForm(sdpa);
  auto keyLayout = inPlaceLayout(site.key->layout, true);
  auto valueLayout = inPlaceLayout(site.value->layout, false);
  const OpName op = isQuantized ? "ai.kvopt::InPlaceQuantizedKvSdpa" : "ai.kvopt::InPlaceKvSdpa";
  Node& fused = rewriter.create(op, inputs, attributes, isQuantized ? 5 : 3, "attention");
  if (llvm::Error error = replaceCaches(site, fused, {&*site.key, &*site.value},
                                        {CacheRole::Key, CacheRole::Value}, padded, rewriter))
    return error;
  return operands.addFunction(op, [&] {
    return isQuantized ? inPlaceQuantizedKvSdpaFunctionText(form, *keyLayout, *valueLayout)
                       : inPlaceKvSdpaFunctionText(form, *keyLayout, *valueLayout);
  });
}

llvm::Error KvoptLowering::lowerLatent(AttentionSite& site) {
  rewireShapeReaders(site);
  Node& sdpa = *site.node;
  Rewriter rewriter(sdpa.graph(), ruleName, journal);
  AttentionBuilder build(rewriter);
  PaddedQuery padded(site, build);
  Value& mask = padded.mask(operands.mask(sdpa));
  AttributeList attributes = KvoptOperands::attributes(sdpa, mask);
  attributes.add("key_axis", site.key->axis);
  attributes.add("v_offset", site.value->firstColumn);
  attributes.add("v_width", *site.value->columns.value());
  llvm::SmallVector<Value*, 8> inputs{&padded.query(), &canonicalNewRows(site, *site.key, rewriter),
                                      site.key->past, &pastLengthOf(*site.key), &mask};
  if (Value* sinks = operands.sinks(sdpa))
    inputs.push_back(sinks);
  BodyForm form = operands.bodyForm(sdpa);
  auto cacheLayout = inPlaceLayout(site.key->layout, false);
  Node& fused =
      rewriter.create("ai.kvopt::InPlaceLatentKvSdpa", inputs, attributes, 2, "attention");
  if (llvm::Error error =
          replaceCaches(site, fused, {&*site.key}, {CacheRole::Latent}, padded, rewriter))
    return error;
  return operands.addFunction("ai.kvopt::InPlaceLatentKvSdpa",
                              [&] { return inPlaceLatentKvSdpaFunctionText(form, *cacheLayout); });
}

llvm::Error KvoptLowering::replaceCaches(AttentionSite& site, Node& fused,
                                         llvm::ArrayRef<SiteCache*> updates,
                                         llvm::ArrayRef<CacheRole> roles, PaddedQuery& padded,
                                         Rewriter& rewriter) {
  Node& sdpa = *site.node;
  // Not earlier than the attention: shapes of the past are read before it is overwritten.
  sdpa.graph().moveBefore(fused, &sdpa);
  recordSiteOrigin(fused, site, rewriter);
  llvm::SmallVector<Rewriter::Replacement, 3> replacements{
      {&sdpa.result(), &padded.ownRows(fused.result(0))}};
  llvm::SmallVector<std::string, 2> names;
  for (unsigned i = 0; i < updates.size(); ++i) {
    names.push_back(updates[i]->output->name().str());
    if (!updates[i]->fromStart)
      replacements.push_back({updates[i]->present, &fused.result(presentResult(i))});
  }
  if (std::optional<MatchFailure> failure = rewriter.replace(replacements)) {
    rewriter.discard();
    return unsupported("site {}: {}", site.id(), failure->str());
  }
  if (site.pastFlag)
    addFlag(*site.pastFlag, manifest);
  for (unsigned i = 0; i < updates.size(); ++i) {
    Value& present = fused.result(presentResult(i));
    if (updates[i]->fromStart)
      handOut(*updates[i]->present, present);
    makeShared(*updates[i], present);
    const ManifestCache* cache = describe(*updates[i], names[i], site.layer, roles[i]);
    if (cacheRows == CacheRows::Quantized)
      // Each of the operands that are presents later has its scales behind it.
      handOutScale(*cache, *fused.operand(2 * i + 4), fused.result(presentResult(i) + 1));
  }
  // What the site pointed to is erased when every site is done.
  site.node = &fused;
  for (SiteCache* update : {&*site.key, &*site.value}) {
    bool isFirst = update == &*site.key || site.isLatent();
    update->present = &fused.result(presentResult(isFirst ? 0 : 1));
    if (!fused.graph().parentNode())
      update->output = update->present;
    update->writer = nullptr;
    update->fresh = nullptr;
  }
  return llvm::Error::success();
}

/// The branch gives `present` instead of the new rows, which others go on reading.
void KvoptLowering::handOut(const Value& rows, Value& present) {
  Graph& branch = present.graph();
  for (unsigned slot = 0; slot < branch.outputs().size(); ++slot)
    if (branch.outputs()[slot] == &rows)
      branch.setOutput(slot, present);
}

Value& KvoptLowering::pastLengthOf(const SiteCache& update) {
  if (update.pastLength)
    return *update.pastLength;
  if (!update.fromStart)
    return length->value();
  if (!zeroLength)
    zeroLength = &graph.addConstant("no_past_length", int64Tensor({0}));
  return *zeroLength;
}

void KvoptLowering::makeShared(const SiteCache& update, Value& present) {
  TensorType type = length->sharedType(update);
  if (cacheRows == CacheRows::Quantized)
    type = TensorType(ElementType::Int8, Shape(type.shape().begin(), type.shape().end()));
  update.past->setType(type);
  present.setType(type);
  presentTypes.emplace_back(&present, type);
  if (present.graph().parentNode())
    presentTypes.emplace_back(update.output, type);
}

Value& KvoptLowering::addScale(const SiteCache& update) {
  Shape shape = shapeOf(length->sharedType(update));
  shape[CacheLayout::bySequenceAxis(shape.size(), update.axis)->columnAxis()] = Dim::fixed(1);
  return graph.addInput(graph.freshName(update.past->name().str() + "_scale"),
                        TensorType(ElementType::Float, std::move(shape)));
}

void KvoptLowering::handOutScale(const ManifestCache& cache, Value& past, Value& present) {
  graph.rename(present, graph.freshName(cache.present + "_scale"));
  graph.addOutput(present);
  present.setType(past.type());
  presentTypes.emplace_back(&present, past.type());
  ManifestCache scale = cache;
  scale.role = scaleRole(cache.role);
  scale.past = past.name().str();
  scale.present = present.name().str();
  scale.dtype = ElementType::Float;
  scale.shape[cache.layout()->columnAxis()] = int64_t{1};
  manifest.caches.push_back(std::move(scale));
}

const ManifestCache* KvoptLowering::describe(const SiteCache& update,
                                             const std::string& presentName, unsigned layer,
                                             CacheRole role) {
  if (!described.insert(update.past).second)
    return nullptr; // in another branch
  ManifestCache cache = describeCache(update, layer, role);
  cache.present = presentName;
  cache.oneBuffer = true;
  manifest.caches.push_back(std::move(cache));
  return &manifest.caches.back();
}

void KvoptLowering::finishManifest() {
  if (!length)
    return;
  manifest.contract = CacheUpdate::InPlace;
  const Dim& capacity = length->capacity();
  manifest.capacitySymbol = capacity.value() ? "capacity" : capacity.str();
  manifest.capacityValue = fixedCapacity;
  if (!length->isAdded())
    return;
  ManifestLength input;
  input.input = length->value().name().str();
  input.shape = {int64_t{1}};
  input.feed = LengthFeed::PastLength;
  manifest.lengths.push_back(std::move(input));
}

} // namespace kvopt::targets
