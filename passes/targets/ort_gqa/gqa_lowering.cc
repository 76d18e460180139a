// Conversion of ai.kvopt::InPlaceKvSdpa to com.microsoft::GroupQueryAttention.
#include "passes/targets/ort_gqa/gqa_lowering.h"

#include "passes/targets/kvopt/kvopt_lowering.h"
#include "passes/targets/ort_gqa/multi_head_form.h"
#include "passes/targets/ort_gqa/packed_rows.h"
#include "passes/targets/ort_gqa/rotated_rows.h"
#include "passes/targets/support/buffer_operands.h"
#include "passes/targets/support/kvopt_domain.h"
#include "passes/targets/support/token_rows.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace kvopt::targets {
using namespace builders;
using namespace analysis;
using namespace ir;
using namespace pattern;

namespace {

constexpr const char* gqaRule = "lower-ort-gqa";
constexpr const char* contribDomain = "com.microsoft";

Value& asInt32(Value& value, AttentionBuilder& build) {
  return build.castTo(value, ElementType::Int32);
}

/// Whether every element is provably one of two finite numbers that `element` can represent.
bool isFinite(const Value& mask, ElementType element) {
  const Node* where = mask.producer();
  if (mask.type().elementType() != element || !where || !where->is("Where"))
    return false;
  return llvm::all_of(std::array<unsigned, 2>{1, 2}, [&](unsigned operand) {
    const TensorData* data = where->operand(operand)->constant();
    const std::optional<double> number = data ? scalarValue(*data) : std::nullopt;
    return number && std::isfinite(*number);
  });
}

Value* findInput(Graph& graph, llvm::StringRef name) {
  for (const auto& input : graph.inputs())
    if (input->name() == name)
      return input.get();
  return nullptr;
}

} // namespace

GqaLowering::GqaLowering(Model& lowered, const LowerOptions& lowerOptions, Journal& editJournal)
    : model(lowered), graph(lowered.graph()), options(lowerOptions), journal(editJournal) {}

llvm::Expected<Manifest> GqaLowering::run(llvm::ArrayRef<AttentionSite*> chosen) {
  const int64_t irVersion = model.irVersion;
  model.opsets.try_emplace(contribDomain, 1);
  llvm::SmallVector<AttentionSite*, 32> sites;
  for (AttentionSite* site : chosen) {
    if (!site->isCross)
      sites.push_back(site);
    else if (llvm::Error error = lowerMultiHead(*site, journal))
      return error;
  }
  findPadding(sites);
  for (const AttentionSite* site : sites)
    given[site] = {site->node->operand(3), site->node->operand(4) != nullptr};
  auto inPlace = KvoptLowering(model, options, journal).run(sites);
  if (!inPlace)
    return inPlace;
  manifest = std::move(*inPlace);
  manifest.target = "ort-gqa";
  manifest.chunkBatch = 1;
  manifest.hiddenRowsUndefined =
      llvm::any_of(sites, [&](const AttentionSite* site) { return given[site].mask; });
  findLengths(sites);
  for (AttentionSite* site : sites)
    if (llvm::Error error = lowerCached(*site))
      return error;
  if (llvm::Error error = dropPastLength())
    return error;
  graph.eraseDeadNodes();
  dropKvoptDomain(model, irVersion);
  return std::move(manifest);
}

/// A mask that hides key j depending on the input's column j has a column for every key.
void GqaLowering::findPadding(llvm::ArrayRef<AttentionSite*> sites) {
  for (const AttentionSite* site : sites) {
    if (padding || !site->mask)
      continue;
    for (const MaskFacts::Padding& condition : site->mask->padding) {
      if (condition.dependsOn.size() != 1)
        continue;
      Value* input = findInput(graph, condition.dependsOn.front()->name());
      if (input && input->type().hasRank() && input->type().rank() == 2 &&
          condition.text == input->name().str() + "[b, j]")
        padding = input;
    }
  }
}

/// Chooses the source of the lengths: the padding mask, separate inputs, or `past_length`.
void GqaLowering::findLengths(llvm::ArrayRef<AttentionSite*> sites) {
  for (const ManifestLength& length : manifest.lengths)
    if (length.feed == LengthFeed::PastLength)
      pastLength = findInput(graph, length.input);
  if (!pastLength)
    return;
  const Node* first = nullptr;
  for (const AttentionSite* site : sites)
    if (!first && site->node->operand(BufferOperand::pastLength) == pastLength)
      first = site->node;
  if (!first)
    return;
  Rewriter rewriter(graph, gqaRule, journal, pastLength->name());
  AttentionBuilder build(rewriter);
  bool others = llvm::any_of(pastLength->uses(), [](const Use& use) {
    return CacheOperator::of(use.user()) != BufferOperand::op;
  });
  // Positions follow from the past's length, which follows from the total and the number of new
  // tokens. That number must be known without the positions.
  std::optional<BuilderOperand> fresh;
  if (others && !(fresh = newTokens(*first->operand(BufferOperand::query), build)))
    return;
  if (padding)
    addLengthsOfPadding(build);
  else
    addLengthInputs(*first->operand(BufferOperand::query));
  if (!others)
    return;
  Value& total = build.node("Reshape", {build.castTo(*totalLength, ElementType::Int64), ints({1})});
  computedPast = &build.node("Sub", {total, *fresh}, {}, "past_length");
  computedPast->setKnownIntegers(pastLength->knownIntegers());
}

/// Number of new tokens, int64 [1], as a constant or from a graph input.
std::optional<BuilderOperand> GqaLowering::newTokens(const Value& query,
                                                     AttentionBuilder& build) const {
  const Dim& wanted = query.type().dim(2);
  if (auto known = wanted.value())
    return BuilderOperand(ints({*known}));
  for (const auto& input : graph.inputs()) {
    if (!input->type().hasRank())
      continue;
    llvm::ArrayRef<Dim> shape = input->type().shape();
    const auto* found =
        llvm::find_if(shape, [&](const Dim& extent) { return extent.isKnownEqual(wanted); });
    if (found == shape.end())
      continue;
    Value& extents = build.node("Shape", {*input}, {}, "shape");
    return BuilderOperand(
        build.node("Gather", {extents, ints({found - shape.begin()})}, {}, "extent"));
  }
  return std::nullopt;
}

void GqaLowering::addLengthsOfPadding(AttentionBuilder& build) {
  Value& extents = build.node("Shape", {*padding}, {}, "shape");
  Value& batch = build.node("Gather", {extents, ints({0})}, {}, "extent");
  Value& total = build.node("Gather", {extents, int64Scalar(1)}, {}, "extent");
  totalLength = &asInt32(total, build);
  Value& last = build.node("Sub", {total, int64Scalar(1)}, {}, "last_position");
  lastPositions = &build.node("Expand", {asInt32(last, build), batch}, {}, "seqlens_k");
}

void GqaLowering::addLengthInputs(const Value& query) {
  const Dim& batch = query.type().dim(0);
  lastPositions =
      &graph.addInput(graph.freshName("seqlens_k"), TensorType(ElementType::Int32, Shape{batch}));
  totalLength = &graph.addInput(graph.freshName("total_sequence_length"),
                                TensorType(ElementType::Int32, Shape{}));
  ManifestLength last;
  last.input = lastPositions->name().str();
  last.dtype = ElementType::Int32;
  last.shape = {batch.value() ? ManifestExtent(*batch.value()) : ManifestExtent(batch.str())};
  last.feed = LengthFeed::TotalLengthPerBatchMinusOne;
  ManifestLength total;
  total.input = totalLength->name().str();
  total.dtype = ElementType::Int32;
  total.feed = LengthFeed::TotalLength;
  manifest.lengths.push_back(std::move(last));
  manifest.lengths.push_back(std::move(total));
}

/// Removes the input `past_length` if the lengths replace it.
llvm::Error GqaLowering::dropPastLength() {
  if (!pastLength || !totalLength)
    return llvm::Error::success();
  Rewriter rewriter(graph, gqaRule, journal, pastLength->name());
  if (computedPast)
    if (auto failure = rewriter.replace(*pastLength, *computedPast))
      return unsupported("the past's length cannot be computed: {}", failure->str());
  // Values that only dead nodes read.
  graph.eraseDeadNodes();
  assert(pastLength->isUnused());
  llvm::erase_if(manifest.lengths,
                 [&](const ManifestLength& length) { return length.input == pastLength->name(); });
  graph.removeInput(*pastLength);
  return llvm::Error::success();
}

/// seqlens_k and total_sequence_length for a fused node.
std::pair<Value*, Value*> GqaLowering::lengthsOf(Node& fused, AttentionBuilder& build) const {
  Value& before = *fused.operand(BufferOperand::pastLength);
  if (&before == pastLength && totalLength)
    return {lastPositions, totalLength};
  Value& query = *fused.operand(BufferOperand::query);
  Value& after = build.node("Add", {before, build.extent(query, 2)}, {}, "total_lengths");
  Value& last = build.node("Sub", {after, ints({1})}, {}, "last_positions");
  Value& total = build.node("ReduceMax", {asInt32(after, build)}, attrs({{"keepdims", 0}}));
  Value& perRow =
      build.node("Expand", {asInt32(last, build), build.extent(query, 0)}, {}, "seqlens_k");
  return {&perRow, &total};
}

llvm::Error GqaLowering::lowerCached(AttentionSite& site) {
  Node& fused = *site.node;
  Rewriter rewriter(fused.graph(), gqaRule, journal, fused.name());
  AttentionBuilder build(rewriter);
  Value& query = *fused.operand(BufferOperand::query);
  auto [last, total] = lengthsOf(fused, build);
  Value& key = *fused.operand(BufferOperand::key);
  Value* queryRows = &rotatedRows(query, build);
  Value* keyRows = &rotatedRows(key, build);
  Value* valueRows = &tokenRows(*fused.operand(BufferOperand::value), build);
  if (Value* packed = packedRows(*queryRows, *keyRows, *valueRows)) {
    queryRows = packed;
    keyRows = valueRows = nullptr;
  }
  Value* bias = nullptr;
  if (given[&site].mask) {
    Value* visible = visibleKeys(site, build);
    bias = biasOf(fused, visible ? *visible : *fused.operand(BufferOperand::mask), *total, build);
  }
  Value* sinks = given[&site].sinks ? &build.castTo(*fused.operand(BufferOperand::sinks),
                                                    query.type().elementType())
                                    : nullptr;
  llvm::SmallVector<Value*, 12> operands{queryRows,
                                         keyRows,
                                         valueRows,
                                         fused.operand(BufferOperand::pastKey),
                                         fused.operand(BufferOperand::pastValue),
                                         last,
                                         total,
                                         nullptr, // the rotation is done
                                         nullptr,
                                         nullptr,
                                         bias,
                                         sinks};
  while (!operands.back())
    operands.pop_back();
  AttributeList attributes = attrs({{"num_heads", *query.type().dim(1).value()},
                                    {"kv_num_heads", *key.type().dim(1).value()},
                                    {"scale", fused.floatAttr("scale", 1.0f)}});
  if (float softcap = fused.floatAttr("softcap", 0.0f); softcap != 0.0f)
    attributes.add("softcap", softcap);
  if (int64_t window = fused.intAttr("window", 0); window != 0)
    attributes.add("local_window_size", window);
  Node& grouped = rewriter.create(OpName(contribDomain, "GroupQueryAttention"), operands,
                                  attributes, 3, "attention");
  // Not before the attention: shapes of the past are read before it is overwritten.
  fused.graph().moveBefore(grouped, &fused);
  Metadata metadata = fused.metadata();
  for (auto& [name, text] : metadata)
    if (name == ruleMetadataKey)
      text = gqaRule;
  grouped.setMetadata(std::move(metadata));
  handOutTokenRows(fused, grouped.result(0), rewriter);
  const TensorType keyType = fused.result(1).type();
  const TensorType valueType = fused.result(2).type();
  if (auto failure = rewriter.replace(
          {{&fused.result(1), &grouped.result(1)}, {&fused.result(2), &grouped.result(2)}})) {
    rewriter.discard();
    return unsupported("site {}: {}", site.id(), failure->str());
  }
  grouped.result(1).setType(keyType);
  grouped.result(2).setType(valueType);
  site.node = &grouped;
  for (auto [update, result] : {std::pair(&*site.key, 1u), std::pair(&*site.value, 2u)}) {
    update->present = &grouped.result(result);
    if (!grouped.graph().parentNode())
      update->output = update->present;
    if (llvm::Error error = normaliseLayout(*update, grouped.result(result)))
      return error;
  }
  return llvm::Error::success();
}

/// The keys that the padding mask shows, bool [B,1,1,T], if the operator hides all others that the
/// site's mask hides; otherwise null.
Value* GqaLowering::visibleKeys(const AttentionSite& site, AttentionBuilder& build) {
  const Node& fused = *site.node;
  if (!site.mask || fused.graph().parentNode() ||
      fused.operand(BufferOperand::mask) != given[&site].mask)
    return nullptr;
  const MaskFacts& facts = *site.mask;
  constexpr double lowest = -1e30; // a score cannot exceed it
  if (facts.causal != Proof::Proved || facts.remaining != MaskFacts::Remaining::Padding ||
      facts.hasBidirectionalBlocks || facts.bias != MaskFacts::Bias::None ||
      facts.padding.size() != 1 || !facts.padding.front().shownBy ||
      (facts.window != 0 && facts.window != fused.intAttr("window", 0)) ||
      (!facts.isExact && facts.hiddenValue > lowest))
    return nullptr;
  Value* input = findInput(graph, facts.padding.front().shownBy->name());
  if (!input || !input->type().hasRank() || input->type().rank() != 2)
    return nullptr;
  Value& visible = build.castTo(*input, ElementType::Bool);
  return &build.unsqueeze(build.unsqueeze(visible, 1), 1);
}

/// The mask in the form that is added to the scores: [B or 1, H or 1, S, T]. Hidden keys get a
/// finite number, so that rows that see no key have finite results: later rows multiply theirs by
/// 0.
Value* GqaLowering::biasOf(Node& fused, Value& mask, Value& total, AttentionBuilder& build) const {
  Value& query = *fused.operand(BufferOperand::query);
  ElementType element = query.type().elementType();
  // Half the lowest number of the type: adding a score cannot exceed the range.
  const double hidden = element == ElementType::Float16
                            ? -32752.0
                            : static_cast<double>(std::numeric_limits<float>::lowest()) / 2;
  Value& added =
      mask.type().elementType() == ElementType::Bool ? build.additive(mask, element, hidden)
      : isFinite(mask, element)
          ? mask
          : build.node("Max", {build.castTo(mask, element), floatScalar(element, hidden)}, {},
                       "finite_mask");
  const TensorType type = mask.type();
  bool isWhole = type.hasRank() && type.rank() == 4 &&
                 type.dim(2).isKnownEqual(query.type().dim(2)) && !type.dim(3).isUnknown() &&
                 !type.dim(3).value();
  if (isWhole)
    return &added;
  Value& columns = build.node("Reshape", {build.castTo(total, ElementType::Int64), ints({1})});
  Value& rows = build.value(build.extent(query, 2));
  Value& extents = build.concat(build.value(ints({1, 1})), build.concat(rows, columns, 0), 0);
  return &build.node("Expand", {added, extents}, {}, "attention_bias");
}

// Caches with other orders of axes become [B,G,C,D], which GroupQueryAttention requires.

/// Converts a cache with another order of axes to [B,G,C,D].
llvm::Error GqaLowering::normaliseLayout(const SiteCache& update, Value& present) {
  const llvm::SmallVector<int64_t, 4> order = update.layout.rowOrder();
  assert(order.size() == 4);
  auto cache = llvm::find_if(manifest.caches, [&](const ManifestCache& entry) {
    return entry.past == update.past->name();
  });
  if (llvm::is_sorted(order) || cache == manifest.caches.end())
    return llvm::Error::success();
  auto permuted = [&](const TensorType& type) {
    Shape shape;
    for (int64_t axis : order)
      shape.push_back(type.dim(axis));
    return TensorType(type.elementType(), std::move(shape));
  };
  present.setType(permuted(present.type()));
  if (!cache->permutation.empty())
    return llvm::Error::success(); // converted for another branch
  Rewriter rewriter(graph, "lower-ort-gqa", journal, update.past->name());
  AttentionBuilder build(rewriter);
  llvm::SmallVector<Node*, 4> readers;
  for (const Use& use : update.past->uses())
    if (use.user().is("Shape"))
      readers.push_back(&use.user());
    else if (!use.user().is("com.microsoft::GroupQueryAttention") &&
             CacheOperator::of(use.user()) != BufferOperand::op)
      return unsupported("the cache '{}' is also read by {}", update.past->name(),
                         use.user().describe());
  update.past->setType(permuted(update.past->type()));
  auto position = [](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + 4 : axis, 0, 4);
  };
  for (Node* reader : readers) {
    // The extents in the former order, for readers in branches, too.
    llvm::SmallVector<int64_t, 4> former;
    const int64_t end = position(reader->intAttr("end", 4));
    for (int64_t axis = position(reader->intAttr("start", 0)); axis < end; ++axis)
      former.push_back(llvm::find(order, axis) - order.begin());
    Node& extents = rewriter.create("Shape", {update.past}, {}, 1, "shape");
    Value& selected = build.node("Gather", {extents.result(), ints(former)}, {}, "extents");
    reader->result().replaceAllUsesWith(selected);
  }
  if (update.output && update.output != &present)
    update.output->setType(permuted(update.output->type()));
  std::vector<ManifestExtent> shape;
  for (int64_t axis : order)
    shape.push_back(cache->shape[static_cast<size_t>(axis)]);
  cache->shape = std::move(shape);
  cache->sequenceAxis = 2;
  cache->permutation.assign(order.begin(), order.end());
  return llvm::Error::success();
}

} // namespace kvopt::targets
