// Finds attention sites and their caches by data flow, never by names.
#include "ir/op.h"
#include "passes/analysis/branch_caches.h"
#include "passes/rewriter.h"
#include "passes/site.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <fmt/format.h>

namespace kvopt {

llvm::StringRef siteKindName(SiteKind kind) {
  switch (kind) {
  case SiteKind::Self:
    return "self";
  case SiteKind::Cross:
    return "cross";
  case SiteKind::Recurrent:
    return "recurrent";
  case SiteKind::None:
    return "none";
  }
  return "";
}

namespace {

constexpr unsigned sequenceAxis = 2; // of Sdpa's keys and values

std::string describeProducer(const Value& value) {
  if (const Node* producer = value.producer())
    return producer->op().str();
  return value.isGraphInput() ? "a graph input" : "an initializer";
}

MatchFailure failure(ReasonCode code, const Value& at, std::string expected, std::string found,
                     std::string hint = "") {
  const Node* producer = at.producer();
  std::string node =
      producer && !producer->name().empty() ? producer->name().str() : at.name().str();
  return {code, std::move(node), std::move(expected), std::move(found), std::move(hint)};
}

/// What feeds the keys or the values of one Sdpa.
struct Feed {
  SiteKind kind = SiteKind::None;
  std::optional<CacheUpdate> update;
  std::optional<MatchFailure> failure;
};

/// Whether `value` depends on a graph input that could be a cache: distinguishes "no cache" from "a
/// cache that cannot be proved".
bool dependsOnCacheLikeInput(const Value& value) {
  llvm::SmallVector<const Value*, 32> candidates;
  for (const auto& input : outermostGraph(value.graph()).inputs())
    if (input->type().hasRank() && input->type().rank() >= 3 &&
        isFloatingPoint(input->type().elementType()))
      candidates.push_back(input.get());
  return !candidates.empty() && !dependencyPath(value, candidates).empty();
}

/// Reads of the past as data, apart from being the first part of its concatenation. Shape readers
/// are fine: they are rewired to the past length.
const Node* dataReaderOfPast(const CacheUpdate& update) {
  for (const Use& use : update.past->uses()) {
    bool isAppend = &use.user() == update.concat && use.operandIndex() == 0;
    bool isOtherAppend = use.user().op() == "Concat" && isExclusive(use.user(), *update.concat);
    if (!isAppend && !isOtherAppend && use.user().op() != "Shape")
      return &use.user();
  }
  return nullptr;
}

/// Reads of the present as data by anybody but attention.
const Node* dataReaderOfPresent(const CacheUpdate& update, const Node& attention) {
  for (const Use& use : update.present->uses())
    if (&use.user() != &attention && use.user().op() != "Shape")
      return &use.user();
  return nullptr;
}

Feed inspectConcat(Node& concat, Node& attention) {
  Feed feed;
  feed.kind = SiteKind::Self;
  CacheUpdate update;
  update.concat = &concat;
  update.present = &concat.result();
  if (concat.operands().size() != 2) {
    feed.failure =
        failure(ReasonCode::NotACacheConcat, *update.present, "a Concat of past and new rows",
                fmt::format("a Concat of {} parts", concat.operands().size()));
    return feed;
  }
  const TensorType& type = update.present->type();
  auto axis = type.hasRank() ? normalizedAxis(concat.intAttr("axis", 0), type.rank())
                             : std::optional<unsigned>();
  if (!axis || *axis != sequenceAxis) {
    feed.failure = failure(ReasonCode::AxisUnproven, *update.present,
                           "a concatenation along the sequence axis (2)",
                           axis ? fmt::format("axis {}", *axis) : "an unknown axis");
    return feed;
  }
  update.axis = *axis;
  update.past = concat.operand(0);
  update.fresh = concat.operand(1);
  if (!update.past->isGraphInput() || update.past->graph().parentNode()) {
    if (update.fresh->isGraphInput())
      feed.failure = failure(ReasonCode::NewBeforePast, *update.present,
                             "the past as the first part of the Concat",
                             "new rows first, then '" + update.fresh->name().str() + "'");
    else
      feed.failure = failure(ReasonCode::PastNotInput, *update.past, "a graph input",
                             describeProducer(*update.past));
    return feed;
  }
  if (!update.present->isGraphOutput()) {
    feed.failure = failure(ReasonCode::PresentNotOutput, *update.present, "a graph output",
                           "a value inside the graph");
    return feed;
  }
  const TensorType& pastType = update.past->type();
  if (!pastType.hasRank() || pastType.rank() != type.rank()) {
    feed.failure = failure(ReasonCode::DynamicRank, *update.past,
                           fmt::format("a past of rank {}", type.rank()), pastType.str());
    return feed;
  }
  if (update.past->isGraphOutput()) {
    feed.failure = failure(ReasonCode::CacheEscapes, *update.past,
                           "the past to be read by its Concat and by Shape only",
                           "that it is an output of the model as well");
    return feed;
  }
  if (const Node* reader = dataReaderOfPast(update)) {
    bool otherConcat =
        reader != &concat && reader->op() == "Concat" && reader->operand(0) == update.past;
    feed.failure =
        failure(otherConcat ? ReasonCode::SharedReader : ReasonCode::CacheEscapes, *update.past,
                "the past to be read by its Concat and by Shape only",
                reader->describe() + " reads it as data", "in place it would see later tokens");
    return feed;
  }
  if (const Node* reader = dataReaderOfPresent(update, attention)) {
    bool otherAttention = reader->op() == OpName("ai.kvopt::Sdpa");
    feed.failure =
        failure(otherAttention ? ReasonCode::SharedReader : ReasonCode::CacheEscapes,
                *update.present, "the present to be read by its attention and by Shape only",
                reader->describe() + " reads it as data");
    return feed;
  }
  if (!update.present->graph().parentNode())
    update.output = update.present;
  feed.update = update;
  return feed;
}

Feed inspectFeed(Value& keyOrValue, Node& attention) {
  Feed feed;
  if (keyOrValue.isGraphInput()) {
    feed.kind = SiteKind::Cross;
    return feed;
  }
  Node* producer = keyOrValue.producer();
  if (producer && producer->op() == "Concat" &&
      (dependsOnCacheLikeInput(keyOrValue) || keyOrValue.isGraphOutput()))
    return inspectConcat(*producer, attention);
  if (!dependsOnCacheLikeInput(keyOrValue))
    return feed;
  feed.kind = SiteKind::Self;
  feed.failure = failure(ReasonCode::NotACacheConcat, keyOrValue,
                         "keys and values straight from a Concat of past and new rows",
                         describeProducer(keyOrValue));
  return feed;
}

AttentionSite inspectAttention(Node& node) {
  AttentionSite site;
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

  Feed keyFeed = inspectFeed(key, node);
  Feed valueFeed = inspectFeed(value, node);
  site.kind = keyFeed.kind == SiteKind::None ? valueFeed.kind : keyFeed.kind;
  if (keyFeed.failure)
    site.failure = keyFeed.failure;
  else if (valueFeed.failure)
    site.failure = valueFeed.failure;
  else if (keyFeed.update.has_value() != valueFeed.update.has_value())
    site.failure = failure(ReasonCode::NotACacheConcat, keyFeed.update ? value : key,
                           "keys and values that are both cached",
                           keyFeed.update ? "only the keys are" : "only the values are");
  else if (keyFeed.update && keyFeed.update->past == valueFeed.update->past)
    site.failure = failure(ReasonCode::SharedReader, *keyFeed.update->past,
                           "one cache for the keys and one for the values", "one cache for both");
  if (site.failure)
    return site;
  site.key = keyFeed.update;
  site.value = valueFeed.update;
  return site;
}

/// Walks breadth first from `start`, so that a long chain of mask arithmetic does not hide a matrix
/// product close by; at most a few hundred values.
bool reachesNearby(
    const Value& start,
    llvm::function_ref<bool(const Value&, llvm::SmallVectorImpl<const Value*>&)> isGoalElseExpand) {
  constexpr size_t mostValues = 256;
  llvm::SmallVector<const Value*, 32> queue{&start};
  llvm::DenseSet<const Value*> seen{&start};
  for (size_t next = 0; next < queue.size() && next < mostValues; ++next) {
    llvm::SmallVector<const Value*, 8> neighbours;
    if (isGoalElseExpand(*queue[next], neighbours))
      return true;
    for (const Value* neighbour : neighbours)
      if (seen.insert(neighbour).second)
        queue.push_back(neighbour);
  }
  return false;
}

/// Whether a product of two computed matrices feeds `value`.
bool comesFromScores(const Value& value) {
  return reachesNearby(value, [](const Value& step, llvm::SmallVectorImpl<const Value*>& expand) {
    const Node* producer = step.producer();
    if (!producer || producer->op() == "Shape")
      return false;
    if (producer->op() == "MatMul")
      return !producer->operand(0)->constant() && !producer->operand(1)->constant();
    for (const Use& use : producer->operands())
      if (use.value())
        expand.push_back(use.value());
    return false;
  });
}

/// Whether `value` becomes the left side of a matrix product.
bool weighsRows(const Value& value) {
  return reachesNearby(value, [](const Value& step, llvm::SmallVectorImpl<const Value*>& expand) {
    for (const Use& use : step.uses()) {
      const Node& user = use.user();
      if (user.op() == "MatMul") {
        if (use.operandIndex() == 0)
          return true;
        continue;
      }
      if (user.op() == "Shape" || user.op() == "Softmax")
        continue;
      for (const Value& result : user.results())
        expand.push_back(&result);
    }
    return false;
  });
}

/// Whichever way its probabilities are written.
bool isSoftmax(const Node& node) { return node.op() == "Softmax" || node.op() == "LogSoftmax"; }

/// A softmax that is left: attention that no rule raised, if it normalises scores of at least three
/// dimensions that come from a matrix product and go into one. Routers and samplers do not.
bool isAttentionLike(const Node& softmax) {
  const TensorType& type = softmax.result().type();
  return (!type.hasRank() || type.rank() >= 3) && softmax.operand(0) &&
         weighsRows(softmax.result()) && comesFromScores(*softmax.operand(0));
}

bool isAttentionOperator(const Node& node) {
  llvm::StringRef type = node.op().type();
  return (node.op().isOnnx() && type == "Attention") ||
         (node.op().domain() == "com.microsoft" &&
          (type == "Attention" || type == "MultiHeadAttention" || type == "GroupQueryAttention"));
}

AttentionSite missedSite(Node& node) {
  AttentionSite site;
  site.node = &node;
  bool inside = node.graph().parentNode() != nullptr;
  site.failure =
      failure(inside ? ReasonCode::InSubgraph : ReasonCode::PatternMismatch, node.result(),
              "attention in a form that some rule raises", node.op().str());
  return site;
}

} // namespace

SiteList findSites(Graph& graph) {
  SiteList sites;
  MaskAnalysis masks;
  forEachGraph(graph, [&](Graph& visited) {
    for (Node& node : visited.nodes()) {
      if (node.op() == OpName("ai.kvopt::Sdpa"))
        sites.push_back(inspectAttention(node)), sites.back().mask = masks.factsOf(node);
      else if (isSoftmax(node) ? isAttentionLike(node) : isAttentionOperator(node))
        sites.push_back(missedSite(node));
    }
  });
  for (unsigned i = 0; i < sites.size(); ++i)
    sites[i].layer = i;

  // A cache that two sites append to belongs to neither.
  for (AttentionSite& site : sites)
    for (const AttentionSite& other : sites)
      if (&site != &other && site.hasCache() && other.hasCache() &&
          !isExclusive(*site.node, *other.node) &&
          (site.key->past == other.key->past || site.key->past == other.value->past ||
           site.value->past == other.value->past))
        site.failure = failure(ReasonCode::SharedReader, *site.key->past,
                               "a cache that one attention reads", "one that several read");
  joinBranchCaches(sites);
  return sites;
}

} // namespace kvopt
