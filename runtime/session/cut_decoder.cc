// Parts, and tiles between them.
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
}

} // namespace

llvm::Expected<std::unique_ptr<CutDecoder>>
CutDecoder::create(const Model& whole, const Manifest& manifest, VariantSource& source,
                   MakeExecutor makeExecutor, const CutDecoder* constantsOf) {
  std::unique_ptr<CutDecoder> decoder(new CutDecoder(whole.graph(), manifest));
  const auto make = [&](llvm::Expected<const Model*> opened, const Executor* like,
                        std::vector<std::unique_ptr<Executor>>& into) -> llvm::Error {
    if (!opened)
      return opened.takeError();
    auto made = makeExecutor(**opened, like);
    if (!made)
      return made.takeError();
    into.push_back(std::move(*made));
    return llvm::Error::success();
  };
  const ManifestTiles& tiles = *manifest.tiles;
  for (size_t i = 0; i < tiles.parts.size(); ++i)
    if (llvm::Error error =
            make(source.openPart(tiles, i), constantsOf ? constantsOf->parts[i].get() : nullptr,
                 decoder->parts))
      return error;
  for (size_t i = 0; i < tiles.tiles.size(); ++i)
    if (llvm::Error error = make(source.openTile(tiles, i),
                                 constantsOf ? constantsOf->tileExecutors[i].get() : nullptr,
                                 decoder->tileExecutors))
      return error;
  if (llvm::Error error = decoder->checkPieces())
    return error;
  return decoder;
}

/// Every name that is read has been given, and every name that the manifest gives is there.
llvm::Error CutDecoder::checkPieces() const {
  llvm::StringSet<> given;
  for (const std::unique_ptr<Value>& input : whole.inputs())
    given.insert(input->name());
  auto attention = tiles.attentions.begin();
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const std::unique_ptr<Value>& input : parts[i]->graph().inputs())
      if (!given.contains(input->name()))
        return invalid("part {} reads '{}', which nothing before it gives", i, input->name());
    for (const Value* output : parts[i]->graph().outputs())
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
  for (size_t i = 0; i < tileExecutors.size(); ++i) {
    const Graph& tile = tileExecutors[i]->graph();
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

llvm::Expected<TensorView> CutDecoder::valueNamed(llvm::StringRef name) const {
  const auto found = values.find(name);
  if (found == values.end())
    return usageError("input '{}' is not given", name);
  return found->second;
}

/// Runs a piece on those of the views that it reads.
llvm::Error CutDecoder::runPiece(Executor& piece, llvm::ArrayRef<NamedView> given,
                                 std::vector<Tensor>& outputs) {
  if (llvm::Error error = piece.run(given, {}, outputs))
    return error;
  add(piece.statistics(), total);
  return llvm::Error::success();
}

llvm::Error CutDecoder::runPart(size_t index) {
  Executor& part = *parts[index];
  std::vector<NamedView> given;
  for (const std::unique_ptr<Value>& input : part.graph().inputs()) {
    // An input with a default need not be given.
    if (input->initializer() && !values.count(input->name()))
      continue;
    llvm::Expected<TensorView> view = valueNamed(input->name());
    if (!view)
      return view.takeError();
    given.push_back({input->name(), std::move(*view)});
  }
  std::vector<Tensor> outputs;
  if (llvm::Error error = runPiece(part, given, outputs))
    return error;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const llvm::StringRef name = part.graph().outputs()[i]->name();
    values[name] = outputs[i].view;
    computed[name] = std::move(outputs[i]);
  }
  return llvm::Error::success();
}

llvm::Expected<TensorView> CutDecoder::blockOf(const std::string& past, size_t index) const {
  const auto cache =
      llvm::find_if(manifest.caches, [&](const ManifestCache& each) { return each.past == past; });
  assert(cache != manifest.caches.end() && "the reader of manifests checks it");
  return valueNamed(cache->blocks[index]);
}

llvm::Error CutDecoder::runTile(size_t index, const ManifestTiledAttention& attention,
                                const TensorView& key, const TensorView& value, int64_t firstColumn,
                                State& state) {
  llvm::Expected<TensorView> query = valueNamed(attention.query);
  if (!query)
    return query.takeError();
  llvm::Expected<TensorView> mask = valueNamed(attention.mask);
  if (!mask)
    return mask.takeError();
  const bool isLast = firstColumn == *manifest.capacityValue;
  const int64_t columns = mask->rank() == 0 ? 0 : mask->shape[mask->rank() - 1];
  const int64_t end =
      isLast ? columns : std::min(firstColumn + manifest.blockSize, *manifest.capacityValue);
  if (end > columns || firstColumn > end)
    return invalid("the mask '{}' has {} columns, too few for attention after part {}",
                   attention.mask, columns, attention.afterPart);
  // In the order of tileInputNames.
  const TensorView views[] = {
      *query,       key,           value,    sliceAxis(*mask, mask->rank() - 1, firstColumn, end),
      state.output, state.maximum, state.sum};
  Executor& tile = *tileExecutors[index];
  std::vector<NamedView> given;
  for (size_t i = 0; i < std::size(tileInputNames); ++i)
    if (llvm::any_of(tile.graph().inputs(), [&](const std::unique_ptr<Value>& input) {
          return input->name() == tileInputNames[i];
        }))
      given.push_back({tileInputNames[i], views[i]});
  std::vector<Tensor> next;
  if (llvm::Error error = runPiece(tile, given, next))
    return error;
  state.output = next[0].view;
  state.maximum = next[1].view;
  state.sum = next[2].view;
  state.tensors = std::move(next);
  return llvm::Error::success();
}

llvm::Error CutDecoder::attend(const ManifestTiledAttention& attention, int64_t past) {
  State state;
  TensorView key;
  TensorView value;
  for (const auto& [name, view] :
       {std::pair(&attention.output, &state.output), std::pair(&attention.maximum, &state.maximum),
        std::pair(&attention.sum, &state.sum), std::pair(&attention.key, &key),
        std::pair(&attention.value, &value)}) {
    llvm::Expected<TensorView> found = valueNamed(*name);
    if (!found)
      return found.takeError();
    *view = std::move(*found);
  }
  const int64_t size = manifest.blockSize;
  for (int64_t first = 0; first < past; first += size) {
    const auto index = static_cast<size_t>(first / size);
    llvm::Expected<TensorView> keys = blockOf(attention.keyCache, index);
    if (!keys)
      return keys.takeError();
    llvm::Expected<TensorView> rows = blockOf(attention.valueCache, index);
    if (!rows)
      return rows.takeError();
    const bool isTail = *manifest.capacityValue - first < size;
    const int64_t tile = isTail ? *attention.tailTile : attention.blockTile;
    if (llvm::Error error =
            runTile(static_cast<size_t>(tile), attention, *keys, *rows, first, state))
      return error;
  }
  if (llvm::Error error = runTile(static_cast<size_t>(attention.lastTile), attention, key, value,
                                  *manifest.capacityValue, state))
    return error;
  values[attention.result] = state.output;
  computed[attention.result] = std::move(state.tensors[0]);
  return llvm::Error::success();
}

llvm::Error CutDecoder::run(llvm::ArrayRef<NamedView> inputs, int64_t past,
                            std::vector<Tensor>& outputs) {
  total = RunStatistics();
  auto forget = llvm::make_scope_exit([&] {
    values.clear();
    computed.clear();
  });
  for (const NamedView& input : inputs)
    values[input.name] = input.view;
  auto attention = tiles.attentions.begin();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (llvm::Error error = runPart(i))
      return error;
    for (; attention != tiles.attentions.end() && attention->afterPart == static_cast<int64_t>(i);
         ++attention)
      if (llvm::Error error = attend(*attention, past))
        return error;
  }
  std::vector<Tensor> results;
  for (const Value* output : whole.outputs()) {
    const auto found = computed.find(output->name());
    if (found == computed.end())
      return invalid("no part gives the model's output '{}'", output->name());
    results.push_back(std::move(found->second));
  }
  outputs = std::move(results);
  return llvm::Error::success();
}

void CutDecoder::dropMemory() {
  for (const auto* executors : {&parts, &tileExecutors})
    for (const std::unique_ptr<Executor>& executor : *executors)
      executor->dropMemory();
}

} // namespace kvopt::runtime
