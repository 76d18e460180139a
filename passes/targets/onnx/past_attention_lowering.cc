// Conversion of ai.kvopt::Sdpa to Attention with past and present.
#include "passes/targets/onnx/past_attention_lowering.h"

#include "ir/shapes/shape_inference.h"
#include "passes/targets/onnx/onnx_attention.h"
#include "passes/targets/support/kvopt_domain.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace builders;
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

constexpr const char* pastAttentionRule = "lower-onnx23";

OnnxAttention partsOf(const AttentionSite& site) {
  const Node& sdpa = *site.node;
  OnnxAttention parts;
  parts.everyRowSeesAKey = site.mask && site.mask->everyRowSeesAKey;
  parts.query = sdpa.operand(0);
  parts.scale = static_cast<double>(sdpa.floatAttr("scale", 1.0f));
  parts.softcap = sdpa.floatAttr("softcap", 0.0f);
  parts.causal = sdpa.intAttr("causal", 0) != 0;
  parts.hidden.window = sdpa.intAttr("window", 0);
  parts.mask = sdpa.operand(3);
  parts.maskColumns = sdpa.operand(1)->type().dim(2);
  return parts;
}

bool readsAllColumns(const SiteCache& update) {
  return update.firstColumn == 0 && update.columns.isKnownEqual(update.fresh->type().dim(3));
}

/// Whether positions count from the length of the past, as in the node.
bool countsFromPast(const AttentionSite& site) {
  const Node& sdpa = *site.node;
  const bool isCausal = sdpa.intAttr("causal", 0) != 0;
  const Value* start = sdpa.operand(5);
  if (!start)
    return site.addsQueryRows() || (!isCausal && sdpa.intAttr("window", 0) == 0);
  // A length also hides the keys after the query's rows, which causality hides anyway.
  auto known = start->knownIntegers();
  const Dim& past = site.key->past->type().dim(site.key->axis);
  return isCausal && !site.key->pastLength && known && known->size() == 1 &&
         known->front().isKnownEqual(past);
}

/// Whether the node can join past and new rows, and none of its operands depends on the result.
bool canJoin(const AttentionSite& site) {
  if (!site.grows() || site.isLatent() || !countsFromPast(site))
    return false;
  for (const SiteCache* update : {&*site.key, &*site.value})
    if (update->fromStart || update->pastLength || !update->writer->is("Concat") ||
        update->present != &update->writer->result() || update->layout.text() != "BHSD" ||
        !(update->freshLayout == update->layout) || !readsAllColumns(*update) ||
        update->past->type().elementType() != site.node->operand(0)->type().elementType())
      return false;
  const Value* presents[] = {site.key->present, site.value->present};
  return llvm::none_of(
      llvm::ArrayRef<const Value*>{site.node->operand(0), site.node->operand(3), site.key->fresh,
                                   site.value->fresh},
      [&](const Value* operand) { return operand && !dependencyPath(*operand, presents).empty(); });
}

void recordOrigin(Node& attention, const AttentionSite& site, llvm::ArrayRef<Node*> sources,
                  Rewriter& rewriter) {
  const Metadata before = site.node->metadata();
  rewriter.recordSources(attention, sources);
  Metadata metadata = attention.metadata();
  for (const auto& [key, text] : before)
    metadata.emplace_back(key == ruleMetadataKey ? "kvopt.raised_by" : key + ".raised", text);
  attention.setMetadata(std::move(metadata));
}

} // namespace

std::optional<MatchFailure> supportsPastAttention(const AttentionSite& site) {
  if (site.failure)
    return site.failure;
  if (auto failure = onnxAttentionObstacle(*site.node))
    return failure;
  if (!site.grows())
    return std::nullopt;
  for (const SiteCache* update : {&*site.key, &*site.value})
    if (update->writer && !update->writer->op().isOnnx())
      return MatchFailure{ReasonCode::TargetLacksFeature, update->past->name().str(),
                          "new rows after all rows of the past",
                          "rows whose position differs between batch rows",
                          "--to onnx24 writes them with TensorScatter"};
  return std::nullopt;
}

PastAttentionLowering::PastAttentionLowering(Model& lowered, Journal& editJournal)
    : model(lowered), graph(lowered.graph()), journal(editJournal) {}

llvm::Expected<Manifest> PastAttentionLowering::run(llvm::ArrayRef<AttentionSite*> sites) {
  const int64_t irVersion = model.irVersion;
  model.markEdited();
  manifest.target = "onnx23";
  manifest.contract = CacheUpdate::Grows;
  for (AttentionSite* site : sites) {
    if (site->grows())
      describe(*site);
    const bool isJoined = site->grows() && canJoin(*site);
    if (llvm::Error error = isJoined ? lowerWithPast(*site) : lowerJoined(*site))
      return error;
  }
  graph.eraseDeadNodes();
  dropKvoptDomain(model, irVersion);
  if (llvm::Error error = inferShapes(graph))
    return error;
  return std::move(manifest);
}

void PastAttentionLowering::describe(const AttentionSite& site) {
  if (site.pastFlag)
    addFlag(*site.pastFlag, manifest);
  auto add = [&](const SiteCache& update, CacheRole role) {
    const std::string name = update.past->name().str();
    if (update.output && llvm::none_of(manifest.caches, [&](const ManifestCache& cache) {
          return cache.past == name;
        }))
      manifest.caches.push_back(describeCache(update, site.layer, role));
  };
  add(*site.key, site.keyRole);
  add(*site.value, CacheRole::Value);
}

llvm::Error PastAttentionLowering::lowerWithPast(AttentionSite& site) {
  Node& sdpa = *site.node;
  Rewriter rewriter(sdpa.graph(), pastAttentionRule, journal);
  AttentionBuilder build(rewriter);
  OnnxAttention parts = partsOf(site);
  parts.key = site.key->fresh;
  parts.value = site.value->fresh;
  parts.pastKey = site.key->past;
  parts.pastValue = site.value->past;
  if (parts.mask || parts.hidden.window != 0) {
    const BuilderOperand earlier = build.extent(*parts.pastKey, 2);
    parts.hidden.firstPosition = &build.value(earlier);
    parts.maskColumnCount =
        &build.node("Add", {*parts.hidden.firstPosition, build.extent(*parts.key, 2)}, {}, "keys");
  }
  const OnnxAttentionNode written = writeOnnxAttention(parts, rewriter);
  recordOrigin(*written.node, site, {site.key->writer, site.value->writer, &sdpa}, rewriter);
  const std::optional<MatchFailure> failure =
      rewriter.replace({{&sdpa.result(), written.output},
                        {site.key->present, &written.node->result(1)},
                        {site.value->present, &written.node->result(2)}});
  if (failure)
    return unsupported("site {}: {}", site.id(), failure->str());
  site.node = written.node;
  return llvm::Error::success();
}

llvm::Error PastAttentionLowering::lowerJoined(AttentionSite& site) {
  Node& sdpa = *site.node;
  Rewriter rewriter(sdpa.graph(), pastAttentionRule, journal);
  AttentionBuilder build(rewriter);
  OnnxAttention parts = partsOf(site);
  parts.key = sdpa.operand(1);
  parts.value = sdpa.operand(2);
  if (parts.mask)
    parts.maskColumnCount = build.extent(*parts.key, 2);
  const bool isAligned = parts.query->type().dim(2).isKnownEqual(parts.key->type().dim(2));
  Value* lengths = sdpa.operand(5);
  // Without a past the node's own frontier starts at the first key.
  if (parts.causal && (lengths || !isAligned)) {
    parts.causal = false;
    parts.hidden.hidesLaterKeys = true;
  }
  if (lengths) {
    parts.hidden.firstPosition = lengths;
    parts.hidden.keyCount =
        &build.node("Add", {*lengths, build.extent(*parts.query, 2)}, {}, "key_count");
  } else if (parts.hidden.hidesLaterKeys || parts.hidden.window != 0) {
    parts.hidden.firstPosition =
        isAligned ? &build.value(ints({0}))
                  : &build.node("Sub", {build.extent(*parts.key, 2), build.extent(*parts.query, 2)},
                                {}, "earlier_keys");
  }
  const OnnxAttentionNode written = writeOnnxAttention(parts, rewriter);
  recordOrigin(*written.node, site, {&sdpa}, rewriter);
  if (std::optional<MatchFailure> failure = rewriter.replace(sdpa.result(), *written.output))
    return unsupported("site {}: {}", site.id(), failure->str());
  site.node = written.node;
  return llvm::Error::success();
}

} // namespace kvopt::targets
