// The sites of a graph: every attention, with its caches found by data flow, never by names.
#include "passes/analysis/cache/branch_caches.h"
#include "passes/analysis/cache/cache_reasons.h"
#include "passes/analysis/cache/cache_trace.h"
#include "passes/analysis/cache/site_words.h"
#include "passes/analysis/cache/unchanged_keys.h"
#include "passes/analysis/mask/mask_predicate.h"
#include "passes/analysis/movement/head_map.h"
#include "passes/analysis/scores/attention_like.h"
#include "passes/analysis/scores/attention_weights.h"
#include "passes/analysis/scores/keys_in_parts.h"
#include "passes/pattern/rewriter.h"
#include "support/format.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

/// Relates the operands of one attention to each other.
class SiteBuilder {
public:
  SiteBuilder(Node& attention, CacheTracer& cacheTracer) : node(attention), tracer(cacheTracer) {}

  AttentionSite build() {
    site.node = &node;
    Value& query = *node.operand(0);
    Value& key = *node.operand(1);
    Value& value = *node.operand(2);
    site.queryHeads = query.type().dim(1);
    site.keyHeads = key.type().dim(1);
    site.keyWidth = key.type().dim(3);
    site.valueWidth = value.type().dim(3);
    for (const auto& [metadataKey, text] : node.metadata())
      if (metadataKey == ruleMetadataKey)
        site.rule = text;
      else if (metadataKey == contradictionMetadataKey)
        site.failure = failureAt(ReasonCode::EvaluatedOtherwise, node.result(),
                                 "the result of evaluating the exported graph", text);
    if (site.failure)
      return std::move(site);

    CacheTrace keyTrace = tracer.trace(key, node);
    CacheTrace valueTrace = tracer.trace(value, node);
    const CacheTrace& first = keyTrace.isOfThisStep() ? valueTrace : keyTrace;
    site.isCross = first.isCross;
    const auto isUnchanged = [](const CacheTrace& trace) {
      return trace.isCross || trace.isOfThisStep();
    };
    site.hasUnchangedKeys = isUnchanged(keyTrace) && isUnchanged(valueTrace);
    if (!first.isCross && !first.isOfThisStep())
      site.update = CacheUpdate::Unproved;
    site.failure = keyTrace.failure ? keyTrace.failure : valueTrace.failure;
    if (site.failure)
      explainHeads(query, key, value);
    if (!keyTrace.cache || !valueTrace.cache) {
      // Values computed outside the model need no cache of their own.
      if (!site.failure && !site.isCross && (keyTrace.cache || valueTrace.cache))
        site.failure = failureAt(ReasonCode::NotACacheConcat, keyTrace.cache ? value : key,
                                 "keys and values that are both cached",
                                 keyTrace.cache ? "only the keys are" : "only the values are");
      return std::move(site);
    }
    if (!site.failure)
      site.failure = combine(*keyTrace.cache, *valueTrace.cache);
    if (site.failure)
      return std::move(site);
    site.key.emplace(std::move(*keyTrace.cache));
    site.value.emplace(std::move(*valueTrace.cache));
    if (site.grows())
      site.shapeReader = tracer.shapeReader(*site.key, *site.value);
    if (site.key->repeats.value() != 1 && !site.keyHeads.isUnknown())
      if (auto groups = site.keyHeads.dividedBy(site.key->repeats))
        site.keyHeads = *groups;
    return std::move(site);
  }

private:
  /// Explains a cache that was not found because heads do not form groups.
  void explainHeads(const Value& query, Value& key, Value& value) {
    if (site.failure->code != ReasonCode::AxisUnproven &&
        site.failure->code != ReasonCode::NotACacheConcat &&
        site.failure->code != ReasonCode::LayoutUnsupported)
      return;
    std::optional<MatchFailure> failure;
    groupHeads(query, key, value, failure);
    if (failure)
      site.failure = std::move(failure);
  }

  std::optional<MatchFailure> combine(const SiteCache& ofKeys, const SiteCache& ofValues) {
    site.update = ofKeys.update;
    if (ofKeys.update != ofValues.update)
      return failureAt(
          ReasonCode::NotACacheConcat, *ofValues.past,
          formatted("values cached as the keys are ({})", sitePolicyName(ofKeys.update)),
          sitePolicyName(ofValues.update).str());
    if (ofKeys.update == CacheUpdate::ReadOnly)
      return std::nullopt;
    if (!ofKeys.repeats.isKnownEqual(ofValues.repeats))
      return failureAt(ReasonCode::HeadCountUnproven, *ofValues.past,
                       formatted("value heads repeated as the keys' are ({})", ofKeys.repeats),
                       ofValues.repeats.str());
    if (ofKeys.past == ofValues.past)
      return combineShared(ofKeys, ofValues);
    return ofKeys.update == CacheUpdate::Grows ? checkRows(ofKeys, ofValues) : std::nullopt;
  }

  std::optional<MatchFailure> combineShared(const SiteCache& ofKeys, const SiteCache& ofValues) {
    if (ofKeys.layout.isStacked() && ofValues.layout.isStacked())
      return ofKeys.update == CacheUpdate::Grows ? checkRows(ofKeys, ofValues) : std::nullopt;
    if (ofKeys.writer != ofValues.writer || !(ofKeys.layout == ofValues.layout))
      return failureAt(ReasonCode::SharedReader, *ofKeys.past,
                       "one cache for the keys and one for the values", "one cache for both");
    if (ofKeys.update == CacheUpdate::Grows)
      site.keyRole = CacheRole::Latent;
    return ofKeys.update == CacheUpdate::Grows ? checkRows(ofKeys, ofValues) : std::nullopt;
  }

  static Dim rowsOf(const SiteCache& cache) {
    const std::optional<unsigned> axis = cache.freshLayout.axisOf('S');
    return axis ? cache.fresh->type().dim(*axis) : Dim::unknown();
  }

  /// Each step adds the same number of rows to keys and values: one per row of the query, or
  /// another known number.
  std::optional<MatchFailure> checkRows(const SiteCache& ofKeys, const SiteCache& ofValues) {
    const Dim& tokens = node.operand(0)->type().dim(2);
    const Dim ofBoth = rowsOf(ofKeys);
    const bool isFixed = ofBoth.value() && tokens.value() && rowsOf(ofValues).isKnownEqual(ofBoth);
    if (isFixed && !ofBoth.isKnownEqual(tokens))
      site.stepRows = {*tokens.value(), *ofBoth.value()};
    for (const SiteCache* cache : {&ofKeys, &ofValues}) {
      const Dim rows = rowsOf(*cache);
      if (!rows.isKnownEqual(tokens) && !isFixed)
        return failureAt(rows.isUnknown() || tokens.isUnknown() ? ReasonCode::ShapeUnknown
                                                                : ReasonCode::ShapeMismatch,
                         *cache->fresh,
                         formatted("one new row for each of {} query rows", tokens.str()),
                         formatted("{} rows", rows.str()));
    }
    return std::nullopt;
  }

  Node& node;
  CacheTracer& tracer;
  AttentionSite site;
};

AttentionSite missedSite(Node& node, UnchangedKeys& unchanged) {
  AttentionSite site;
  site.node = &node;
  bool inside = node.graph().parentNode() != nullptr;
  site.failure =
      failureAt(inside ? ReasonCode::InSubgraph : ReasonCode::PatternMismatch, node.result(),
                "attention in a form that a rule recognizes", node.op().str());
  if (inside)
    return site;
  site.hasUnchangedKeys = site.isCross = unchanged.areReadBy(node);
  if (!isSoftmax(node))
    return site;
  // Reasons that hold for every spelling take precedence over a rule's expectation.
  if (auto failure = keysInParts(node))
    site.failure = std::move(failure);
  else if (auto combinedBy = combinedProbabilities(node))
    site.failure = std::move(combinedBy);
  else if (auto mixed = mixedScores(node))
    site.failure = std::move(mixed);
  else if (const Value* keys = keysOfScores(node))
    if (auto delayed = delayedCache(*keys))
      site.failure = std::move(delayed);
  // Attention in several parts may read other keys and values, too.
  if (site.failure->code != ReasonCode::PatternMismatch)
    site.hasUnchangedKeys = site.isCross = false;
  return site;
}

/// A site for attention without a softmax.
AttentionSite otherSite(Node& node, MatchFailure failure) {
  AttentionSite site;
  site.node = &node;
  site.failure = std::move(failure);
  return site;
}

/// If several sites read one cache, the first appends to it, and the others read its result. If
/// they do not read the same keys and the same values, no site owns it.
class CacheSharing {
public:
  explicit CacheSharing(SiteList& all) : sites(all) {}

  void run() {
    for (AttentionSite& site : sites)
      if (site.hasCache() && site.update != CacheUpdate::ReadOnly)
        for (const SiteCache* cache : {&*site.key, &*site.value})
          see(site, *cache);
    // Some readers may not have been recognized as attention over the whole cache.
    for (AttentionSite& site : sites)
      if (!site.owner && site.hasCache() && site.update != CacheUpdate::ReadOnly &&
          (site.key->attentions > 1 || site.value->attentions > 1) && !isComplete(site))
        refuse(site, *site.key, nullptr);
  }

private:
  void see(AttentionSite& site, const SiteCache& cache) {
    AttentionSite*& owner = owners[cache.past];
    if (!owner)
      owner = &site;
    if (owner == &site || isExclusive(*site.node, *owner->node) || site.owner == owner->layer)
      return;
    const bool isSame = owner->key->writer == site.key->writer &&
                        owner->value->writer == site.value->writer && !owner->owner &&
                        !cache.layout.isStacked() && !site.node->graph().parentNode();
    if (isSame) {
      site.owner = owner->layer;
      owner->readers.push_back(site.layer);
      return;
    }
    refuse(site, cache, owner);
    refuse(*owner, cache, &site);
  }

  static bool isComplete(const AttentionSite& owner) {
    const size_t found = owner.readers.size() + 1;
    return owner.key->attentions == found && owner.value->attentions == found;
  }

  static void refuse(AttentionSite& site, const SiteCache& cache, const AttentionSite* other) {
    if (site.failure)
      return;
    // Each attention reads its own part of a stacked cache.
    site.failure = cache.layout.isStacked()
                       ? stackedCache(*cache.past)
                       : failureAt(ReasonCode::SharedReader, *cache.past,
                                   "a cache whose readers all attend to the same keys and values",
                                   other ? other->id() + " reads it differently"
                                         : "attention that reads it differently");
  }

  SiteList& sites;
  llvm::DenseMap<const Value*, AttentionSite*> owners;
};

/// One past length must apply to all caches, except those with a length of their own.
void refuseOtherLengths(SiteList& sites) {
  const SiteCache* first = nullptr;
  for (AttentionSite& site : sites) {
    if (!site.isMatched() || !site.grows())
      continue;
    for (const SiteCache* cache : {&*site.key, &*site.value}) {
      if (cache->pastLength)
        continue;
      if (!first)
        first = cache;
      const Dim& expected = first->past->type().dim(first->axis);
      const Dim& length = cache->past->type().dim(cache->axis);
      bool isFirst = cache->past == first->past;
      if (isFirst || length.isKnownEqual(expected))
        continue;
      bool open = length.isUnknown() || expected.isUnknown();
      site.failure =
          failureAt(open ? ReasonCode::AxisUnproven : ReasonCode::ShapeMismatch, *cache->past,
                    formatted("the same number of earlier rows as '{}' ({})",
                              first->past->name().str(), expected.str()),
                    length.str());
      break;
    }
  }
}

/// Readers of a refused cache have no buffer to read.
void refuseReadersOfRefused(SiteList& sites) {
  for (AttentionSite& site : sites)
    if (!site.failure && site.owner && sites[*site.owner].failure)
      site.failure =
          failureAt(ReasonCode::SharedReader, *site.key->past, "a cache whose owner is recovered",
                    "that of " + sites[*site.owner].id() + ", which is not");
}

/// In branches, only growing caches are followed to the outputs of the model.
void refuseOtherBranchCaches(SiteList& sites) {
  for (AttentionSite& site : sites)
    if (!site.failure && site.node->graph().parentNode() && site.hasCache() && !site.grows() &&
        site.update != CacheUpdate::ReadOnly)
      site.failure = failureAt(ReasonCode::InSubgraph, *site.key->past,
                               "a cache that grows, in a branch", sitePolicyName(site).str());
}

} // namespace

SiteList findSites(Graph& graph) {
  SiteList sites;
  CacheTracer tracer(graph);
  MaskAnalysis masks;
  UnchangedKeys unchanged(graph);
  llvm::StringSet<> combined;
  forEachGraph(graph, [&](Graph& visited) {
    for (Node& node : visited.nodes()) {
      if (node.op() == OpName("ai.kvopt::Sdpa")) {
        sites.push_back(SiteBuilder(node, tracer).build());
        sites.back().mask = masks.factsOf(node);
      } else if (isSoftmax(node) ? isAttentionLike(node) : isAttentionOperator(node)) {
        AttentionSite site = missedSite(node, unchanged);
        // Softmaxes that are combined are one attention.
        bool isNew = site.failure->code != ReasonCode::NotSoftmax ||
                     combined.insert(site.failure->node).second;
        if (isNew)
          sites.push_back(std::move(site));
      } else if (auto failure = weighedWithoutSoftmax(node)) {
        sites.push_back(otherSite(node, std::move(*failure)));
      }
    }
  });
  for (unsigned i = 0; i < sites.size(); ++i)
    sites[i].layer = i;
  CacheSharing(sites).run();
  refuseOtherLengths(sites);
  refuseOtherBranchCaches(sites);
  refuseReadersOfRefused(sites);
  joinBranchCaches(sites);
  return sites;
}

} // namespace kvopt::analysis
