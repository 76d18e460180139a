// TargetRegistry, and the manifest of an unrewritten model.
#include "passes/targets/target.h"
#include "passes/analysis/tokens/row_carriers.h"
#include "support/string_ends.h"

#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/driven_caches.h"
#include "passes/analysis/interface/input_roles.h"
#include "passes/analysis/scores/attention_like.h"
#include "passes/opset/opset_conversion.h"
#include "passes/pattern/reason_docs.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/nearest_word.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace opset;
using namespace pattern;

std::optional<MatchFailure> Target::supportsModel(const Model& model) const {
  return opsetObstacle(model, opset());
}

llvm::Error Target::prepare(Model& model) const {
  if (model.graph().opsetVersion() >= opset())
    return llvm::Error::success();
  raiseOpset(model, opset());
  return inferShapes(model.graph());
}

void TargetRegistry::add(std::unique_ptr<Target> target) {
  assert(!find(target->name()) && "target names are unique");
  const auto behind =
      llvm::find_if(targets, [&](const auto& other) { return target->name() < other->name(); });
  targets.insert(behind, std::move(target));
}

const Target* TargetRegistry::find(llvm::StringRef name) const {
  for (const std::unique_ptr<Target>& target : targets)
    if (target->name() == name)
      return target.get();
  return nullptr;
}

llvm::Expected<TargetChoice> TargetRegistry::choose(llvm::StringRef text) const {
  auto [name, size] = text.split(':');
  TargetChoice choice{find(name), 0};
  if (!choice.target) {
    std::vector<std::string> known;
    for (const std::unique_ptr<Target>& target : targets)
      known.push_back(target->name().str());
    return usageError("there is no target '{}'{}", name, didYouMean(std::string_view(name), known))
        .hint("kvopt list targets");
  }
  choice.size = choice.target->defaultSize();
  if (!text.contains(':'))
    return choice;
  if (choice.size == 0)
    return usageError("the target '{}' does not take a size", name);
  if (size.getAsInteger(10, choice.size) || choice.size < 1 || choice.size > INT32_MAX)
    return usageError("invalid size '{}' for the target '{}'", size, name);
  return choice;
}

namespace {

MatchFailure sharedCache(const AttentionSite& site) {
  const unsigned other = site.owner ? *site.owner : site.readers.front();
  return {ReasonCode::SharedReader, site.key->past->name().str(),
          "a cache that one attention reads", formatted("L{} reads it as well", other),
          "--to kvopt can take it"};
}

/// Refusal of a site whose cache holds codes; nullopt for others.
std::optional<MatchFailure> cachesOfCodes(const AttentionSite& site) {
  for (const auto* cache : {&site.key, &site.value}) {
    const Value* past = *cache ? (*cache)->past : nullptr;
    if (past && !isFloatingPoint(past->type().elementType()) &&
        past->type().elementType() != ElementType::Undefined)
      return MatchFailure{ReasonCode::DtypeMix, past->name().str(),
                          "caches of floating-point numbers", past->type().str(),
                          "--to kvopt can take it"};
  }
  return std::nullopt;
}

/// Either all readers of a cache support its buffer form, or none uses it.
void refuseReadersTogether(const SiteList& sites,
                           std::vector<std::optional<MatchFailure>>& failures) {
  for (size_t i = 0; i < sites.size(); ++i)
    if (sites[i].owner && failures[i] && !failures[*sites[i].owner])
      failures[*sites[i].owner] = sharedCache(sites[*sites[i].owner]);
  for (size_t i = 0; i < sites.size(); ++i)
    if (sites[i].owner && failures[*sites[i].owner] && !failures[i])
      failures[i] = sharedCache(sites[i]);
}

} // namespace

bool Target::serves(const AttentionSite& site) const {
  return site.grows() || site.isOverwritten();
}

MatchFailure Target::nothingToDo(const AttentionSite& site) const {
  return {ReasonCode::NoCache, site.node->name().str(), "attention that appends to a cache",
          site.isCross ? "keys that are only read" : "attention without a cache",
          site.isCross ? "" : "kvopt add-cache adds caches, or gives the reason why it cannot"};
}

std::vector<std::optional<MatchFailure>> refusals(const Target& target, const SiteList& sites,
                                                  const Model& model, const std::string& reorder,
                                                  RowCarriers carriers) {
  const std::optional<MatchFailure> obstacle = target.supportsModel(model);
  std::vector<std::optional<MatchFailure>> failures;
  bool hasWork = false;
  std::optional<MatchFailure> carried;
  if (carriers == RowCarriers::Unknown && llvm::any_of(sites, [&](const AttentionSite& site) {
        return site.isMatched() && site.node && target.changesPadding(site);
      }))
    carried = carriedHiddenRows(model.graph(), sites);
  for (const AttentionSite& site : sites) {
    failures.push_back(target.supports(site, model));
    if (!failures.back() && !target.takesCodes())
      failures.back() = cachesOfCodes(site);
    if (!failures.back() && site.sharesCaches() && !target.takesSharedCaches())
      failures.back() = sharedCache(site);
    if (!failures.back() && !reorder.empty() && target.changesPadding(site))
      failures.back() = {
          ReasonCode::CacheReordered, reorder,
          "the rows of padding in a cache to be unchanged, because batch rows may change places",
          formatted("that '{}' leaves them undefined", target.name()), ""};
    if (!failures.back())
      failures.back() = obstacle;
    hasWork |= !failures.back() && target.serves(site);
  }
  for (size_t i = 0; i < sites.size() && hasWork; ++i)
    if (!failures[i] && carried && target.changesPadding(sites[i]))
      failures[i] = carried;
  refuseReadersTogether(sites, failures);
  if (hasWork || !target.isForCaches())
    return failures;
  for (size_t i = 0; i < sites.size(); ++i)
    if (!failures[i])
      failures[i] = target.nothingToDo(sites[i]);
  return failures;
}

bool mayStay(const Target& target, const AttentionSite& site) {
  return site.hasUnchangedKeys &&
         (target.isForCaches() || (!site.isMatched() && isSoftmax(*site.node)));
}

namespace {

/// Caches which targets take which sites.
class TakenSites {
public:
  TakenSites(const Target& refusing, const SiteList& allSites, const Model& readModel,
             const TargetRegistry& known, const std::string& reorderInput)
      : asked(refusing), sites(allSites), model(readModel), registry(known), reorder(reorderInput) {
  }

  /// The refusal of a target; nullopt where it takes the site.
  const std::optional<MatchFailure>& refusal(const Target& target, size_t site) {
    auto [entry, isNew] = failures.try_emplace(&target);
    if (isNew)
      entry->second = refusals(target, sites, model, reorder);
    return entry->second[site];
  }

  /// Whether a part of a hint, such as `--to ring keeps the last rows`, applies to the site.
  bool applies(llvm::StringRef part, size_t site) {
    if (startsWith(part, "choose a"))
      return llvm::any_of(registry.all(), [&](const std::unique_ptr<Target>& target) {
        return target->isForCaches() && !refusal(*target, site);
      });
    return llvm::none_of(named(part), [&](const Target* target) {
      return refusal(*target, site).has_value() || !runsElsewhere(*target, site);
    });
  }

  /// Remedy for the case that no part of a hint applies as a whole.
  std::string otherwise(llvm::StringRef hint, size_t site) {
    for (const Target* target : named(hint))
      if (!refusal(*target, site) && runsElsewhere(*target, site))
        return formatted("--to {} can take it", target->name());
    if (const Target* target = asked.usesOwnOperators() ? nullptr : standardTarget(site))
      return formatted("--to {} can take it", target->name());
    for (bool isForCaches : {true, false})
      for (const std::unique_ptr<Target>& target : registry.all())
        if (target->isForCaches() == isForCaches && !refusal(*target, site))
          return formatted("--to {} can take it", target->name());
    return "nothing to do: no target takes it";
  }

private:
  /// Whether engines for the form of `asked` also run the form of `target`, or the site has no form
  /// in ONNX's own Attention.
  bool runsElsewhere(const Target& target, size_t site) {
    return asked.usesOwnOperators() || !target.usesOwnOperators() || !standardTarget(site);
  }

  /// Target that writes ONNX's own Attention and supports the site. Newer operators are preferred,
  /// then targets that update caches in place. Null if there is none.
  const Target* standardTarget(size_t site) {
    const Target* best = nullptr;
    for (const std::unique_ptr<Target>& target : registry.all())
      if (target->opset() > oldestTargetOpset && !refusal(*target, site) &&
          (!best || std::pair(target->opset(), target->isForCaches()) >
                        std::pair(best->opset(), best->isForCaches())))
        best = target.get();
    return best;
  }

  llvm::SmallVector<const Target*, 2> named(llvm::StringRef text) const {
    llvm::SmallVector<const Target*, 2> targets;
    while (text.contains("--to ")) {
      text = text.split("--to ").second;
      const llvm::StringRef name =
          text.take_while([](char c) { return llvm::isAlnum(c) || c == '-'; });
      if (const Target* target = registry.find(name))
        targets.push_back(target);
    }
    return targets;
  }

  const Target& asked;
  const SiteList& sites;
  const Model& model;
  const TargetRegistry& registry;
  const std::string& reorder;
  std::map<const Target*, std::vector<std::optional<MatchFailure>>> failures;
};

} // namespace

void keepApplicableHints(const Target& asked,
                         llvm::MutableArrayRef<std::optional<MatchFailure>> failures,
                         const SiteList& sites, const Model& model, const TargetRegistry& registry,
                         const std::string& reorder) {
  TakenSites taken(asked, sites, model, registry, reorder);
  const bool hasTaken = llvm::any_of(failures, [](const auto& failure) { return !failure; });
  for (size_t i = 0; i < failures.size(); ++i) {
    if (failures[i] && hasTaken && mayStay(asked, sites[i])) {
      failures[i]->hint = "nothing to do: it stays as exported, at no cost";
      continue;
    }
    // Every target refuses unrecovered attention alike.
    if (!failures[i] || !sites[i].isMatched())
      continue;
    llvm::SmallVector<llvm::StringRef, 4> parts;
    const std::string hint = hintFor(*failures[i]);
    llvm::StringRef(hint).split(parts, "; ");
    llvm::erase_if(parts, [&](llvm::StringRef part) { return !taken.applies(part, i); });
    failures[i]->hint = parts.empty() ? taken.otherwise(hint, i) : llvm::join(parts, "; ");
  }
}

ManifestCache describeCache(const SiteCache& cache, unsigned layer, CacheRole role) {
  ManifestCache entry;
  entry.layer = layer;
  entry.role = role;
  entry.past = cache.past->name().str();
  if (cache.output)
    entry.present = cache.output->name().str();
  entry.sequenceAxis = cache.axis;
  entry.dtype = cache.past->type().elementType();
  const bool isRing = cache.update == CacheUpdate::Static && cache.writer &&
                      wrapsAround(*cache.writer, cache.past->type().dim(cache.axis));
  entry.storage = storageOf(isRing ? CacheUpdate::Ring : cache.update);
  entry.shape = manifestShape(cache.past->type(), cache.output, cache.axis);
  return entry;
}

Manifest exportedManifest(const Graph& graph, llvm::ArrayRef<AttentionSite> sites,
                          const InterfaceFacts& interface) {
  Manifest manifest;
  manifest.target = "none";
  manifest.contract = CacheUpdate::Grows;
  llvm::DenseSet<const Value*> known;
  llvm::DenseSet<const Value*> presents;
  auto add = [&](const SiteCache& cache, unsigned layer, CacheRole role) {
    bool isDriven = cache.output || cache.update == CacheUpdate::ReadOnly;
    if (cache.output)
      presents.insert(cache.output);
    if (isDriven && known.insert(cache.past).second && cache.past->type().hasRank())
      manifest.caches.push_back(describeCache(cache, layer, role));
  };
  int64_t layers = 0;
  for (const AttentionSite& site : sites) {
    layers = std::max<int64_t>(layers, site.layer + 1);
    if (!site.hasCache())
      continue;
    if (site.pastFlag && site.key->output)
      addFlag(*site.pastFlag, manifest);
    add(*site.key, site.layer, site.keyRole);
    add(*site.value, site.layer, CacheRole::Value);
  }
  for (ManifestCache& cache : cachesByDataFlow(graph, known, presents)) {
    cache.layer = layers++;
    manifest.caches.push_back(std::move(cache));
  }
  describeInputs(graph, interface, manifest);
  return manifest;
}

std::optional<MatchFailure> carriedHiddenRows(const Graph& graph, const SiteList& sites) {
  llvm::DenseSet<const Value*> ofSites;
  for (const AttentionSite& site : sites)
    for (const auto* cache : {&site.key, &site.value})
      if (*cache)
        ofSites.insert((*cache)->output);
  llvm::DenseSet<const Value*> states;
  for (const ManifestCache& cache : exportedManifest(graph, sites, {}).caches)
    if (const Value* present = graph.findValue(cache.present);
        present && !ofSites.contains(present))
      states.insert(present);
  const auto carrier = findRowCarrier(graph, sites, states);
  if (!carrier)
    return std::nullopt;
  return MatchFailure{ReasonCode::HiddenRowsCarried, carrier->name,
                      "rows of hidden tokens that only attention could carry to other tokens",
                      carrier->why, "--padding none, if no batch is padded"};
}

namespace {

bool readsCache(const AttentionSite& site, const ManifestCache& cache) {
  return site.hasCache() &&
         (site.key->past->name() == cache.past || site.value->past->name() == cache.past);
}

} // namespace

void addFlag(const PastFlag& flag, Manifest& manifest) {
  ManifestLength input;
  input.input = flag.input->name().str();
  for (const ManifestLength& known : manifest.lengths)
    if (known.input == input.input)
      return;
  input.dtype = ElementType::Bool;
  for (const Dim& extent : flag.input->type().shape())
    input.shape.emplace_back(extent.value().value_or(1));
  input.feed = flag.withPast ? LengthFeed::HasPast : LengthFeed::NoPast;
  manifest.lengths.push_back(std::move(input));
}

void addWindows(llvm::ArrayRef<AttentionSite> sites, Manifest& manifest) {
  for (ManifestCache& cache : manifest.caches) {
    std::optional<int64_t> widest;
    for (const AttentionSite& site : sites) {
      if (!readsCache(site, cache))
        continue;
      const int64_t window = site.window();
      widest = widest == 0 || window == 0 ? 0 : std::max(widest.value_or(0), window);
    }
    cache.window = widest.value_or(cache.window);
  }
}

void addReorder(const Graph& graph, const std::string& input, Manifest& manifest) {
  const Value* value = input.empty() ? nullptr : graph.findValue(input);
  const auto isIt = [&](const ManifestInput& other) { return other.input == input; };
  if (!value)
    return;
  llvm::erase_if(manifest.inputs, isIt);
  ManifestInput entry;
  entry.input = input;
  entry.dtype = value->type().elementType();
  entry.shape = {std::string("batch")};
  entry.feed = InputFeed::BatchRows;
  manifest.inputs.push_back(std::move(entry));
}

void noteRotations(const std::optional<ContextRotations>& rotations,
                   const llvm::StringSet<>& unattended, Manifest& manifest) {
  manifest.rotations.reset();
  if (!rotations)
    return;
  // A cache that holds several caches does not have a single rotation.
  size_t found = 0;
  for (ManifestCache& cache : manifest.caches) {
    const auto rotation = rotations->byPast.find(cache.past);
    if (rotation == rotations->byPast.end() || isScale(cache.role))
      continue;
    ++found;
    if (!unattended.contains(cache.past))
      cache.rotation = rotation->second;
  }
  if (found != rotations->byPast.size()) {
    for (ManifestCache& cache : manifest.caches)
      cache.rotation.reset();
    return;
  }
  manifest.rotations.emplace();
  for (const RowRotation& rotation : rotations->distinct)
    manifest.rotations->push_back(
        {rotation.width, rotation.first, rotation.interleaved, rotation.theta});
}

void addReaders(llvm::ArrayRef<AttentionSite> sites, Manifest& manifest) {
  for (ManifestCache& cache : manifest.caches)
    for (const AttentionSite& site : sites)
      if (site.owner && readsCache(site, cache))
        cache.readers.push_back(site.layer);
}

} // namespace kvopt::targets
