// Replaces attention over shared buffers and pools by attention over growing caches, for analyses
// of the rows alone: masks are left out, so the results of the model change.
//
//   before   o, present_key, present_value =
//                com.microsoft.GroupQueryAttention(q, k, v, past_key, past_value, seqlens_k, total)
//   after    present_key = Concat<2>(past_key, heads(k))
//            present_value = Concat<2>(past_value, heads(v))
//            o = rows(ai.kvopt.Sdpa<causal = 1>(heads(q), present_key, present_value))
//
//   before   present_key = TensorScatter(past_key, k, write_indices)   …value likewise
//            o = Attention(q, present_key, present_value, mask, , , nonpad_kv_seqlen)
//   after    present_key = Concat<2>(past_key, k)                      …value likewise
//            o = Attention<is_causal = 1>(q, present_key, present_value)
//
// PagedAttention is treated like GroupQueryAttention, with each batch row's own rows instead of
// packed ones. The manifest names the inputs that are caches and those that count tokens.
#include "ir/cache_layout.h"
#include "ir/manifest/documented_inputs.h"
#include "ir/ops/contrib/group_query_operands.h"
#include "ir/ops/kvopt/cache_operator.h"
#include "ir/shapes/shape_inference.h"
#include "passes/builders/grouped_operands.h"
#include "passes/pass.h"
#include "passes/targets/support/cache_rows.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::transforms {
using namespace builders;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace targets;

namespace {

constexpr const char* readRowsName = "read-cached-rows";

class RowsReader {
public:
  RowsReader(Model& read, const Manifest& stored, Journal& editJournal)
      : model(read), graph(read.graph()), manifest(stored), journal(editJournal) {}

  llvm::Error run() {
    // The definition of Sdpa is found only if its domain is imported.
    model.opsets.try_emplace(kvoptDomain, 1);
    if (manifest.sharesBuffers())
      growCaches();
    replaceLengths();
    for (Node& node : llvm::make_early_inc_range(graph.nodes()))
      if (llvm::Error error = visit(node))
        return error;
    graph.eraseDeadNodes();
    model.removeMetadata(manifestKey);
    model.removeMetadata(partialKey);
    model.removeMetadata(pastExtentKey);
    return inferShapes(graph);
  }

private:
  llvm::Error visit(Node& node) {
    if (node.is("com.microsoft::GroupQueryAttention") && node.operand(3))
      return readGrouped(node);
    if (node.is("com.microsoft::PagedAttention"))
      return readPaged(node);
    if (node.is("TensorScatter"))
      return readScatter(node);
    const auto op = CacheOperator::of(node);
    if (op && !op->isInBlocks() && !op->hasCodes() && !op->isLatent())
      return readInPlace(node, *op);
    if (node.is("Attention"))
      dropMask(node);
    if (node.is("ai.kvopt::Sdpa"))
      dropLengths(node);
    return llvm::Error::success();
  }

  llvm::Error refused(const Node& node, const char* why) const {
    return unsupported("rows of the caches are not read: {}", why)
        .node(node.name(), node.op().str())
        .as<RefusedError>();
  }

  static Dim dimOf(const ManifestExtent& extent) {
    const auto* fixed = std::get_if<int64_t>(&extent);
    return fixed ? Dim::fixed(*fixed) : Dim::symbol(std::get<std::string>(extent));
  }

  /// Gives every cache with rows the number of earlier rows as the extent of its sequence axis.
  void growCaches() {
    const std::string* before = model.findMetadata(pastExtentKey);
    const Dim earlier = Dim::symbol(before ? *before : "past_rows");
    for (const ManifestCache& cache : manifest.caches) {
      Value* past = graph.findValue(cache.past);
      const bool hasRows =
          cache.update() == CacheUpdate::Grows || cache.update() == CacheUpdate::Ring;
      if (!past || !past->isGraphInput() || !hasRows)
        continue;
      Shape shape;
      for (const ManifestExtent& extent : cache.shape)
        shape.push_back(dimOf(extent));
      shape[static_cast<size_t>(cache.sequenceAxis)] = earlier;
      past->setType(TensorType(past->type().elementType(), std::move(shape)));
      if (!firstPast) {
        firstPast = past;
        firstAxis = cache.sequenceAxis;
      }
    }
  }

  bool holdsTokens(const Value& input) const {
    const DocumentedInput* documented = documentedInput(input);
    const bool isDocumented =
        documented && (documented->feed == InputFeed::Tokens || documented->feed == InputFeed::Any);
    return isDocumented || llvm::any_of(manifest.inputs, [&](const ManifestInput& each) {
             return each.input == input.name() && each.feed == InputFeed::Tokens;
           });
  }

  /// Number of new tokens, int64 [1], from token ids [B,S] or their embeddings [B,S,W]; null if no
  /// input has them.
  Value* newTokens(AttentionBuilder& build) {
    for (const auto& input : graph.inputs())
      if (holdsTokens(*input) && input->type().hasRank() && input->type().rank() >= 2)
        return &build.node("Gather", {build.node("Shape", {*input}, {}, "shape"), ints({1})}, {},
                           "new_tokens");
    return nullptr;
  }

  /// The value that an input is fed, int64 [1]; null if it is not a number of tokens, or is
  /// unknown.
  Value* fedLength(LengthFeed feed, AttentionBuilder& build) {
    if (isFlag(feed) || feed == LengthFeed::BlockTable)
      return nullptr;
    Value& rows = build.node(
        "Gather", {build.node("Shape", {*firstPast}, {}, "past_shape"), ints({firstAxis})}, {},
        "past_rows");
    if (feed == LengthFeed::PastLength || feed == LengthFeed::PastLengthPerBatch)
      return &rows;
    Value* fresh = newTokens(build);
    if (!fresh || feed == LengthFeed::NewLength)
      return fresh;
    Value& total = build.node("Add", {rows, *fresh}, {}, "total_length");
    const bool isLast =
        feed == LengthFeed::TotalLengthMinusOne || feed == LengthFeed::TotalLengthPerBatchMinusOne;
    return isLast ? &build.node("Sub", {total, ints({1})}, {}, "last_position") : &total;
  }

  /// Replaces inputs that count tokens by the values that they are fed, one number for all batch
  /// rows.
  void replaceLengths() {
    if (!firstPast)
      return;
    Rewriter rewriter(graph, readRowsName, journal);
    AttentionBuilder build(rewriter);
    for (const ManifestLength& length : manifest.lengths) {
      Value* input = graph.findValue(length.input);
      if (!input || !input->isGraphInput() || !input->hasUses())
        continue;
      if (Value* fed = fedLength(length.feed, build))
        input->replaceAllUsesWith(build.castTo(*fed, length.dtype));
    }
    restoreOrder(graph);
  }

  /// Joins past and new rows in place of the present.
  Value& joined(Value& past, Value& fresh, int64_t axis, Value& present, AttentionBuilder& build) {
    Value& rows = build.concat(past, fresh, axis);
    // The declared type of a present has the capacity.
    present.setType(rows.type());
    return rows;
  }

  struct HeadCounts {
    int64_t query;
    int64_t cache;
  };

  static HeadCounts headsOf(const Node& node) {
    return {node.intAttr("num_heads", 0), node.intAttr("kv_num_heads", 0)};
  }

  /// Width of the cached rows; nullopt if it is not known.
  static std::optional<int64_t> widthOf(const Node& node) {
    const Value* past = node.operand(gqa::PastKey);
    const bool hasHeads = past && past->type().hasRank() && past->type().rank() == 4;
    return hasHeads ? past->type().dim(3).value() : std::nullopt;
  }

  /// Positions that GroupQueryAttention rotates by, if they are an operand; otherwise null.
  static Value* positionsOf(const Node& node) {
    const bool hasTables = node.is("com.microsoft::GroupQueryAttention") &&
                           node.operands().size() > gqa::PositionIds &&
                           node.operand(gqa::CosineCache) && node.operand(gqa::SineCache) &&
                           node.operand(gqa::CosineCache)->type().hasRank() &&
                           node.operand(gqa::CosineCache)->type().rank() == 2 &&
                           node.operand(gqa::CosineCache)->type().dim(1).value();
    return hasTables ? node.operand(gqa::PositionIds) : nullptr;
  }

  /// `rows` are queries, keys and values [B,S,columns]; caches have their rows along `axis`: 2 for
  /// [B,G,C,D], 1 for [B,C,G,D].
  llvm::Error readRows(Node& node, llvm::ArrayRef<Value*> rows, int64_t axis, Value& result,
                       Rewriter& rewriter) {
    const HeadCounts heads = headsOf(node);
    const bool isRotated = node.intAttr("do_rotary", 0) != 0;
    const auto width = widthOf(node);
    if (heads.query < 1 || heads.cache < 1 || node.results().size() < 3 || !width ||
        !node.operand(gqa::PastValue) || (isRotated && !positionsOf(node)) ||
        llvm::any_of(rows, [](const Value* each) { return !each || each->type().rank() != 3; }))
      return refused(node, "its operands are not rows of queries, keys and values");
    AttentionBuilder build(rewriter);
    const auto headsFor = [&](Value& given, int64_t count, bool isValue) -> Value& {
      Value& split = build.splitHeads(given, count, *width);
      return isRotated && !isValue
                 ? rotatedByNode(node, split, count, *width, *positionsOf(node), build)
                 : split;
    };
    AttentionBuilder::AttentionParts parts;
    parts.query = &headsFor(*rows[0], heads.query, false);
    llvm::SmallVector<Rewriter::Replacement, 3> replacements;
    llvm::SmallVector<Value*, 2> attended;
    for (unsigned side : {0u, 1u}) {
      Value& split = headsFor(*rows[1 + side], heads.cache, side == 1);
      Value& fresh = axis == 2 ? split : build.transpose(split, {0, 2, 1, 3});
      Value& present = node.result(1 + side);
      Value& whole = joined(*node.operand(3 + side), fresh, axis, present, build);
      replacements.push_back({&present, &whole});
      attended.push_back(axis == 2 ? &whole : &build.transpose(whole, {0, 2, 1, 3}));
    }
    parts.key = attended[0];
    parts.value = attended[1];
    parts.sinks = node.operands().size() > 11 ? node.operand(11) : nullptr;
    parts.scale = static_cast<double>(node.floatAttr("scale", 1.0f));
    parts.causal = true;
    replacements.push_back({&result, &build.mergeHeads(build.sdpa(parts, {&node}))});
    if (auto failure = rewriter.replace(replacements))
      return refused(node, "a present is read before it is written");
    return llvm::Error::success();
  }

  llvm::Error readGrouped(Node& node) {
    Rewriter rewriter(graph, readRowsName, journal, node.name());
    AttentionBuilder build(rewriter);
    const auto width = widthOf(node);
    if (!width)
      return refused(node, "the width of its heads is not known");
    const GroupedRows rows = groupedRows(node, *width, build);
    return readRows(node, {rows.query, rows.key, rows.value}, 2, node.result(0), rewriter);
  }

  /// The rows [B,S,columns] before packing; null for other values.
  static Value* unpacked(const Value* packed) {
    const Node* node = packed ? packed->producer() : nullptr;
    Value* rows = node && node->is("Reshape") ? node->operand(0) : nullptr;
    return rows && rows->type().hasRank() && rows->type().rank() == 3 ? rows : nullptr;
  }

  llvm::Error readPaged(Node& node) {
    Value& packed = node.result(0);
    Node* reader = packed.hasOneUse() ? &packed.uses().begin()->user() : nullptr;
    if (!reader || !reader->is("Reshape"))
      return refused(node, "its results stay packed");
    Rewriter rewriter(graph, readRowsName, journal, node.name());
    return readRows(
        node, {unpacked(node.operand(0)), unpacked(node.operand(1)), unpacked(node.operand(2))}, 1,
        reader->result(), rewriter);
  }

  llvm::Error readScatter(Node& node) {
    Rewriter rewriter(graph, readRowsName, journal, node.name());
    AttentionBuilder build(rewriter);
    Value& present = node.result();
    Value& rows =
        joined(*node.operand(0), *node.operand(1), node.intAttr("axis", -2), present, build);
    if (auto failure = rewriter.replace(present, rows))
      return refused(node, "its result is read before it is written");
    return llvm::Error::success();
  }

  /// New rows [B,G,S,D], appended to those of a cache with an axis for its heads.
  Value* appended(Value& past, Value& fresh, int64_t axis, Value& present, Rewriter& rewriter) {
    const auto layout = CacheLayout::bySequenceAxis(past.type().rank(), axis);
    if (!layout || layout->hasFoldedHeads())
      return nullptr;
    AttentionBuilder build(rewriter);
    return &transposed(
        joined(past, transposed(fresh, layout->cacheOrder(), rewriter), axis, present, build),
        layout->rowOrder(), rewriter);
  }

  llvm::Error readInPlace(Node& node, const CacheOperator& op) {
    Rewriter rewriter(graph, readRowsName, journal, node.name());
    AttentionBuilder build(rewriter);
    AttentionBuilder::AttentionParts parts;
    parts.query = node.operand(0);
    const auto rowsOf = [&](unsigned side) {
      return appended(*node.operand(op.past(side)), *node.operand(CacheOperator::fresh(side)),
                      node.intAttr(CacheOperator::axisName(side), 2), node.result(op.present(side)),
                      rewriter);
    };
    parts.key = rowsOf(0);
    parts.value = rowsOf(1);
    if (!parts.key || !parts.value)
      return refused(node, "their heads have no axis of their own");
    parts.sinks = node.operand(op.sinks());
    parts.scale = static_cast<double>(node.floatAttr("scale", 1.0f));
    parts.causal = true;
    Value& result = build.sdpa(parts, {&node});
    if (auto failure = rewriter.replace({{&node.result(CacheOperator::output), &result},
                                         {&node.result(op.present(0)), wholeOf(*parts.key)},
                                         {&node.result(op.present(1)), wholeOf(*parts.value)}}))
      return refused(node, "a present is read before it is written");
    return llvm::Error::success();
  }

  /// The joined rows before a Transpose, if there is one.
  static Value* wholeOf(Value& rows) {
    return rows.producer()->is("Transpose") ? rows.producer()->operand(0) : &rows;
  }

  static void dropMask(Node& node) {
    llvm::SmallVector<Value*, 6> operands{node.operand(0), node.operand(1), node.operand(2)};
    if (node.operand(4))
      operands.append({nullptr, node.operand(4), node.operand(5)});
    node.setOperands(operands);
    node.setAttribute("is_causal", Attribute::ofInt(0));
  }

  /// Removes the lengths from attention over rows that another layer has appended.
  static void dropLengths(Node& node) {
    llvm::SmallVector<Value*, 5> operands{node.operand(0), node.operand(1), node.operand(2)};
    if (Value* sinks = node.operand(4))
      operands.append({nullptr, sinks});
    node.setOperands(operands);
  }

  Model& model;
  Graph& graph;
  const Manifest& manifest;
  Journal& journal;
  Value* firstPast = nullptr;
  int64_t firstAxis = 0;
};

class ReadCachedRows final : public Pass {
public:
  llvm::Error run(Model& model, PassContext& context) override {
    auto stored = manifestOf(model);
    if (!stored)
      return stored.takeError();
    if (!*stored)
      return llvm::Error::success();
    if (llvm::Error error = inferShapes(model.graph()))
      return error;
    const Manifest manifest = std::move(**stored);
    if (llvm::Error error = RowsReader(model, manifest, context.journal).run())
      return error;
    context.count(readRowsName, "models");
    return llvm::Error::success();
  }
};

} // namespace

void register_read_cached_rows(PassRegistry& registry) {
  registry.add({readRowsName,
                "Replaces shared buffers by growing caches and removes masks, to analyze rows; the "
                "model must not be run.",
                {},
                [](const PassOptions&) {
                  return llvm::Expected<std::unique_ptr<Pass>>(std::make_unique<ReadCachedRows>());
                }});
}

} // namespace kvopt::transforms
