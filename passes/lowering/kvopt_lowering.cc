// Lowering to ai.kvopt's operators.
#include "passes/lowering/kvopt_lowering.h"

#include "ir/cache_axes.h"
#include "ir/diagnostic.h"
#include "ir/shape_inference.h"
#include "ir/shape_rules.h"
#include "ir/text_reader.h"
#include "passes/lowering/cache_rows.h"

#include "llvm/ADT/STLExtras.h"

#include <limits>

namespace kvopt {
namespace {

constexpr const char* ruleName = "lower-kvopt";

std::vector<NamedAttribute> attentionAttributes(const Node& sdpa, const Value& mask) {
  std::vector<NamedAttribute> attributes;
  attributes.push_back({"scale", Attribute::ofFloat(sdpa.floatAttr("scale", 1.0f))});
  attributes.push_back({"causal", Attribute::ofInt(sdpa.intAttr("causal", 0))});
  attributes.push_back({"window", Attribute::ofInt(sdpa.intAttr("window", 0))});
  attributes.push_back({"softcap", Attribute::ofFloat(sdpa.floatAttr("softcap", 0.0f))});
  bool isBoolean = mask.type().elementType() == ElementType::Bool;
  attributes.push_back({"mask_boolean", Attribute::ofInt(isBoolean ? 1 : 0)});
  return attributes;
}

void recordOrigin(Node& fused, const AttentionSite& site, Rewriter& rewriter) {
  llvm::SmallVector<Node*, 3> sources;
  for (Node* update : {site.key->update, site.value->update})
    if (update && !llvm::is_contained(sources, update))
      sources.push_back(update);
  sources.push_back(site.node);
  rewriter.recordSources(fused, sources);
  Metadata metadata = fused.metadata();
  for (const auto& [key, text] : site.node->metadata())
    metadata.emplace_back(key == ruleMetadataKey ? "kvopt.raised_by" : key + ".raised", text);
  fused.setMetadata(std::move(metadata));
}

} // namespace

KvoptLowering::KvoptLowering(Model& lowered, const LowerOptions& options, Journal& editJournal,
                             CacheRows keptAs)
    : model(lowered), graph(lowered.graph()), fixedCapacity(options.capacity), journal(editJournal),
      cacheRows(keptAs) {}

llvm::Expected<Manifest> KvoptLowering::run(llvm::ArrayRef<AttentionSite*> sites) {
  // The definitions of kvopt's operators are found only where their domain is imported.
  model.opsets.try_emplace(kvoptDomain, 1);
  model.markEdited();
  // Model-local functions exist since IR version 8.
  model.irVersion = std::max<int64_t>(model.irVersion, 8);
  manifest.target = cacheRows == CacheRows::Quantized ? "int8" : "kvopt";
  for (const AttentionSite* site : sites) {
    anySinks |= site->node->operand(4) != nullptr;
    anyLengths |= !site->grows() && site->node->operand(5);
    if (site->grows() && !length)
      length.emplace(graph, site->key->past->type().dim(site->key->axis), fixedCapacity);
  }
  for (AttentionSite* site : sites) {
    if (!site->grows()) {
      completeUncached(*site);
      BodyForm form = bodyForm(*site->node);
      form.lengths = anyLengths;
      if (llvm::Error error = addFunction("ai.kvopt::Sdpa", [&] { return sdpaFunctionText(form); }))
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
  if (llvm::Error error = addAppendRows())
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
  Value& mask = maskOperand(sdpa);
  std::vector<NamedAttribute> attributes = attentionAttributes(sdpa, mask);
  attributes.push_back({"key_axis", Attribute::ofInt(site.key->axis)});
  attributes.push_back({"value_axis", Attribute::ofInt(site.value->axis)});
  const bool isQuantized = cacheRows == CacheRows::Quantized;
  llvm::SmallVector<Value*, 10> operands{sdpa.operand(0), &newRows(site, *site.key, rewriter),
                                         &newRows(site, *site.value, rewriter)};
  for (const CacheUpdate* update : {&*site.key, &*site.value}) {
    operands.push_back(update->past);
    if (isQuantized)
      operands.push_back(&addScale(*update));
  }
  operands.push_back(&pastLengthOf(*site.key));
  operands.push_back(&mask);
  if (Value* sinks = sinksOperand(sdpa))
    operands.push_back(sinks);
  BodyForm form = bodyForm(sdpa);
  auto keyForm = inPlaceForm(site.key->layout, true);
  auto valueForm = inPlaceForm(site.value->layout, false);
  const OpName op = isQuantized ? "ai.kvopt::InPlaceQuantizedKvSdpa" : "ai.kvopt::InPlaceKvSdpa";
  Node& fused =
      rewriter.create(op, operands, std::move(attributes), isQuantized ? 5 : 3, "attention");
  if (llvm::Error error = replaceCaches(site, fused, {&*site.key, &*site.value},
                                        {CacheRole::Key, CacheRole::Value}, rewriter))
    return error;
  return addFunction(op, [&] {
    return isQuantized ? inPlaceQuantizedKvSdpaFunctionText(form, *keyForm, *valueForm)
                       : inPlaceKvSdpaFunctionText(form, *keyForm, *valueForm);
  });
}

llvm::Error KvoptLowering::lowerLatent(AttentionSite& site) {
  rewireShapeReaders(site);
  Node& sdpa = *site.node;
  Rewriter rewriter(sdpa.graph(), ruleName, journal);
  Value& mask = maskOperand(sdpa);
  std::vector<NamedAttribute> attributes = attentionAttributes(sdpa, mask);
  attributes.push_back({"key_axis", Attribute::ofInt(site.key->axis)});
  attributes.push_back({"v_offset", Attribute::ofInt(site.value->firstColumn)});
  attributes.push_back({"v_width", Attribute::ofInt(*site.value->columns.value())});
  llvm::SmallVector<Value*, 8> operands{sdpa.operand(0), &newRows(site, *site.key, rewriter),
                                        site.key->past, &pastLengthOf(*site.key), &mask};
  if (Value* sinks = sinksOperand(sdpa))
    operands.push_back(sinks);
  BodyForm form = bodyForm(sdpa);
  auto cacheForm = inPlaceForm(site.key->layout, false);
  Node& fused = rewriter.create("ai.kvopt::InPlaceLatentKvSdpa", operands, std::move(attributes), 2,
                                "attention");
  if (llvm::Error error = replaceCaches(site, fused, {&*site.key}, {CacheRole::Latent}, rewriter))
    return error;
  return addFunction("ai.kvopt::InPlaceLatentKvSdpa",
                     [&] { return inPlaceLatentKvSdpaFunctionText(form, *cacheForm); });
}

llvm::Error KvoptLowering::replaceCaches(AttentionSite& site, Node& fused,
                                         llvm::ArrayRef<CacheUpdate*> updates,
                                         llvm::ArrayRef<CacheRole> roles, Rewriter& rewriter) {
  Node& sdpa = *site.node;
  // Not earlier than the attention: shapes of the past are read before it is overwritten.
  sdpa.graph().moveBefore(fused, &sdpa);
  recordOrigin(fused, site, rewriter);
  llvm::SmallVector<Rewriter::Replacement, 3> replacements{{&sdpa.result(), &fused.result(0)}};
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
  for (CacheUpdate* update : {&*site.key, &*site.value}) {
    bool isFirst = update == &*site.key || site.isLatent();
    update->present = &fused.result(presentResult(isFirst ? 0 : 1));
    if (!fused.graph().parentNode())
      update->output = update->present;
    update->update = nullptr;
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

void KvoptLowering::completeUncached(AttentionSite& site) {
  Node& sdpa = *site.node;
  Rewriter rewriter(sdpa.graph(), ruleName, journal);
  Value& mask = maskOperand(sdpa);
  for (NamedAttribute& attribute : attentionAttributes(sdpa, mask))
    sdpa.setAttribute(attribute.name, std::move(attribute.value));
  llvm::SmallVector<Value*, 6> operands{sdpa.operand(0), sdpa.operand(1), sdpa.operand(2), &mask};
  Value* sinks = sinksOperand(sdpa);
  if (sinks || anyLengths)
    operands.push_back(sinks);
  if (anyLengths)
    operands.push_back(&lengthOperand(sdpa, rewriter));
  sdpa.setOperands(operands);
}

/// Where any attention outside of caches has lengths, all bodies take them.
Value& KvoptLowering::lengthOperand(Node& sdpa, Rewriter& rewriter) {
  if (Value* lengths = sdpa.operand(5))
    return *lengths;
  auto rows = [&](unsigned operand) -> Value& {
    Value& shape = rewriter.create("Shape", {sdpa.operand(operand)}, {}, 1, "extents").result();
    Value& axis = rewriter.constant("axis", int64Tensor({2}));
    return rewriter.create("Gather", {&shape, &axis}, {}, 1, "extent").result();
  };
  Value& earlier = rewriter.create("Sub", {&rows(1), &rows(0)}, {}, 1, "earlier").result();
  return earlier;
}

Value& KvoptLowering::pastLengthOf(const CacheUpdate& update) {
  if (update.pastLength)
    return *update.pastLength;
  if (!update.fromStart)
    return length->value();
  if (!zeroLength)
    zeroLength = &graph.addConstant("no_past_length", int64Tensor({0}));
  return *zeroLength;
}

Value& KvoptLowering::newRows(const AttentionSite& site, const CacheUpdate& update,
                              Rewriter& rewriter) {
  const Value& operand = *site.node->operand(&update == &*site.key ? 1 : 2);
  Dim groups = operand.type().dim(1);
  if (auto divided = groups.dividedBy(update.repeats))
    groups = *divided;
  return canonicalRows(*update.fresh, update.freshLayout, *site.node->operand(0), groups,
                       operand.type().dim(3), rewriter);
}

/// The site's mask, or a neutral one: a function's body cannot do without the operand.
Value& KvoptLowering::maskOperand(const Node& sdpa) {
  if (Value* mask = sdpa.operand(3))
    return *mask;
  if (!neutralMask)
    neutralMask =
        &graph.addConstant("no_mask", floatScalar(sdpa.operand(0)->type().elementType(), 0.0, 4));
  return *neutralMask;
}

/// Where any site has sinks, all bodies take them; -inf takes no weight.
Value* KvoptLowering::sinksOperand(const Node& sdpa) {
  if (Value* sinks = sdpa.operand(4))
    return sinks;
  if (!anySinks)
    return nullptr;
  std::vector<float> none(static_cast<size_t>(*sdpa.operand(0)->type().dim(1).value()),
                          -std::numeric_limits<float>::infinity());
  return &graph.addConstant("no_sinks", floatTensor(none));
}

void KvoptLowering::makeShared(const CacheUpdate& update, Value& present) {
  TensorType type = length->sharedType(update);
  if (cacheRows == CacheRows::Quantized)
    type = TensorType(ElementType::Int8, Shape(type.shape().begin(), type.shape().end()));
  update.past->setType(type);
  present.setType(type);
  presentTypes.emplace_back(&present, type);
  if (present.graph().parentNode())
    presentTypes.emplace_back(update.output, type);
}

Value& KvoptLowering::addScale(const CacheUpdate& update) {
  Shape shape = shapeOf(length->sharedType(update));
  shape[cacheAxes(shape.size(), update.axis)->column] = Dim::fixed(1);
  return graph.addInput(graph.freshName(update.past->name().str() + "_scale"),
                        TensorType(ElementType::Float, std::move(shape)));
}

void KvoptLowering::handOutScale(const ManifestCache& cache, Value& past, Value& present) {
  graph.rename(present, graph.freshName(cache.present + "_scale"));
  graph.addOutput(present);
  present.setType(past.type());
  presentTypes.emplace_back(&present, past.type());
  ManifestCache scale = cache;
  scale.role = cache.role == CacheRole::Key ? CacheRole::KeyScale : CacheRole::ValueScale;
  scale.past = past.name().str();
  scale.present = present.name().str();
  scale.dtype = ElementType::Float;
  scale.shape[cacheAxes(scale.shape.size(), cache.sequenceAxis)->column] = int64_t{1};
  manifest.caches.push_back(std::move(scale));
}

const ManifestCache* KvoptLowering::describe(const CacheUpdate& update,
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
  manifest.contract = CacheContract::SharedBuffer;
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

BodyForm KvoptLowering::bodyForm(const Node& sdpa) const {
  return {graph.opsetVersion(), sdpa.operand(0)->type().elementType(), anySinks};
}

/// Caches that stay as they are may hold rows of different lengths.
llvm::Error KvoptLowering::addAppendRows() {
  const Node* first = nullptr;
  forEachGraph(graph, [&](Graph& visited) {
    for (const Node& node : visited.nodes())
      if (!first && node.op() == OpName("ai.kvopt::AppendRows"))
        first = &node;
  });
  if (!first)
    return llvm::Error::success();
  return addFunction("ai.kvopt::AppendRows", [&] {
    return appendRowsFunctionText(graph.opsetVersion(), first->result().type().elementType());
  });
}

llvm::Error KvoptLowering::addFunction(OpName op, llvm::function_ref<std::string()> text) {
  if (model.findFunction(op))
    return llvm::Error::success();
  auto function = readFunctionText(text(), model);
  return function ? llvm::Error::success() : function.takeError();
}

} // namespace kvopt
