// Converts kvopt's own in-place operators back to growing caches, so that a rewritten model can be
// rewritten for another target.
//
//   before   o, present_key, present_value =
//                ai.kvopt.InPlaceKvSdpa(q, k, v, past_key, past_value, past_length, mask)
//   after    present_key = Concat<2>(past_key, k)   present_value = Concat<2>(past_value, v)
//            o = ai.kvopt.Sdpa(q, present_key, present_value, mask)
//
// The manifest in the model names the inputs that are caches and those that count tokens. If the
// graph computes lengths, batch rows may have different lengths, and ai.kvopt.AppendRows appends
// rows.
#include "ir/cache_layout.h"
#include "ir/ops/contrib/group_query_operands.h"
#include "ir/ops/kvopt/cache_operator.h"
#include "ir/required_values.h"
#include "ir/shapes/shape_inference.h"
#include "passes/builders/attention_builder.h"
#include "passes/pass.h"
#include "passes/targets/support/cache_rows.h"
#include "passes/targets/support/kvopt_domain.h"
#include "support/diagnostic.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::transforms {
using namespace builders;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace targets;

namespace {

constexpr const char* restoreCachesName = "restore-caches";

/// One cache of an in-place operator.
struct RestoredCache {
  Value* past = nullptr;
  Value* present = nullptr;
  Value* fresh = nullptr; ///< [B,G,S,D]
  int64_t axis = 2;
  CacheLayout layout;
};

class Restoration {
public:
  Restoration(Model& rewritten, const Manifest& stored, Journal& editJournal)
      : model(rewritten), graph(rewritten.graph()), manifest(stored), journal(editJournal) {}

  llvm::Error run() {
    constexpr const char* ofRings = "its caches hold the last rows only";
    if (llvm::any_of(manifest.caches,
                     [](const ManifestCache& cache) { return isScale(cache.role); }))
      return refused("its caches hold codes of rounded rows");
    if (manifest.stepLimit)
      return refused(ofRings);
    if (llvm::Error error = findLength())
      return error;
    llvm::SmallVector<Node*, 32> nodes;
    for (Node& node : graph.nodes()) {
      const auto op = CacheOperator::of(node);
      if (op && op->isRing())
        return refused(ofRings);
      if (bufferOperator(node))
        nodes.push_back(&node);
    }
    if (llvm::Error error = growInputs())
      return error;
    if (length)
      replaceLength();
    for (Node* node : nodes)
      if (llvm::Error error = restore(*node))
        return error;
    graph.eraseDeadNodes();
    dropKvoptDomain(model, model.irVersion);
    model.removeMetadata(manifestKey);
    model.removeMetadata(partialKey);
    model.removeMetadata(pastExtentKey);
    return inferShapes(graph);
  }

private:
  /// The node's operator, if it has one buffer of numbers for each cache.
  static std::optional<CacheOperator> bufferOperator(const Node& node) {
    const auto op = CacheOperator::of(node);
    return op && op->place == CachePlace::Buffer && !op->hasCodes() ? op : std::nullopt;
  }

  llvm::Error refused(const std::string& what) const {
    return unsupported("the model was rewritten before, for '{}': {}", manifest.target, what)
        .hint("rewrite the model as it was exported")
        .as<RefusedError>();
  }

  /// Finds the input with the number of rows in a cache.
  llvm::Error findLength() {
    for (const ManifestLength& input : manifest.lengths) {
      if (input.feed == LengthFeed::HasPast || input.feed == LengthFeed::NoPast)
        return refused("it has branches");
      if (input.feed != LengthFeed::PastLength || length)
        return refused("another operator defines its lengths");
      length = graph.findValue(input.input);
      if (!length || !length->isGraphInput() || length->isGraphOutput() ||
          !length->type().hasRank() || length->type().rank() != 1 ||
          length->type().dim(0).value() != 1)
        return refused("there is no input '" + input.input + "' with one length");
    }
    return llvm::Error::success();
  }

  /// The present that belongs to the past that the use reads as an operand of GroupQueryAttention;
  /// null for any other use. That operator is the same for a buffer and for a growing cache.
  static Value* groupedPresent(const Use& use) {
    constexpr unsigned presentKey = 1;
    Node& node = use.user();
    const unsigned side = use.operandIndex() - gqa::PastKey;
    if (!node.definition() || !node.is("com.microsoft::GroupQueryAttention") ||
        use.operandIndex() < gqa::PastKey || side > 1 || node.results().size() <= presentKey + side)
      return nullptr;
    return &node.result(presentKey + side);
  }

  /// Whether the use reads the cache of an operator whose rows are along that axis.
  bool readsPast(const Use& use, int64_t axis) const {
    const Node& node = use.user();
    if (groupedPresent(use))
      return axis == 2 && &node.graph() == &graph;
    const auto op = bufferOperator(node);
    if (!op || &node.graph() != &graph)
      return false; // or a node in a branch
    for (unsigned side = 0; side < op->sides(); ++side)
      if (use.operandIndex() == op->past(side))
        return node.intAttr(CacheOperator::axisName(side), 2) == axis;
    return false;
  }

  /// Removes the fixed extents of caches. In-place operators must be the only readers of every
  /// cache in the manifest.
  llvm::Error growInputs() {
    const std::string* before = model.findMetadata(pastExtentKey);
    const Dim earlier = Dim::symbol(before ? *before : "past_rows");
    for (const ManifestCache& cache : manifest.caches) {
      // Only the storage of caches with fixed extents had changed.
      keepsExtents |= cache.isOneBuffer() && cache.update() != CacheUpdate::Grows;
      if (!cache.isOneBuffer() || cache.update() != CacheUpdate::Grows)
        continue;
      Value* past = graph.findValue(cache.past);
      const bool isRead = past && past->isGraphInput() && !past->isGraphOutput() &&
                          past->type().hasRank() &&
                          cache.sequenceAxis < static_cast<int64_t>(past->type().rank());
      if (!isRead || llvm::any_of(past->uses(), [&](const Use& use) {
            return !readsPast(use, cache.sequenceAxis) && !use.user().is("Shape");
          }))
        return refused("the cache '" + cache.past + "' is not read in place");
      Shape shape(past->type().shape().begin(), past->type().shape().end());
      shape[static_cast<size_t>(cache.sequenceAxis)] = earlier;
      grown.insert(past);
      past->setType(TensorType(past->type().elementType(), shape));
      // The declared type of a present has the capacity.
      shape[static_cast<size_t>(cache.sequenceAxis)] = Dim::unknown();
      for (const Use& use : past->uses())
        if (Value* present = groupedPresent(use))
          present->setType(TensorType(past->type().elementType(), shape));
      if (!firstPast) {
        firstPast = past;
        firstAxis = cache.sequenceAxis;
      }
    }
    if (!firstPast && !keepsExtents)
      return refused("it contains no cache of its manifest");
    if (length && !firstPast)
      return refused("no cache of its manifest determines the length '" + length->name().str() +
                     "'");
    return llvm::Error::success();
  }

  void replaceLength() {
    Rewriter rewriter(graph, restoreCachesName, journal);
    Value& shape = rewriter.create("Shape", {firstPast}, {}, 1, "past_shape").result();
    Value& axis = rewriter.constant("axis", int64Tensor({firstAxis}));
    rows = &rewriter.create("Gather", {&shape, &axis}, {}, 1, "past_rows").result();
    length->replaceAllUsesWith(*rows);
    restoreOrder(graph);
    graph.removeInput(*length);
  }

  llvm::Expected<RestoredCache> cacheOf(Node& node, const CacheOperator& op, unsigned side) {
    RestoredCache cache;
    auto freshRows = requiredOperand(node, CacheOperator::fresh(side));
    auto pastRows = requiredOperand(node, op.past(side));
    auto presentRows = requiredResult(node, op.present(side));
    if (!freshRows || !pastRows || !presentRows)
      return llvm::joinErrors(llvm::joinErrors(freshRows.takeError(), pastRows.takeError()),
                              presentRows.takeError());
    cache.fresh = *freshRows;
    cache.past = *pastRows;
    cache.present = *presentRows;
    cache.axis = node.intAttr(CacheOperator::axisName(side), 2);
    if (!grown.count(cache.past))
      return refused("'" + cache.past->name().str() + "' is not a cache of its manifest");
    const bool isKnown = cache.past->type().hasRank();
    auto layout =
        isKnown ? CacheLayout::bySequenceAxis(cache.past->type().rank(), cache.axis) : std::nullopt;
    if (!layout)
      return refused("the layout of '" + cache.past->name().str() + "' is not known");
    cache.layout = std::move(*layout);
    return cache;
  }

  llvm::Error restore(Node& node) {
    const CacheOperator op = *bufferOperator(node);
    llvm::SmallVector<RestoredCache, 2> caches;
    for (unsigned side = 0; side < op.sides(); ++side) {
      auto cache = cacheOf(node, op, side);
      if (!cache)
        return cache.takeError();
      caches.push_back(std::move(*cache));
    }
    Rewriter rewriter(graph, restoreCachesName, journal, node.name());
    AttentionBuilder build(rewriter);
    auto query = requiredOperand(node, 0);
    auto lengthsOfRows = requiredOperand(node, op.pastLength());
    auto output = requiredResult(node, 0);
    if (!query || !lengthsOfRows || !output)
      return llvm::joinErrors(llvm::joinErrors(query.takeError(), lengthsOfRows.takeError()),
                              output.takeError());
    Value* lengths = *lengthsOfRows;
    const bool isUniform = lengths == rows;
    llvm::SmallVector<Rewriter::Replacement, 3> replacements{{*output, nullptr}};
    llvm::SmallVector<Value*, 2> read;
    for (const RestoredCache& cache : caches) {
      auto joined =
          isUniform ? joinedRows(cache, build, rewriter) : appendedRows(cache, *lengths, build);
      if (!joined)
        return joined.takeError();
      read.push_back(joined->second);
      replacements.push_back({cache.present, joined->first});
    }
    AttentionBuilder::AttentionParts parts;
    parts.query = *query;
    parts.key = read.front();
    parts.value = op.isLatent() ? &columnsOf(node, *read.front(), build) : read.back();
    parts.mask = maskOf(node.operand(op.mask()));
    parts.sinks = node.operand(op.sinks());
    parts.pastLength = isUniform ? nullptr : lengths;
    parts.scale = static_cast<double>(node.floatAttr("scale", 1.0f));
    parts.causal = node.intAttr("causal", 0) != 0;
    parts.window = node.intAttr("window", 0);
    parts.softcap = node.floatAttr("softcap", 0.0f);
    replacements.front().after = &build.sdpa(parts, {&node});
    // The declared type of a present has the capacity.
    for (const Rewriter::Replacement& replacement : llvm::drop_begin(replacements))
      replacement.before->setType(replacement.after->type());
    if (std::optional<MatchFailure> failure = rewriter.replace(replacements))
      return refused(failure->str());
    return llvm::Error::success();
  }

  /// The present, and its rows as [B,G,T,D].
  using Joined = std::pair<Value*, Value*>;

  llvm::Expected<Joined> joinedRows(const RestoredCache& cache, AttentionBuilder& build,
                                    Rewriter& rewriter) {
    const llvm::SmallVector<int64_t, 4> forward = cache.layout.rowOrder();
    const llvm::SmallVector<int64_t, 4> back = cache.layout.cacheOrder();
    const TensorType& fresh = cache.fresh->type();
    if (!cache.layout.hasFoldedHeads()) {
      Value& present =
          build.concat(*cache.past, transposed(*cache.fresh, back, rewriter), cache.axis);
      return Joined{&present, &transposed(present, forward, rewriter)};
    }
    auto groups = fresh.dim(1).value();
    auto width = fresh.dim(3).value();
    if (!groups || !width)
      return refused("the heads of '" + cache.past->name().str() + "' are not known");
    Value& newRows = build.value(build.extent(*cache.fresh, 2));
    Value& flat = build.concat(build.concat(build.value(ints({-1})), newRows, 0),
                               build.value(ints({*width})), 0);
    Value& folded = build.node("Reshape", {*cache.fresh, flat}, {}, "folded_rows");
    Value& present = build.concat(*cache.past, transposed(folded, back, rewriter), cache.axis);
    Value& sequence = transposed(present, forward, rewriter);
    Value& total = build.node("Add", {build.extent(*cache.past, cache.axis), newRows}, {}, "rows");
    Value& shape = build.concat(build.concat(build.value(ints({-1, *groups})), total, 0),
                                build.value(ints({*width})), 0);
    return Joined{&present, &build.node("Reshape", {sequence, shape}, {}, "rows")};
  }

  llvm::Expected<Joined> appendedRows(const RestoredCache& cache, Value& lengths,
                                      AttentionBuilder& build) const {
    if (cache.layout.hasFoldedHeads() || cache.axis != 2)
      return refused("rows of '" + cache.past->name().str() +
                     "' have a different length per batch row");
    Value& present =
        build.node("ai.kvopt::AppendRows", {*cache.past, *cache.fresh, lengths}, {}, "present");
    return Joined{&present, &present};
  }

  static Value& columnsOf(const Node& node, Value& rows, AttentionBuilder& build) {
    const int64_t offset = node.intAttr("v_offset", 0);
    return build.slice(rows, 3, offset, offset + node.intAttr("v_width", 0));
  }

  /// The mask, unless it is the neutral one that function bodies need.
  static Value* maskOf(Value* mask) {
    const TensorData* data = mask ? mask->constant() : nullptr;
    const bool isNeutral = data && isFloatingPoint(mask->type().elementType()) &&
                           data->elementCount() == 1 && scalarValue(*data) == 0.0;
    return isNeutral ? nullptr : mask;
  }

  Model& model;
  Graph& graph;
  const Manifest& manifest;
  Journal& journal;
  Value* length = nullptr; ///< the input with the length
  Value* rows = nullptr;   ///< replaces the input
  llvm::DenseSet<const Value*> grown;
  bool keepsExtents = false; ///< whether some caches were never changed
  Value* firstPast = nullptr;
  int64_t firstAxis = 0;
};

class RestoreCaches final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    auto stored = manifestOf(model);
    if (!stored)
      return stored.takeError();
    if (!*stored)
      return llvm::Error::success();
    context.history.read(**stored);
    context.reorder = (*stored)->reorder;
    context.interface.countsTokens = (*stored)->padsRight;
    context.unpaddedMasks.insert((*stored)->unpadded.begin(), (*stored)->unpadded.end());
    if (!(*stored)->sharesBuffers())
      return llvm::Error::success();
    if (llvm::Error error = inferShapes(model.graph()))
      return error;
    const Manifest manifest = std::move(**stored);
    if (llvm::Error error = Restoration(model, manifest, context.journal).run())
      return error;
    context.count(restoreCachesName, "models");
    return llvm::Error::success();
  }
};

} // namespace

void register_restore_caches(PassRegistry& registry) {
  registry.add({restoreCachesName,
                "Converts caches that kvopt made share buffers back to growing caches.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<RestoreCaches>());
                }});
}

} // namespace kvopt::transforms
