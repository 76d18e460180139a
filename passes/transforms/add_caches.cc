// Gives caches to a decoder that computes the whole sequence at every step.
//
//   before   o = ai.kvopt.Sdpa<causal = 1>(q, k, v, mask)             position = Range(0, S, 1)
//   after    o = ai.kvopt.Sdpa<causal = 1>(q, present_key, present_value, mask over P + S keys)
//            present_key = Concat<2>(past_key, k)   …value likewise   position = Range(P, P + S, 1)
//
// P is the extent of the first past. Everything outside of attention must be a function of single
// tokens (passes/analysis/tokens/token_functions.h), attention must be causal, and a mask
// may otherwise hide keys only by the elements of one input [B, S], which becomes [B, P + S].
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/driven_caches.h"
#include "passes/analysis/tokens/token_functions.h"
#include "passes/builders/added_cache_names.h"
#include "passes/builders/attention_builder.h"
#include "passes/builders/cross_projections.h"
#include "passes/builders/places_after.h"
#include "passes/pass.h"
#include "support/format.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace builders;
using namespace ir;
using namespace passes;
using namespace pattern;

namespace {

constexpr const char* passName = "add-caches";

constexpr const char* onlyPadding =
    "a causal mask that else hides keys by one input [batch, tokens]";
constexpr const char* otherExport =
    "export with past and present keys and values as inputs and outputs";

class CacheAdder {
public:
  CacheAdder(Model& changed, PassContext& passContext)
      : model(changed), graph(changed.graph()), context(passContext) {}

  llvm::Error run() {
    context.sites = explainedSites(model, context);
    if (context.sites.empty())
      return refused("the model has no attention to give caches to");
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
        return refused(
            fmt::format("caches cannot be added: {} {}", site.id(), site.failure->str()));
    if (tokens.isUnknown())
      return refused("the model has no attention among its own tokens to give caches to");
    auto followed = findTokenFunctions(graph, context.sites, tokens.symbols().front());
    if (const auto* mixing = std::get_if<TokenMixing>(&followed))
      return refuseMixing(*mixing);
    functions = std::move(std::get<TokenFunctions>(followed));
    if (llvm::Error error = checkPadding())
      return error;
    return rewrite();
  }

  /// Leaves what is computed once, for all steps.
  llvm::Error keepFirst() {
    const std::vector<CrossProjection> projections = projectionsOf(findSites(graph));
    if (projections.empty())
      return refused("the model computes no keys and values of another sequence");
    keepProjections(graph, projections, context.journal);
    context.sites.clear();
    return llvm::Error::success();
  }

private:
  /// Attention to keys and values that are inputs of their own.
  static bool readsOtherSequence(const AttentionSite& site) {
    return site.isCross && site.hasCache() && site.update == CacheUpdate::ReadOnly;
  }

  /// What attention to another sequence computes of it at every step.
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
        mixing.node ? fmt::format("{}: {}", mixing.node->describe(), mixing.why) : mixing.why, ""};
    const std::string message = "caches cannot be added: " + why.str();
    for (AttentionSite& site : context.sites)
      site.failure = why;
    return refused(message);
  }

  /// Why the attention of one site cannot get caches.
  std::optional<MatchFailure> obstacle(const AttentionSite& site) {
    if (site.hasCache() || site.update != CacheUpdate::None || site.isCross)
      return failure(ReasonCode::TargetLacksFeature, site, "attention without a cache",
                     site.isCross ? "attention to another sequence, with keys and values that are "
                                    "computed from more than its inputs"
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
                     "as many rows as other attention has, " + tokens.str(), rows.str());
    tokens = rows;
    if (!site.node->operand(1)->type().dim(2).isKnownEqual(tokens))
      return failure(ReasonCode::ShapeMismatch, site, "a key for each token",
                     site.node->operand(1)->type().dim(2).str());
    if (site.node->intAttr("causal", 0) == 0)
      return causalObstacle(site);
    return site.node->operand(3) ? maskObstacle(site) : std::nullopt;
  }

  /// Why attention is not causal by an attribute: what its mask is, or what it does besides.
  static MatchFailure causalObstacle(const AttentionSite& site) {
    const char* const expected = "a mask that is proved to be causal";
    if (!site.mask)
      return failure(ReasonCode::MaskNoncausal, site, expected, "no mask", otherExport);
    const MaskFacts& mask = *site.mask;
    if (mask.causal == Proof::Proved || mask.hidesLaterKeys)
      return failure(ReasonCode::BiasUnsupported, site, onlyPadding, mask.text, otherExport);
    const bool isRefuted = mask.causal == Proof::Refuted;
    return failure(
        isRefuted ? ReasonCode::MaskNoncausal : ReasonCode::MaskUnprovenCausal, site, expected,
        isRefuted && !mask.counterExample.empty() ? mask.counterExample : mask.text, otherExport);
  }

  /// A mask that is left may hide keys by one input only.
  std::optional<MatchFailure> maskObstacle(const AttentionSite& site) {
    const bool isPadding = site.mask && site.mask->remaining == MaskFacts::Remaining::Padding &&
                           site.mask->isExact && site.mask->padding.size() == 1;
    const Value* input = isPadding ? site.mask->padding.front().shownBy : nullptr;
    if (!input || input->graph().parentNode() || input->type().rank() != 2 ||
        !input->type().dim(1).isKnownEqual(tokens) || (padding && padding != input))
      return failure(ReasonCode::BiasUnsupported, site, onlyPadding,
                     site.mask ? site.mask->text : "a mask that is not understood", otherExport);
    padding = const_cast<Value*>(input);
    return std::nullopt;
  }

  /// Of the longer input nothing but masks may be made.
  llvm::Error checkPadding() {
    if (!padding)
      return llvm::Error::success();
    llvm::DenseSet<const Node*> attentions;
    for (const AttentionSite& site : context.sites)
      if (!readsOtherSequence(site))
        attentions.insert(site.node);
    llvm::SmallVector<const Value*, 16> pending(1, padding);
    llvm::DenseSet<const Value*> seen{padding};
    while (!pending.empty()) {
      const Value* value = pending.pop_back_val();
      if (value->isGraphOutput())
        return refuseMixing(
            {value->producer(), fmt::format("'{}' is an output, and made of '{}', which is as long "
                                            "as all keys",
                                            value->name(), padding->name())});
      for (const Use& use : value->uses()) {
        const Node& reader = use.user();
        if (attentions.contains(&reader) && use.operandIndex() == 3)
          continue;
        if (attentions.contains(&reader) || reader.graph().parentNode())
          return refuseMixing({&reader, fmt::format("it reads '{}', which is as long as all keys",
                                                    padding->name())});
        if (!reader.is("Shape"))
          for (const Value& result : reader.results())
            if (seen.insert(&result).second)
              pending.push_back(&result);
      }
    }
    return llvm::Error::success();
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
      name = fmt::format("{}_{}", base, number);
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
    if (padding) {
      padding->setType(
          TensorType(padding->type().elementType(), Shape{padding->type().dim(0), past + tokens}));
    }
    for (size_t i = 0; i < own.size(); ++i)
      addCaches(*own[i], llvm::ArrayRef(names).slice(2 * i, 2),
                llvm::ArrayRef(pasts).slice(2 * i, 2));
    context.count(passName, "caches", static_cast<int64_t>(pasts.size()));
    startAtPast(*pasts.front());
    restoreOrder(graph);
    graph.eraseDeadNodes();
    forgetUnreadExtents();
    return inferShapes(graph);
  }

  /// What its caches are called: `0`, or `0.decoder` if the model has caches of an encoder, too.
  std::string nameOf(size_t layer) const {
    return fmt::format("{}{}", layer, context.hasFirstStep ? ".decoder" : "");
  }

  /// Names of the caches of keys, then of values, of each site.
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
    if (site.node->operand(3)) {
      Value& visible = build.node(
          "Cast", {*padding}, attrs({{"to", static_cast<int64_t>(ElementType::Bool)}}), "visible");
      Value& mask = build.node("Unsqueeze", {visible, ints({1, 2})}, {}, "padding");
      site.node->setOperand(3, &mask);
    }
  }

  /// Makes a cache an output, a new one or in the place of the one that handed out its rows.
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

  /// An input without readers may have a place for each new token or for each key: that is not
  /// known.
  void forgetUnreadExtents() {
    for (const std::unique_ptr<Value>& input : graph.inputs()) {
      if (input->hasUses() || !input->type().hasRank())
        continue;
      Shape shape(input->type().shape().begin(), input->type().shape().end());
      for (Dim& extent : shape)
        if (extent == tokens)
          extent = Dim::unknown();
      input->setType(TensorType(input->type().elementType(), std::move(shape)));
    }
  }

  /// Positions and tables of positions begin at the number of earlier tokens.
  void startAtPast(Value& past) {
    if (functions.positions.empty() && functions.tables.empty())
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
  }

  Model& model;
  Graph& graph;
  PassContext& context;
  Dim tokens;
  Value* padding = nullptr;
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

llvm::Expected<std::unique_ptr<Pass>> makeAddCaches(const PassOptions& given) {
  auto part = given.find("part");
  if (part != given.end() && part->second != "first")
    return usageError("add-caches: 'part' can be 'first' only, not '{}'", part->second);
  return std::make_unique<AddCaches>(part != given.end());
}

} // namespace

void register_add_caches(PassRegistry& registry) {
  registry.add({passName,
                "Gives caches to a decoder that computes the whole sequence at every step.",
                {"part"},
                makeAddCaches});
}

} // namespace kvopt::transforms
