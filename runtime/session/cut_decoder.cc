// Parts, and the tiles between them.
#include "runtime/session/cut_decoder.h"

#include "ir/manifest/tile_names.h"
#include "support/diagnostic.h"

#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringSet.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

void add(const RunStatistics& piece, RunStatistics& total) {
  for (int64_t RunStatistics::*peak : {&RunStatistics::arenaBytes, &RunStatistics::arenaLowerBound,
                                       &RunStatistics::scratchBytes, &RunStatistics::dynamicBytes})
    total.*peak = std::max(total.*peak, piece.*peak);
  for (int64_t RunStatistics::*sum :
       {&RunStatistics::bytesAllocated, &RunStatistics::allocations,
        &RunStatistics::inPlaceBytesCopied, &RunStatistics::packedBytes,
        &RunStatistics::cacheBytesWritten, &RunStatistics::foldedNodes, &RunStatistics::foldedBytes,
        &RunStatistics::streamedNodes, &RunStatistics::reservedBytes})
    total.*sum += piece.*sum;
  for (const auto& entry : piece.operatorNanoseconds)
    total.operatorNanoseconds[entry.getKey()] += entry.getValue();
  for (const auto& entry : piece.definedNodes)
    total.definedNodes[entry.getKey()] += entry.getValue();
}

} // namespace

llvm::Expected<std::unique_ptr<CutDecoder>>
CutDecoder::create(const Model& whole, const Manifest& manifest, VariantSource& source,
                   MakeExecutor makeExecutor, const CutDecoder* constantsOf) {
  std::unique_ptr<CutDecoder> decoder(new CutDecoder(whole.graph(), manifest));
  const auto make = [&](llvm::Expected<const Model*> opened, const Executor* like,
                        std::unique_ptr<Executor>& into) -> llvm::Error {
    if (!opened)
      return opened.takeError();
    auto made = makeExecutor(**opened, like);
    if (!made)
      return made.takeError();
    into = std::move(*made);
    return llvm::Error::success();
  };
  const ManifestTiles& tiles = *manifest.tiles;
  for (size_t i = 0; i < tiles.parts.size(); ++i) {
    const Executor* like = constantsOf ? constantsOf->parts[i].executor.get() : nullptr;
    if (llvm::Error error =
            make(source.openPart(tiles, i), like, decoder->parts.emplace_back().executor))
      return error;
  }
  for (size_t i = 0; i < tiles.tiles.size(); ++i) {
    const Executor* like = constantsOf ? constantsOf->tileExecutors[i].executor.get() : nullptr;
    if (llvm::Error error =
            make(source.openTile(tiles, i), like, decoder->tileExecutors.emplace_back().executor))
      return error;
  }
  if (llvm::Error error = decoder->checkParts())
    return error;
  if (llvm::Error error = decoder->checkTiles())
    return error;
  decoder->connect();
  return decoder;
}

/// Checks that every name that is read was defined before, and that every name in the manifest
/// exists.
llvm::Error CutDecoder::checkParts() const {
  llvm::StringSet<> given;
  for (const std::unique_ptr<Value>& input : whole.inputs())
    given.insert(input->name());
  auto attention = tiles.attentions.begin();
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const std::unique_ptr<Value>& input : parts[i].executor->graph().inputs())
      if (!given.contains(input->name()))
        return invalid("part {} reads '{}', which nothing before it gives", i, input->name());
    for (const Value* output : parts[i].executor->graph().outputs())
      given.insert(output->name());
    for (; attention != tiles.attentions.end() && attention->afterPart == static_cast<int64_t>(i);
         ++attention) {
      for (const std::string* name :
           {&attention->query, &attention->key, &attention->value, &attention->mask,
            &attention->output, &attention->maximum, &attention->sum})
        if (!given.contains(*name))
          return invalid("attention after part {} reads '{}', which nothing before it gives", i,
                         *name);
      given.insert(attention->result);
    }
  }
  for (const Value* output : whole.outputs())
    if (!given.contains(output->name()))
      return invalid("no part gives the model's output '{}'", output->name());
  return llvm::Error::success();
}

llvm::Error CutDecoder::checkTiles() const {
  for (size_t i = 0; i < tileExecutors.size(); ++i) {
    const Graph& tile = tileExecutors[i].executor->graph();
    for (const std::unique_ptr<Value>& input : tile.inputs())
      if (!llvm::is_contained(tileInputNames, input->name()))
        return invalid("tile {} reads '{}', which no tile is given", i, input->name());
    const bool givesState =
        tile.outputs().size() == 3 &&
        std::equal(
            tile.outputs().begin(), tile.outputs().end(), std::begin(tileOutputNames),
            [](const Value* output, llvm::StringRef name) { return output->name() == name; });
    if (!givesState)
      return invalid("tile {} does not give next_output, next_maximum and next_sum", i);
  }
  return llvm::Error::success();
}

CutDecoder::~CutDecoder() = default;

CutDecoder::Slot CutDecoder::slotOf(llvm::StringRef name) {
  const auto [entry, isNew] = slots.try_emplace(name, static_cast<Slot>(names.size()));
  if (isNew)
    names.push_back(entry->getKey());
  return entry->getValue();
}

std::vector<CutDecoder::Slot> CutDecoder::blockSlots(const std::string& past) {
  const auto cache =
      llvm::find_if(manifest.caches, [&](const ManifestCache& each) { return each.past == past; });
  assert(cache != manifest.caches.end() && "the reader of manifests checks it");
  std::vector<Slot> blocks;
  for (const std::string& block : cache->blocks())
    blocks.push_back(slotOf(block));
  return blocks;
}

void CutDecoder::connectAttention(const ManifestTiledAttention& described) {
  Attention& made = attentions.emplace_back();
  made.described = &described;
  made.query = slotOf(described.query);
  made.key = slotOf(described.key);
  made.value = slotOf(described.value);
  made.mask = slotOf(described.mask);
  made.output = slotOf(described.output);
  made.maximum = slotOf(described.maximum);
  made.sum = slotOf(described.sum);
  made.result = slotOf(described.result);
  made.keyBlocks = blockSlots(described.keyCache);
  made.valueBlocks = blockSlots(described.valueCache);
}

void CutDecoder::connect() {
  for (const std::unique_ptr<Value>& input : whole.inputs())
    slotOf(input->name());
  for (Part& part : parts) {
    const Graph& graph = part.executor->graph();
    for (const std::unique_ptr<Value>& input : graph.inputs())
      part.inputs.push_back(
          {input->name(), slotOf(input->name()), static_cast<bool>(input->initializer())});
    for (const Value* output : graph.outputs())
      part.outputs.push_back(slotOf(output->name()));
  }
  for (const ManifestTiledAttention& attention : tiles.attentions)
    connectAttention(attention);
  for (Tile& tile : tileExecutors)
    for (size_t i = 0; i < std::size(tileInputNames); ++i)
      if (llvm::any_of(tile.executor->graph().inputs(), [&](const std::unique_ptr<Value>& input) {
            return input->name() == tileInputNames[i];
          }))
        tile.inputs.push_back(i);
  for (const Value* output : whole.outputs())
    wholeOutputs.push_back(slotOf(output->name()));
  values.resize(names.size());
  isKnown.resize(names.size());
  computed.resize(names.size());
}

llvm::Expected<TensorView> CutDecoder::valueAt(Slot slot) const {
  if (!isKnown[slot])
    return usageError("input '{}' is not given", names[slot]);
  return values[slot];
}

/// Runs a piece on the views that it reads.
llvm::Error CutDecoder::runPiece(Executor& piece, std::vector<Tensor>& outputs) {
  if (llvm::Error error = piece.run(given, {}, outputs))
    return error;
  add(piece.statistics(), total);
  return llvm::Error::success();
}

llvm::Error CutDecoder::runPart(Part& part) {
  given.clear();
  for (const PartInput& input : part.inputs) {
    // An input with a default is optional.
    if (input.hasDefault && !isKnown[input.slot])
      continue;
    llvm::Expected<TensorView> view = valueAt(input.slot);
    if (!view)
      return view.takeError();
    given.push_back({input.name, std::move(*view)});
  }
  if (llvm::Error error = runPiece(*part.executor, part.results))
    return error;
  for (size_t i = 0; i < part.results.size(); ++i) {
    const Slot slot = part.outputs[i];
    values[slot] = part.results[i].view;
    isKnown[slot] = true;
    computed[slot] = std::move(part.results[i]);
  }
  return llvm::Error::success();
}

llvm::Error CutDecoder::runTile(int64_t index, const Attention& attention, const TileRows& rows) {
  llvm::Expected<TensorView> query = valueAt(attention.query);
  if (!query)
    return query.takeError();
  llvm::Expected<TensorView> mask = valueAt(attention.mask);
  if (!mask)
    return mask.takeError();
  const int64_t columns = mask->rank() == 0 ? 0 : mask->shape[mask->rank() - 1];
  const int64_t end = rows.endColumn < 0 ? columns : rows.endColumn;
  if (end > columns || rows.firstColumn > end)
    return invalid("the mask '{}' has {} columns, too few for attention after part {}",
                   attention.described->mask, columns, attention.described->afterPart);
  // In the order of tileInputNames.
  const TensorView views[] = {
      *query,       rows.key,
      rows.value,   sliceAxis(*mask, mask->rank() - 1, rows.firstColumn, end),
      state.output, state.maximum,
      state.sum};
  Tile& tile = tileExecutors[static_cast<size_t>(index)];
  given.clear();
  for (size_t input : tile.inputs)
    given.push_back({tileInputNames[input], views[input]});
  if (llvm::Error error = runPiece(*tile.executor, nextState))
    return error;
  state.output = nextState[0].view;
  state.maximum = nextState[1].view;
  state.sum = nextState[2].view;
  state.tensors.swap(nextState);
  nextState.clear();
  return llvm::Error::success();
}

llvm::Error CutDecoder::attend(const Attention& attention, int64_t past) {
  TileRows fresh{{}, {}, *manifest.capacityValue, -1};
  for (const auto& [slot, view] :
       {std::pair(attention.output, &state.output), std::pair(attention.maximum, &state.maximum),
        std::pair(attention.sum, &state.sum), std::pair(attention.key, &fresh.key),
        std::pair(attention.value, &fresh.value)}) {
    llvm::Expected<TensorView> found = valueAt(slot);
    if (!found)
      return found.takeError();
    *view = std::move(*found);
  }
  const ManifestTiledAttention& described = *attention.described;
  const int64_t size = manifest.blockSize;
  for (int64_t first = 0; first < past; first += size) {
    const auto index = static_cast<size_t>(first / size);
    llvm::Expected<TensorView> keys = valueAt(attention.keyBlocks[index]);
    if (!keys)
      return keys.takeError();
    llvm::Expected<TensorView> rows = valueAt(attention.valueBlocks[index]);
    if (!rows)
      return rows.takeError();
    const bool isTail = *manifest.capacityValue - first < size;
    const int64_t tile = isTail ? *described.tailTile : described.blockTile;
    const int64_t end = std::min(first + size, *manifest.capacityValue);
    if (llvm::Error error = runTile(tile, attention, {*keys, *rows, first, end}))
      return error;
  }
  if (llvm::Error error = runTile(described.lastTile, attention, fresh))
    return error;
  values[attention.result] = state.output;
  isKnown[attention.result] = true;
  computed[attention.result] = std::move(state.tensors[0]);
  state.tensors.clear();
  return llvm::Error::success();
}

llvm::Error CutDecoder::takeOutputs(std::vector<Tensor>& outputs) {
  collected.clear();
  for (Slot slot : wholeOutputs) {
    if (!computed[slot].view.data)
      return invalid("no part gives the model's output '{}'", names[slot]);
    collected.push_back(std::move(computed[slot]));
    computed[slot] = Tensor();
  }
  outputs.swap(collected);
  collected.clear();
  return llvm::Error::success();
}

void CutDecoder::forget() {
  isKnown.assign(isKnown.size(), false);
  for (Tensor& tensor : computed)
    tensor = Tensor();
  for (Part& part : parts)
    part.results.clear();
  state.tensors.clear();
}

llvm::Error CutDecoder::run(llvm::ArrayRef<NamedView> inputs, int64_t past,
                            std::vector<Tensor>& outputs) {
  total = RunStatistics();
  auto clean = llvm::make_scope_exit([&] { forget(); });
  for (const NamedView& input : inputs)
    if (const auto slot = slots.find(input.name); slot != slots.end()) {
      values[slot->getValue()] = input.view;
      isKnown[slot->getValue()] = true;
    }
  auto attention = attentions.begin();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (llvm::Error error = runPart(parts[i]))
      return error;
    for (; attention != attentions.end() &&
           attention->described->afterPart == static_cast<int64_t>(i);
         ++attention)
      if (llvm::Error error = attend(*attention, past))
        return error;
  }
  return takeOutputs(outputs);
}

void CutDecoder::dropMemory() {
  for (Part& part : parts)
    part.executor->dropMemory();
  for (Tile& tile : tileExecutors)
    tile.executor->dropMemory();
}

} // namespace kvopt::runtime
