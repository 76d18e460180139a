// Conversion of ai.kvopt's in-place operators to TensorScatter and Attention.
#include "passes/targets/onnx/tensor_scatter_lowering.h"

#include "ir/cache_layout.h"
#include "ir/ops/kvopt/cache_operator.h"
#include "ir/shapes/shape_inference.h"
#include "passes/targets/kvopt/kvopt_lowering.h"
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/onnx/onnx_attention.h"
#include "passes/targets/onnx/ring_slots.h"
#include "passes/targets/support/cache_rows.h"
#include "passes/targets/support/kvopt_domain.h"
#include "support/diagnostic.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::targets {
using namespace builders;
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

constexpr const char* tensorScatterRule = "lower-onnx24";

/// One of ai.kvopt's in-place operators, by the positions of its operands.
class FusedView {
public:
  explicit FusedView(Node& fused) : node(fused), op(*CacheOperator::of(fused)) {}

  bool isLatent() const { return op.isLatent(); }
  bool isRing() const { return op.isRing(); }
  unsigned cacheCount() const { return op.sides(); }
  Value& query() const { return *node.operand(CacheOperator::query); }
  /// New rows of cache 0 (keys or latent) or 1: [B,G,S,·].
  Value& rows(unsigned cache) const { return *node.operand(CacheOperator::fresh(cache)); }
  Value& past(unsigned cache) const { return *node.operand(op.past(cache)); }
  Value& present(unsigned cache) const { return node.result(op.present(cache)); }
  Value& pastLength() const { return *node.operand(op.pastLength()); }
  Value* mask() const { return node.operand(op.mask()); }
  int64_t sequenceAxis(unsigned cache) const {
    return node.intAttr(CacheOperator::axisName(cache), 2);
  }
  CacheLayout layout(unsigned cache) const {
    return *CacheLayout::bySequenceAxis(past(cache).type().rank(), sequenceAxis(cache));
  }

private:
  Node& node;
  CacheOperator op;
};

/// Whether the only cache of a branch starts at row 0: KvoptLowering's constant.
bool isZero(const Value& lengths) {
  auto known = lengths.knownIntegers();
  return known && llvm::all_of(*known, [](const Dim& length) { return length.value() == 0; });
}

/// A constant that adds nothing to any score means that there is no mask.
Value* realMask(Value* mask) {
  if (!mask)
    return nullptr;
  const TensorData* data = mask->constant();
  return data && isFloatingPoint(data->elementType()) && scalarValue(*data) == 0.0 ? nullptr : mask;
}

OnnxAttention attributesOf(const AttentionSite& site) {
  const Node& sdpa = *site.node;
  OnnxAttention parts;
  parts.everyRowSeesAKey = site.mask && site.mask->everyRowSeesAKey;
  parts.scale = static_cast<double>(sdpa.floatAttr("scale", 1.0f));
  parts.softcap = sdpa.floatAttr("softcap", 0.0f);
  parts.causal = sdpa.intAttr("causal", 0) != 0;
  parts.hidden.window = sdpa.intAttr("window", 0);
  return parts;
}

void recordOrigin(Node& attention, const Node& fused) {
  Metadata metadata{{ruleMetadataKey, tensorScatterRule}};
  for (const auto& entry : fused.metadata())
    if (entry.first != ruleMetadataKey)
      metadata.push_back(entry);
  attention.setMetadata(std::move(metadata));
}

/// New rows [B,G,S,D] in the layout of the cache.
Value& rowsLikeCache(Value& rows, const CacheLayout& layout, Rewriter& rewriter) {
  if (!layout.hasFoldedHeads())
    return transposed(rows, layout.cacheOrder(), rewriter);
  AttentionBuilder build(rewriter);
  Value& rest = build.value(ints({-1}));
  Value& shape = build.concat(build.concat(rest, build.value(build.extent(rows, 2)), 0),
                              build.value(ints({*rows.type().dim(3).value()})), 0);
  Value& folded = build.node("Reshape", {rows, shape}, {}, "folded_rows");
  return transposed(folded, layout.cacheOrder(), rewriter);
}

/// The cache as [B,G,C,D]. `rows` are its new rows in that form.
Value& cacheAsHeads(Value& cache, const CacheLayout& layout, Value& rows, Rewriter& rewriter) {
  AttentionBuilder build(rewriter);
  Value& slots = transposed(cache, layout.rowOrder(), rewriter);
  if (!layout.hasFoldedHeads())
    return slots;
  const int64_t heads = *rows.type().dim(1).value();
  const int64_t width = *rows.type().dim(3).value();
  Value& shape =
      build.concat(build.value(build.extent(rows, 0)), build.value(ints({heads, -1, width})), 0);
  return build.node("Reshape", {slots, shape}, {}, "cache_heads");
}

std::optional<MatchFailure> cacheObstacle(const AttentionSite& site) {
  for (const SiteCache* update : {&*site.key, &*site.value}) {
    auto refuse = [&](ReasonCode code, std::string expected, std::string found, const char* hint) {
      return MatchFailure{code, update->past->name().str(), std::move(expected), std::move(found),
                          hint};
    };
    const ElementType element = site.node->operand(0)->type().elementType();
    if (update->past->type().elementType() != element)
      return refuse(ReasonCode::DtypeMix, "caches of the query's element type",
                    onnxName(update->past->type().elementType()).str(),
                    "ai.kvopt widens what it reads: --to kvopt");
    if (unflattened(update->layout))
      return refuse(ReasonCode::LayoutUnsupported, "an axis for the heads", update->layout.text(),
                    "--to kvopt can take it");
    auto layout = CacheLayout::bySequenceAxis(update->past->type().rank(), update->axis);
    if (!layout || layout->sequenceAxis() == 0)
      return refuse(ReasonCode::LayoutUnsupported, "a cache whose first axis is the batch's",
                    update->layout.text(), "TensorScatter writes along any axis but the first");
    const Value& operand = *site.node->operand(update == &*site.key ? 1 : 2);
    if (layout->hasFoldedHeads() &&
        (!operand.type().dim(1).value() || !operand.type().dim(3).value()))
      return refuse(ReasonCode::HeadCountUnproven, "fixed heads and width", operand.type().str(),
                    "");
  }
  return std::nullopt;
}

} // namespace

std::optional<MatchFailure> supportsTensorScatter(const AttentionSite& site, bool asRing) {
  if (auto failure = supportsKvoptSite(site, asRing))
    return failure;
  if (auto failure = onnxAttentionObstacle(*site.node))
    return failure;
  const bool readsBuffer = site.owner && site.update == CacheUpdate::Grows;
  const bool isRing = asRing && ringSlots(site) != 0;
  return site.grows() || readsBuffer || isRing ? cacheObstacle(site) : std::nullopt;
}

TensorScatterLowering::TensorScatterLowering(Model& lowered, const LowerOptions& lowerOptions,
                                             Journal& editJournal, bool withRings)
    : model(lowered), graph(lowered.graph()), options(lowerOptions), journal(editJournal),
      hasRings(withRings) {}

llvm::Expected<Manifest> TensorScatterLowering::run(llvm::ArrayRef<AttentionSite*> sites) {
  const int64_t irVersion = model.irVersion;
  CacheForm form;
  form.place = hasRings ? CachePlace::Ring : CachePlace::Buffer;
  form.spareSlots = hasRings ? options.size - 1 : 0;
  auto described = KvoptLowering(model, options, journal, form).run(sites);
  if (!described)
    return described.takeError();
  manifest = std::move(*described);
  manifest.target = hasRings ? "onnx24-ring" : "onnx24";
  if (hasRings)
    manifest.stepLimit = options.size;
  const llvm::SmallVector<AttentionSite*, 32> left = sitesLeft(sites);
  addLengthInputs(left);
  for (AttentionSite* site : left) {
    const bool isCached = !site->node->is("ai.kvopt::Sdpa");
    if (llvm::Error error = isCached ? lowerCached(*site) : lowerUncached(*site))
      return error;
  }
  finishLengths();
  graph.eraseDeadNodes();
  dropKvoptDomain(model, irVersion);
  if (llvm::Error error = inferShapes(graph))
    return error;
  return std::move(manifest);
}

/// Lowering to ai.kvopt's operators removes attention whose result had only replaced readers.
llvm::SmallVector<AttentionSite*, 32>
TensorScatterLowering::sitesLeft(llvm::ArrayRef<AttentionSite*> sites) const {
  llvm::DenseSet<const Node*> nodes;
  forEachGraph(graph, [&](Graph& each) {
    for (const Node& node : each.nodes())
      nodes.insert(&node);
  });
  llvm::SmallVector<AttentionSite*, 32> left;
  llvm::copy_if(sites, std::back_inserter(left),
                [&](const AttentionSite* site) { return nodes.contains(site->node); });
  return left;
}

void TensorScatterLowering::addLengthInputs(llvm::ArrayRef<AttentionSite*> sites) {
  for (const ManifestLength& length : manifest.lengths)
    if (length.feed == LengthFeed::PastLength)
      pastLength = graph.findValue(length.input);
  if (!pastLength)
    return;
  Dim batch;
  for (const AttentionSite* site : sites)
    if (!site->node->is("ai.kvopt::Sdpa")) {
      batch = site->node->operand(0)->type().dim(0);
      break;
    }
  const TensorType type(ElementType::Int64, Shape{batch});
  writeIndices = &graph.addInput(graph.freshName("write_indices"), type);
  keyLengths = &graph.addInput(graph.freshName("nonpad_kv_seqlen"), type);
}

TensorScatterLowering::Lengths TensorScatterLowering::lengthsOf(Value& before, Value& query,
                                                                AttentionBuilder& build) const {
  if (&before == pastLength)
    return {writeIndices, keyLengths};
  // In a branch without a past, the length that is fed for the other branch applies, too.
  if (isZero(before) && keyLengths)
    return {nullptr, keyLengths};
  Value& perRow = lengthsPerRow(before, query, build);
  return {isZero(before) ? nullptr : &perRow,
          &build.node("Add", {perRow, build.extent(query, 2)}, {}, "nonpad_kv_seqlen")};
}

/// The present of one cache.
Value& TensorScatterLowering::scatter(Node& fused, unsigned cache, const Lengths& lengths,
                                      Rewriter& rewriter) const {
  const FusedView view(fused);
  Value& rows = view.rows(cache);
  const CacheLayout layout = view.layout(cache);
  AttentionBuilder build(rewriter);
  llvm::SmallVector<Value*, 3> operands{&view.past(cache), &rowsLikeCache(rows, layout, rewriter)};
  if (Value* places = lengths.before) {
    // The first axis also counts heads.
    if (int64_t heads = *rows.type().dim(1).value(); layout.hasFoldedHeads() && heads != 1) {
      Value& column = build.node("Reshape", {*places, ints({-1, 1})});
      Value& perHead = build.node("Expand", {column, ints({1, heads})}, {}, "per_head");
      places = &build.node("Reshape", {perHead, ints({-1})}, {}, "write_indices");
    }
    operands.push_back(places);
  }
  AttributeList attributes =
      attrs({{"axis", view.sequenceAxis(cache)}, {"mode", view.isRing() ? "circular" : "linear"}});
  // Named after the past: the result will get the name of an output, and its own name will be free.
  const std::string hint = (view.past(cache).name() + "_scattered").str();
  Node& scatter = rewriter.create("TensorScatter", operands, attributes, 1, hint);
  // Not before the attention: shapes of the past are read before it is overwritten.
  fused.graph().moveBefore(scatter, &fused);
  recordOrigin(scatter, fused);
  return scatter.result();
}

void TensorScatterLowering::attendToBuffer(const Lengths& lengths, const Value& before, Value* mask,
                                           OnnxAttention& parts, AttentionBuilder& build) {
  parts.totalLengths = lengths.total;
  if (parts.hidden.window != 0)
    parts.hidden.firstPosition = lengths.before ? lengths.before : &build.value(ints({0}));
  parts.mask = realMask(mask);
  if (!parts.mask)
    return;
  isEven |= lengths.before == writeIndices;
  if (auto known = before.knownIntegers(); known && known->size() == 1)
    parts.maskColumns = known->front() + parts.query->type().dim(2);
  parts.maskColumnCount = &build.node("ReduceMax", {*lengths.total}, {}, "longest");
}

void TensorScatterLowering::attendToRing(Node& fused, OnnxAttention& parts,
                                         AttentionBuilder& build) {
  const FusedView view(fused);
  const Dim& slots = view.past(0).type().dim(view.sequenceAxis(0));
  RingSlots ring(view.pastLength(), *parts.query, *slots.value(), options.size, build);
  parts.visible = &ring.visible(parts.causal, parts.hidden.window);
  parts.causal = false;
  parts.hidden = {};
  if (Value* mask = realMask(view.mask())) {
    parts.mask = &ring.maskColumns(*mask);
    parts.maskColumns = slots;
    parts.maskColumnCount = ints({*slots.value()});
  }
}

llvm::Error TensorScatterLowering::lowerCached(AttentionSite& site) {
  Node& fused = *site.node;
  const FusedView view(fused);
  Rewriter rewriter(fused.graph(), tensorScatterRule, journal);
  AttentionBuilder build(rewriter);
  Value& query = view.query();
  const Lengths lengths = lengthsOf(view.pastLength(), query, build);

  OnnxAttention parts = attributesOf(site);
  parts.query = &query;
  if (view.isRing())
    attendToRing(fused, parts, build);
  else
    attendToBuffer(lengths, view.pastLength(), view.mask(), parts, build);
  // Concatenated rows of all heads are a three-axis operand of attention; no data is moved.
  const auto isTokenMajor = [&](unsigned cache) {
    return !view.layout(cache).hasFoldedHeads() && view.sequenceAxis(cache) == 1;
  };
  if (!view.isLatent() && isTokenMajor(0) && isTokenMajor(1))
    parts.heads = view.rows(0).type().dim(1).value().value_or(0);

  llvm::SmallVector<Rewriter::Replacement, 3> replacements{{&fused.result(0), nullptr}};
  Value* attended[2] = {};
  for (unsigned cache = 0; cache < view.cacheCount(); ++cache) {
    Value& present = scatter(fused, cache, lengths, rewriter);
    replacements.push_back({&view.present(cache), &present});
    Value& rows = view.rows(cache);
    const auto width = rows.type().dim(3).value();
    attended[cache] =
        parts.heads == 0
            ? &cacheAsHeads(present, view.layout(cache), rows, rewriter)
            : &build.node("Reshape", {present, ints({0, 0, width ? parts.heads * *width : -1})}, {},
                          "cache_rows");
  }
  parts.key = attended[0];
  parts.value = attended[1];
  if (view.isLatent()) {
    const int64_t first = fused.intAttr("v_offset", 0);
    parts.value = &build.slice(*parts.key, 3, first, first + fused.intAttr("v_width", 0));
  }
  const OnnxAttentionNode written = writeOnnxAttention(parts, rewriter);
  recordOrigin(*written.node, fused);
  replacements.front().after = written.output;
  if (std::optional<MatchFailure> failure = rewriter.replace(replacements))
    return unsupported("site {}: {}", site.id(), failure->str());
  site.node = written.node;
  return llvm::Error::success();
}

llvm::Error TensorScatterLowering::lowerUncached(AttentionSite& site) {
  Node& sdpa = *site.node;
  Rewriter rewriter(sdpa.graph(), tensorScatterRule, journal);
  AttentionBuilder build(rewriter);
  Value& query = *sdpa.operand(0);
  Value& key = *sdpa.operand(1);
  OnnxAttention parts = attributesOf(site);
  parts.query = &query;
  parts.key = &key;
  parts.value = sdpa.operand(2);
  if (site.owner && site.update == CacheUpdate::Grows) {
    // The buffer that another layer's attention has written to.
    Value& before = *sdpa.operand(5);
    attendToBuffer(lengthsOf(before, query, build), before, sdpa.operand(3), parts, build);
    return writeUncached(site, parts, rewriter);
  }
  parts.mask = realMask(sdpa.operand(3));
  parts.maskColumns = key.type().dim(2);
  if (parts.mask)
    parts.maskColumnCount = build.extent(key, 2);
  const bool isAligned = query.type().dim(2).isKnownEqual(key.type().dim(2));
  if (Value* lengths = sdpa.operand(5)) {
    parts.hidden.firstPosition = lengths;
    parts.totalLengths = &build.node(
        "Add", {lengthsPerRow(*lengths, query, build), build.extent(query, 2)}, {}, "key_lengths");
  } else if (parts.causal && !isAligned) {
    parts.totalLengths = &lengthsPerRow(build.value(build.extent(key, 2)), query, build);
  }
  if (parts.hidden.window != 0 && !parts.hidden.firstPosition)
    parts.hidden.firstPosition =
        isAligned ? &build.value(ints({0}))
                  : &build.node("Sub", {build.extent(key, 2), build.extent(query, 2)}, {},
                                "earlier_keys");
  return writeUncached(site, parts, rewriter);
}

llvm::Error TensorScatterLowering::writeUncached(AttentionSite& site, const OnnxAttention& parts,
                                                 Rewriter& rewriter) {
  Node& sdpa = *site.node;
  const OnnxAttentionNode written = writeOnnxAttention(parts, rewriter);
  recordOrigin(*written.node, sdpa);
  if (std::optional<MatchFailure> failure = rewriter.replace(sdpa.result(), *written.output))
    return unsupported("site {}: {}", site.id(), failure->str());
  site.node = written.node;
  return llvm::Error::success();
}

/// Removes the graph's own length input; remaining readers get the length of the longest row.
void TensorScatterLowering::finishLengths() {
  graph.eraseDeadNodes();
  if (!pastLength)
    return;
  if (pastLength->hasUses()) {
    isEven = true;
    Rewriter rewriter(graph, tensorScatterRule, journal);
    AttentionBuilder build(rewriter);
    pastLength->replaceAllUsesWith(build.node("ReduceMax", {*writeIndices}, {}, "past_length"));
  }
  std::vector<ManifestLength> lengths;
  for (ManifestLength& length : manifest.lengths) {
    if (length.input != pastLength->name()) {
      lengths.push_back(std::move(length));
      continue;
    }
    const Dim& batch = writeIndices->type().dim(0);
    for (Value* input : {writeIndices, keyLengths}) {
      // Rings do not need the number of keys.
      if (!input->hasUses()) {
        graph.removeInput(*input);
        continue;
      }
      ManifestLength perRow;
      perRow.input = input->name().str();
      perRow.shape.emplace_back(batch.value() ? ManifestExtent(*batch.value())
                                              : ManifestExtent(batch.str()));
      const bool isTotal = input == keyLengths;
      perRow.feed =
          isEven ? (isTotal ? LengthFeed::TotalLength : LengthFeed::PastLength)
                 : (isTotal ? LengthFeed::TotalLengthPerBatch : LengthFeed::PastLengthPerBatch);
      lengths.push_back(std::move(perRow));
    }
  }
  manifest.lengths = std::move(lengths);
  graph.removeInput(*pastLength);
}

} // namespace kvopt::targets
