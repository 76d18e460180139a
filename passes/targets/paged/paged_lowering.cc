// Conversion of ai.kvopt::InPlaceKvSdpa to com.microsoft::PagedAttention.
#include "passes/targets/paged/paged_lowering.h"

#include "ir/shapes/shape_inference.h"
#include "passes/targets/kvopt/kvopt_lowering.h"
#include "passes/targets/support/buffer_operands.h"
#include "passes/targets/support/kvopt_domain.h"
#include "passes/targets/support/token_rows.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

namespace kvopt::targets {
using namespace builders;
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

constexpr const char* pagedRuleName = "lower-paged";
constexpr const char* pagedDomain = "com.microsoft";

/// [B,H,S,D] as packed tokens [B*S,H*D].
Value& packedTokens(Value& heads, AttentionBuilder& build) {
  const int64_t columns = *heads.type().dim(1).value() * *heads.type().dim(3).value();
  return build.node("Reshape", {tokenRows(heads, build), ints({-1, columns})}, {}, "packed");
}

ManifestExtent manifestExtentOf(const Dim& extent) {
  return extent.value() ? ManifestExtent(*extent.value()) : ManifestExtent(extent.str());
}

} // namespace

PagedLowering::PagedLowering(Model& lowered, const LowerOptions& lowerOptions, Journal& editJournal)
    : model(lowered), graph(lowered.graph()), options(lowerOptions), journal(editJournal) {}

llvm::Expected<Manifest> PagedLowering::run(llvm::ArrayRef<AttentionSite*> sites) {
  constexpr int64_t leastSize = 16;
  if (options.size < leastSize || (options.size & (options.size - 1)) != 0)
    return usageError("blocks of {} tokens: ONNX Runtime supports powers of two from {} on",
                      options.size, leastSize);
  // A capacity is a whole number of blocks.
  if (options.capacity) {
    if (*options.capacity > INT64_MAX - options.size)
      return usageError("a capacity of {} tokens is too large", *options.capacity);
    options.capacity = (*options.capacity + options.size - 1) / options.size * options.size;
  }
  const int64_t irVersion = model.irVersion;
  for (const AttentionSite* site : sites)
    if (site->node->operand(4))
      withSinks.insert(site);
  auto inPlace = KvoptLowering(model, options, journal).run(sites);
  if (!inPlace)
    return inPlace;
  manifest = std::move(*inPlace);
  manifest.target = "paged";
  manifest.blockSize = options.size;
  model.opsets.try_emplace(pagedDomain, 1);
  for (const ManifestLength& length : manifest.lengths)
    if (length.feed == LengthFeed::PastLength)
      pastLength = graph.findValue(length.input);
  for (AttentionSite* site : sites)
    if (site->grows())
      if (llvm::Error error = lowerCached(*site))
        return error;
  graph.eraseDeadNodes();
  if (pastLength && pastLength->isUnused()) {
    llvm::erase_if(manifest.lengths, [&](const ManifestLength& length) {
      return length.input == pastLength->name();
    });
    graph.removeInput(*pastLength);
  }
  dropKvoptDomain(model, irVersion);
  if (llvm::Error error = inferShapes(graph))
    return error;
  return std::move(manifest);
}

std::string PagedLowering::freshSymbol(const std::string& base) const {
  std::string candidate = base;
  const auto isTaken = [&] {
    return llvm::any_of(graph.inputs(), [&](const std::unique_ptr<Value>& value) {
      return value->type().hasRank() && llvm::any_of(value->type().shape(), [&](const Dim& extent) {
               return llvm::is_contained(extent.symbols(), candidate);
             });
    });
  };
  for (unsigned i = 1; isTaken(); ++i)
    candidate = formatted("{}_{}", base, i);
  return candidate;
}

/// Adds the inputs that locate each batch row's tokens.
void PagedLowering::addInputs(const Node& fused) {
  const Dim& batch = fused.operand(BufferOperand::query)->type().dim(0);
  const Dim perRow = options.capacity ? Dim::fixed(*options.capacity / options.size)
                                      : Dim::symbol(freshSymbol("blocks_per_row"));
  blocks =
      batch.value() && perRow.value() ? batch * perRow : Dim::symbol(freshSymbol("num_blocks"));
  pastSeqlens = &graph.addInput(graph.freshName("past_seqlens"),
                                TensorType(ElementType::Int32, Shape{batch}));
  blockTable = &graph.addInput(graph.freshName("block_table"),
                               TensorType(ElementType::Int32, Shape{batch, perRow}));
  ManifestLength past;
  past.input = pastSeqlens->name().str();
  past.dtype = ElementType::Int32;
  past.shape = {manifestExtentOf(batch)};
  past.feed = LengthFeed::PastLengthPerBatch;
  ManifestLength table;
  table.input = blockTable->name().str();
  table.dtype = ElementType::Int32;
  table.shape = {manifestExtentOf(batch), manifestExtentOf(perRow)};
  table.feed = LengthFeed::BlockTable;
  manifest.lengths.push_back(std::move(past));
  manifest.lengths.push_back(std::move(table));
}

/// Start of each batch row in the packed tokens: int32 0, S, 2S, …, B*S.
void PagedLowering::addRowStarts(Value& query) {
  Rewriter rewriter(graph, pagedRuleName, journal, "cumulative_sequence_length");
  AttentionBuilder build(rewriter);
  Value& batch = build.value(build.extent(query, 0, true));
  Value& rows = build.range(build.node("Add", {batch, int64Scalar(1)}));
  Value& starts = build.node("Mul", {rows, build.extent(query, 2)});
  rowStarts =
      &build.node("Cast", {starts}, attrs({{"to", static_cast<int64_t>(ElementType::Int32)}}),
                  "cumulative_sequence_length");
}

/// past_seqlens for attention with the past lengths `before`, int64 [1] or [B].
Value& PagedLowering::pastLengths(Value& before, Value& query, AttentionBuilder& build) const {
  if (&before == pastLength)
    return *pastSeqlens;
  return build.castTo(build.node("Expand", {before, build.extent(query, 0)}, {}, "past_seqlens"),
                      ElementType::Int32);
}

llvm::Error PagedLowering::lowerCached(AttentionSite& site) {
  Node& fused = *site.node;
  Value& query = *fused.operand(BufferOperand::query);
  if (!pastSeqlens)
    addInputs(fused);
  if (!rowStarts)
    addRowStarts(query);
  Rewriter rewriter(graph, pagedRuleName, journal, fused.name());
  AttentionBuilder build(rewriter);
  llvm::SmallVector<Value*, 12> operands{
      &packedTokens(query, build),
      &packedTokens(*fused.operand(BufferOperand::key), build),
      &packedTokens(*fused.operand(BufferOperand::value), build),
      fused.operand(BufferOperand::pastKey),
      fused.operand(BufferOperand::pastValue),
      rowStarts,
      &pastLengths(*fused.operand(BufferOperand::pastLength), query, build),
      blockTable};
  if (withSinks.contains(&site)) {
    operands.append({nullptr, nullptr, nullptr});
    operands.push_back(
        &build.castTo(*fused.operand(BufferOperand::sinks), query.type().elementType()));
  }
  const int64_t heads = *query.type().dim(1).value();
  AttributeList attributes =
      attrs({{"num_heads", heads},
             {"kv_num_heads", *fused.operand(BufferOperand::key)->type().dim(1).value()},
             {"scale", fused.floatAttr("scale", 1.0f)}});
  if (float softcap = fused.floatAttr("softcap", 0.0f); softcap != 0.0f)
    attributes.add("softcap", softcap);
  if (int64_t window = fused.intAttr("window", 0); window != 0)
    attributes.add("local_window_size", window);
  Node& paged =
      rewriter.create(OpName(pagedDomain, "PagedAttention"), operands, attributes, 3, "attention");
  // Not before the attention: shapes of the past are read before it is overwritten.
  graph.moveBefore(paged, &fused);
  Metadata metadata = fused.metadata();
  for (auto& [key, text] : metadata)
    if (key == ruleMetadataKey)
      text = pagedRuleName;
  paged.setMetadata(std::move(metadata));
  const int64_t columns = heads * *query.type().dim(3).value();
  Value& extents = build.concat(
      build.concat(build.value(build.extent(query, 0)), build.value(build.extent(query, 2)), 0),
      build.value(ints({columns})), 0);
  Value& rows = build.node("Reshape", {paged.result(0), extents}, {}, "token_rows");
  handOutTokenRows(fused, rows, rewriter);
  if (auto failure = rewriter.replace(
          {{&fused.result(1), &paged.result(1)}, {&fused.result(2), &paged.result(2)}})) {
    rewriter.discard();
    return unsupported("site {}: {}", site.id(), failure->str());
  }
  site.node = &paged;
  for (auto [update, result] : {std::pair(&*site.key, 1u), std::pair(&*site.value, 2u)}) {
    update->present = update->output = &paged.result(result);
    if (llvm::Error error = makePool(*update, paged.result(result)))
      return error;
  }
  return llvm::Error::success();
}

/// Past and present become [blocks,SIZE,G,D], and the manifest's cache [B,capacity,G,D].
llvm::Error PagedLowering::makePool(const SiteCache& update, Value& present) {
  Value& past = *update.past;
  if (!pools.insert(&past).second)
    return llvm::Error::success();
  // The axes of the cache in the order B, S, H, D.
  llvm::SmallVector<int64_t, 4> order = update.layout.rowOrder();
  assert(order.size() == 4 && "supportsPagedForm ensures it");
  std::swap(order[1], order[2]);
  llvm::SmallVector<Node*, 4> readers;
  for (const Use& use : past.uses())
    if (use.user().is("Shape"))
      readers.push_back(&use.user());
    else if (!use.user().is("com.microsoft::PagedAttention") &&
             CacheOperator::of(use.user()) != BufferOperand::op)
      return unsupported("the cache '{}' is also read by {}", past.name(), use.user().describe());
  const TensorType& declared = past.type();
  const TensorType pool(
      declared.elementType(),
      Shape{blocks, Dim::fixed(options.size), declared.dim(order[2]), declared.dim(order[3])});
  describePool(past, order);
  past.setType(pool);
  present.setType(pool);
  rewireShapeReaders(past, order, readers);
  return llvm::Error::success();
}

/// Replaces readers of the former extents by extents of the block table and the pool.
void PagedLowering::rewireShapeReaders(Value& past, llvm::ArrayRef<int64_t> order,
                                       llvm::ArrayRef<Node*> readers) {
  if (readers.empty())
    return;
  Rewriter rewriter(graph, pagedRuleName, journal, past.name());
  AttentionBuilder build(rewriter);
  // The capacity is the number of blocks of a row times the tokens in each.
  Value& table = build.node("Shape", {*blockTable}, {}, "table_shape");
  Value& held = build.node("Mul", {table, ints({1, options.size})}, {}, "row_extents");
  // A new node, not one of the readers that will be replaced.
  Value& pool = rewriter.create("Shape", {&past}, {}, 1, "pool_shape").result();
  Value& heads = build.slice(pool, 0, 2, 4);
  Value& extents = build.concat(held, heads, 0);
  const auto position = [](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + 4 : axis, 0, 4);
  };
  for (Node* reader : readers) {
    llvm::SmallVector<int64_t, 4> former;
    const int64_t end = position(reader->intAttr("end", 4));
    for (int64_t axis = position(reader->intAttr("start", 0)); axis < end; ++axis)
      former.push_back(llvm::find(order, axis) - order.begin());
    reader->result().replaceAllUsesWith(
        build.node("Gather", {extents, ints(former)}, {}, "extents"));
  }
}

void PagedLowering::describePool(const Value& past, llvm::ArrayRef<int64_t> order) {
  const auto cache = llvm::find_if(
      manifest.caches, [&](const ManifestCache& entry) { return entry.past == past.name(); });
  assert(cache != manifest.caches.end() && "KvoptLowering describes every cache that grows");
  std::vector<ManifestExtent> shape;
  for (int64_t axis : order)
    shape.push_back(cache->shape[static_cast<size_t>(axis)]);
  cache->shape = std::move(shape);
  cache->sequenceAxis = 1;
  cache->storage = PoolCache();
  if (!llvm::is_sorted(order))
    cache->permutation.assign(order.begin(), order.end());
}

} // namespace kvopt::targets
