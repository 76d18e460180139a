// Lowering to ai.kvopt's operators.
#include "passes/targets/kvopt/kvopt_lowering.h"

#include "ir/ops/kvopt/cache_function_body.h"
#include "ir/ops/kvopt/quantized_function_body.h"
#include "ir/shapes/shape_inference.h"
#include "ir/shapes/shape_rules.h"
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/kvopt/overwritten_codes.h"
#include "passes/targets/support/cache_rows.h"
#include "passes/targets/support/padded_query.h"
#include "passes/targets/support/read_rows.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace builders;
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

constexpr const char* fusedRule = "lower-kvopt";

struct HeadExtents {
  int64_t count;
  int64_t width;
};

/// Caches that the site appends to.
llvm::SmallVector<SiteCache*, 2> cachesOf(AttentionSite& site) {
  if (site.isLatent())
    return {&*site.key};
  return {&*site.key, &*site.value};
}

/// Whether the rows of the cache are codes; they are not dequantized here.
bool holdsCodes(const SiteCache& cache) {
  return cache.past->type().elementType() == ElementType::Int8;
}

/// Extents of the heads in a cache; supportsKvoptSite requires them to be fixed.
HeadExtents headExtents(const AttentionSite& site, const SiteCache& update) {
  const TensorType& rows = site.node->operand(&update == &*site.key ? 1 : 2)->type();
  const Dim heads = rows.dim(1).dividedBy(update.repeats).value_or(rows.dim(1));
  return {*heads.value(), *rows.dim(3).value()};
}

} // namespace

KvoptLowering::KvoptLowering(Model& lowered, const LowerOptions& options, Journal& editJournal,
                             CacheForm cacheForm)
    : model(lowered), graph(lowered.graph()), fixedCapacity(options.capacity), journal(editJournal),
      form(cacheForm), operands(lowered) {}

llvm::Expected<Manifest> KvoptLowering::run(llvm::ArrayRef<AttentionSite*> sites) {
  // The definitions of kvopt's operators are found only if their domain is imported.
  model.opsets.try_emplace(kvoptDomain, 1);
  model.markEdited();
  // Model-local functions require IR version 8.
  model.irVersion = std::max<int64_t>(model.irVersion, 8);
  for (const AttentionSite* site : sites) {
    operands.see(*site);
    if (site->grows() && !length)
      length.emplace(graph, site->key->past->type().dim(site->key->axis), fixedCapacity);
  }
  if (!length && llvm::any_of(sites, [&](const auto* site) { return slotsOf(*site) != 0; }))
    length.emplace(graph, Dim::unknown(), fixedCapacity);
  for (AttentionSite* site : sites) {
    if (!site->grows() && slotsOf(*site) == 0) {
      Rewriter rewriter(site->node->graph(), fusedRule, journal);
      const bool readsBuffer = site->owner && site->update == CacheUpdate::Grows;
      if (readsBuffer && isQuantized()) {
        if (llvm::Error error = lowerReader(*site))
          return error;
        continue;
      }
      if (isQuantized() && site->isOverwritten()) {
        if (llvm::Error error = lowerOverwritten(*site))
          return error;
        continue;
      }
      AttentionBuilder build(rewriter);
      Value* pastLength = readsBuffer ? &pastLengthOf(*site->key) : provedEarlierRows(*site, build);
      if (llvm::Error error = operands.complete(*site->node, rewriter, pastLength))
        return error;
      if (site->isOverwritten())
        describeOverwritten(*site);
      continue;
    }
    if (llvm::Error error = lowerCached(*site))
      return error;
  }
  finishManifest();
  graph.eraseDeadNodes();
  for (const auto& [present, type] : presentTypes)
    for (const Use& use : present->uses())
      if (!present->producer()->is("If") && use.user().op() != OpName("ai.kvopt::Sdpa") &&
          use.user().op() != OpName("ai.kvopt::QuantizedSdpa"))
        return unsupported("the cache '{}' is still read by {}", present->name(),
                           use.user().describe());
  if (llvm::Error error = operands.addAppendRows())
    return error;
  if (llvm::Error error = inferShapes(graph))
    return error;
  for (auto& [value, type] : presentTypes)
    value->setType(type);
  return std::move(manifest);
}

void KvoptLowering::rewireShapeReaders(const AttentionSite& site) {
  // Created in the main graph, so that readers in every branch see the result.
  Rewriter rewriter(graph, fusedRule, journal);
  for (const auto* cache : {&site.key, &site.value}) {
    std::optional<int64_t> most;
    if (site.update == CacheUpdate::Ring)
      most = (*cache)->lastRows;
    length->rewireShapeReaders(*(*cache)->past, (*cache)->axis, rewriter, most);
  }
}

int64_t KvoptLowering::slotsOf(const AttentionSite& site) const {
  const int64_t slots = form.asRings() ? ringSlots(site) : 0;
  return slots == 0 ? 0 : slots + form.spareSlots;
}

CacheOperator KvoptLowering::operatorOf(const AttentionSite& site) const {
  return {slotsOf(site) != 0 ? CachePlace::Ring : CachePlace::Buffer, form.code,
          site.isLatent() ? CacheSharing::Latent : CacheSharing::KeysAndValues};
}

llvm::Error KvoptLowering::lowerCached(AttentionSite& site) {
  rewireShapeReaders(site);
  const CacheOperator op = operatorOf(site);
  Node& sdpa = *site.node;
  Rewriter rewriter(sdpa.graph(), fusedRule, journal);
  AttentionBuilder build(rewriter);
  PaddedQuery padded(site, build);
  Value& mask = padded.mask(operands.mask(sdpa));
  AttributeList attributes = KvoptOperands::attributes(sdpa, mask);
  attributes.add("key_axis", site.key->axis);
  if (site.isLatent()) {
    attributes.add("v_offset", site.value->firstColumn);
    attributes.add("v_width", *site.value->columns.value());
  } else {
    attributes.add("value_axis", site.value->axis);
  }
  llvm::SmallVector<Value*, 10> inputs{&padded.query()};
  for (const SiteCache* update : cachesOf(site))
    inputs.push_back(&canonicalNewRows(site, *update, rewriter));
  for (const SiteCache* update : cachesOf(site)) {
    inputs.push_back(&attendedPast(site, *update, rewriter));
    if (isQuantized())
      inputs.push_back(&addScale(*update, slotsOf(site)));
  }
  inputs.push_back(&pastLengthOf(*site.key));
  inputs.push_back(&mask);
  if (Value* sinks = operands.sinks(sdpa))
    inputs.push_back(sinks);
  BodyForm bodyForm = operands.bodyForm(sdpa);
  bodyForm.int8Caches = op == CacheOperator{} && holdsCodes(*site.key);
  CacheBody caches{*attendedLayout(site.key->layout, !site.isLatent())};
  if (!site.isLatent())
    caches.value = *attendedLayout(site.value->layout, false);
  Node& fused = rewriter.create(op.name(), inputs, attributes, op.resultCount(), "attention");
  if (llvm::Error error = replaceCaches(site, fused, op, padded, rewriter))
    return error;
  return operands.addFunction(op.name(), [&] { return cacheFunctionText(op, bodyForm, caches); });
}

llvm::Error KvoptLowering::lowerReader(AttentionSite& site) {
  Node& sdpa = *site.node;
  Rewriter rewriter(sdpa.graph(), fusedRule, journal);
  // The owner's presents, and their scales, which are the results after them.
  const auto behind = [](Value& codes) {
    return &codes.producer()->result(codes.resultIndex() + 1);
  };
  Value& keys = *sdpa.operand(1);
  Value& values = *sdpa.operand(2);
  return readCodes(site, {&keys, behind(keys), &values, behind(values), &pastLengthOf(*site.key)},
                   rewriter);
}

llvm::Error KvoptLowering::lowerOverwritten(AttentionSite& site) {
  Node& sdpa = *site.node;
  Rewriter rewriter(sdpa.graph(), fusedRule, journal);
  AttentionBuilder build(rewriter);
  Value* earlier = provedEarlierRows(site, build);
  if (!earlier)
    earlier =
        &build.node("Sub", {build.extent(*sdpa.operand(1), 2), build.extent(*sdpa.operand(0), 2)},
                    {}, "earlier_rows");
  const OverwrittenCodes keys = overwriteWithCodes(*site.key, rewriter);
  const OverwrittenCodes values = overwriteWithCodes(*site.value, rewriter);
  if (llvm::Error error = readCodes(
          site, {keys.codes, keys.scales, values.codes, values.scales, earlier}, rewriter))
    return error;
  manifest.contract = CacheUpdate::InPlace;
  for (const auto& [update, written, role] :
       {std::tuple(&*site.key, &keys, CacheRole::Key),
        std::tuple(&*site.value, &values, CacheRole::Value)}) {
    const std::string name = update->output->name().str();
    if (std::optional<MatchFailure> failure =
            rewriter.replace(update->writer->result(), *written->codes))
      return unsupported("site {}: {}", site.id(), failure->str());
    written->codes->setType(update->past->type());
    presentTypes.emplace_back(written->codes, update->past->type());
    update->present = update->output = written->codes;
    const ManifestCache* cache = describe(*update, name, site.layer, role);
    handOutScale(*cache, *written->scalePast, *written->scales);
  }
  return operands.addFunction("ai.kvopt::QuantizeRows", [&] {
    return quantizeRowsFunctionText(model.graph().opsetVersion());
  });
}

llvm::Error KvoptLowering::readCodes(AttentionSite& site, const ReadCodes& codes,
                                     Rewriter& rewriter) {
  Node& sdpa = *site.node;
  Value& mask = operands.mask(sdpa);
  AttributeList attributes = KvoptOperands::attributes(sdpa, mask);
  attributes.add("v_width", *sdpa.result().type().dim(3).value());
  llvm::SmallVector<Value*, 8> inputs{
      sdpa.operand(0),  codes.keys, codes.keyScales, codes.values, codes.valueScales,
      codes.pastLength, &mask};
  if (Value* sinks = operands.sinks(sdpa))
    inputs.push_back(sinks);
  BodyForm bodyForm = operands.bodyForm(sdpa);
  bodyForm.code = form.code;
  Node& fused = rewriter.create("ai.kvopt::QuantizedSdpa", inputs, attributes, 1, "attention");
  rewriter.recordSources(fused, {&sdpa});
  if (std::optional<MatchFailure> failure = rewriter.replace(sdpa.result(), fused.result()))
    return unsupported("site {}: {}", site.id(), failure->str());
  site.node = &fused;
  return operands.addFunction("ai.kvopt::QuantizedSdpa",
                              [&] { return quantizedSdpaFunctionText(bodyForm); });
}

llvm::Error KvoptLowering::replaceCaches(AttentionSite& site, Node& fused, const CacheOperator& op,
                                         PaddedQuery& padded, Rewriter& rewriter) {
  Node& sdpa = *site.node;
  const llvm::SmallVector<SiteCache*, 2> updates = cachesOf(site);
  const int64_t slots = slotsOf(site);
  if (slots != 0 && site.mask && !site.mask->isExact && !site.mask->everyRowSeesAKey)
    manifest.hiddenRowsUndefined = true;
  // Not before the attention: shapes of the past are read before it is overwritten.
  sdpa.graph().moveBefore(fused, &sdpa);
  recordSiteOrigin(fused, site, rewriter);
  llvm::SmallVector<Rewriter::Replacement, 3> replacements{
      {&sdpa.result(), &padded.ownRows(fused.result(0))}};
  llvm::SmallVector<std::string, 2> names;
  llvm::SmallVector<Value*, 2> presents;
  for (unsigned i = 0; i < updates.size(); ++i) {
    names.push_back(updates[i]->output->name().str());
    presents.push_back(&declaredPresent(site, *updates[i], fused.result(op.present(i)), rewriter));
    if (!updates[i]->fromStart)
      replacements.push_back({updates[i]->present, presents.back()});
  }
  if (std::optional<MatchFailure> failure = rewriter.replace(replacements)) {
    rewriter.discard();
    return unsupported("site {}: {}", site.id(), failure->str());
  }
  if (site.pastFlag)
    addFlag(*site.pastFlag, manifest);
  for (unsigned i = 0; i < updates.size(); ++i) {
    Value& present = *presents[i];
    if (updates[i]->fromStart)
      handOut(*updates[i]->present, present);
    makeShared(*updates[i], present, slots);
    const CacheRole role = i != 0          ? CacheRole::Value
                           : op.isLatent() ? CacheRole::Latent
                                           : CacheRole::Key;
    const ManifestCache* cache = describe(*updates[i], names[i], site.layer, role, slots);
    if (isQuantized())
      handOutScale(*cache, *fused.operand(op.pastScale(i)), fused.result(op.presentScale(i)));
  }
  // The nodes that the site refers to are erased after all sites are lowered.
  site.node = &fused;
  for (SiteCache* update : {&*site.key, &*site.value}) {
    bool isFirst = update == &*site.key || site.isLatent();
    update->present = presents[isFirst ? 0 : 1];
    if (!fused.graph().parentNode())
      update->output = update->present;
    update->writer = nullptr;
    update->fresh = nullptr;
  }
  return llvm::Error::success();
}

/// Makes the branch return `present` instead of the new rows; other readers keep the new rows.
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

Value& KvoptLowering::attendedPast(const AttentionSite& site, const SiteCache& update,
                                   Rewriter& rewriter) {
  if (!unflattened(update.layout))
    return *update.past;
  const HeadExtents head = headExtents(site, update);
  Value& shape = rewriter.constant("heads_apart", int64Tensor({0, 0, head.count, head.width}));
  return rewriter.create("Reshape", {update.past, &shape}, {}, 1, "past_rows").result();
}

Value& KvoptLowering::declaredPresent(const AttentionSite& site, const SiteCache& update,
                                      Value& present, Rewriter& rewriter) {
  if (!unflattened(update.layout))
    return present;
  const HeadExtents head = headExtents(site, update);
  Value& shape = rewriter.constant("heads_together", int64Tensor({0, 0, head.count * head.width}));
  return rewriter.create("Reshape", {&present, &shape}, {}, 1, "present_rows").result();
}

Shape KvoptLowering::bufferShape(const SiteCache& update, int64_t slots) {
  Shape shape = shapeOf(length->sharedType(update));
  if (slots != 0)
    shape[update.axis] = Dim::fixed(slots);
  return shape;
}

void KvoptLowering::makeShared(const SiteCache& update, Value& present, int64_t slots) {
  usesCapacity |= slots == 0;
  Shape shape = bufferShape(update, slots);
  ElementType element = update.past->type().elementType();
  if (isQuantized())
    element = form.code->element;
  if (isQuantized() && form.code->isPacked()) {
    Dim& columns = shape[CacheLayout::bySequenceAxis(shape.size(), update.axis)->columnAxis()];
    codeColumns[update.past] = *columns.value();
    columns = Dim::fixed(form.code->elementsOf(*columns.value()));
  }
  const TensorType type(element, std::move(shape));
  update.past->setType(type);
  present.setType(type);
  presentTypes.emplace_back(&present, type);
  if (present.graph().parentNode())
    presentTypes.emplace_back(update.output, type);
}

Value& KvoptLowering::addScale(const SiteCache& update, int64_t slots) {
  Shape shape = bufferShape(update, slots);
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
  scale.codeColumns = 0;
  scale.shape[cache.layout()->columnAxis()] = int64_t{1};
  manifest.caches.push_back(std::move(scale));
}

const ManifestCache* KvoptLowering::describe(const SiteCache& update,
                                             const std::string& presentName, unsigned layer,
                                             CacheRole role, int64_t slots) {
  if (!described.insert(update.past).second)
    return nullptr; // described for another branch
  ManifestCache cache = describeCache(update, layer, role);
  cache.present = presentName;
  cache.storage = slots != 0 ? RingCache{true} : inOneBuffer(cache.storage);
  cache.codeColumns = codeColumns.lookup(update.past);
  manifest.caches.push_back(std::move(cache));
  return &manifest.caches.back();
}

void KvoptLowering::describeOverwritten(const AttentionSite& site) {
  manifest.contract = CacheUpdate::InPlace;
  describe(*site.key, site.key->output->name().str(), site.layer, site.keyRole);
  describe(*site.value, site.value->output->name().str(), site.layer, CacheRole::Value);
}

void KvoptLowering::finishManifest() {
  if (!length)
    return;
  manifest.contract = CacheUpdate::InPlace;
  if (usesCapacity) {
    const Dim& capacity = length->capacity();
    manifest.capacitySymbol = capacity.value() ? "capacity" : capacity.str();
    manifest.capacityValue = fixedCapacity;
  }
  if (!length->isAdded())
    return;
  ManifestLength input;
  input.input = length->value().name().str();
  input.shape = {int64_t{1}};
  input.feed = LengthFeed::PastLength;
  manifest.lengths.push_back(std::move(input));
}

} // namespace kvopt::targets
