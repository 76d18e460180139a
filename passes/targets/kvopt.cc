// Target `kvopt`: one InPlaceKvSdpa per cached attention, past and present one buffer.
//
//   before   present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa(q, present_key, present_value[, mask])
//   after    o, present_key, present_value =
//                ai.kvopt.InPlaceKvSdpa(q, k, v, past_key, past_value, past_length, mask)
//
// Past inputs and present outputs get the extent `capacity` on the sequence axis; readers of a
// past's shape get `past_length` in that place. Attention without a cache stays ai.kvopt.Sdpa.
#include "ir/diagnostic.h"
#include "ir/function_body.h"
#include "ir/shape_inference.h"
#include "ir/text_reader.h"
#include "passes/target.h"

#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

#include <set>

namespace kvopt {
namespace {

constexpr const char* pastLengthName = "past_length";
constexpr const char* ruleName = "lower-kvopt";

/// Lowers the sites of one model.
class Lowering {
public:
  Lowering(Model& lowered, const LowerOptions& lowerOptions, Journal& editJournal)
      : model(lowered), graph(lowered.graph()), options(lowerOptions), journal(editJournal) {}

  llvm::Expected<Manifest> run(llvm::ArrayRef<AttentionSite*> sites) {
    // The definitions of kvopt's operators are found only where their domain is imported.
    model.opsets.try_emplace(kvoptDomain, 1);
    model.markEdited();
    manifest.target = "kvopt";
    bool anyCache = llvm::any_of(sites, [](const AttentionSite* site) { return site->hasCache(); });
    for (const AttentionSite* site : sites)
      if (site->hasCache() && lengthSymbol.isUnknown())
        lengthSymbol = site->key->past->type().dim(site->key->axis);
    if (anyCache)
      addLengthInput();
    for (AttentionSite* site : sites) {
      if (llvm::Error error = site->hasCache() ? lowerCached(*site) : completeUncached(*site))
        return error;
    }
    if (llvm::Error error = addFunctions())
      return error;
    graph.eraseDeadNodes();
    if (llvm::Error error = inferShapes(graph))
      return error;
    for (auto& [value, type] : presentTypes)
      value->setType(type);
    return std::move(manifest);
  }

private:
  void addLengthInput() {
    capacity = Dim::symbol(freshSymbol("capacity"));
    if (options.capacity)
      capacity = Dim::fixed(*options.capacity);
    pastLength = &graph.addInput(graph.freshName(pastLengthName),
                                 TensorType::fixed(ElementType::Int64, {1}));
    pastLength->setKnownIntegers(Shape{lengthSymbol});
    manifest.contract = CacheContract::SharedBuffer;
    manifest.capacitySymbol = capacity.value() ? "capacity" : capacity.str();
    manifest.capacityValue = options.capacity;
    ManifestLength length;
    length.input = pastLength->name().str();
    length.shape = {int64_t{1}};
    length.feed = LengthFeed::PastLength;
    manifest.lengths.push_back(std::move(length));
  }

  std::string freshSymbol(const std::string& base) const {
    std::string candidate = base;
    auto taken = [&] {
      return llvm::any_of(graph.inputs(), [&](const std::unique_ptr<Value>& input) {
        return input->type().hasRank() &&
               llvm::any_of(input->type().shape(), [&](const Dim& extent) {
                 return llvm::is_contained(extent.symbols(), candidate);
               });
      });
    };
    for (unsigned i = 1; taken(); ++i)
      candidate = fmt::format("{}_{}", base, i);
    return candidate;
  }

  llvm::Error lowerCached(AttentionSite& site) {
    Node& sdpa = *site.node;
    {
      // Where readers in every branch see it.
      Rewriter outermost(graph, ruleName, journal);
      rewireShapeReaders(*site.key->past, site.key->axis, outermost);
      rewireShapeReaders(*site.value->past, site.value->axis, outermost);
    }
    Rewriter rewriter(sdpa.graph(), ruleName, journal);

    Value& mask = maskOperand(sdpa);
    std::vector<NamedAttribute> attributes = attentionAttributes(sdpa, mask);
    Value* operands[] = {sdpa.operand(0),
                         site.key->fresh,
                         site.value->fresh,
                         site.key->past,
                         site.value->past,
                         site.key->fromStart ? &noLength() : pastLength,
                         &mask};
    Node& fused =
        rewriter.create("ai.kvopt::InPlaceKvSdpa", operands, std::move(attributes), 3, "attention");
    // Not earlier than the attention: shapes of the past are read before it is overwritten.
    sdpa.graph().moveBefore(fused, &sdpa);
    recordOrigin(fused, site, rewriter);
    CacheUpdate key = *site.key;
    CacheUpdate value = *site.value;
    std::string keyName = key.output->name().str();
    std::string valueName = value.output->name().str();
    llvm::SmallVector<Rewriter::Replacement, 3> replacements{{&sdpa.result(), &fused.result(0)}};
    if (!key.fromStart) {
      replacements.push_back({key.present, &fused.result(1)});
      replacements.push_back({value.present, &fused.result(2)});
    }
    std::optional<MatchFailure> failure = rewriter.replace(replacements);
    if (failure) {
      rewriter.discard();
      return unsupported("site {}: {}", site.id(), failure->str());
    }
    if (key.fromStart) {
      handOut(*key.present, fused.result(1));
      handOut(*value.present, fused.result(2));
    }
    if (site.pastFlag)
      addFlag(*site.pastFlag, manifest);
    used.insert(sdpa.operand(0)->type().elementType());
    makeShared(key, fused.result(1));
    makeShared(value, fused.result(2));
    // What the site pointed to is erased when every site is done.
    site.node = &fused;
    for (CacheUpdate* update : {&*site.key, &*site.value}) {
      update->present = &fused.result(update == &*site.key ? 1 : 2);
      if (!fused.graph().parentNode())
        update->output = update->present;
    }
    site.key->concat = site.value->concat = nullptr;
    describe(key, keyName, site.layer, CacheRole::Key);
    describe(value, valueName, site.layer, CacheRole::Value);
    return llvm::Error::success();
  }

  /// The length of a past that is not read.
  Value& noLength() {
    if (!zeroLength)
      zeroLength = &graph.addConstant("no_past_length", int64Tensor({0}));
    return *zeroLength;
  }

  /// The branch gives `present` instead of the new rows, which others go on reading.
  static void handOut(const Value& rows, Value& present) {
    Graph& branch = present.graph();
    for (unsigned slot = 0; slot < branch.outputs().size(); ++slot)
      if (branch.outputs()[slot] == &rows)
        branch.setOutput(slot, present);
  }

  /// Attention without a cache keeps its operator; its function needs every operand and attribute.
  llvm::Error completeUncached(AttentionSite& site) {
    Node& sdpa = *site.node;
    Value& mask = maskOperand(sdpa);
    std::vector<NamedAttribute> attributes = attentionAttributes(sdpa, mask);
    for (NamedAttribute& attribute : attributes)
      sdpa.setAttribute(attribute.name, std::move(attribute.value));
    sdpa.setOperands({sdpa.operand(0), sdpa.operand(1), sdpa.operand(2), &mask});
    usedUncached.insert(sdpa.operand(0)->type().elementType());
    return llvm::Error::success();
  }

  /// The site's mask, or a neutral one: a function's body cannot do without the operand.
  Value& maskOperand(Node& sdpa) {
    if (Value* mask = sdpa.operand(3))
      return *mask;
    if (!neutralMask)
      neutralMask =
          &graph.addConstant("no_mask", floatScalar(sdpa.operand(0)->type().elementType(), 0.0, 4));
    return *neutralMask;
  }

  static std::vector<NamedAttribute> attentionAttributes(const Node& sdpa, const Value& mask) {
    std::vector<NamedAttribute> attributes;
    attributes.push_back({"scale", Attribute::ofFloat(sdpa.floatAttr("scale", 1.0f))});
    attributes.push_back({"causal", Attribute::ofInt(sdpa.intAttr("causal", 0))});
    attributes.push_back({"window", Attribute::ofInt(sdpa.intAttr("window", 0))});
    attributes.push_back({"softcap", Attribute::ofFloat(sdpa.floatAttr("softcap", 0.0f))});
    bool isBoolean = mask.type().elementType() == ElementType::Bool;
    attributes.push_back({"mask_boolean", Attribute::ofInt(isBoolean ? 1 : 0)});
    return attributes;
  }

  static void recordOrigin(Node& fused, const AttentionSite& site, Rewriter& rewriter) {
    if (site.key->fromStart)
      rewriter.recordSources(fused, site.node);
    else
      rewriter.recordSources(fused, {site.key->concat, site.value->concat, site.node});
    Metadata metadata = fused.metadata();
    for (const auto& [key, text] : site.node->metadata())
      metadata.emplace_back(key == ruleMetadataKey ? "kvopt.raised_by" : key + ".raised", text);
    fused.setMetadata(std::move(metadata));
  }

  /// Shape(past) says the capacity from now on; its readers, in subgraphs too, want the length.
  void rewireShapeReaders(Value& past, unsigned axis, Rewriter& rewriter) {
    llvm::SmallVector<Node*, 4> readers;
    for (Use& use : past.uses())
      if (use.user().op() == "Shape" && !capacityReaders.count(&use.user()))
        readers.push_back(&use.user());
    auto rank = static_cast<int64_t>(past.type().rank());
    auto clamp = [&](int64_t position) {
      return std::clamp<int64_t>(position < 0 ? position + rank : position, 0, rank);
    };
    for (Node* reader : readers) {
      int64_t start = clamp(reader->intAttr("start", 0));
      int64_t end = std::max(start, clamp(reader->intAttr("end", rank)));
      if (axis < start || axis >= end)
        continue;
      llvm::SmallVector<bool, 4> isSequenceAxis;
      for (int64_t position = start; position < end; ++position)
        isSequenceAxis.push_back(position == static_cast<int64_t>(axis));
      std::vector<NamedAttribute> attributes;
      for (const NamedAttribute& attribute : reader->attributes())
        attributes.push_back({attribute.name, attribute.value.clone()});
      Node& extents = rewriter.create("Shape", {&past}, std::move(attributes), 1, "capacity_shape");
      capacityReaders.insert(&extents);
      Value& selector = rewriter.constant("is_sequence_axis", boolTensor(isSequenceAxis));
      Node& valid =
          rewriter.create("Where", {&selector, pastLength, &extents.result()}, {}, 1, "past_shape");
      reader->result().replaceAllUsesWith(valid.result());
    }
  }

  void makeShared(const CacheUpdate& update, Value& present) {
    TensorType type = update.past->type();
    Shape shape(type.shape().begin(), type.shape().end());
    shape[update.axis] = capacity;
    type.setShape(std::move(shape));
    update.past->setType(type);
    present.setType(type);
    presentTypes.emplace_back(&present, type);
    if (present.graph().parentNode())
      presentTypes.emplace_back(update.output, type);
  }

  void describe(const CacheUpdate& update, const std::string& presentName, unsigned layer,
                CacheRole role) {
    if (!described.insert(update.past).second)
      return;
    ManifestCache cache = describeCache(update, layer, role);
    cache.present = presentName;
    cache.oneBuffer = true;
    manifest.caches.push_back(std::move(cache));
  }

  llvm::Error addFunctions() {
    if (used.empty() && usedUncached.empty())
      return llvm::Error::success();
    int64_t opset = graph.opsetVersion();
    auto add = [&](OpName name, const std::string& text) -> llvm::Error {
      if (model.findFunction(name))
        return llvm::Error::success();
      auto function = readFunctionText(text, model);
      return function ? llvm::Error::success() : function.takeError();
    };
    for (ElementType element : used)
      if (llvm::Error error =
              add("ai.kvopt::InPlaceKvSdpa", inPlaceKvSdpaFunctionText(opset, element)))
        return error;
    for (ElementType element : usedUncached)
      if (llvm::Error error = add("ai.kvopt::Sdpa", sdpaFunctionText(opset, element)))
        return error;
    // Model-local functions exist since IR version 8.
    if (model.irVersion < 8)
      model.irVersion = 8;
    return llvm::Error::success();
  }

  Model& model;
  Graph& graph;
  const LowerOptions& options;
  Journal& journal;
  Manifest manifest;
  Dim capacity;
  /// What the model calls the past's length, so that other extents keep their meaning.
  Dim lengthSymbol;
  Value* pastLength = nullptr;
  Value* neutralMask = nullptr;
  Value* zeroLength = nullptr;
  /// Pasts whose caches the manifest names.
  std::set<const Value*> described;
  /// Shape nodes that are meant to read the buffer's extents.
  std::set<const Node*> capacityReaders;
  std::set<ElementType> used;
  std::set<ElementType> usedUncached;
  std::vector<std::pair<Value*, TensorType>> presentTypes;
};

class KvoptTarget final : public Target {
public:
  llvm::StringRef name() const override { return "kvopt"; }
  llvm::StringRef summary() const override {
    return "InPlaceKvSdpa with its function body: past and present in one buffer";
  }

  std::optional<MatchFailure> supports(const AttentionSite& site,
                                       const Model& model) const override {
    if (site.failure)
      return site.failure;
    auto refuse = [&](ReasonCode code, std::string expected, std::string found) {
      return MatchFailure{code, site.node->name().str(), std::move(expected), std::move(found), ""};
    };
    if (site.node->operand(4))
      return refuse(ReasonCode::SinkUnsupported, "attention without sinks", "sinks");
    if (model.graph().opsetVersion() < 13)
      return refuse(ReasonCode::TargetLacksFeature, "opset 13 or newer",
                    fmt::format("opset {}", model.graph().opsetVersion()));
    ElementType element = site.node->operand(0)->type().elementType();
    if (!isFloatingPoint(element))
      return refuse(ReasonCode::DtypeMix, "a floating-point query", onnxName(element).str());
    if (site.hasCache() && (site.key->past->type().elementType() != element ||
                            site.value->past->type().elementType() != element))
      return refuse(ReasonCode::DtypeMix, "caches of the query's element type",
                    onnxName(site.key->past->type().elementType()).str());
    return site.hasCache() ? dependsOnPresent(site) : std::nullopt;
  }

  /// The fused node produces both presents: none of its operands may depend on them, and whoever
  /// reads their shape would see the capacity.
  static std::optional<MatchFailure> dependsOnPresent(const AttentionSite& site) {
    if (site.key->fromStart)
      return std::nullopt;
    const Value* presents[] = {site.key->present, site.value->present};
    for (const Value* operand :
         {site.node->operand(0), site.node->operand(3), site.key->fresh, site.value->fresh}) {
      if (!operand)
        continue;
      std::vector<const Value*> path = dependencyPath(*operand, presents);
      if (path.empty())
        continue;
      std::string text;
      for (const Value* value : path)
        text += (text.empty() ? "" : " <- ") + value->name().str();
      return MatchFailure{ReasonCode::WouldCreateCycle, site.node->name().str(),
                          "operands that do not depend on the present", text,
                          "run normalize first"};
    }
    for (const Value* present : presents)
      for (const Use& use : present->uses())
        if (use.user().op() == "Shape")
          return MatchFailure{ReasonCode::CacheEscapes, present->name().str(),
                              "shapes computed from the past and the new rows",
                              use.user().describe() + " reads the shape of the present",
                              "run normalize first"};
    return std::nullopt;
  }

  /// Past and present are one buffer in every branch or in none.
  static llvm::Error checkBranches(llvm::ArrayRef<AttentionSite*> sites) {
    std::map<const Value*, unsigned> chosen;
    for (const AttentionSite* site : sites)
      if (site->hasCache())
        ++chosen[site->key->past];
    for (const AttentionSite* site : sites)
      if (site->hasCache() && chosen[site->key->past] < site->key->updaters)
        return unsupported("site {}: attention in other branches updates its caches too",
                           site->id())
            .hint("lower the sites of all branches together");
    return llvm::Error::success();
  }

  llvm::Expected<Manifest> lower(Model& model, llvm::ArrayRef<AttentionSite*> sites,
                                 const LowerOptions& options, Journal& journal) const override {
    if (llvm::Error error = checkBranches(sites))
      return error;
    std::set<ElementType> elements;
    for (const AttentionSite* site : sites)
      elements.insert(site->node->operand(0)->type().elementType());
    if (elements.size() > 1)
      return unsupported("the attentions of the model have different element types")
          .hint("lower the layers of one type only, with --layers");
    return Lowering(model, options, journal).run(sites);
  }
};

} // namespace

void register_kvopt(TargetRegistry& registry) { registry.add(std::make_unique<KvoptTarget>()); }

} // namespace kvopt
