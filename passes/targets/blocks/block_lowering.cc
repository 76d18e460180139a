// Conversion of growing caches to blocks.
#include "passes/targets/blocks/block_lowering.h"

#include "ir/movement.h"
#include "ir/shapes/shape_inference.h"
#include "passes/targets/kvopt/kvopt_support.h"
#include "passes/targets/support/cache_rows.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::targets {
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

/// Maximum number of blocks, which are inputs, of one cache; a larger number is a mistake.
constexpr int64_t mostBlocks = 4096;

/// Whether the movement can be applied to every block separately.
bool takesPartsApart(MovementKind kind) {
  switch (kind) {
  case MovementKind::Same:
  case MovementKind::Convert:
  case MovementKind::Permutation:
    return true;
  case MovementKind::Reshape:
  case MovementKind::InsertAxes:
  case MovementKind::RemoveAxes:
  case MovementKind::Broadcast:
  case MovementKind::Repeat:
  case MovementKind::Slice:
  case MovementKind::Gather:
  case MovementKind::PointGather:
  case MovementKind::Concat:
    return false;
  }
  return false;
}

/// Nodes between a past and the operator that joins new rows to it, first to last; nullopt if one
/// of them needs all rows at once.
std::optional<llvm::SmallVector<Node*, 4>> nodesBefore(const SiteCache& update) {
  llvm::SmallVector<Node*, 4> nodes;
  for (Value* value = update.writer->operand(0); value != update.past;) {
    Node* producer = value->producer();
    assert(producer && "the past is an ancestor of its update");
    const std::optional<MovementKind> kind = movementKind(*producer);
    if (!kind || !takesPartsApart(*kind))
      return std::nullopt;
    nodes.push_back(producer);
    value = movedOperand(*producer);
  }
  std::reverse(nodes.begin(), nodes.end());
  return nodes;
}

} // namespace

std::optional<MatchFailure> blocksObstacle(const AttentionSite& site) {
  if (site.failure || !site.grows())
    return supportsKvoptSite(site);
  auto refuse = [&](ReasonCode code, std::string expected, std::string found, std::string hint) {
    return MatchFailure{code, site.key->past->name().str(), std::move(expected), std::move(found),
                        std::move(hint)};
  };
  if (std::optional<MatchFailure> failure = standsInBranch(site))
    return failure;
  const ElementType element = site.node->operand(0)->type().elementType();
  if (!isFloatingPoint(element) || element == ElementType::Double)
    return refuse(ReasonCode::DtypeMix, "a query of 16 or 32 bits", onnxName(element).str(), "");
  if (!site.queryHeads.value())
    return refuse(ReasonCode::HeadCountUnproven, "a fixed number of query heads",
                  site.queryHeads.str(), "");
  for (const SiteCache* update : {&*site.key, &*site.value}) {
    if (update->fromStart || !update->writer->is("Concat") || update->pastLength)
      return refuse(ReasonCode::TargetLacksFeature, "new rows after all rows of the past",
                    "rows whose position differs between batch rows",
                    "--padding none, if batch rows are never padded; --to kvopt keeps rows at the "
                    "positions that the lengths give");
    if (!update->layout.orderFrom(update->freshLayout))
      return refuse(ReasonCode::LayoutUnsupported, "new rows with the axes of the cache",
                    formatted("{} for {}", update->freshLayout.text(), update->layout.text()), "");
  }
  return std::nullopt;
}

bool takesBlocksApart(const AttentionSite& site) {
  return nodesBefore(*site.key) && nodesBefore(*site.value);
}

BlockLowering::BlockLowering(Model& lowered, const LowerOptions& options, Journal& editJournal,
                             std::string targetName)
    : model(lowered), graph(lowered.graph()), journal(editJournal), capacity(options.capacity),
      size(options.size), operands(lowered) {
  manifest.target = std::move(targetName);
}

llvm::Expected<Manifest> BlockLowering::run(llvm::ArrayRef<AttentionSite*> sites) {
  const bool anyCache =
      llvm::any_of(sites, [](const AttentionSite* site) { return site->grows(); });
  if (anyCache && !capacity)
    return usageError("blocks need a capacity, because each of them is an input")
        .hint("--capacity TOKENS");
  if (anyCache && *capacity < 2)
    return usageError("a capacity of {} leaves no space for a token after the first", *capacity)
        .hint("--capacity 2 or more");
  if (anyCache && *capacity / size >= mostBlocks)
    return usageError("a capacity of {} in blocks of {} needs more than {} inputs per cache",
                      *capacity, size, mostBlocks)
        .hint("--to " + manifest.target + ":SIZE makes fewer");
  if (anyCache)
    if (llvm::Error error = checkBlockCount(*capacity / size))
      return error;
  const int64_t irVersion = model.irVersion;
  model.markEdited();
  prepareModel();
  for (const AttentionSite* site : sites) {
    operands.see(*site);
    if (site->grows() && !length)
      length.emplace(graph, site->key->past->type().dim(site->key->axis), capacity);
  }
  if (anyCache) {
    size = std::min(size, *capacity);
    blockRows = rowsOfBlocks();
  }
  for (AttentionSite* site : sites) {
    if (site->grows() && site->pastFlag)
      addFlag(*site->pastFlag, manifest);
    if (llvm::Error error = site->grows() ? attendToBlocks(*site) : attend(*site))
      return error;
  }
  finishManifest();
  graph.eraseDeadNodes();
  if (llvm::Error error = describeVariants())
    return error;
  if (llvm::Error error = operands.addAppendRows())
    return error;
  finishModel(irVersion);
  if (llvm::Error error = inferShapes(graph))
    return error;
  return std::move(manifest);
}

llvm::Error BlockLowering::attendToBlocks(AttentionSite& site) {
  splitCache(site, *site.key, site.isLatent() ? CacheRole::Latent : CacheRole::Key);
  splitCache(site, *site.value, CacheRole::Value);
  return attend(site);
}

std::vector<Dim> BlockLowering::rowsOfBlocks() {
  llvm::StringSet<> taken;
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->type().hasRank())
      for (const Dim& extent : input->type().shape())
        for (const std::string& symbol : extent.symbols())
          taken.insert(symbol);
  std::vector<Dim> rows;
  const int64_t full = *capacity / size;
  for (int64_t i = 0; i * size < *capacity; ++i) {
    std::string symbol = i < full ? formatted("block_{}_rows", i) : "block_tail_rows";
    while (!taken.insert(symbol).second)
      symbol += "_";
    rows.push_back(Dim::symbol(symbol));
  }
  return rows;
}

BlockLowering::Blocks& BlockLowering::splitCache(const AttentionSite& site, SiteCache& update,
                                                 CacheRole role) {
  auto [entry, isNew] = blocksOf.try_emplace(update.past);
  if (!isNew)
    return entry->second;
  Rewriter rewriter(graph, ruleName, journal);
  length->rewireShapeReaders(*update.past, update.axis, rewriter);
  ManifestCache cache = describeCache(update, site.layer, role);
  BlockCache inBlocks;
  const TensorType whole = length->sharedType(update);
  const auto full = static_cast<size_t>(*capacity / size);
  Blocks blocks;
  for (size_t i = 0; i < blockRows.size(); ++i) {
    Shape shape(whole.shape().begin(), whole.shape().end());
    shape[update.axis] = blockRows[i];
    TensorType type(whole.elementType(), std::move(shape));
    const std::string name = graph.freshName(i < full ? formatted("{}_block_{}", cache.past, i)
                                                      : cache.past + "_block_tail");
    // Other readers of the past's extents read them from the first block.
    if (i == 0) {
      graph.rename(*update.past, name);
      update.past->setType(std::move(type));
      blocks.push_back(update.past);
    } else {
      blocks.push_back(&graph.addInput(name, std::move(type)));
    }
    inBlocks.inputs.push_back(name);
  }
  cache.storage = std::move(inBlocks);
  if (const auto fixed = blockRows.front().value())
    cache.shape[update.axis] = *fixed;
  else
    cache.shape[update.axis] = blockRows.front().str();
  joinBlocks(update, blocks, rewriter);
  handOutNewRows(update, cache, rewriter);
  manifest.caches.push_back(std::move(cache));
  return entry->second = std::move(blocks);
}

/// Makes the operator that joined past and new rows join all blocks and the new rows.
void BlockLowering::joinBlocks(const SiteCache& update, const Blocks& blocks, Rewriter& rewriter) {
  Node& concat = *update.writer;
  llvm::SmallVector<Value*, 8> parts;
  if (auto nodes = nodesBefore(update)) {
    for (Value* block : blocks) {
      Value* part = block;
      if (block == update.past)
        part = concat.operand(0);
      else
        for (const Node* node : *nodes)
          part = &rewriter.createLike(*node, operandsMoving(*node, *part), "block").result();
      parts.push_back(part);
    }
  } else {
    llvm::SmallVector<Node*, 4> readers;
    for (Use& use : update.past->uses())
      if (use.user().op() != "Shape")
        readers.push_back(&use.user());
    Value& joined =
        rewriter.create("Concat", blocks, attrs({{"axis", update.axis}}), 1, "joined_blocks")
            .result();
    for (Node* reader : readers)
      for (unsigned i = 0; i < reader->operands().size(); ++i)
        if (reader->operand(i) == update.past)
          reader->setOperand(i, &joined);
    parts.push_back(concat.operand(0));
  }
  parts.push_back(concat.operand(1));
  concat.setOperands(parts);
}

/// Makes the output that was the present return the new rows, in the layout of the cache.
void BlockLowering::handOutNewRows(SiteCache& update, ManifestCache& cache, Rewriter& rewriter) {
  auto order = update.layout.orderFrom(update.freshLayout);
  assert(order && "blocksObstacle ensures it");
  // If the cached rows are another attention's result, that value has been replaced since it was
  // found.
  update.fresh = update.writer->operand(update.writer->operands().size() - 1);
  Value* rows = &transposed(*update.fresh, *order, rewriter);
  if (!rows->producer() || rows->isGraphOutput())
    rows = &rewriter.create("Identity", {rows}, {}, 1, "new_rows").result();
  Value& present = *update.output;
  graph.rename(present, graph.freshName(cache.present + "_joined"));
  graph.rename(*rows, cache.present);
  for (unsigned slot = 0; slot < graph.outputs().size(); ++slot)
    if (graph.outputs()[slot] == &present)
      graph.setOutput(slot, *rows);
  update.present = update.output = rows;
}

void BlockLowering::finishManifest() {
  if (!length)
    return;
  manifest.contract = CacheUpdate::Blocks;
  manifest.capacitySymbol = "capacity";
  manifest.capacityValue = capacity;
  manifest.blockSize = size;
  if (!length->isAdded())
    return;
  ManifestLength input;
  input.input = length->value().name().str();
  input.shape = {int64_t{1}};
  input.feed = LengthFeed::PastLength;
  manifest.lengths.push_back(std::move(input));
}

} // namespace kvopt::targets
