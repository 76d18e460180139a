// What a session can do with its state between steps: cut, copy, rearrange, keep.
#include "ir/onnx/file_plan.h"
#include "runtime/cache/checksum.h"
#include "runtime/cache/model_fingerprint.h"
#include "runtime/session/session.h"
#include "support/diagnostic.h"
#include "support/half.h"
#include "support/mapped_file.h"

#include "llvm/ADT/STLExtras.h"

#include <random>

namespace kvopt::runtime {
using namespace ir;

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
  return caches.crop(tokens);
}

llvm::Error Session::reset() {
  if (llvm::Error error = checkRunning())
    return error;
  return caches.reset();
}

/// Made-up rows of a cache in the session's order of axes.
llvm::Expected<Tensor> Session::presetRows(size_t index, int64_t tokens) const {
  const CacheGeometry& geometry = caches.geometry(index);
  const ManifestCache& cache = cacheInfo(index);
  if (!geometry.hasRowPerToken())
    return Tensor::zeros(allocator(), geometry.element, geometry.shape(geometry.initialRows));
  const Extents shape = geometry.shape(tokens);
  Extents exported = shape;
  for (size_t axis = 0; axis < cache.permutation.size(); ++axis)
    exported[static_cast<size_t>(cache.permutation[axis])] = shape[axis];
  auto made = Tensor::create(allocator(), ElementType::Float, exported);
  if (!made)
    return made;
  std::mt19937_64 random(Checksum::of(std::as_bytes(std::span(cache.past))));
  std::uniform_int_distribution<int> steps(-64, 64);
  for (int64_t i = 0; i < made->view.elementCount(); ++i)
    made->view.as<float>()[i] = static_cast<float>(steps(random)) / 64;
  TensorView permuted = made->view;
  for (size_t axis = 0; axis < cache.permutation.size(); ++axis) {
    permuted.shape[axis] = shape[axis];
    permuted.strides[axis] = made->view.strides[static_cast<size_t>(cache.permutation[axis])];
  }
  auto rows = Tensor::copyOf(allocator(), permuted);
  if (!rows || geometry.element == ElementType::Float)
    return rows;
  const bool isHalf = geometry.element == ElementType::Float16;
  if (!isHalf && geometry.element != ElementType::BFloat16)
    return unsupported("rows of cache '{}' ({}) cannot be made up", cache.past,
                       onnxName(geometry.element));
  auto narrow = Tensor::create(allocator(), geometry.element, shape);
  if (!narrow)
    return narrow;
  for (int64_t i = 0; i < narrow->view.elementCount(); ++i) {
    const float number = rows->view.as<float>()[i];
    narrow->view.as<uint16_t>()[i] = isHalf ? floatToF16(number) : floatToBf16(number);
  }
  return narrow;
}

llvm::Error Session::preset(int64_t tokens) {
  if (llvm::Error error = checkRunning())
    return error;
  if (tokens < 0)
    return usageError("cannot make up {} tokens", tokens);
  llvm::Expected<int64_t> room = roomFor(tokens);
  if (!room)
    return room.takeError();
  CacheFileContents contents;
  contents.lengths.assign(static_cast<size_t>(batch()), tokens);
  std::vector<Tensor> kept;
  for (size_t i = 0; i < caches.size(); ++i) {
    auto rows = presetRows(i, tokens);
    if (!rows)
      return rows.takeError();
    CacheFileContents::Cache cache;
    cache.entry.name = caches.geometry(i).name;
    cache.entry.element = caches.geometry(i).element;
    cache.entry.sequenceAxis = caches.geometry(i).sequenceAxis();
    cache.entry.shape = rows->view.shape;
    cache.bytes = {rows->view.data, static_cast<size_t>(rows->view.byteSize())};
    contents.caches.push_back(std::move(cache));
    kept.push_back(std::move(*rows));
  }
  return caches.restore(contents, hasShared() ? *room : 0);
}

llvm::Expected<std::unique_ptr<Session>> Session::fork() const {
  SessionOptions settings = options;
  settings.batch = batch();
  settings.allocator = allocator();
  std::unique_ptr<Session> copy(new Session(model, kernels, description, settings));
  if (llvm::Error error = copy->startExecutor(executor.get()))
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
  running->dropMemory();
  return llvm::Error::success();
}

llvm::Error Session::thaw() {
  if (!isFrozen())
    return llvm::Error::success();
  // What it had to begin with, or as much more as it has grown to.
  llvm::Expected<int64_t> room = firstRoom();
  if (!room)
    return room.takeError();
  return caches.thaw(std::max(*room, length()));
}

const ModelFingerprint& Session::fingerprint() const {
  if (!knownFingerprint)
    knownFingerprint = modelFingerprint(model);
  return *knownFingerprint;
}

llvm::Error Session::save(const std::string& path) const {
  if (caches.size() == 0)
    return usageError("the model has no caches that could be saved");
  FilePlan plan;
  plan.reads(model);
  plan.writes(path, "the saved cache");
  if (llvm::Error error = plan.check())
    return error;
  return withFile(writeCacheFile(path, fingerprint(), rowLengths(), caches.stored()), path);
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
  return caches.restore(contents, hasShared() ? *room : 0);
}

} // namespace kvopt::runtime
