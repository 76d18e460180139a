// Steps of a session, its state between them, and models in variants.
#include "runtime/session/session.h"

#include "ir/manifest/fed_length.h"
#include "ir/onnx/model_files.h"
#include "runtime/cache/checksum.h"
#include "runtime/cache/model_fingerprint.h"
#include "runtime/cache/rotate_rows.h"
#include "runtime/exec/input_binding.h"
#include "runtime/session/cache_part.h"
#include "runtime/session/dequantized_cache.h"
#include "runtime/session/ring_rows.h"
#include "runtime/session/unpadded_masks.h"
#include "support/diagnostic.h"
#include "support/file_access.h"
#include "support/half.h"
#include "support/mapped_file.h"
#include "support/output_file.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"

#include <algorithm>
#include <random>

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

/// Of integers of any width, or bools.
void fillIntegers(const TensorView& view, int64_t value) {
  switch (bitWidth(view.element).value_or(64)) {
  case 8:
    return fillWith<uint8_t>(view, value);
  case 16:
    return fillWith<uint16_t>(view, value);
  case 32:
    return fillWith<uint32_t>(view, value);
  default:
    return fillWith<uint64_t>(view, value);
  }
}

/// A view whose axes are those of the model before it was rewritten, with the axes that the cache
/// has now.
TensorView inOwnOrder(const TensorView& exported, const ManifestCache& cache) {
  TensorView view = exported;
  for (size_t axis = 0; axis < cache.permutation.size(); ++axis) {
    view.shape[axis] = exported.shape[static_cast<size_t>(cache.permutation[axis])];
    view.strides[axis] = exported.strides[static_cast<size_t>(cache.permutation[axis])];
  }
  return view;
}

/// Caches as if they came from a file.
class StoredRows {
public:
  void add(const CacheGeometry& geometry, Tensor rows) {
    CacheFileContents::Cache cache;
    cache.entry.name = geometry.name;
    cache.entry.element = geometry.element;
    cache.entry.sequenceAxis = geometry.sequenceAxis();
    cache.entry.shape = rows.view.shape;
    cache.bytes = {rows.view.data, static_cast<size_t>(rows.view.byteSize())};
    contents.caches.push_back(std::move(cache));
    kept.push_back(std::move(rows));
  }

  CacheFileContents contents;

private:
  std::vector<Tensor> kept;
};
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
    const bool isFitting =
        isFlag(length.feed)
            ? length.dtype == ElementType::Bool || isInteger(length.dtype)
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
    auto valueOf = [&](int64_t past) {
      return fedLength(length.feed, past, newTokens).value_or(0);
    };
    int64_t longest = valueOf(this->length());
    if (length.dtype == ElementType::Int32 && longest > INT32_MAX)
      return unsupported("length '{}' does not hold {}", length.input, longest);
    fillIntegers(view, longest);
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

bool Session::isLength(llvm::StringRef input) const {
  return llvm::any_of(description.lengths,
                      [&](const ManifestLength& length) { return length.input == input; });
}

int64_t Session::mostStepTokens() const {
  const bool takesNoChunk = description.chunkBatch == 0 && length() > 0;
  return takesNoChunk ? 1 : description.stepLimit.value_or(INT64_MAX);
}

llvm::Error Session::checkInputs(llvm::ArrayRef<NamedView> inputs, int64_t newTokens) const {
  for (const NamedView& input : inputs)
    if (!takenInputs.contains(input.name) && !isLength(input.name))
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
  // What the caller gives comes before what the manifest says.
  const size_t given = stepInputs.size();
  for (size_t i = 0; i < lengths.size(); ++i)
    if (llvm::none_of(
            llvm::makeArrayRef(stepInputs).take_front(given),
            [&](const NamedView& input) { return input.name == description.lengths[i].input; }))
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

// The state between steps: cut, copied, rearranged, kept.

llvm::Error Session::checkRunning() const {
  if (isFrozen())
    return usageError("the session is frozen").hint("thaw it first, or fork it and thaw the fork");
  return llvm::Error::success();
}

llvm::Error Session::crop(int64_t tokens) {
  if (tokens < 0 || tokens > length())
    return usageError("cannot keep {} of {} tokens", tokens, length());
  llvm::SmallVector<int64_t, 4> kept;
  for (int64_t held : rowLengths())
    kept.push_back(std::min(held, tokens));
  return cropRows(kept);
}

llvm::Error Session::cropRows(llvm::ArrayRef<int64_t> tokens) {
  if (llvm::Error error = checkRunning())
    return error;
  if (static_cast<int64_t>(tokens.size()) != batch())
    return usageError("{} lengths are given for {} batch rows", tokens.size(), batch());
  for (size_t row = 0; row < tokens.size(); ++row)
    if (tokens[row] < 0 || tokens[row] > rowLengths()[row])
      return usageError("cannot keep {} of {} tokens of batch row {}", tokens[row],
                        rowLengths()[row], row);
  if (!hasLengthPerRow() && !llvm::is_splat(tokens))
    return unsupported("batch rows cannot be of different lengths: {}", lengthPerRowObstacle)
        .hint("pad shorter rows on the left, and hide the padding with attention_mask");
  if (llvm::Error error = caches.crop(tokens))
    return error;
  if (length() <= intact)
    intact = INT64_MAX;
  return llvm::Error::success();
}

llvm::Error Session::checkShift() const {
  if (caches.size() == 0)
    return unsupported("the model has no caches whose tokens could be dropped");
  if (!description.rotations)
    return unsupported("the manifest does not say how cached rows are moved to other positions")
        .hint("see `kvopt inspect` for why, or rewrite the model again where kvopt wrote it before "
              "manifests said so");
  if (const std::string obstacle = caches.shiftObstacle(); !obstacle.empty())
    return unsupported("tokens cannot be dropped from the middle: {}", obstacle);
  for (size_t i = 0; i < caches.size(); ++i) {
    const ManifestCache& cache = cacheInfo(i);
    if (!cache.rotation)
      continue;
    const auto scales = scalesOf(*this, i);
    Extents expected = caches.buffer(i).shape;
    expected[cache.layout()->columnAxis()] = 1;
    const bool hasScales = scales && caches.buffer(*scales).element == ElementType::Float &&
                           caches.buffer(*scales).shape == expected;
    if (!hasScales && !canRotate(cache.dtype))
      return unsupported("rows of cache '{}' ({}) cannot be rotated", cache.past,
                         onnxName(cache.dtype));
  }
  return llvm::Error::success();
}

llvm::Error Session::shift(int64_t keptFirst, int64_t dropped) {
  if (llvm::Error error = checkRunning())
    return error;
  if (llvm::Error error = checkShift())
    return error;
  int64_t shortest = length();
  for (int64_t held : rowLengths())
    shortest = std::min(shortest, held);
  if (keptFirst < 0 || dropped < 0 || keptFirst > shortest || dropped > shortest - keptFirst)
    return usageError("cannot drop {} tokens after the first {} of {}", dropped, keptFirst,
                      shortest);
  if (dropped == 0)
    return llvm::Error::success();
  std::vector<CacheTurn> turns(caches.size());
  for (size_t i = 0; i < caches.size(); ++i)
    if (const ManifestCache& cache = cacheInfo(i); cache.rotation)
      turns[i] = {&(*description.rotations)[*cache.rotation], cache.layout()->columnAxis(),
                  scalesOf(*this, i), cache.codeColumns};
  if (llvm::Error error = caches.shift(keptFirst, dropped, turns))
    return error;
  intact = std::min(intact, keptFirst);
  return llvm::Error::success();
}

llvm::Error Session::reset() {
  if (llvm::Error error = checkRunning())
    return error;
  if (llvm::Error error = caches.reset())
    return error;
  intact = INT64_MAX;
  return llvm::Error::success();
}

namespace {

/// Numbers in [-1, 1] that 16 bits hold exactly, and that depend on `name` and on the element's
/// place only.
llvm::Expected<Tensor> madeUpNumbers(const std::string& name, ElementType element,
                                     const Extents& shape,
                                     const std::shared_ptr<Allocator>& allocator) {
  const bool isHalf = element == ElementType::Float16;
  const bool isBrain = element == ElementType::BFloat16;
  if (!isHalf && !isBrain && element != ElementType::Float)
    return unsupported("rows of cache '{}' ({}) cannot be made up", name, onnxName(element));
  auto made = Tensor::create(allocator, element, shape);
  if (!made)
    return made;
  // SplitMix64 (Steele, Lea and Flood, 2014), a byte for each number.
  uint64_t state = Checksum::of(std::as_bytes(std::span(name)));
  uint64_t bits = 0;
  for (int64_t i = 0; i < made->view.elementCount(); ++i, bits >>= 8) {
    if (i % 8 == 0) {
      bits = state += 0x9E3779B97F4A7C15;
      bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9;
      bits = (bits ^ bits >> 27) * 0x94D049BB133111EB;
      bits ^= bits >> 31;
    }
    const float number = static_cast<float>(static_cast<int>(bits & 0xFF) - 128) / 128;
    if (element == ElementType::Float)
      made->view.as<float>()[i] = number;
    else
      made->view.as<uint16_t>()[i] = isHalf ? floatToF16(number) : floatToBf16(number);
  }
  return made;
}

} // namespace

/// Made-up rows of a cache in the session's order of axes. Caches that keep only some rows hold
/// those of the tokens that they would hold.
llvm::Expected<Tensor> Session::presetRows(size_t index, int64_t tokens) const {
  const CacheGeometry& geometry = caches.geometry(index);
  const ManifestCache& cache = cacheInfo(index);
  if (cache.holdsAttendedRows)
    return unsupported("rows of cache '{}' cannot be made up: attention reads them as they are, "
                       "and would not in the exported model",
                       cache.past);
  if (geometry.update == CacheUpdate::State)
    return Tensor::zeros(allocator(), geometry.element, geometry.shape(geometry.initialRows));
  const Extents shape = geometry.shape(tokens);
  Extents exported = shape;
  for (size_t axis = 0; axis < cache.permutation.size(); ++axis)
    exported[static_cast<size_t>(cache.permutation[axis])] = shape[axis];
  auto made = madeUpNumbers(cache.past, geometry.element, exported, allocator());
  if (!made)
    return made;
  if (isRing(*this, index))
    return seededRows(index, made->view, tokens);
  const TensorView rows = inOwnOrder(made->view, cache);
  const unsigned axis = geometry.sequenceAxis();
  // How many rows the model keeps, and in which order, it knows alone.
  if (geometry.update == CacheUpdate::Ring && tokens == geometry.initialRows)
    return Tensor::copyOf(allocator(), rows); // each order begins with that of the tokens
  if (geometry.update == CacheUpdate::Ring)
    return unsupported("rows of cache '{}' cannot be made up: their order is not known",
                       cache.past);
  if (geometry.update != CacheUpdate::Static)
    return Tensor::copyOf(allocator(), rows);
  auto all = Tensor::zeros(allocator(), geometry.element, geometry.shape(geometry.initialRows));
  if (all)
    copyElements(rows, sliceAxis(all->view, axis, 0, tokens));
  return all;
}

llvm::Error Session::preset(int64_t tokens) {
  if (llvm::Error error = checkRunning())
    return error;
  if (tokens < 0)
    return usageError("cannot make up {} tokens", tokens);
  llvm::Expected<int64_t> room = roomFor(tokens);
  if (!room)
    return room.takeError();
  StoredRows stored;
  stored.contents.lengths.assign(static_cast<size_t>(batch()), tokens);
  for (size_t i = 0; i < caches.size(); ++i) {
    auto rows = presetRows(i, tokens);
    if (!rows)
      return rows.takeError();
    stored.add(caches.geometry(i), std::move(*rows));
  }
  return restoreRows(stored.contents, hasShared() ? *room : 0);
}

llvm::Error Session::restoreRows(const CacheFileContents& contents, int64_t room) {
  if (llvm::Error error = caches.restore(contents, room))
    return error;
  intact = INT64_MAX;
  return llvm::Error::success();
}

llvm::Expected<Tensor> Session::seededRows(size_t index, const TensorView& exported,
                                           int64_t tokens) const {
  const CacheGeometry& geometry = caches.geometry(index);
  const ManifestCache& cache = cacheInfo(index);
  auto differs = [&](const std::string& expected) {
    return usageError("cache '{}' is {}, it was given {} {}", cache.past, expected,
                      onnxName(exported.element), extentsText(exported.shape));
  };
  if (exported.rank() != geometry.extents.size())
    return differs(fmt::format("of {} axes", geometry.extents.size()));
  const TensorView view = inOwnOrder(exported, cache);
  const unsigned axis = geometry.sequenceAxis();
  const int64_t rows = view.shape[axis];
  const int64_t slots = geometry.initialRows;
  const bool isFixedRing = isRing(*this, index);
  // Slots beside those that are read are for the new tokens of a step.
  const int64_t spare = description.stepLimit.value_or(1);
  const int64_t fewest = isFixedRing ? std::min(tokens, std::max<int64_t>(slots - spare, 0))
                         : geometry.hasRowPerToken() ? tokens
                                                     : slots;
  const int64_t most =
      isFixedRing || geometry.update == CacheUpdate::Ring ? std::max(tokens, slots) : fewest;
  if (view.element != geometry.element || view.shape != geometry.shape(rows) || rows < fewest ||
      rows > most)
    return differs(
        fmt::format("{} {}", onnxName(geometry.element), extentsText(geometry.shape(fewest))));
  if (!isFixedRing)
    return Tensor::copyOf(allocator(), view);
  auto ring = Tensor::zeros(allocator(), geometry.element, geometry.shape(slots));
  if (!ring)
    return ring;
  const int64_t count = std::min({rows, slots, tokens});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t slot = (tokens - count + i) % slots;
    copyElements(sliceAxis(view, axis, rows - count + i, rows - count + i + 1),
                 sliceAxis(ring->view, axis, slot, slot + 1));
  }
  return ring;
}

llvm::Error Session::findSeeded(const NamedView& view, RowOrigin origin,
                                std::vector<std::optional<TensorView>>& sources) const {
  bool isKnown = false;
  for (size_t i = 0; i < caches.size(); ++i) {
    const ManifestCache& cache = cacheInfo(i);
    const bool isPart = cache.part && cache.part->past == view.name;
    if (!isPart && cache.past != view.name)
      continue;
    isKnown = true;
    if (cache.holdsAttendedRows && origin == RowOrigin::AnyModel)
      return usageError("cache '{}' holds rows as attention reads them, which the exported model "
                        "does not: they must come from a session of this model",
                        cache.past);
    if (sources[i])
      return usageError("cache '{}' was given twice", cache.past);
    sources[i] = isPart ? viewOfPart(view.view, cache) : view.view;
    if (!sources[i])
      return usageError("the {} {} that was given does not contain '{}'",
                        onnxName(view.view.element), extentsText(view.view.shape),
                        cache.part->text(view.name));
  }
  if (!isKnown)
    return usageError("the model has no cache '{}'", view.name);
  return llvm::Error::success();
}

llvm::Error Session::seed(llvm::ArrayRef<NamedView> seeds, int64_t tokens, RowOrigin origin) {
  if (llvm::Error error = checkRunning())
    return error;
  if (tokens < 0)
    return usageError("a session cannot hold {} tokens", tokens);
  if (caches.isRagged())
    return usageError("batch rows of different lengths cannot be seeded");
  std::vector<std::optional<TensorView>> sources(caches.size());
  for (const NamedView& view : seeds)
    if (llvm::Error error = findSeeded(view, origin, sources))
      return error;
  llvm::Expected<int64_t> room = roomFor(tokens);
  if (!room)
    return room.takeError();
  StoredRows stored;
  stored.contents.lengths.assign(static_cast<size_t>(batch()), tokens);
  for (size_t i = 0; i < caches.size(); ++i) {
    if (!sources[i] && tokens != length())
      return usageError("cache '{}' must be given too: the session holds {} tokens, not {}",
                        cacheInfo(i).past, length(), tokens);
    auto rows =
        sources[i] ? seededRows(i, *sources[i], tokens) : Tensor::copyOf(allocator(), cacheView(i));
    if (!rows)
      return rows.takeError();
    stored.add(caches.geometry(i), std::move(*rows));
  }
  return restoreRows(stored.contents, hasShared() ? *room : 0);
}

llvm::Expected<std::unique_ptr<Session>> Session::fork() const {
  SessionOptions settings = options;
  settings.batch = batch();
  settings.allocator = allocator();
  std::unique_ptr<Session> copy(new Session(model, kernels, description, settings));
  if (llvm::Error error = copy->startExecutor(this))
    return error;
  llvm::Expected<CacheSet> copied = caches.clone();
  if (!copied)
    return copied.takeError();
  copy->caches = std::move(*copied);
  llvm::Expected<std::vector<Tensor>> tensors = copy->lengthTensors(batch());
  if (!tensors)
    return tensors.takeError();
  copy->lengths = std::move(*tensors);
  copy->presentOutputs = presentOutputs;
  copy->resultOutputs = resultOutputs;
  copy->lengthPerRowObstacle = lengthPerRowObstacle;
  copy->knownFingerprint = knownFingerprint;
  copy->intact = intact;
  return copy;
}

llvm::Error Session::reorder(llvm::ArrayRef<int64_t> rows) {
  if (llvm::Error error = checkRunning())
    return error;
  if (rows.empty())
    return usageError("a session needs at least one batch row");
  for (int64_t row : rows)
    if (row < 0 || row >= batch())
      return usageError("there is no batch row {}: the session has {}", row, batch());
  if (static_cast<int64_t>(rows.size()) == batch())
    return caches.reorder(rows);
  llvm::Expected<CacheSet> gathered = caches.gathered(description.caches, rows);
  if (!gathered)
    return gathered.takeError();
  llvm::Expected<std::vector<Tensor>> tensors = lengthTensors(static_cast<int64_t>(rows.size()));
  if (!tensors)
    return tensors.takeError();
  caches = std::move(*gathered);
  lengths = std::move(*tensors);
  findLengthPerRowObstacle();
  return llvm::Error::success();
}

llvm::Error Session::freeze() {
  if (isFrozen())
    return llvm::Error::success();
  if (llvm::Error error = caches.freeze())
    return error;
  stepInputs.clear(); // views of what is gone
  stepOutputs.clear();
  dropMemory();
  return llvm::Error::success();
}

llvm::Error Session::thaw() {
  if (!isFrozen())
    return llvm::Error::success();
  // What it had to begin with, or as much more as it has grown to.
  llvm::Expected<int64_t> room = firstRoom();
  if (!room)
    return room.takeError();
  return caches.thaw(wholeBlocks(std::max(*room, length())));
}

const ModelFingerprint& Session::fingerprint() const {
  if (!knownFingerprint)
    knownFingerprint = modelFingerprint(model);
  return *knownFingerprint;
}

llvm::Error Session::save(const std::string& path, FileAccess& access) const {
  if (caches.size() == 0)
    return usageError("the model has no caches that could be saved");
  if (llvm::Error error = access.ensureWrites(path, "the saved cache"))
    return error;
  if (llvm::Error error = registerFiles(model, access))
    return error;
  auto file = OutputFile::create(path, access);
  if (!file)
    return file.takeError();
  return withFile(writeCacheFile(std::move(*file), fingerprint(), rowLengths(), caches.stored()),
                  path);
}

llvm::Error Session::save(const std::string& path) const {
  FileAccess access;
  return save(path, access);
}

llvm::Error Session::load(const std::string& path) {
  if (llvm::Error error = checkRunning())
    return error;
  auto file = MappedFile::open(path);
  if (!file)
    return file.takeError();
  llvm::Expected<CacheFileContents> contents = parseCacheFile((*file)->bytes());
  if (!contents)
    return withFile(contents.takeError(), path);
  return withFile(adopt(*contents), path);
}

llvm::Error Session::adopt(const CacheFileContents& contents) {
  if (contents.fingerprint != fingerprint())
    return invalid("the cache was saved from another model")
        .hint("it fits the very model it was saved from, not one that was rewritten since");
  int64_t longest = *std::max_element(contents.lengths.begin(), contents.lengths.end());
  if (!hasLengthPerRow() && !llvm::is_splat(contents.lengths))
    return invalid("the cache has batch rows of different lengths: {}", lengthPerRowObstacle);
  llvm::Expected<int64_t> room = roomFor(longest);
  if (!room)
    return room.takeError();
  return restoreRows(contents, hasShared() ? *room : 0);
}

// Models in variants: which one takes a step, and what it is fed.

llvm::Error Session::startVariants() {
  llvm::Expected<Pyramid> created = Pyramid::create(description);
  if (!created)
    return created.takeError();
  pyramid = std::move(*created);
  if (!pyramid.empty() && !options.variants)
    options.variants = variantFiles(model.folder, model.graph().context().ops());
  variantExecutors.resize(pyramid.size());
  running = executor.get();
  runningVariant = pyramid.empty() ? 0 : pyramid.size() - 1;
  return llvm::Error::success();
}

llvm::Expected<std::unique_ptr<Executor>>
Session::createExecutor(const Model& executed, const Executor* constantsOf) const {
  ExecutorOptions executorOptions;
  executorOptions.foldedConstantsLimit = options.foldedConstantsLimit;
  executorOptions.constantsOf = constantsOf;
  executorOptions.pool = options.pool;
  executorOptions.allocator = options.allocator;
  executorOptions.timeOperators = options.timeOperators;
  return Executor::create(executed, kernels, executorOptions);
}

/// A variant has the inputs and outputs of the model but for the blocks that it does without.
llvm::Error Session::checkVariant(const Graph& variant, int64_t blocks) const {
  llvm::StringSet<> missing;
  for (const ManifestCache& cache : description.caches)
    for (size_t i = static_cast<size_t>(blocks); i < cache.blocks.size(); ++i)
      missing.insert(cache.blocks[i]);
  llvm::StringSet<> wanted;
  for (const std::unique_ptr<Value>& input : graph().inputs())
    if (!missing.contains(input->name()))
      wanted.insert(input->name());
  size_t found = 0;
  for (const std::unique_ptr<Value>& input : variant.inputs()) {
    if (!wanted.contains(input->name()))
      return invalid("its input '{}' is none of the largest variant, or a block too many",
                     input->name());
    ++found;
  }
  if (found != wanted.size())
    return invalid("it has {} of the {} inputs that a variant with {} blocks has", found,
                   wanted.size(), blocks);
  llvm::ArrayRef<Value*> outputs = variant.outputs();
  llvm::ArrayRef<Value*> largest = graph().outputs();
  const bool sameOutputs = std::equal(outputs.begin(), outputs.end(), largest.begin(),
                                      largest.end(), [](const Value* a, const Value* b) {
                                        return a->name() == b->name() &&
                                               a->type().elementType() == b->type().elementType();
                                      });
  if (!sameOutputs)
    return invalid("its outputs are not those of the largest variant");
  return llvm::Error::success();
}

/// Makes the smallest variant that has room for the tokens that are there the one that runs.
llvm::Error Session::chooseVariant() {
  if (pyramid.empty() || pieces)
    return llvm::Error::success();
  const size_t index = pyramid.variantFor(length());
  std::unique_ptr<Executor>& made = variantExecutors[index];
  const bool isLargest = index + 1 == pyramid.size();
  if (!isLargest && !made) {
    llvm::Expected<const Model*> opened = options.variants->open(pyramid[index]);
    if (!opened)
      return opened.takeError();
    if (llvm::Error error = checkVariant((*opened)->graph(), pyramid[index].pastBlocks))
      return withFile(std::move(error), (*opened)->path);
    llvm::Expected<std::unique_ptr<Executor>> created = createExecutor(**opened, nullptr);
    if (!created)
      return created.takeError();
    made = std::move(*created);
  }
  Executor* chosen = isLargest ? executor.get() : made.get();
  // One variant at a time keeps memory for its next step.
  if (chosen != running)
    running->dropMemory();
  running = chosen;
  runningVariant = index;
  return llvm::Error::success();
}

llvm::Error Session::startPieces(const Session* like) {
  auto created = CutDecoder::create(
      model, description, *options.variants,
      [&](const Model& piece, const Executor* constantsOf) {
        return createExecutor(piece, constantsOf);
      },
      like ? like->pieces.get() : nullptr);
  if (!created)
    return withFile(created.takeError(), model.path);
  pieces = std::move(*created);
  return llvm::Error::success();
}

llvm::Error Session::runModel() {
  return pieces ? pieces->run(stepInputs, length(), stepOutputs)
                : running->run(stepInputs, stepBindings, stepOutputs);
}

void Session::dropMemory() {
  if (pieces)
    pieces->dropMemory();
  else
    running->dropMemory();
}

llvm::Error Session::feedBlocks(size_t index) {
  const ManifestCache& cache = description.caches[index];
  const size_t count = pyramid.empty() ? cache.blocks.size()
                                       : static_cast<size_t>(pyramid[runningVariant].pastBlocks);
  for (size_t position = 0; position < count; ++position) {
    llvm::Expected<TensorView> rows =
        pyramid.empty() ? caches.blockRows(index, position) : caches.wholeBlock(index, position);
    if (!rows)
      return rows.takeError();
    stepInputs.push_back({cache.blocks[position], std::move(*rows)});
  }
  return llvm::Error::success();
}

} // namespace kvopt::runtime
