// Lowers the detected sites to one target.
//
//   lower{to=kvopt capacity=4096 layers=0-3 require=any}     lower{to=blocks:512 capacity=4096}
//   lower{to=tiles:512 capacity=4096 state=float16}
#include "passes/pass.h"
#include "passes/targets/lower_options.h"
#include "passes/targets/target.h"
#include "passes/transforms/compressed_caches.h"
#include "passes/transforms/configured_passes.h"
#include "support/diagnostic.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::transforms {
using namespace analysis;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace targets;

namespace {

/// Whether the attention of some site has no effect on any output.
bool hasDeadSite(const Graph& graph, llvm::ArrayRef<AttentionSite> sites) {
  llvm::DenseSet<const Node*> live;
  llvm::SmallVector<const Node*, 32> pending;
  const auto see = [&](const Value* value) {
    const Node* producer = value ? value->producer() : nullptr;
    if (producer && live.insert(producer).second)
      pending.push_back(producer);
  };
  llvm::for_each(graph.outputs(), see);
  while (!pending.empty()) {
    const Node& node = *pending.pop_back_val();
    for (const Use& use : node.operands())
      see(use.value());
    for (const Graph* nested : node.subgraphs())
      llvm::for_each(nested->outputs(), see);
  }
  return llvm::any_of(
      sites, [&](const AttentionSite& site) { return site.node && !live.contains(site.node); });
}

class Lower final : public Pass {
public:
  explicit Lower(LowerRequest lowerRequest)
      : target(lowerRequest.target), requireAll(lowerRequest.requiresAll),
        options(std::move(lowerRequest.options)) {}
  /// Looks up the target when the pass runs, because a pipeline text is parsed before targets
  /// exist.
  Lower(std::string to, LowerRequest lowerRequest) : Lower(std::move(lowerRequest)) {
    targetText = std::move(to);
  }

  llvm::Error run(Model& model, PassContext& context) override {
    if (!targetText.empty()) {
      llvm::Expected<TargetChoice> choice = context.targets.choose(targetText);
      if (!choice)
        return choice.takeError();
      target = choice->target;
      options.size = choice->size;
    }
    if (options.state != ElementType::Float && !target->hasTileState())
      return usageError("'{}' does not have a state between tiles that could be {}", target->name(),
                        dtypeName(options.state));
    if (llvm::Error error = checkNotInPlace(model))
      return error;
    if (!target->supportsModel(model))
      if (llvm::Error error = target->prepare(model))
        return error;
    if (target->compressesCaches())
      if (llvm::Error error = compressCaches(model, context))
        return error;
    context.sites = explainedSites(model, context);
    if (hasDeadSite(model.graph(), context.sites)) {
      // Lowering removes dead nodes, which would include the attention to be lowered.
      model.graph().eraseDeadNodes();
      context.sites = explainedSites(model, context);
    }
    std::optional<ContextRotations> rotations;
    if (!context.whole)
      rotations = contextRotations(model, context);
    for (unsigned layer : options.layers)
      if (layer >= context.sites.size())
        return noSuchLayer(layer, context.sites.size());
    const Choice choice = choose(model, context);
    const llvm::SmallVectorImpl<AttentionSite*>& chosen = choice.sites;
    context.count("lower", "sites", static_cast<int64_t>(chosen.size()));
    context.count("lower", "refused", choice.refused);
    if (choice.refused != 0 && requireAll)
      return refusal(*choice.firstRefused, choice.refused, choice.wanted());
    if (!context.whole)
      context.left = choice.left;
    if (chosen.empty())
      return llvm::Error::success();
    for (const AttentionSite* site : chosen)
      context.lowered.push_back(site->layer);
    // Callers must also feed the caches that do not change.
    Manifest unrewritten = exportedManifest(model.graph(), context.sites, context.interface);
    addReorder(model.graph(), context.reorder, unrewritten);
    if (context.unreadFlag) {
      llvm::erase_if(unrewritten.inputs, [&](const ManifestInput& input) {
        return input.input == context.unreadFlag->input->name();
      });
      addFlag(*context.unreadFlag, unrewritten);
    }
    context.exported = unrewritten;
    addWindows(context.sites, *context.exported);
    addReaders(context.sites, *context.exported);
    context.history.undo(*context.exported);
    if (context.whole)
      context.exported = context.whole->exported;
    if (context.hiddenRowsUndefined && !context.whole)
      if (auto failure = carriedHiddenRows(model.graph(), context.sites))
        return refuseAll(std::move(*failure), chosen);
    auto manifest = target->lower(model, chosen, options, context.journal);
    if (!manifest)
      return asRefusal(manifest.takeError());
    llvm::StringSet<> rewritten;
    for (const ManifestCache& cache : manifest->caches)
      rewritten.insert(cache.past);
    for (ManifestCache& cache : unrewritten.caches)
      if (!rewritten.count(cache.past))
        manifest->caches.push_back(std::move(cache));
    addInputs(unrewritten, *manifest);
    manifest->hiddenRowsUndefined |= context.hiddenRowsUndefined;
    // Without padded rows, nothing is counted.
    manifest->padsRight = context.exported->padsRight && context.unpaddedMasks.empty();
    if (context.exported->chunkBatch)
      manifest->chunkBatch = context.exported->chunkBatch;
    manifest->unpadded.assign(context.unpaddedMasks.begin(), context.unpaddedMasks.end());
    if (manifest->hiddenRowsUndefined && !context.reorder.empty())
      return refuseReorder(context, chosen);
    addWindows(context.sites, *manifest);
    addReaders(context.sites, *manifest);
    context.history.writeTo(*manifest);
    if (context.whole)
      completeManifest(*context.whole, context.history, model.graph(), rewritten, *manifest);
    else
      noteRotations(rotations, {}, *manifest);
    manifest->reorder = context.reorder;
    manifest->operators = ownOperatorsOf(model);
    model.setMetadata(manifestKey, manifest->json());
    noteOrigin(model, *manifest, context.exported->caches);
    model.removeMetadata(partialKey);
    if (chosen.size() < context.sites.size())
      model.setMetadata(partialKey, std::to_string(context.sites.size() - chosen.size()));
    context.manifest = std::move(*manifest);
    return llvm::Error::success();
  }

private:
  /// Layers to lower, and how many of the user's layers are refused.
  struct Choice {
    llvm::SmallVector<AttentionSite*, 32> sites;
    std::vector<LeftSite> left; ///< refused layers, too
    unsigned refused = 0;
    const AttentionSite* firstRefused = nullptr;

    void refuse(AttentionSite& site, MatchFailure failure) {
      left.push_back({site.layer, false, failure});
      site.failure = std::move(failure);
      if (refused++ == 0)
        firstRefused = &site;
    }

    size_t wanted() const { return sites.size() + left.size(); }
  };

  Choice choose(const Model& model, PassContext& context) const {
    std::vector<std::optional<MatchFailure>> failures =
        refusals(*target, context.sites, model, context.reorder,
                 context.whole ? RowCarriers::AreAttention : RowCarriers::Unknown);
    keepApplicableHints(*target, failures, context.sites, model, context.targets, context.reorder);
    Choice choice;
    const bool isAsked = !options.layers.empty();
    for (AttentionSite& site : context.sites) {
      std::optional<MatchFailure>& failure = failures[site.layer];
      if (isAsked && !llvm::is_contained(options.layers, site.layer))
        continue;
      if (!failure)
        choice.sites.push_back(&site);
      else if (!isAsked && mayStay(*target, site))
        choice.left.push_back({site.layer, true, std::move(*failure)});
      else if (!context.whole || site.isMatched())
        choice.refuse(site, std::move(*failure));
      else // the run before has left it alone
        choice.left.push_back({site.layer, false, std::move(*failure)});
    }
    // A model without other layers has nothing to gain.
    if (choice.sites.empty())
      for (const LeftSite& left : std::exchange(choice, {}).left)
        choice.refuse(context.sites[left.layer], left.why);
    // Attention that reads the cache of another layer is refused by the target, with a reason.
    const auto hasWork = [&](const AttentionSite* site) {
      return target->serves(*site) || site->sharesCaches();
    };
    if (!target->isForCaches() || llvm::any_of(choice.sites, hasWork))
      return choice;
    // Other layers may have work for the target, but they are not chosen.
    for (AttentionSite* site : choice.sites)
      choice.refuse(*site, target->nothingToDo(*site));
    choice.sites.clear();
    return choice;
  }

  /// The manifest of a model whose caches are already shared buffers does not follow from the graph
  /// alone: restore-caches must run first.
  static llvm::Error checkNotInPlace(const Model& model) {
    auto stored = manifestOf(model);
    if (!stored)
      return stored.takeError();
    if (!*stored || !(*stored)->ownsCaches())
      return llvm::Error::success();
    const bool isInBlocks = llvm::any_of((*stored)->caches, [](const ManifestCache& cache) {
      return cache.update() == CacheUpdate::Blocks;
    });
    return unsupported("the model was rewritten before, for '{}': {}", (*stored)->target,
                       isInBlocks ? "its caches are in blocks" : "the manifest drives its caches")
        .hint("rewrite the model as it was exported")
        .as<RefusedError>();
  }

  /// The contents of padding rows in a cache are undefined, and another batch row may continue from
  /// them and see them.
  llvm::Error refuseReorder(const PassContext& context, llvm::ArrayRef<AttentionSite*> chosen) {
    return refuseAll(
        {ReasonCode::CacheReordered, context.reorder,
         "the rows of padding in a cache to be unchanged, because batch rows may change places",
         formatted("that '{}' leaves them undefined", wantedName()), ""},
        chosen);
  }

  llvm::Error refuseAll(const MatchFailure& failure, llvm::ArrayRef<AttentionSite*> chosen) {
    for (AttentionSite* site : chosen)
      site->failure = failure;
    return refusal(*chosen.front(), static_cast<unsigned>(chosen.size()), chosen.size());
  }

  /// Rotations of cached rows; nullopt, with the reason recorded, if rows cannot be moved.
  static std::optional<ContextRotations> contextRotations(const Model& model,
                                                          PassContext& context) {
    auto found = findContextRotations(model.graph(), context.sites);
    if (auto* rotations = std::get_if<ContextRotations>(&found))
      return std::move(*rotations);
    context.shiftFailure = std::move(std::get<MatchFailure>(found));
    return std::nullopt;
  }

  /// Inputs of the original model remain inputs of the lowered one.
  static void addInputs(Manifest& before, Manifest& manifest) {
    for (ManifestLength& length : before.lengths) {
      auto isSame = [&](const ManifestLength& other) { return other.input == length.input; };
      if (llvm::none_of(manifest.lengths, isSame))
        manifest.lengths.push_back(std::move(length));
    }
    manifest.inputs = std::move(before.inputs);
  }

  /// Records facts that restore-caches cannot derive from the model.
  static void noteOrigin(Model& model, const Manifest& manifest,
                         llvm::ArrayRef<ManifestCache> exported) {
    for (const ManifestCache& cache : exported) {
      const auto axis = static_cast<size_t>(cache.sequenceAxis);
      const auto* rows = std::get_if<std::string>(&cache.shape[axis]);
      if (manifest.sharesBuffers() && rows && cache.update() != CacheUpdate::ReadOnly)
        return model.setMetadata(pastExtentKey, *rows);
    }
  }

  /// Refuses sites that a target supports separately and not together.
  static llvm::Error asRefusal(llvm::Error error) {
    Diagnostic diagnostic = takeDiagnostic(std::move(error));
    if (diagnostic.kind != Diagnostic::Kind::Unsupported)
      return makeError(std::move(diagnostic));
    return llvm::make_error<RefusedError>(std::move(diagnostic));
  }

  llvm::Error refusal(const AttentionSite& first, size_t refused, size_t wanted) const {
    return unsupported("{} of {} attention layers cannot be lowered to '{}': {} {}", refused,
                       wanted, wantedName(), first.id(), first.failure->str())
        .as<RefusedError>();
  }

  /// Name of the target, with the size if one was given.
  std::string wantedName() const {
    if (!targetText.empty())
      return targetText;
    return options.size == target->defaultSize() ? target->name().str()
                                                 : formatted("{}:{}", target->name(), options.size);
  }

  std::string targetText; ///< as in a pipeline text; empty if the target was given directly
  const Target* target;
  bool requireAll;
  LowerOptions options;
};

llvm::Expected<std::unique_ptr<Pass>> lowerOf(const PassOptions& given) {
  auto option = [&](const char* name) {
    auto found = given.find(name);
    return found == given.end() ? std::string() : found->second;
  };
  LowerRequest request;
  LowerOptions& options = request.options;
  if (std::string text = option("capacity"); !text.empty()) {
    auto capacity = parseCapacity(text);
    if (!capacity)
      return capacity.takeError();
    options.capacity = *capacity;
  }
  if (std::string text = option("layers"); !text.empty()) {
    auto layers = parseLayers(text, '+');
    if (!layers)
      return layers.takeError();
    options.layers = std::move(*layers);
  }
  if (option("to").empty())
    return usageError("lower needs to=TARGET").hint("kvopt list targets");
  if (std::string text = option("state"); text == "float16")
    options.state = ElementType::Float16;
  else if (!text.empty() && text != "float32")
    return usageError("the state between tiles is float32 or float16, not '{}'", text);
  std::string require = option("require");
  if (!require.empty() && require != "all" && require != "any")
    return usageError("'{}' is neither 'all' nor 'any'", require);
  request.requiresAll = require != "any";
  return std::make_unique<Lower>(option("to"), std::move(request));
}

} // namespace

std::unique_ptr<Pass> makeLower(LowerRequest request) {
  return std::make_unique<Lower>(std::move(request));
}

void register_lower(PassRegistry& registry) {
  registry.add({"lower",
                "Writes the detected attention layers in the form of one target.",
                {"to", "capacity", "layers", "require", "state"},
                lowerOf});
}

} // namespace kvopt::transforms
