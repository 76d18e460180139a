// A table of claims and their checks.
#include "driver/claims/claims.h"

#include "driver/claims/read_model.h"
#include "driver/claims/rotation_claim.h"
#include "driver/claims/step_claims.h"
#include "passes/analysis/cache/row_lengths.h"
#include "passes/analysis/interface/interface_facts.h"
#include "passes/targets/target.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::driver {
using namespace analysis;
using namespace ir;
using namespace targets;

namespace {

/// Context of the checks of one manifest.
struct ClaimContext {
  ClaimedModel claimed;
  /// The model of the comparison; null if there is none.
  const ClaimedModel* original;
  const Toolkit& toolkit;

  const Manifest& manifest() const { return claimed.manifest; }
  const Graph& graph() const { return claimed.model.graph(); }

  /// An error about a claim that the graph contradicts.
  DiagnosticBuilder contradiction(const char* key, llvm::StringRef value,
                                  const std::string& problem) const {
    return invalid("the manifest contradicts the model: {}: {}", key, problem)
        .file(claimed.model.path)
        .value(value)
        .hint("rewrite the model as it was exported");
  }
};

/// The result of a check: empty for a proved claim, otherwise a sentence with the reason.
using ClaimResult = llvm::Expected<std::string>;

std::string proved() { return ""; }

ClaimResult checkRotationClaim(const ClaimContext& context) {
  return checkRotations(context.claimed, context.original, context.toolkit);
}

/// A window says that no later token reads an earlier row of a cache. The original has the windows
/// that its masks show.
ClaimResult checkWindows(const ClaimContext& context) {
  for (const ManifestCache& cache : context.manifest().caches) {
    if (cache.window == 0 || !context.original)
      continue;
    const auto& others = context.original->manifest.caches;
    const auto same =
        llvm::find_if(others, [&](const ManifestCache& other) { return other.past == cache.past; });
    if (same != others.end() && (same->window == 0 || same->window > cache.window))
      return context.contradiction(
          "caches[].window", cache.past,
          same->window == 0
              ? formatted("the model attends to all rows, not to the last {}", cache.window)
              : formatted("the model attends to {} rows, not to {}", same->window, cache.window));
  }
  return proved();
}

ClaimResult checkStepLimit(const ClaimContext& context) {
  const int64_t claimed = context.manifest().stepLimit.value_or(0);
  const std::optional<int64_t> limit = stepLimitOf(context.graph(), context.manifest());
  if (limit && claimed > *limit)
    return context.contradiction(
        "step_limit", "",
        formatted("the graph takes steps of at most {} tokens, not {}", *limit, claimed));
  if (limit == claimed)
    return proved();
  return formatted("step_limit: steps of more than {} tokens are excluded by the manifest alone; "
                   "the graph takes {}",
                   claimed, limit ? formatted("steps of up to {}", *limit) : "steps of any length");
}

/// Numbers of attention layers of a model.
struct HiddenAttentions {
  size_t hidden = 0; ///< layers from which a mask hides keys
  size_t all = 0;
};

/// The number of attention layers from which a mask hides keys, by its elements or by lengths that
/// are computed from them; nullopt if a spelling of attention matches no rule.
std::optional<HiddenAttentions> attentionsHidden(const ClaimedModel& read, const std::string& mask,
                                                 const Toolkit& toolkit) {
  const Value* input = read.model.graph().findValue(mask);
  if (!input || !readsElements(*input))
    return HiddenAttentions();
  auto recovered = readModel(read.model, read.manifest, toolkit);
  if (!recovered) {
    llvm::consumeError(recovered.takeError());
    return std::nullopt;
  }
  const bool isRaised = llvm::all_of(recovered->context->sites,
                                     [](const auto& site) { return isAttention(*site.node); });
  if (!isRaised)
    return std::nullopt;
  const Value* same = recovered->model->graph().findValue(mask);
  return HiddenAttentions{same ? attentionsHiddenBy(*same) : 0, attentionCount(*recovered->model)};
}

/// Checks that padding has no meaning: the mask hides keys from fewer attention layers than it
/// should. That number is the one of the other model. If that model also excludes padding, or if
/// there is none, it is the number of all layers of this model.
ClaimResult checkUnpadded(const ClaimContext& context) {
  for (const std::string& mask : context.manifest().unpadded) {
    const auto own = attentionsHidden(context.claimed, mask, context.toolkit);
    if (own && own->hidden == 0)
      continue;
    const bool hasMeaning =
        context.original && !llvm::is_contained(context.original->manifest.unpadded, mask);
    const auto before =
        hasMeaning ? attentionsHidden(*context.original, mask, context.toolkit) : own;
    const size_t most = before ? (hasMeaning ? before->hidden : before->all) : 0;
    if (!own || own->hidden >= most)
      return formatted("unpadded: padding is excluded by the manifest alone; attention of the "
                       "graph reads '{}'",
                       mask);
  }
  return proved();
}

/// Whether an input removes the triangle that hides later keys, after the first step.
bool hasSwitchedTriangle(const Graph& graph) {
  size_t budget = size_t{1} << 20;
  return llvm::any_of(graph.inputs(), [&](const std::unique_ptr<Value>& input) {
    return isInteger(input->type().elementType()) && readersOf(*input, budget).isSwitch;
  });
}

ClaimResult checkChunkBatch(const ClaimContext& context) {
  const int64_t claimed = context.manifest().chunkBatch.value_or(0);
  if (claimed == 0 && hasSwitchedTriangle(context.graph()))
    return proved();
  if (claimed == 1 && hasGroupedAttention(context.claimed.model))
    return proved();
  return formatted("chunk_batch: batches of more than {} rows are excluded from steps of several "
                   "tokens by the manifest alone; {}",
                   claimed,
                   claimed == 1 ? "no GroupQueryAttention updates a cache"
                                : "GroupQueryAttention takes one batch row");
}

/// Whether, in some attention layer, rows that see no key average over hidden keys.
bool averagesHiddenRows(const ClaimedModel& claimed, const Toolkit& toolkit) {
  auto recovered = readModel(claimed.model, claimed.manifest, toolkit);
  if (!recovered) {
    llvm::consumeError(recovered.takeError());
    return false;
  }
  return llvm::any_of(recovered->context->sites, [](const auto& site) {
    return site.mask && !site.mask->isExact && !site.mask->everyRowSeesAKey;
  });
}

/// Whether such rows of the original have other results in a model that hides keys exactly.
bool mayAverageHiddenRows(const ClaimedModel& original, const Toolkit& toolkit) {
  return original.manifest.hiddenRowsUndefined || averagesHiddenRows(original, toolkit);
}

/// Whether rows that see no key average over the keys so far, and those of the original, which has
/// no caches, over all keys of the sequence.
bool averagesOverEarlierKeys(const ClaimContext& context) {
  return context.original && context.original->manifest.caches.empty() &&
         !context.manifest().caches.empty() && averagesHiddenRows(context.claimed, context.toolkit);
}

/// Whether some attention layer gives hidden keys exactly no weight, or has a spelling that matches
/// no rule.
bool mayHideExactly(const ClaimContext& context) {
  auto recovered = readModel(context.claimed.model, context.manifest(), context.toolkit);
  if (!recovered) {
    llvm::consumeError(recovered.takeError());
    return false;
  }
  return llvm::any_of(recovered->context->sites, [](const auto& site) {
    return !site.mask || (site.mask->isExact && !site.mask->everyRowSeesAKey);
  });
}

/// The operator that carries rows of padding in the original to other tokens; empty if there is
/// none, if these rows are undefined, or if the original cannot be read.
std::string carriedRows(const ClaimedModel& original, const Toolkit& toolkit) {
  if (original.manifest.hiddenRowsUndefined)
    return "";
  auto recovered = readModel(original.model, original.manifest, toolkit);
  if (!recovered) {
    llvm::consumeError(recovered.takeError());
    return "";
  }
  const auto failure = carriedHiddenRows(recovered->model->graph(), recovered->context->sites);
  return failure ? formatted("'{}': {}", failure->node, failure->found) : "";
}

ClaimResult checkHiddenRows(const ClaimContext& context) {
  if (context.original)
    if (const std::string carried = carriedRows(*context.original, context.toolkit);
        !carried.empty())
      return formatted(
          "hidden_rows: not only attention carries rows of padding to other tokens; {}", carried);
  if (hasBiasedGroupedAttention(context.claimed.model))
    return proved();
  const bool changes = changesHiddenRows(context.claimed.model) || mayHideExactly(context) ||
                       averagesOverEarlierKeys(context);
  const bool isChanged =
      !context.original || mayAverageHiddenRows(*context.original, context.toolkit);
  if (changes && isChanged)
    return proved();
  return formatted("hidden_rows: rows of padding are excluded by the manifest alone; {}",
                   changes ? "the other model defines them"
                           : "no attention of the graph hides keys in another way than its mask");
}

ClaimResult checkReorder(const ClaimContext& context) {
  const std::string& name = context.manifest().reorder;
  const Value* input = context.graph().findValue(name);
  if (input && readsElements(*input))
    return context.contradiction("reorder", name,
                                 "the graph reads this input itself, so that batch rows would be "
                                 "picked twice");
  return proved();
}

/// The difference between the layers that read each cache; empty if they are the same.
std::string differenceOfReaders(const Manifest& claimed, const RecoveredModel& recovered,
                                std::string& cache) {
  Manifest found = claimed;
  for (ManifestCache& each : found.caches)
    each.readers.clear();
  addReaders(recovered.context->sites, found);
  for (size_t i = 0; i < claimed.caches.size(); ++i) {
    cache = claimed.caches[i].past;
    if (claimed.caches[i].readers != found.caches[i].readers)
      return formatted("layers [{}] read this cache as well, not [{}]",
                       joinedText(found.caches[i].readers, ", "),
                       joinedText(claimed.caches[i].readers, ", "));
  }
  return "";
}

bool isWhole(const RecoveredModel& recovered) {
  return llvm::all_of(recovered.context->sites, [](const auto& site) { return site.isMatched(); });
}

ClaimResult checkReaders(const ClaimContext& context) {
  std::string why;
  auto recovered = readModel(context.claimed.model, context.manifest(), context.toolkit);
  if (recovered && isWhole(*recovered)) {
    std::string cache;
    if (std::string difference = differenceOfReaders(context.manifest(), *recovered, cache);
        !difference.empty())
      return context.contradiction("readers", cache, difference);
    return proved();
  }
  llvm::consumeError(recovered.takeError());
  if (context.original) {
    auto before = readModel(context.original->model, context.original->manifest, context.toolkit);
    std::string cache;
    if (before && isWhole(*before) &&
        differenceOfReaders(context.manifest(), *before, cache).empty())
      return proved();
    llvm::consumeError(before.takeError());
  }
  return std::string("readers: the graph does not show which layers read which cache");
}

/// Whether a model has a cache with these names: as input and output, or as a replaced cache in its
/// manifest.
bool hasCacheOf(const ClaimedModel& model, const std::string& past, const std::string& present) {
  const Value* input = model.model.graph().findValue(past);
  const Value* output = model.model.graph().findValue(present);
  if (input && input->isGraphInput() && output && output->isGraphOutput())
    return true;
  return llvm::any_of(model.manifest.caches, [&](const ManifestCache& cache) {
    return (cache.past == past && cache.present == present) ||
           (cache.part && cache.part->past == past && cache.part->present == present) ||
           llvm::is_contained(cache.replaces, ManifestReplacement{past, present});
  });
}

ClaimResult checkReplaces(const ClaimContext& context) {
  llvm::StringSet<> names;
  std::string missing;
  for (const ManifestCache& cache : context.manifest().caches)
    for (const ManifestReplacement& replaced : cache.replaces) {
      const Value* input = context.graph().findValue(replaced.past);
      if (input && input->isGraphInput())
        return context.contradiction(
            "replaces", cache.past, formatted("the model still has the cache '{}'", replaced.past));
      // Each function through which attention read a cache has a separate cache.
      if (!names.insert(replaced.past).second && !cache.holdsAttendedRows)
        return context.contradiction("replaces", cache.past,
                                     formatted("'{}' is replaced twice", replaced.past));
      if (context.original && !hasCacheOf(*context.original, replaced.past, replaced.present))
        missing = replaced.past;
    }
  if (!missing.empty())
    return formatted("replaces: the other model has no cache '{}'", missing);
  return proved();
}

/// The extents of a part along the axes of the whole cache; nullopt for an axis without a fixed
/// extent.
std::vector<std::optional<int64_t>> extentsInWhole(const ManifestCache& cache) {
  std::vector<std::optional<int64_t>> exported(cache.shape.size());
  for (size_t axis = 0; axis < cache.shape.size(); ++axis) {
    const auto inner =
        cache.permutation.empty() ? axis : static_cast<size_t>(cache.permutation[axis]);
    const auto* fixed = std::get_if<int64_t>(&cache.shape[axis]);
    const bool countsTokens = axis == static_cast<size_t>(cache.sequenceAxis);
    if (fixed && !countsTokens)
      exported[inner] = *fixed;
  }
  std::vector<std::optional<int64_t>> whole;
  size_t inner = 0;
  for (size_t axis = 0; axis < cache.part->first.size(); ++axis) {
    const bool isDropped = llvm::is_contained(cache.part->dropped, static_cast<int64_t>(axis));
    whole.push_back(isDropped ? std::optional<int64_t>(1) : exported[inner++]);
  }
  return whole;
}

/// The reason that the cache of the original does not contain the part; empty if it does.
std::string partObstacle(const ManifestCache& cache, const ClaimedModel& original) {
  const ManifestPart& part = *cache.part;
  const bool isPartThere = llvm::any_of(original.manifest.caches, [&](const ManifestCache& other) {
    return other.part == cache.part;
  });
  if (isPartThere)
    return "";
  const Value* whole = original.model.graph().findValue(part.past);
  if (!hasCacheOf(original, part.past, part.present) || !whole)
    return formatted("the other model has no cache '{}'", part.past);
  const TensorType& type = whole->type();
  if (type.hasRank() && type.rank() != part.first.size())
    return formatted("'{}' has {} axes in the other model, not {}", part.past, type.rank(),
                     part.first.size());
  const std::vector<std::optional<int64_t>> extents = extentsInWhole(cache);
  for (size_t axis = 0; type.hasRank() && axis < extents.size(); ++axis)
    if (const auto declared = type.shape()[axis].value();
        declared && part.first[axis] > *declared - extents[axis].value_or(1))
      return formatted("axis {} of '{}' has extent {} in the other model", axis, part.past,
                       *declared);
  return "";
}

/// Whether two parts of one cache do not overlap along some axis.
bool areApart(const ManifestCache& one, const ManifestCache& other) {
  const auto lengths = extentsInWhole(one);
  const auto others = extentsInWhole(other);
  for (size_t axis = 0; axis < lengths.size(); ++axis) {
    const int64_t first = one.part->first[axis];
    const int64_t second = other.part->first[axis];
    if ((lengths[axis] && first <= second && second - first >= *lengths[axis]) ||
        (others[axis] && second <= first && first - second >= *others[axis]))
      return true;
  }
  return false;
}

ClaimResult checkParts(const ClaimContext& context) {
  const std::vector<ManifestCache>& caches = context.manifest().caches;
  for (size_t i = 0; i < caches.size(); ++i) {
    if (!caches[i].part || isScale(caches[i].role))
      continue;
    for (size_t j = 0; j < i; ++j) {
      const bool isOfSame = caches[j].part && !isScale(caches[j].role) &&
                            caches[j].part->past == caches[i].part->past;
      if (isOfSame && caches[j].part->first.size() != caches[i].part->first.size())
        return context.contradiction("part", caches[i].past,
                                     formatted("'{}' has another number of axes for '{}'",
                                               caches[i].part->past, caches[j].past));
      if (isOfSame && !areApart(caches[j], caches[i]))
        return context.contradiction(
            "part", caches[i].past,
            formatted("'{}' has a part in common with '{}'", caches[j].past, caches[i].past));
    }
    const std::string obstacle = context.original ? partObstacle(caches[i], *context.original) : "";
    if (!obstacle.empty())
      return context.contradiction("part", caches[i].past, obstacle);
  }
  return proved();
}

/// Checks that each input with a length is fed the length that its readers require.
ClaimResult checkLengthFeeds(const ClaimContext& context) {
  size_t budget = size_t{1} << 20;
  for (const ManifestLength& length : context.manifest().lengths) {
    const Value* input = context.claimed.model.graph().findValue(length.input);
    if (!input || isFlag(length.feed))
      continue;
    for (const InputReaders::Length& read : readersOf(*input, budget).lengths)
      if (read.offset.value() == 0 && !isSameLength(read.feed, length.feed))
        return context.contradiction("feed", length.input,
                                     formatted("it is fed {}, and {} reads {}", wordOf(length.feed),
                                               read.node, wordOf(read.feed)));
  }
  return proved();
}

/// Checks that the graph, or the original, places rows by the number of tokens that an input
/// counts. Without the original, the claim is only a demand on hosts, and nothing depends on it.
ClaimResult checkPadding(const ClaimContext& context) {
  if (!context.original || context.original->manifest.padsRight ||
      countsRowsByInput(context.graph()))
    return proved();
  return std::string("padding: padding on the left is excluded by the manifest alone; no operator "
                     "of the graph counts tokens by a mask");
}

/// A claim that a manifest may make.
struct Claim {
  bool (*isMade)(const Manifest& manifest);
  ClaimResult (*check)(const ClaimContext& context);
  /// Removes from a manifest a limit on the steps that are run; null for other claims.
  void (*drop)(Manifest& manifest);
  /// Whether a proof of the claim may require the original.
  bool needsOriginal;
};

template <class Has> bool hasCacheWith(const Manifest& manifest, Has has) {
  return llvm::any_of(manifest.caches, has);
}

constexpr Claim claims[] = {
    {[](const Manifest& manifest) {
       return hasCacheWith(manifest, [](const ManifestCache& cache) { return cache.window != 0; });
     },
     checkWindows, nullptr, true},
    {[](const Manifest& manifest) { return manifest.stepLimit.has_value(); }, checkStepLimit,
     [](Manifest& manifest) { manifest.stepLimit.reset(); }, false},
    {[](const Manifest& manifest) { return !manifest.unpadded.empty(); }, checkUnpadded,
     [](Manifest& manifest) { manifest.unpadded.clear(); }, false},
    {[](const Manifest& manifest) { return manifest.chunkBatch.has_value(); }, checkChunkBatch,
     [](Manifest& manifest) { manifest.chunkBatch.reset(); }, false},
    {[](const Manifest& manifest) { return manifest.hiddenRowsUndefined; }, checkHiddenRows,
     [](Manifest& manifest) { manifest.hiddenRowsUndefined = false; }, false},
    {[](const Manifest& manifest) { return !manifest.reorder.empty(); }, checkReorder, nullptr,
     false},
    {[](const Manifest& manifest) { return !manifest.lengths.empty(); }, checkLengthFeeds, nullptr,
     false},
    {[](const Manifest& manifest) { return manifest.padsRight; }, checkPadding,
     [](Manifest& manifest) { manifest.padsRight = false; }, false},
    {[](const Manifest& manifest) {
       return hasCacheWith(manifest, [](const ManifestCache& cache) { return cache.part; });
     },
     checkParts, nullptr, false},
    {[](const Manifest& manifest) {
       return hasCacheWith(manifest,
                           [](const ManifestCache& cache) { return !cache.replaces.empty(); });
     },
     checkReplaces, nullptr, false},
    {[](const Manifest& manifest) {
       return hasCacheWith(manifest,
                           [](const ManifestCache& cache) { return !cache.readers.empty(); });
     },
     checkReaders, nullptr, true},
    {[](const Manifest& manifest) { return manifest.rotations.has_value(); }, checkRotationClaim,
     nullptr, true},
};

bool comesFromMetadata(const ClaimedModel& claimed) {
  return claimed.model.findMetadata(manifestKey) != nullptr;
}

} // namespace

llvm::Expected<CheckedClaims> checkClaims(const ClaimedModel& claimed, const ClaimedModel& original,
                                          const Toolkit& toolkit) {
  CheckedClaims checked{{}, claimed.manifest, false};
  if (!comesFromMetadata(claimed))
    return checked;
  const ClaimContext context{claimed, &original, toolkit};
  for (const Claim& claim : claims) {
    if (!claim.isMade(claimed.manifest))
      continue;
    ClaimResult result = claim.check(context);
    if (!result)
      return result.takeError();
    if (result->empty())
      continue;
    checked.unproved.push_back(std::move(*result));
    if (claim.drop) {
      claim.drop(checked.manifest);
      checked.isWidened = true;
    }
  }
  return checked;
}

llvm::Error proveClaims(const ClaimedModel& claimed, ClaimScope scope, const Toolkit& toolkit) {
  if (!comesFromMetadata(claimed))
    return llvm::Error::success();
  const ClaimContext context{claimed, nullptr, toolkit};
  for (const Claim& claim : claims) {
    if (!claim.isMade(claimed.manifest) || (scope == ClaimScope::Carried && claim.needsOriginal))
      continue;
    ClaimResult result = claim.check(context);
    if (!result)
      return result.takeError();
    if (!result->empty() && !claim.needsOriginal)
      return invalid("the manifest is not proved: {}", *result)
          .file(claimed.model.path)
          .hint("remove the metadata entry kvopt.manifest, or rewrite the model as it was "
                "exported");
  }
  return llvm::Error::success();
}

llvm::Error proveRotations(const ClaimedModel& claimed, const Toolkit& toolkit) {
  if (!comesFromMetadata(claimed))
    return llvm::Error::success();
  auto result = checkRotations(claimed, nullptr, toolkit);
  if (!result)
    return result.takeError();
  if (result->empty())
    return llvm::Error::success();
  return invalid("the manifest is not proved: {}", *result)
      .file(claimed.model.path)
      .hint("rewrite the model as it was exported");
}

} // namespace kvopt::driver
