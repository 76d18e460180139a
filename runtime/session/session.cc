// How a session begins, and its steps.
#include "runtime/session/session.h"

#include "runtime/exec/input_binding.h"
#include "runtime/session/unpadded_masks.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

namespace {
constexpr int64_t firstStatefulCapacity = 64;

const Value* findInput(const Graph& graph, llvm::StringRef name) {
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->name() == name)
      return input.get();
  return nullptr;
}

/// Caches that are only read are inputs like others: the caller gives them with every step.
Manifest withoutReadOnlyCaches(Manifest manifest) {
  llvm::erase_if(manifest.caches,
                 [](const ManifestCache& cache) { return cache.update == CacheUpdate::ReadOnly; });
  return manifest;
}

/// What an axis was before the rewrite.
unsigned exportedAxis(const ManifestCache& cache, unsigned axis) {
  return cache.permutation.empty() ? axis : static_cast<unsigned>(cache.permutation[axis]);
}

template <class T> void fillWith(const TensorView& view, int64_t value) {
  std::fill_n(view.as<T>(), view.elementCount(), static_cast<T>(value));
}
} // namespace

const Tensor* StepResult::find(llvm::StringRef name) const {
  for (const NamedTensor& output : outputs)
    if (output.name == name)
      return &output.tensor;
  return nullptr;
}

Session::Session(const Model& sessionModel, const KernelRegistry& sessionKernels,
                 const Manifest& manifest, const SessionOptions& sessionOptions)
    : model(sessionModel), kernels(sessionKernels), description(withoutReadOnlyCaches(manifest)),
      options(sessionOptions) {}

llvm::Expected<std::unique_ptr<Session>> Session::create(const Model& model,
                                                         const KernelRegistry& kernels,
                                                         const Manifest& manifest,
                                                         const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session(model, kernels, manifest, options));
  if (llvm::Error error = session->startExecutor())
    return error;
  if (llvm::Error error = session->start())
    return withFile(std::move(error), model.path);
  return session;
}

llvm::Error Session::startExecutor(const Session* like) {
  if (!options.pool)
    options.pool = std::make_shared<ThreadPool>(options.threads);
  if (!options.allocator)
    options.allocator = std::make_shared<Allocator>();
  if (!description.tiles) {
    auto created = createExecutor(model, like ? like->executor.get() : nullptr);
    if (!created)
      return created.takeError();
    executor = std::move(*created);
  }
  listInputs();
  if (llvm::Error error = startVariants())
    return error;
  return description.tiles ? startPieces(like) : llvm::Error::success();
}

llvm::Error Session::checkInterface() const {
  if (description.contract == CacheUpdate::State)
    return unsupported("sessions drive models only whose caches are inputs and outputs");
  llvm::StringSet<> names;
  for (const ManifestCache& cache : description.caches) {
    if (cache.update == CacheUpdate::Blocks) {
      if (llvm::Error error = checkBlocks(cache, names))
        return error;
      continue;
    }
    if (cache.oneBuffer && cache.update != CacheUpdate::Grows &&
        cache.update != CacheUpdate::Static && cache.update != CacheUpdate::Ring)
      return unsupported("cache '{}' is one buffer, but no row of it stays in place", cache.past);
    if (!findInput(graph(), cache.past))
      return invalid("the manifest's cache '{}' is no input of the model", cache.past);
    if (cache.sequenceAxis < 0 || cache.sequenceAxis >= static_cast<int64_t>(cache.shape.size()))
      return invalid("cache '{}' has no axis {}", cache.past, cache.sequenceAxis);
    // A model rewritten in part has caches of both kinds.
    if (cache.oneBuffer && description.contract != CacheUpdate::InPlace)
      return invalid("cache '{}' contradicts the manifest's contract", cache.past);
    if (cache.isPool)
      if (llvm::Error error = checkPool(cache))
        return error;
    if (!names.insert(cache.past).second || !names.insert(cache.present).second)
      return invalid("the manifest lists cache '{}' twice", cache.past);
  }
  for (const ManifestLength& length : description.lengths) {
    if (!findInput(graph(), length.input))
      return invalid("the manifest's length '{}' is no input of the model", length.input);
    if (!names.insert(length.input).second)
      return invalid("the manifest lists input '{}' twice", length.input);
    bool isFitting = isFlag(length.feed)
                         ? length.dtype == ElementType::Bool
                         : length.dtype == ElementType::Int64 || length.dtype == ElementType::Int32;
    if (!isFitting)
      return unsupported("length '{}' is {}", length.input, onnxName(length.dtype));
  }
  return llvm::Error::success();
}

llvm::Error Session::checkPool(const ManifestCache& cache) const {
  if (description.blockSize < 1 || cache.shape.size() != 4 || cache.sequenceAxis != 1 ||
      description.capacityValue.value_or(0) % std::max<int64_t>(description.blockSize, 1) != 0)
    return invalid("cache '{}' is a pool, but not one of blocks [block size, heads, width] of {} "
                   "tokens that the capacity is a multiple of",
                   cache.past, description.blockSize);
  if (llvm::none_of(description.lengths, [](const ManifestLength& length) {
        return length.feed == LengthFeed::BlockTable;
      }))
    return invalid("cache '{}' is a pool, but no input lists its blocks", cache.past);
  return llvm::Error::success();
}

llvm::Error Session::checkBlocks(const ManifestCache& cache, llvm::StringSet<>& names) const {
  if (description.contract != CacheUpdate::Blocks || cache.oneBuffer)
    return invalid("cache '{}' contradicts the manifest's contract", cache.past);
  if (description.blockSize < 1 || !description.capacityValue)
    return invalid("cache '{}' is in blocks, but the manifest does not tell their size, or the "
                   "capacity",
                   cache.past);
  const int64_t wanted = (*description.capacityValue - 1) / description.blockSize + 1;
  if (static_cast<int64_t>(cache.blocks.size()) != wanted)
    return invalid("cache '{}' has {} blocks, but {} tokens in blocks of {} need {}", cache.past,
                   cache.blocks.size(), *description.capacityValue, description.blockSize, wanted);
  for (const std::string& block : cache.blocks) {
    if (!findInput(graph(), block))
      return invalid("the block '{}' is no input of the model", block);
    if (!names.insert(block).second)
      return invalid("the manifest lists block '{}' twice", block);
  }
  if (cache.sequenceAxis < 0 || cache.sequenceAxis >= static_cast<int64_t>(cache.shape.size()))
    return invalid("cache '{}' has no axis {}", cache.past, cache.sequenceAxis);
  if (!names.insert(cache.present).second)
    return invalid("the manifest lists cache '{}' twice", cache.past);
  return llvm::Error::success();
}

llvm::Error Session::findOutputs() {
  llvm::ArrayRef<Value*> outputs = graph().outputs();
  for (const ManifestCache& cache : description.caches) {
    const auto* found =
        llvm::find_if(outputs, [&](const Value* value) { return value->name() == cache.present; });
    if (found == outputs.end())
      return invalid("the manifest's cache '{}' is no output of the model", cache.present);
    presentOutputs.push_back(static_cast<unsigned>(found - outputs.begin()));
  }
  for (unsigned i = 0; i < outputs.size(); ++i)
    if (!llvm::is_contained(presentOutputs, i))
      resultOutputs.push_back(i);
  return llvm::Error::success();
}

void Session::listInputs() {
  given.clear();
  takenInputs.clear();
  llvm::StringSet<> ours;
  for (const ManifestCache& cache : description.caches) {
    ours.insert(cache.past);
    for (const std::string& block : cache.blocks)
      ours.insert(block);
  }
  for (const ManifestLength& length : description.lengths)
    ours.insert(length.input);
  for (const std::unique_ptr<Value>& input : graph().inputs()) {
    if (ours.contains(input->name()))
      continue;
    takenInputs.insert(input->name());
    if (!input->initializer())
      given.push_back(input.get());
  }
}

llvm::Error Session::start() {
  if (llvm::Error error = checkInterface())
    return error;
  if (options.batch < 1 || options.capacity < 0 || options.blockLimit < 0)
    return usageError("a session needs a batch of at least 1, and a capacity and a limit of blocks "
                      "that are not negative");
  if (llvm::Error error = findOutputs())
    return error;
  llvm::Expected<int64_t> room = firstRoom();
  if (!room)
    return room.takeError();
  CacheSetOptions settings;
  settings.batch = options.batch;
  settings.room = *room;
  settings.openRows = options.capacity;
  settings.roomUnit = wholeBlocks(1);
  settings.poison = options.poison;
  settings.allocator = allocator();
  if (description.blockSize != 0) {
    settings.blockTokens = description.blockSize;
    settings.readsWholeBlocks = !pyramid.empty();
    settings.blockRoom = description.capacityValue.value_or(0);
    if (options.blockLimit != 0)
      settings.blockLimit = options.blockLimit;
  }
  llvm::Expected<CacheSet> created = CacheSet::create(description.caches, std::move(settings));
  if (!created)
    return created.takeError();
  caches = std::move(*created);
  llvm::Expected<std::vector<Tensor>> tensors = lengthTensors(options.batch);
  if (!tensors)
    return tensors.takeError();
  lengths = std::move(*tensors);
  findLengthPerRowObstacle();
  return llvm::Error::success();
}

bool Session::hasShared() const {
  return llvm::any_of(description.caches, [](const ManifestCache& cache) {
    return cache.oneBuffer && cache.update == CacheUpdate::Grows;
  });
}

llvm::Expected<int64_t> Session::firstRoom() const {
  if (!hasShared())
    return 0;
  bool canGrow = options.mode == SessionOptions::Mode::Stateful && !description.capacityValue;
  int64_t room = options.capacity != 0       ? options.capacity
                 : description.capacityValue ? *description.capacityValue
                 : canGrow                   ? firstStatefulCapacity
                                             : 0;
  if (room <= 0)
    return usageError("the model's cache capacity is open: the session must be given one");
  if (description.capacityValue && room != *description.capacityValue)
    return usageError("the model's cache capacity is {}, not {}", *description.capacityValue, room);
  return wholeBlocks(room);
}

int64_t Session::wholeBlocks(int64_t room) const {
  const int64_t unit = description.hasPools() ? description.blockSize : 1;
  return room > INT64_MAX - unit ? room : (room + unit - 1) / unit * unit;
}

const char CapacityError::ID = 0;

llvm::Expected<int64_t> Session::roomFor(int64_t tokens) const {
  auto tooMany = [&](int64_t room) {
    return usageError("{} tokens do not fit into the cache's capacity of {} ({} are in it)", tokens,
                      room, length())
        .as<CapacityError>();
  };
  if (tokens > caches.staticRoom())
    return tooMany(caches.staticRoom());
  int64_t room = caches.room();
  if (tokens <= room)
    return room;
  if (options.mode != SessionOptions::Mode::Stateful || description.capacityValue)
    return tooMany(room);
  return wholeBlocks(room > INT64_MAX / 2 ? tokens : std::max(tokens, 2 * room));
}

llvm::Expected<std::vector<Tensor>> Session::lengthTensors(int64_t batch) const {
  std::vector<Tensor> tensors;
  for (const ManifestLength& length : description.lengths) {
    if (length.feed == LengthFeed::BlockTable) {
      // As long as there is room: made when it is filled.
      tensors.emplace_back();
      continue;
    }
    llvm::Expected<Extents> shape = manifestExtents(length.shape, batch);
    if (!shape)
      return shape.takeError();
    llvm::Expected<Tensor> tensor = Tensor::create(allocator(), length.dtype, *shape);
    if (!tensor)
      return tensor.takeError();
    tensors.push_back(std::move(*tensor));
  }
  return tensors;
}

/// Rows of different lengths need to be told apart by every length there is.
void Session::findLengthPerRowObstacle() {
  lengthPerRowObstacle.clear();
  if (const CacheGeometry* even = caches.evenOnly()) {
    lengthPerRowObstacle = fmt::format("the rows of cache '{}' are of one length", even->name);
    return;
  }
  bool isTold = false;
  for (size_t i = 0; i < description.lengths.size(); ++i) {
    const ManifestLength& length = description.lengths[i];
    bool perRow = length.feed == LengthFeed::PastLengthPerBatch ||
                  length.feed == LengthFeed::TotalLengthPerBatch ||
                  length.feed == LengthFeed::TotalLengthPerBatchMinusOne;
    // The longest row's total and whether there is any past are numbers of the whole batch, and
    // each row has its blocks.
    if (length.feed == LengthFeed::TotalLength || length.feed == LengthFeed::BlockTable ||
        isFlag(length.feed))
      continue;
    if (!perRow || lengths[i].view.elementCount() != batch()) {
      lengthPerRowObstacle =
          fmt::format("input '{}' tells the model one length for all rows", length.input);
      return;
    }
    isTold = true;
  }
  if (!isTold)
    lengthPerRowObstacle = "no input of the manifest tells the model how long each row is";
}

/// Row b of the batch has the b-th run of blocks: pools are buffers as others are.
llvm::Error Session::fillBlockTable(size_t index) {
  const ManifestLength& length = description.lengths[index];
  const Extents shape{batch(), caches.room() / description.blockSize};
  Tensor& table = lengths[index];
  if (table.view.shape == shape && table.view.data)
    return llvm::Error::success();
  llvm::Expected<Tensor> made = Tensor::create(allocator(), length.dtype, shape);
  if (!made)
    return made.takeError();
  const int64_t blocks = made->view.elementCount();
  const bool isNarrow = length.dtype == ElementType::Int32;
  if (isNarrow && blocks > INT32_MAX)
    return unsupported("block table '{}' does not hold {} blocks", length.input, blocks);
  for (int64_t block = 0; block < blocks; ++block)
    if (isNarrow)
      made->view.as<int32_t>()[block] = static_cast<int32_t>(block);
    else
      made->view.as<int64_t>()[block] = block;
  table = std::move(*made);
  return llvm::Error::success();
}

llvm::Error Session::fillLengths(int64_t newTokens) {
  for (size_t i = 0; i < lengths.size(); ++i) {
    const ManifestLength& length = description.lengths[i];
    if (length.feed == LengthFeed::BlockTable) {
      if (llvm::Error error = fillBlockTable(i))
        return error;
      continue;
    }
    const TensorView& view = lengths[i].view;
    auto valueOf = [&](int64_t past) -> int64_t {
      switch (length.feed) {
      case LengthFeed::PastLength:
      case LengthFeed::PastLengthPerBatch:
        return past;
      case LengthFeed::TotalLength:
      case LengthFeed::TotalLengthPerBatch:
        return past + newTokens;
      case LengthFeed::TotalLengthMinusOne:
      case LengthFeed::TotalLengthPerBatchMinusOne:
        return past + newTokens - 1;
      case LengthFeed::HasPast:
        return past > 0 ? 1 : 0;
      case LengthFeed::NoPast:
        return past > 0 ? 0 : 1;
      case LengthFeed::BlockTable:
        break;
      }
      return 0;
    };
    int64_t longest = valueOf(this->length());
    if (length.dtype == ElementType::Int32 && longest > INT32_MAX)
      return unsupported("length '{}' does not hold {}", length.input, longest);
    if (length.dtype == ElementType::Bool)
      fillWith<uint8_t>(view, longest);
    else if (length.dtype == ElementType::Int32)
      fillWith<int32_t>(view, longest);
    else
      fillWith<int64_t>(view, longest);
    if (isFlag(length.feed) || length.feed == LengthFeed::TotalLength || !caches.isRagged())
      continue;
    for (size_t row = 0; row < rowLengths().size(); ++row)
      if (length.dtype == ElementType::Int32)
        view.as<int32_t>()[row] = static_cast<int32_t>(valueOf(rowLengths()[row]));
      else
        view.as<int64_t>()[row] = valueOf(rowLengths()[row]);
  }
  return llvm::Error::success();
}

llvm::Error Session::checkInputs(llvm::ArrayRef<NamedView> inputs, int64_t newTokens) const {
  for (const NamedView& input : inputs)
    if (!takenInputs.contains(input.name))
      return usageError("'{}' is no input that a session's caller gives", input.name);
  return checkUnpadded(description, inputs, length() + newTokens);
}

llvm::Error Session::checkPresents(llvm::ArrayRef<Tensor> outputs, int64_t newTokens) const {
  for (size_t i = 0; i < caches.size(); ++i) {
    const CacheGeometry& geometry = caches.geometry(i);
    const TensorView& present = outputs[presentOutputs[i]].view;
    unsigned axis = geometry.sequenceAxis();
    const bool isNew = geometry.isInBlocks() || description.caches[i].givesNewRows;
    int64_t rows = isNew ? newTokens : length() + newTokens;
    if (geometry.isShared || geometry.update == CacheUpdate::Static ||
        geometry.update == CacheUpdate::State)
      rows = caches.buffer(i).shape[axis];
    else if (geometry.update == CacheUpdate::Ring && axis < present.rank())
      rows = present.shape[axis]; // as many as the model keeps
    const Extents expected =
        description.caches[i].isPool ? poolView(i).shape : geometry.shape(rows);
    if (present.shape != expected || present.element != geometry.element)
      return invalid("output '{}' has shape {}, but the manifest makes it {}",
                     description.caches[i].present, extentsText(present.shape),
                     extentsText(expected));
  }
  return llvm::Error::success();
}

llvm::Expected<StepResult> Session::step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens) {
  StepResult result;
  if (llvm::Error error = step(inputs, newTokens, result))
    return error;
  return result;
}

llvm::Error Session::step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens, StepResult& result) {
  int64_t total = 0;
  if (newTokens < 1 || __builtin_add_overflow(length(), newTokens, &total))
    return usageError("a step needs at least one token, not {}", newTokens);
  if (newTokens > mostStepTokens())
    return usageError("a step of {} tokens: the model takes at most {} at a time", newTokens,
                      mostStepTokens());
  if (llvm::Error error = checkRunning())
    return error;
  if (llvm::Error error = checkInputs(inputs, newTokens))
    return error;
  if (llvm::Error error = makeRoom(total))
    return error;
  if (llvm::Error error = takeOrder(inputs))
    return error;
  if (llvm::Error error = fillLengths(newTokens))
    return error;

  if (llvm::Error error = caches.reserve(newTokens))
    return error;
  auto cancel = llvm::make_scope_exit([&] { caches.cancel(); });

  if (llvm::Error error = chooseVariant())
    return error;
  stepInputs.assign(inputs.begin(), inputs.end());
  if (llvm::Error error = feedCaches())
    return error;
  if (llvm::Error error = runModel())
    return error;
  auto forget = llvm::make_scope_exit([&] { stepOutputs.clear(); });
  if (llvm::Error error = checkPresents(stepOutputs, newTokens))
    return error;
  if (llvm::Error error = writeBlocks())
    return error;
  if (llvm::Error error = joinNewRows())
    return error;
  forget.release();
  cancel.release();

  for (size_t i = 0; i < caches.size(); ++i)
    if (!isOverwritten(i) && !caches.geometry(i).isInBlocks())
      replaceCache(i, std::move(stepOutputs[presentOutputs[i]]));
  // Without caches nothing is remembered: every step is a whole sequence.
  if (caches.size() != 0)
    caches.advance(newTokens);
  noteRun();
  takeResult(result);
  return llvm::Error::success();
}

/// Rearranges batch rows as the manifest's input for it says.
llvm::Error Session::takeOrder(llvm::ArrayRef<NamedView> inputs) {
  const NamedView* order = llvm::find_if(
      inputs, [&](const NamedView& input) { return input.name == description.reorder; });
  if (description.reorder.empty() || order == inputs.end() || length() == 0)
    return llvm::Error::success();
  const TensorView& view = order->view;
  const bool isNarrow = view.element == ElementType::Int32;
  if (view.rank() != 1 || view.shape[0] != batch() ||
      (!isNarrow && view.element != ElementType::Int64))
    return usageError("'{}' is {} {}, not a number for each of the session's {} batch rows",
                      order->name, onnxName(view.element), extentsText(view.shape), batch());
  llvm::SmallVector<int64_t, 8> rows;
  for (int64_t row = 0; row < batch(); ++row) {
    const TensorView entry = sliceAxis(view, 0, row, row + 1);
    rows.push_back(isNarrow ? *entry.as<int32_t>() : *entry.as<int64_t>());
    if (rows.back() < 0)
      rows.back() += batch();
  }
  for (int64_t row = 0; row < batch(); ++row)
    if (rows[static_cast<size_t>(row)] != row)
      return reorder(rows);
  return llvm::Error::success();
}

void Session::replaceCache(size_t index, Tensor present) {
  const TensorView past = caches.view(index);
  if (caches.geometry(index).update != CacheUpdate::State && present.view.data != past.data)
    counters.pastBytesCopied += past.byteSize();
  caches.replace(index, std::move(present));
}

TensorView Session::poolView(size_t index) const {
  const TensorView& buffer = caches.buffer(index);
  const Extents& shape = buffer.shape;
  return TensorView::contiguous(
      buffer.element,
      {shape[0] * (shape[1] / description.blockSize), description.blockSize, shape[2], shape[3]},
      buffer.data);
}

/// Adds lengths and caches to what the caller gives.
llvm::Error Session::feedCaches() {
  stepBindings.clear();
  for (size_t i = 0; i < lengths.size(); ++i)
    stepInputs.push_back({description.lengths[i].input, lengths[i].view});
  for (size_t i = 0; i < caches.size(); ++i) {
    const ManifestCache& cache = description.caches[i];
    if (isOverwritten(i))
      stepBindings.push_back({cache.past, cache.present});
    if (!caches.geometry(i).isInBlocks()) {
      stepInputs.push_back({cache.past, cache.isPool       ? poolView(i)
                                        : isOverwritten(i) ? caches.buffer(i)
                                                           : caches.view(i)});
      continue;
    }
    if (llvm::Error error = feedBlocks(i))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error Session::writeBlocks() {
  for (size_t i = 0; i < caches.size(); ++i) {
    if (!caches.geometry(i).isInBlocks())
      continue;
    Tensor& rows = stepOutputs[presentOutputs[i]];
    llvm::Expected<int64_t> written = caches.writeRows(i, rows);
    if (!written)
      return written.takeError();
    counters.blockBytesCopied += *written;
    counters.cacheBytesWritten += *written;
    // A block may have taken it over.
    if (*written != rows.view.byteSize())
      rows = Tensor();
  }
  return llvm::Error::success();
}

llvm::Error Session::joinNewRows() {
  for (size_t i = 0; i < caches.size(); ++i) {
    if (!description.caches[i].givesNewRows)
      continue;
    const TensorView past = caches.view(i);
    Tensor& rows = stepOutputs[presentOutputs[i]];
    const unsigned axis = caches.geometry(i).sequenceAxis();
    Extents shape = past.shape;
    shape[axis] += rows.view.shape[axis];
    auto joined = Tensor::create(allocator(), past.element, shape);
    if (!joined)
      return joined.takeError();
    copyElements(past, sliceAxis(joined->view, axis, 0, past.shape[axis]));
    copyElements(rows.view, sliceAxis(joined->view, axis, past.shape[axis], shape[axis]));
    rows = std::move(*joined);
  }
  return llvm::Error::success();
}

TensorView Session::exportedCacheView(size_t index) const {
  TensorView view = cacheView(index);
  llvm::ArrayRef<int64_t> permutation = cacheInfo(index).permutation;
  TensorView exported = view;
  for (size_t axis = 0; axis < permutation.size(); ++axis) {
    exported.shape[static_cast<size_t>(permutation[axis])] = view.shape[axis];
    exported.strides[static_cast<size_t>(permutation[axis])] = view.strides[axis];
  }
  return exported;
}

unsigned Session::exportedSequenceAxis(size_t index) const {
  return exportedAxis(cacheInfo(index), static_cast<unsigned>(cacheInfo(index).sequenceAxis));
}

std::optional<unsigned> Session::exportedBatchAxis(size_t index) const {
  const CacheGeometry& geometry = caches.geometry(index);
  if (!geometry.batchAxis() || geometry.slicesPerRow != 1)
    return std::nullopt;
  return exportedAxis(cacheInfo(index), *geometry.batchAxis());
}

llvm::Error Session::checkRoom(int64_t newTokens) const {
  return roomFor(length() + newTokens).takeError();
}

llvm::Error Session::makeRoom(int64_t tokens) {
  llvm::Expected<int64_t> room = roomFor(tokens);
  if (!room)
    return room.takeError();
  if (*room <= caches.room())
    return llvm::Error::success();
  llvm::Expected<int64_t> moved = caches.grow(*room);
  if (!moved)
    return moved.takeError();
  counters.cacheBytesMoved += *moved;
  ++counters.cacheReallocations;
  return llvm::Error::success();
}

void Session::noteRun() {
  counters.lastRun = pieces ? pieces->statistics() : running->statistics();
  ++counters.steps;
  counters.inPlaceBytesCopied += counters.lastRun.inPlaceBytesCopied;
  counters.cacheBytesWritten += counters.lastRun.cacheBytesWritten;
  counters.temporaryPeak = std::max(counters.temporaryPeak, counters.lastRun.temporaryPeak());
}

void Session::takeResult(StepResult& result) {
  result.outputs.resize(resultOutputs.size());
  for (size_t i = 0; i < resultOutputs.size(); ++i) {
    NamedTensor& output = result.outputs[i];
    llvm::StringRef name = graph().outputs()[resultOutputs[i]]->name();
    if (output.name != name)
      output.name = name.str();
    output.tensor = std::move(stepOutputs[resultOutputs[i]]);
  }
}

} // namespace kvopt::runtime
