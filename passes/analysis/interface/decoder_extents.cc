// Reads the extents of caches and inputs.
#include "passes/analysis/interface/decoder_extents.h"

#include "passes/analysis/cache/driven_caches.h"
#include "passes/analysis/interface/input_readers.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::analysis {
using namespace ir;

namespace {

/// Maximum number of readers of an input that are followed.
constexpr size_t readerBudget = 4096;

InputReaders readersWithin(const Value& input) {
  size_t budget = readerBudget;
  return readersOf(input, budget);
}

/// Axis of batch rows: before heads, rows and width, or the first axis.
unsigned batchAxis(unsigned rank) { return rank > 4 ? rank - 4 : 0; }

/// Whether the input receives lengths; if so, whether there is one per batch row.
std::optional<bool> isLengthPerRow(const Value& input) {
  const std::vector<InputReaders::Length> lengths = readersWithin(input).lengths;
  if (lengths.empty())
    return std::nullopt;
  return isPerBatchRow(lengths.front().feed);
}

/// Input of tokens: ids [B, S] or embedded [B, S, D].
const Value* tokenInput(const Graph& graph, const llvm::DenseSet<const Value*>& caches) {
  const Value* embedded = nullptr;
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    const TensorType& type = input->type();
    if (caches.contains(input.get()) || input->isInitializer() || !type.hasRank())
      continue;
    if (isInteger(type.elementType()) && type.rank() == 2 && !readersWithin(*input).tables.empty())
      return input.get();
    if (isFloatingPoint(type.elementType()) && type.rank() == 3 && !embedded)
      embedded = input.get();
  }
  return embedded;
}

class ShapeReader {
public:
  ShapeReader(const DecoderExtents& asExported, const DecoderExtents& asFreed)
      : exported(asExported), freed(asFreed) {}

  Shape ofCache(const Value& past, const ManifestCache& cache) const {
    Shape shape(past.type().shape().begin(), past.type().shape().end());
    set(shape, batchAxis(static_cast<unsigned>(shape.size())), exported.batch, freed.batch);
    if (cache.update() == CacheUpdate::Grows)
      set(shape, static_cast<unsigned>(cache.sequenceAxis), exported.past, freed.past);
    return shape;
  }

  Shape ofInput(const Value& input) const {
    Shape shape(input.type().shape().begin(), input.type().shape().end());
    const auto rank = static_cast<unsigned>(shape.size());
    if (rank < 2)
      return rank == 1 ? ofList(input, shape[0]) : shape;
    unsigned next = 0;
    if (set(shape, 0, exported.batch, freed.batch))
      next = 1;
    else if (rank > 2 && set(shape, 1, exported.batch, freed.batch))
      next = 2; // as in positions [3, B, S]
    // Keys, after the tokens that see them.
    const bool isMask = next < rank && isOfKeys(shape[rank - 1]) &&
                        (rank == 2 || shape[rank - 2].isKnownEqual(exported.tokens));
    if (isMask) {
      shape[rank - 1] = freed.keys();
      if (rank > 2 && rank - 2 >= next)
        set(shape, rank - 2, exported.tokens, freed.tokens);
      return shape;
    }
    const unsigned place = rank > 3 ? rank - 2 : next;
    if (place < rank)
      set(shape, place, exported.tokens, freed.tokens);
    return shape;
  }

private:
  bool isOfKeys(const Dim& extent) const {
    return exported.hasPast() && extent.isKnownEqual(exported.keys());
  }

  /// Replaces the extent if it is the exported one.
  static bool set(Shape& shape, unsigned axis, const Dim& before, const Dim& after) {
    if (!shape[axis].isKnownEqual(before))
      return false;
    shape[axis] = after;
    return true;
  }

  /// A list with an entry for each token, batch row or key.
  Shape ofList(const Value& input, const Dim& extent) const {
    const std::optional<bool> perRow = isLengthPerRow(input);
    Shape shape{extent};
    if (perRow) {
      if (*perRow)
        set(shape, 0, exported.batch, freed.batch);
      return shape;
    }
    if (isOfKeys(extent))
      shape[0] = freed.keys();
    else if (!set(shape, 0, exported.tokens, freed.tokens))
      set(shape, 0, exported.batch, freed.batch);
    return shape;
  }

  const DecoderExtents& exported;
  const DecoderExtents& freed;
};

} // namespace

std::variant<DecoderExtents, std::string> findDecoderExtents(const Graph& graph) {
  DecoderExtents found;
  llvm::DenseSet<const Value*> pasts;
  bool grows = false;
  for (const ManifestCache& cache : cachesByDataFlow(graph, {})) {
    const Value& past = *graph.findValue(cache.past);
    pasts.insert(&past);
    const Value* present = graph.findValue(cache.present);
    if (cache.update() != CacheUpdate::Grows || !present || !past.type().hasRank() ||
        past.type().rank() < 3)
      continue;
    const Dim before = past.type().dim(cache.sequenceAxis);
    const Dim added = present->type().dim(cache.sequenceAxis) - before;
    const Dim batch = past.type().dim(batchAxis(past.type().rank()));
    if (added.isUnknown() || batch.isUnknown())
      return formatted("the extents of '{}', {}, do not follow from those of '{}', {}",
                       cache.present, present->type().str(), cache.past, past.type().str());
    if (grows && !(found.past.isKnownEqual(before) && found.tokens.isKnownEqual(added) &&
                   found.batch.isKnownEqual(batch)))
      return formatted("the extents of '{}' differ from those of the caches before it", cache.past);
    grows = true;
    found = {batch, added, before};
  }
  if (grows && !found.hasPast())
    return "the caches hold no rows, so the extents of all keys and of the new ones cannot be "
           "distinguished";
  if (!grows) {
    const Value* tokens = tokenInput(graph, pasts);
    if (!tokens)
      return "there is neither a growing cache nor an input of tokens";
    found.batch = tokens->type().dim(0);
    found.tokens = tokens->type().dim(1);
  }
  if (found.batch.value().value_or(1) < 1 || found.tokens.value().value_or(1) < 1)
    return formatted("a step of {} batch rows and {} tokens computes nothing", found.batch.str(),
                     found.tokens.str());
  return found;
}

std::vector<FreedInput> freedInputs(const Graph& graph, const DecoderExtents& exported,
                                    const DecoderExtents& freed) {
  const ShapeReader reader(exported, freed);
  std::vector<FreedInput> inputs;
  llvm::DenseSet<const Value*> pasts;
  for (const ManifestCache& cache : cachesByDataFlow(graph, {})) {
    Value* past = graph.findValue(cache.past);
    pasts.insert(past);
    if (past->type().hasRank())
      inputs.push_back({past, reader.ofCache(*past, cache)});
  }
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (!input->isInitializer() && !pasts.contains(input.get()) && input->type().hasRank())
      inputs.push_back({input.get(), reader.ofInput(*input)});
  return inputs;
}

} // namespace kvopt::analysis
