// Traces keys and values to their caches.
#include "passes/analysis/cache/cache_trace.h"

#include "ir/movement.h"
#include "passes/analysis/cache/branch_caches.h"
#include "passes/analysis/cache/cache_reasons.h"
#include "passes/analysis/movement/data_movement.h"
#include "support/format.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;
using namespace pattern;

namespace {

/// The input from which operators with one operand that is not constant compute a number; null if
/// there are several.
const Value* directingInput(const Value& number) {
  constexpr unsigned mostSteps = 8;
  const Value* value = &number;
  for (unsigned step = 0; step < mostSteps && value->producer(); ++step) {
    const Value* next = nullptr;
    for (const Use& use : value->producer()->operands()) {
      if (!use.value() || use.value()->constant())
        continue;
      if (next)
        return nullptr;
      next = use.value();
    }
    if (!next)
      return nullptr;
    value = next;
  }
  return value->isGraphInput() ? value : nullptr;
}

std::string describeProducer(const Value& value) {
  if (const Node* producer = value.producer())
    return producer->op().str();
  return value.isGraphInput() ? "a graph input" : "an initializer";
}

/// `Slice of 'past', from 'start'`: the movement, and the inputs that control it.
std::string movedBy(const Node& node) {
  std::string text = node.op().str() + " of '" + movedOperand(node)->name().str() + "'";
  for (const Use& use : node.operands())
    if (use.value() && !isMoved(use) && !use.value()->constant())
      if (const Value* input = directingInput(*use.value()))
        return text + " by '" + input->name().str() + "'";
  return text;
}

CacheTrace refused(MatchFailure failure) {
  CacheTrace trace;
  trace.failure = std::move(failure);
  return trace;
}

/// Operand number of the values that an update writes.
unsigned freshOperand(const Node& update) {
  return update.op() == "ScatterElements" || update.op() == "ScatterND" ? 2 : 1;
}

} // namespace

MatchFailure failureAt(ReasonCode code, const Value& at, std::string expected, std::string found,
                       std::string hint) {
  const Node* producer = at.producer();
  std::string node =
      producer && !producer->name().empty() ? producer->name().str() : at.name().str();
  return {code, std::move(node), std::move(expected), std::move(found), std::move(hint)};
}

CacheTracer::CacheTracer(const Graph& graph) : origins(graph) {
  for (Value* output : graph.outputs())
    if (const CacheOrigin* origin = origins.find(*output); origin && origin->input) {
      auto [entry, isNew] = outputOf.try_emplace(origin->input, output);
      if (!isNew && entry->second != output)
        entry->second = nullptr;
    }
  for (const auto& input : graph.inputs())
    if (const CacheOrigin* origin = origins.find(*input); origin && input->type().hasRank())
      for (const Dim& extent : input->type().shape())
        if (!extent.isUnknown())
          inputExtents.insert(extent.str());
}

CacheTracer::Root CacheTracer::walkBack(Value& start, std::optional<AxisMap> map) {
  Root root;
  root.value = &start;
  root.map = std::move(map);
  root.path.push_back(&start);
  while (Node* producer = root.value->producer()) {
    if (!onlyMovesData(*producer))
      break;
    if (root.map) {
      bool isReorder = isBatchReorder(*producer, *root.map);
      root.map = mapBefore(*root.value, std::move(*root.map));
      if (!root.map)
        root.unproved = root.value;
      if (!root.map && isReorder)
        root.reorder = producer;
    }
    root.value = movedOperand(*producer);
    root.path.push_back(root.value);
  }
  return root;
}

/// The first node that reads the past other than through its update or as a shape.
std::optional<MatchFailure> CacheTracer::checkPast(const Root& past, const Node& update) const {
  const char* expected = "the past to be read by its update and by Shape only";
  if (past.value->isGraphOutput())
    return failureAt(ReasonCode::CacheEscapes, *past.value, expected,
                     "that it is an output of the model as well");
  const Node* next = &update;
  for (const Value* value : past.path) {
    for (const Use& use : value->uses()) {
      const Node& reader = use.user();
      bool isOnPath = next == &update ? use.operandIndex() == 0 : isMoved(use);
      if (&reader == next && isOnPath)
        continue;
      if (reader.op() == "Shape" || reader.isUnused() || isExclusive(reader, update))
        continue;
      bool otherConcat = reader.op() == "Concat" && &reader != next && use.operandIndex() == 0;
      if (otherConcat && update.op() == OpName(kvoptDomain, "AppendRows"))
        return failureAt(ReasonCode::SharedReader, *past.value,
                         "new rows after the past rows that attention counts",
                         reader.describe() + " joins rows after all of the past",
                         "return the operator's own present");
      if (otherConcat)
        return failureAt(ReasonCode::SharedReader, *past.value,
                         "one Concat of the past with new rows",
                         reader.describe() + " joins it with other rows, too",
                         "return the keys or values that attention reads as the present");
      return failureAt(ReasonCode::CacheEscapes, *past.value, expected,
                       reader.describe() + " reads it as data", "remove that reader of the past");
    }
    next = value->producer();
  }
  return std::nullopt;
}

std::optional<MatchFailure> CacheTracer::findPresent(SiteCache& cache, const AxisMap& map) {
  Value& updated = cache.writer->result();
  const CacheReaders& found = readersOf(updated, map);
  const CacheReaders::Output* present = nullptr;
  const CacheReaders::Output* elsewhere = nullptr;
  for (const CacheReaders::Output& output : found.outputs) {
    bool fits = output.map && output.map->layout() == cache.layout;
    const CacheReaders::Output*& slot = fits ? present : elsewhere;
    if (!slot || (fits && slot->lastRows && !output.lastRows))
      slot = &output;
  }
  for (Value* step = elsewhere ? elsewhere->value : nullptr;
       !present && step && step->producer() && step != &updated;
       step = movedOperand(*step->producer()))
    if (isBatchReorder(*step->producer()))
      return reorderedCache(*step->producer());
  if (!present)
    return elsewhere
               ? failureAt(ReasonCode::LayoutUnsupported, *elsewhere->value,
                           "a present in the layout of the past, " + cache.layout.text(),
                           elsewhere->map ? elsewhere->map->layout().text() : "another layout",
                           "return the present in the layout of the past")
               : failureAt(ReasonCode::PresentNotOutput, updated, "a graph output",
                           "a value inside the graph");
  cache.present = present->value;
  if (!cache.present->graph().parentNode())
    cache.output = cache.present;
  if (present->lastRows) {
    cache.update = CacheUpdate::Ring;
    cache.lastRows = *present->lastRows;
  }
  cache.attentions = static_cast<unsigned>(found.attentions.size());
  if (found.escape)
    return failureAt(isAttentionOperator(*found.escape) ? ReasonCode::SharedReader
                                                        : ReasonCode::CacheEscapes,
                     updated, "the present to be read by attention and by Shape only",
                     found.escape->describe() + " reads it as data");
  if (found.outputs.size() > 1)
    return failureAt(ReasonCode::CacheEscapes, updated, "one output for each cache",
                     formatted("{} of them", found.outputs.size()));
  return std::nullopt;
}

/// Refusal of rows that attention reads after those of a cache, and that the model does not keep:
/// Concat(present, rows), where `joined` is the present.
std::optional<MatchFailure> CacheTracer::unkeptRows(Value& joined, const Value& rows) {
  const Node* update = joined.producer();
  if (!update || !mayUpdateCache(*update) || !joined.isGraphOutput() ||
      !isModelInput(*walkBack(*update->operand(0), std::nullopt).value))
    return std::nullopt;
  return failureAt(
      ReasonCode::KeysInParts, rows, "attention to rows that the cache keeps",
      formatted("rows after those of '{}' that the model does not keep", joined.name()),
      "no form has attention to a kept and an unkept part");
}

CacheTrace CacheTracer::traceUpdate(Node& node, const Root& root) {
  Value& updated = *root.value;
  if (root.reorder)
    return refused(reorderedCache(*root.reorder));
  if (!root.map)
    return refused(failureAt(ReasonCode::AxisUnproven, *root.unproved,
                             "data movement that provably keeps rows separate",
                             describeProducer(*root.unproved)));
  std::optional<unsigned> axis = root.map->sequenceAxis();
  if (!axis)
    return refused(failureAt(ReasonCode::AxisUnproven, updated, "the sequence on a separate axis",
                             "a shared axis"));
  bool isConcat = node.op() == "Concat";
  bool grows = isConcat || node.op() == OpName("ai.kvopt::AppendRows");
  if (isConcat) {
    if (node.operands().size() != 2)
      return refused(failureAt(ReasonCode::NotACacheConcat, updated,
                               "a Concat of past and new rows",
                               formatted("a Concat of {} parts", node.operands().size())));
    std::optional<Movement> movement = movementOf(updated);
    std::optional<unsigned> joined = movement ? movement->axis() : std::nullopt;
    if (joined != axis)
      return refused(failureAt(ReasonCode::AxisUnproven, updated,
                               formatted("a concatenation along the sequence axis ({})", *axis),
                               joined ? formatted("axis {}", *joined) : "an unknown axis"));
  }
  SiteCache cache;
  cache.writer = &node;
  cache.update = grows ? CacheUpdate::Grows : CacheUpdate::Static;
  cache.fresh = node.operand(freshOperand(node));
  cache.pastLength = grows && !isConcat ? node.operand(2) : nullptr;
  cache.freshLayout = root.map->layout();

  Value& before = *node.operand(0);
  AxisMap map = *root.map;
  map.setSequenceExtent(before.type().dim(*axis));
  Root past = walkBack(before, std::move(map));
  cache.past = past.value;
  if (!isModelInput(*past.value)) {
    if (auto failure = delayedCache(updated))
      return refused(std::move(*failure));
    if (auto failure = unkeptRows(*past.value, *cache.fresh))
      return refused(std::move(*failure));
    const Node* changed = past.value->producer();
    if (changed && isBatchReorder(*changed) && isModelInput(*movedOperand(*changed)))
      return refused(reorderedCache(*changed));
    if (isConcat && isModelInput(*walkBack(*cache.fresh, std::nullopt).value))
      return refused(failureAt(ReasonCode::NewBeforePast, updated,
                               "the past as the first part of the Concat",
                               "new rows first, then '" + cache.fresh->name().str() + "'"));
    return refused(failureAt(ReasonCode::PastNotInput, *past.value, "a graph input",
                             describeProducer(*past.value)));
  }
  if (past.reorder)
    return refused(reorderedCache(*past.reorder));
  const TensorType& pastType = past.value->type();
  if (past.map && stackedAxes(*past.map) > 1)
    return refused(stackedCache(*past.value));
  if (!past.map && pastType.hasRank())
    return refused(failureAt(ReasonCode::PastNotInput, *past.unproved,
                             formatted("the rows of '{}' unchanged", past.value->name()),
                             movedBy(*past.unproved->producer())));
  if (!past.map || !pastType.hasRank() || !past.map->sequenceAxis())
    return refused(failureAt(ReasonCode::DynamicRank, *past.value,
                             "a past whose layout is provably that of the keys or values",
                             pastType.str()));
  cache.axis = *past.map->sequenceAxis();
  cache.layout = past.map->layout();
  cache.repeats = past.map->repeats();
  cache.firstColumn = past.map->firstColumn();
  if (llvm::is_contained(cache.layout.axes(), "*")) {
    cache.present = cache.output = outputOf.lookup(past.value);
    if (!cache.present)
      return refused(
          failureAt(ReasonCode::PresentNotOutput, updated, "a graph output", "no single output"));
  } else {
    if (auto failure = checkPast(past, node))
      return refused(std::move(*failure));
    if (auto failure = findPresent(cache, *root.map))
      return refused(std::move(*failure));
  }
  if (cache.present->type().elementType() != pastType.elementType() ||
      updated.type().elementType() != pastType.elementType())
    return refused(failureAt(ReasonCode::DtypeMix, updated,
                             "past, new rows and present of one element type",
                             formatted("{}, {} and {}", onnxName(pastType.elementType()),
                                       onnxName(updated.type().elementType()),
                                       onnxName(cache.present->type().elementType()))));
  if (root.map->isWindow() && cache.update == CacheUpdate::Grows)
    return refused(failureAt(ReasonCode::WindowNotRepresentable, updated,
                             "attention over all rows of the cache", "a slice of them"));
  CacheTrace trace;
  trace.cache = std::move(cache);
  return trace;
}

/// The value that an output is moved from, if the model returns the cache of `read` changed by an
/// operator that is not a known update. Null if the model does not return the cache, or only passes
/// it through.
const Value* CacheTracer::writtenOutput(const CacheOrigin& origin, Value& read) const {
  Value* output = &read;
  if (origin.input)
    output = outputOf.lookup(origin.input);
  else if (!read.isGraphOutput())
    output = nullptr; // depends on several inputs
  if (!output)
    return nullptr;
  const Value* root = walkBack(*output, std::nullopt).value;
  return root->producer() ? root : nullptr;
}

const Value& CacheTracer::firstChange(const Value& read, const Node& update) const {
  constexpr unsigned mostSteps = 64;
  const Value* first = &read;
  const Value* value = &read;
  for (unsigned step = 0; step < mostSteps && value; ++step) {
    const Node* node = value->producer();
    if (!node || node == &update)
      break;
    if (!onlyMovesData(*node))
      first = value;
    value = nullptr;
    for (const Use& use : node->operands())
      if (const CacheOrigin* origin = use.value() ? origins.find(*use.value()) : nullptr;
          origin && origin->update == &update && !value)
        value = use.value();
  }
  return *first;
}

CacheTrace CacheTracer::trace(Value& operand, Node& attention) {
  const CacheOrigin* origin = origins.find(operand);
  Root root = walkBack(operand, AxisMap::ofAttentionOperand(operand.type()));
  CacheTrace trace;
  const Dim& length = operand.type().dim(2);
  bool isOwn = length.isKnownEqual(attention.operand(0)->type().dim(2)); // one per query row
  if (origin && !origin->update) {
    if (isOwn)
      return trace;
    if (const Value* written = writtenOutput(*origin, *root.value))
      return refused(
          failureAt(ReasonCode::NotACacheConcat, *written,
                    "a cache that is read unchanged, or joined with new rows by a Concat",
                    describeProducer(*written)));
    trace.isCross = true;
    if (!isModelInput(*root.value))
      return trace;
    SiteCache cache;
    cache.update = CacheUpdate::ReadOnly;
    cache.past = root.value;
    if (root.map) {
      cache.layout = root.map->layout();
      cache.axis = root.map->sequenceAxis().value_or(0);
      cache.repeats = root.map->repeats();
      cache.firstColumn = root.map->firstColumn();
      cache.columns = operand.type().dim(3);
    }
    trace.cache = std::move(cache);
    return trace;
  }
  Node* producer = root.value->producer();
  if (producer && mayUpdateCache(*producer) && (origin || root.value->isGraphOutput())) {
    trace = traceUpdate(*producer, root);
    // For example a Concat of rotated halves: the cache was updated before.
    if (trace.failure && trace.failure->code == ReasonCode::AxisUnproven && origin &&
        origin->update && origin->update != producer)
      trace.failure = transformedCache(firstChange(*root.value, *origin->update), *origin->update);
    if (trace.cache)
      trace.cache->columns = operand.type().dim(3);
    return trace;
  }
  if (origin && origin->update && origin->update != producer)
    return refused(transformedCache(firstChange(*root.value, *origin->update), *origin->update));
  if (origin)
    return refused(failureAt(ReasonCode::NotACacheConcat, *root.value,
                             "keys and values directly from a Concat of past and new rows",
                             describeProducer(*root.value)));
  // Projected from another sequence than this model's tokens: its length is an input's.
  if (!length.isUnknown() && !isOwn && inputExtents.count(length.str()))
    trace.isCross = true;
  return trace;
}

Node* CacheTracer::shapeReader(const SiteCache& key, const SiteCache& value) const {
  llvm::SmallVector<const CacheReaders*, 2> updates;
  for (const SiteCache* cache : {&key, &value})
    if (auto found = readers.find(cache->writer); found != readers.end())
      updates.push_back(&found->second);
  return foreignShapeReader(updates);
}

const CacheReaders& CacheTracer::readersOf(Value& updated, const AxisMap& map) {
  auto [entry, isNew] = readers.try_emplace(updated.producer());
  if (isNew)
    entry->second = readersOfRows(updated, map);
  return entry->second;
}

} // namespace kvopt::analysis
