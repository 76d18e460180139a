// Adds caches to a decoder that computes the whole sequence at every step.
//
//   before   o = ai.kvopt.Sdpa<causal = 1>(q, k, v, mask)             position = Range(0, S, 1)
//   after    o = ai.kvopt.Sdpa<causal = 1>(q, present_key, present_value, mask over P + S keys)
//            present_key = Concat<2>(past_key, k)   …value likewise   position = Range(P, P + S, 1)
//
// P is the extent of the first past. Everything outside attention must be a function of single
// tokens (passes/analysis/tokens/token_functions.h), and attention must be causal. The rest of the
// mask is rewritten for rows P to P + S (passes/builders/mask_writer.h): it may depend on the
// positions of row and key, on the head, and on inputs [B, S]. Inputs whose elements it reads for
// keys become [B, P + S].
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/driven_caches.h"
#include "passes/analysis/mask/mask_meaning.h"
#include "passes/analysis/mask/mask_reader.h"
#include "passes/analysis/tokens/token_functions.h"
#include "passes/builders/added_cache_names.h"
#include "passes/builders/attention_builder.h"
#include "passes/builders/cross_projections.h"
#include "passes/builders/mask_writer.h"
#include "passes/builders/places_after.h"
#include "passes/pass.h"
#include "passes/transforms/configured_passes.h"
#include "support/format.h"

#include "llvm/ADT/SetVector.h"

#include <limits>

namespace kvopt::transforms {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* passName = "add-caches";

constexpr const char* writableMask =
    "a causal mask whose other conditions depend on positions, heads and inputs [batch, tokens]";
constexpr const char* otherExport =
    "export with past and present keys and values as inputs and outputs";

class CacheAdder {
public:
  CacheAdder(Model& changed, PassContext& passContext)
      : model(changed), graph(changed.graph()), context(passContext) {}

  llvm::Error run() {
    context.sites = explainedSites(model, context);
    if (context.sites.empty())
      return refused("the model has no attention that could get caches");
    const std::vector<CrossProjection> projections = projectionsOf(context.sites);
    if (!projections.empty()) {
      makeInputs(graph, projections, context.journal);
      context.count(passName, "cross_caches", static_cast<int64_t>(projections.size()));
      context.hasFirstStep = true;
      context.sites = explainedSites(model, context);
      if (llvm::none_of(context.sites, computesWholeSequences))
        return inferShapes(graph);
    }
    for (AttentionSite& site : context.sites)
      if (!site.failure && !readsOtherSequence(site))
        site.failure = obstacle(site);
    for (const AttentionSite& site : context.sites)
      if (site.failure)
        return refused(formatted("caches cannot be added: {} {}", site.id(), site.failure->str()));
    if (tokens.isUnknown())
      return refused("the model has no attention among its own tokens that could get caches");
    sequences = findPrefixSequences(graph, lengthened.getArrayRef(), tokens);
    for (AttentionSite& site : context.sites)
      if (auto why = elementObstacle(site))
        return refused(formatted("caches cannot be added: {} {}", site.id(), why->str()));
    auto followed = findTokenFunctions(graph, context.sites, tokens.symbols().front(), sequences);
    if (const auto* mixing = std::get_if<TokenMixing>(&followed))
      return refuseMixing(*mixing);
    functions = std::move(std::get<TokenFunctions>(followed));
    return rewrite();
  }

  /// Keeps only the values that are computed once for all steps.
  llvm::Error keepFirst() {
    const std::vector<CrossProjection> projections = projectionsOf(findSites(graph));
    if (projections.empty())
      return refused("the model computes no keys and values of another sequence");
    keepProjections(graph, projections, context.journal);
    context.sites.clear();
    return llvm::Error::success();
  }

private:
  /// Whether attention reads keys and values that are inputs of the model.
  static bool readsOtherSequence(const AttentionSite& site) {
    return site.isCross && site.hasCache() && site.update == CacheUpdate::ReadOnly;
  }

  /// Projections that attention to another sequence computes at every step.
  std::vector<CrossProjection> projectionsOf(llvm::ArrayRef<AttentionSite> sites) const {
    llvm::SmallVector<Node*, 16> attentions;
    for (const AttentionSite& site : sites)
      if (!site.failure && site.isCross && !site.hasCache() && &site.node->graph() == &graph)
        attentions.push_back(site.node);
    llvm::DenseSet<const Value*> caches;
    for (const ManifestCache& cache : cachesByDataFlow(graph, {}))
      caches.insert(graph.findValue(cache.past));
    return findCrossProjections(attentions, caches);
  }

  static bool computesWholeSequences(const AttentionSite& site) {
    return !site.isCross && !site.hasCache();
  }

  static MatchFailure failure(ReasonCode code, const AttentionSite& site, std::string expected,
                              std::string found, std::string hint = "") {
    return {code, site.node->name().str(), std::move(expected), std::move(found), std::move(hint)};
  }

  llvm::Error refused(std::string message) const {
    return unsupported("{}", message).as<RefusedError>();
  }

  llvm::Error refuseMixing(const TokenMixing& mixing) {
    MatchFailure why{
        ReasonCode::TokensMixed, mixing.node ? mixing.node->name().str() : "",
        "functions of single tokens outside of attention",
        mixing.node ? formatted("{}: {}", mixing.node->describe(), mixing.why) : mixing.why, ""};
    const std::string message = "caches cannot be added: " + why.str();
    for (AttentionSite& site : context.sites)
      site.failure = why;
    return refused(message);
  }

  /// Reason why the attention of one site cannot get caches.
  std::optional<MatchFailure> obstacle(const AttentionSite& site) {
    if (site.hasCache() || site.update != CacheUpdate::None || site.isCross)
      return failure(ReasonCode::TargetLacksFeature, site, "attention without a cache",
                     site.isCross ? "attention to another sequence, whose keys and values depend "
                                    "on more than its inputs"
                                  : "attention with a cache");
    if (site.node->graph().parentNode())
      return failure(ReasonCode::InSubgraph, site, "attention in the main graph",
                     "attention in a branch of " + site.node->graph().parentNode()->describe());
    for (unsigned operand : {1u, 2u}) {
      const TensorType& type = site.node->operand(operand)->type();
      if (!type.hasRank() || type.rank() != 4 || !type.dim(1).value() || !type.dim(3).value() ||
          type.dim(0).isUnknown())
        return failure(ReasonCode::HeadCountUnproven, site,
                       "keys and values of fixed heads and width", type.str());
    }
    const Dim& rows = site.node->operand(0)->type().dim(2);
    if (rows.symbols().size() != 1 || !(rows == Dim::symbol(rows.symbols().front())))
      return failure(ReasonCode::ShapeUnknown, site, "a symbolic number of tokens", rows.str(),
                     "export with dynamic axes");
    if (!tokens.isUnknown() && !(tokens == rows))
      return failure(ReasonCode::ShapeMismatch, site,
                     "the same number of rows as other attention, " + tokens.str(), rows.str());
    tokens = rows;
    if (!site.node->operand(1)->type().dim(2).isKnownEqual(tokens))
      return failure(ReasonCode::ShapeMismatch, site, "a key for each token",
                     site.node->operand(1)->type().dim(2).str());
    if (!isCausal(site))
      return causalObstacle(site);
    return site.node->operand(3) ? maskObstacle(site) : std::nullopt;
  }

  /// Whether no row sees the key of a later token, at least if positions count tokens.
  static bool isCausal(const AttentionSite& site) {
    return site.node->intAttr("causal", 0) != 0 ||
           (site.mask && (site.mask->causal == Proof::Proved || site.mask->hidesLaterKeys ||
                          site.mask->causalIf));
  }

  /// Failure for attention that is not causal: its mask is something else, or it has no mask.
  static MatchFailure causalObstacle(const AttentionSite& site) {
    const char* const expected = "a mask that is provably causal";
    if (!site.mask)
      return failure(ReasonCode::MaskNoncausal, site, expected, "no mask", otherExport);
    const MaskFacts& mask = *site.mask;
    const bool isRefuted = mask.causal == Proof::Refuted;
    return failure(
        isRefuted ? ReasonCode::MaskNoncausal : ReasonCode::MaskUnprovenCausal, site, expected,
        isRefuted && !mask.counterExample.empty() ? mask.counterExample : mask.text, otherExport);
  }

  /// Whether no row sees no key, or such a row has a result that does not depend on hidden keys.
  static bool isDefinedForEveryRow(const MaskFacts& mask) {
    return mask.isExact || mask.everyRowSeesAKey || (mask.seesOwnKey && mask.padding.empty());
  }

  /// Whether every row whose result matters sees a key. If a finite number hides all keys, other
  /// rows average over all keys, including later ones, which a cache does not contain yet.
  static bool seesKeys(const MaskFacts& mask) {
    return mask.isExact || mask.everyRowSeesAKey || mask.seesOwnKey ||
           (mask.causalIf && mask.padding.empty());
  }

  /// The mask that remains is rewritten from its element expression.
  std::optional<MatchFailure> maskObstacle(const AttentionSite& site) {
    const auto refusedMask = [&](const std::string& found) {
      return failure(ReasonCode::BiasUnsupported, site, writableMask, found, otherExport);
    };
    if (!site.mask || !seesKeys(*site.mask))
      return refusedMask(site.mask ? site.mask->text : "an unknown form of mask");
    const Value* mask = site.node->operand(3);
    MaskElements& plan = masks[mask];
    if (!plan.reader) {
      plan.reader = std::make_unique<MaskReader>(maskQuestion(*site.node).space);
      plan.element = plan.reader->readMask(*mask);
    }
    const auto mayRead = [&](const Value& value, IndexVariable place) {
      const auto inputs = prefixInputs(value);
      if (!inputs || inputs->empty())
        return false;
      if (place == IndexVariable::Key)
        lengthened.insert(inputs->begin(), inputs->end());
      return true;
    };
    if (auto part = maskObstacle(plan, mayRead))
      return refusedMask(formatted("{}, with {}", site.mask->text, *part));
    return std::nullopt;
  }

  struct MaskElements {
    std::unique_ptr<MaskReader> reader;
    ExprRef element = nullptr;
  };

  static std::optional<std::string>
  maskObstacle(const MaskElements& plan,
               llvm::function_ref<bool(const Value&, IndexVariable)> isAvailable) {
    return builders::maskObstacle(plan.element, plan.reader->space(), isAvailable);
  }

  /// Failure if a mask reads inputs for earlier tokens that do not have them. Requires that the
  /// inputs with elements for earlier tokens are known.
  std::optional<MatchFailure> elementObstacle(const AttentionSite& site) const {
    const auto plan = masks.find(site.node->operand(3));
    if (plan == masks.end())
      return std::nullopt;
    const auto isThere = [&](const Value& value, IndexVariable place) {
      return sequences.count(&value) != 0 ||
             (place == IndexVariable::Row && value.isGraphInput() && !lengthened.count(&value));
    };
    if (auto part = maskObstacle(plan->second, isThere))
      return failure(ReasonCode::BiasUnsupported, site, writableMask, *part, otherExport);
    return std::nullopt;
  }

  std::string freshSymbol(const std::string& base) const {
    llvm::StringSet<> taken;
    for (const std::unique_ptr<Value>& input : graph.inputs())
      if (input->type().hasRank())
        for (const Dim& extent : input->type().shape())
          for (const std::string& symbol : extent.symbols())
            taken.insert(symbol);
    std::string name = base;
    for (unsigned number = 2; taken.contains(name); ++number)
      name = formatted("{}_{}", base, number);
    return name;
  }

  llvm::Error rewrite() {
    const Dim past = Dim::symbol(freshSymbol("past_sequence_length"));
    llvm::SmallVector<AttentionSite*, 32> own;
    for (AttentionSite& site : context.sites)
      if (!readsOtherSequence(site))
        own.push_back(&site);
    auto named = namesOf(own);
    if (auto* clash = std::get_if<MatchFailure>(&named))
      return refused("caches cannot be added: " + clash->str());
    const auto& names = std::get<std::vector<AddedCacheNames>>(named);
    std::vector<Value*> pasts;
    for (size_t i = 0; i < names.size(); ++i) {
      const TensorType& type = own[i / 2]->node->operand(1 + i % 2)->type();
      freeName(graph, names[i].past);
      pasts.push_back(&graph.addInput(
          names[i].past,
          TensorType(type.elementType(), Shape{type.dim(0), type.dim(1), past, type.dim(3)})));
    }
    for (const Value* input : lengthened)
      lengthen(*const_cast<Value*>(input), past);
    for (size_t i = 0; i < own.size(); ++i)
      addCaches(*own[i], llvm::ArrayRef(names).slice(2 * i, 2),
                llvm::ArrayRef(pasts).slice(2 * i, 2));
    context.count(passName, "caches", static_cast<int64_t>(pasts.size()));
    writeMasks(own, *pasts.front());
    startAtPast(*pasts.front());
    restoreOrder(graph);
    graph.eraseDeadNodes();
    forgetUnreadExtents();
    return inferShapes(graph);
  }

  /// Extends an input by elements for earlier tokens.
  void lengthen(Value& input, const Dim& past) const {
    Shape shape(input.type().shape().begin(), input.type().shape().end());
    shape[sequences.find(&input)->second.axis] = past + tokens;
    input.setType(TensorType(input.type().elementType(), std::move(shape)));
  }

  /// Layer name in the names of caches: `0`, or `0.decoder` if the model has caches of an encoder,
  /// too.
  std::string nameOf(size_t layer) const {
    return formatted("{}{}", layer, context.hasFirstStep ? ".decoder" : "");
  }

  /// Names of the caches of each site: keys, then values.
  std::variant<std::vector<AddedCacheNames>, MatchFailure>
  namesOf(llvm::ArrayRef<AttentionSite*> own) const {
    std::vector<RowsToCache> rows;
    for (size_t layer = 0; layer < own.size(); ++layer)
      for (unsigned operand : {1u, 2u})
        rows.push_back({own[layer]->node, own[layer]->node->operand(operand), nameOf(layer),
                        operand == 1 ? "key" : "value"});
    return namesOfAddedCaches(graph, rows);
  }

  /// Joins keys and values with their pasts.
  void addCaches(AttentionSite& site, llvm::ArrayRef<AddedCacheNames> names,
                 llvm::ArrayRef<Value*> pasts) {
    Rewriter rewriter(graph, passName, context.journal, site.node->name());
    AttentionBuilder build(rewriter);
    for (unsigned i = 0; i < 2; ++i) {
      Value& present = build.concat(*pasts[i], *site.node->operand(i + 1), 2);
      site.node->setOperand(i + 1, &present);
      handOut(present, names[i]);
    }
  }

  /// Writes each mask for the new rows as queries and for all keys.
  void writeMasks(llvm::ArrayRef<AttentionSite*> own, Value& past) {
    Rewriter rewriter(graph, passName, context.journal);
    AttentionBuilder build(rewriter);
    MaskWriter::Places places;
    llvm::DenseMap<const Value*, Value*> written;
    for (AttentionSite* site : own) {
      const auto plan = masks.find(site->node->operand(3));
      if (plan == masks.end())
        continue;
      context.hiddenRowsUndefined |= !isDefinedForEveryRow(*site->mask);
      Value*& mask = written[plan->first];
      if (!mask) {
        if (!places.keys)
          places = placesOf(build, past, *site->node);
        const auto elements = [&](const Value& value, IndexVariable place) -> Value& {
          const auto sequence = sequences.find(&value);
          return place == IndexVariable::Row && sequence != sequences.end()
                     ? lastRows(build, const_cast<Value&>(value), sequence->second.axis, past)
                     : const_cast<Value&>(value);
        };
        MaskWriter writer(build, plan->second.reader->space(), places, elements);
        mask = &writer.write(plan->second.element, plan->first->type().elementType());
      }
      site->node->setOperand(3, mask);
    }
  }

  /// Positions of the new rows, and of all keys. They do not read the joined keys: targets that
  /// join them in the attention compute masks first.
  static MaskWriter::Places placesOf(AttentionBuilder& build, Value& past, const Node& sdpa) {
    Value& first = build.value(build.extent(past, 2, /*scalar=*/true));
    Value& rows = build.value(build.extent(*sdpa.operand(0), 2, /*scalar=*/true));
    Value& end = build.node("Add", {first, rows}, {}, "end");
    return {&build.node("Range", {first, end, int64Scalar(1)}, {}, "rows"), &build.range(end)};
  }

  /// The elements of a sequence of all tokens that belong to the new tokens.
  static Value& lastRows(AttentionBuilder& build, Value& sequence, unsigned axis, Value& past) {
    return build.node("Slice",
                      {sequence, build.extent(past, 2), ints({std::numeric_limits<int64_t>::max()}),
                       ints({axis})},
                      {}, "new_rows");
  }

  /// Makes a cache an output: a new one, or in place of the output that returned its rows.
  void handOut(Value& present, const AddedCacheNames& names) {
    freeName(graph, names.present);
    graph.rename(present, names.present);
    if (!names.output) {
      graph.addOutput(present);
      return;
    }
    graph.setOutput(*names.output, present);
    context.outputsMadeCaches.push_back(names.present);
  }

  /// Clears the declared extents of unread inputs. They may have a place for each new token or for
  /// each key, which is unknown, so the declaration must not claim the former.
  void forgetUnreadExtents() {
    for (const std::unique_ptr<Value>& input : graph.inputs()) {
      if (input->hasUses() || !input->type().hasRank())
        continue;
      Shape shape(input->type().shape().begin(), input->type().shape().end());
      for (Dim& extent : shape)
        if (extent == tokens)
          extent = Dim::symbol(freshSymbol("unread_length"));
      input->setType(TensorType(input->type().elementType(), std::move(shape)));
    }
  }

  /// Starts positions and tables of positions at the number of earlier tokens.
  void startAtPast(Value& past) {
    if (functions.positions.empty() && functions.tables.empty() && functions.lastRows.empty())
      return;
    Rewriter rewriter(graph, passName, context.journal);
    AttentionBuilder build(rewriter);
    PlacesAfter places(build, past, 2);
    const auto move = [](Node& node, const PlacesAfter::Operands& operands) {
      for (unsigned i = 0; i < operands.size(); ++i)
        node.setOperand(i, operands[i]);
    };
    const auto operandsOf = [](const Node& node) {
      PlacesAfter::Operands operands;
      for (const Use& use : node.operands())
        operands.push_back(use.value());
      return operands;
    };
    for (Node* range : functions.positions)
      move(*range, places.ofRange(operandsOf(*range)));
    for (Node* table : functions.tables)
      move(*table, places.ofTable(operandsOf(*table)));
    for (const TokenFunctions::LastRows& rows : functions.lastRows)
      rows.node->setOperand(rows.operand,
                            &lastRows(build, *rows.node->operand(rows.operand), rows.axis, past));
  }

  Model& model;
  Graph& graph;
  PassContext& context;
  Dim tokens;
  /// Inputs that get an element for each key, and values computed from them for all tokens.
  llvm::SetVector<const Value*> lengthened;
  PrefixSequences sequences;
  llvm::DenseMap<const Value*, MaskElements> masks;
  TokenFunctions functions;
};

class AddCaches final : public Pass {
public:
  explicit AddCaches(bool keepsFirst) : isFirst(keepsFirst) {}

  llvm::Error run(Model& model, PassContext& context) override {
    CacheAdder adder(model, context);
    if (llvm::Error error = isFirst ? adder.keepFirst() : adder.run())
      return error;
    model.markEdited();
    return llvm::Error::success();
  }

private:
  bool isFirst;
};

llvm::Expected<std::unique_ptr<Pass>> addCachesOf(const PassOptions& given) {
  auto part = given.find("part");
  if (part != given.end() && part->second != "first")
    return usageError("add-caches: 'part' must be 'first', not '{}'", part->second);
  return makeAddCaches(part != given.end() ? CachedPart::FirstStep : CachedPart::Decoder);
}

} // namespace

std::unique_ptr<Pass> makeAddCaches(CachedPart part) {
  return std::make_unique<AddCaches>(part == CachedPart::FirstStep);
}

void register_add_caches(PassRegistry& registry) {
  registry.add({passName,
                "Adds caches to a decoder that computes the whole sequence at every step.",
                {"part"},
                addCachesOf});
}

} // namespace kvopt::transforms
