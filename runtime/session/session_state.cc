// The state of a session between steps: cut, copied, rearranged, kept.
#include "ir/onnx/file_plan.h"
#include "runtime/cache/checksum.h"
#include "runtime/cache/model_fingerprint.h"
#include "runtime/cache/rotate_rows.h"
#include "runtime/exec/input_binding.h"
#include "runtime/session/cache_part.h"
#include "runtime/session/dequantized_cache.h"
#include "runtime/session/ring_rows.h"
#include "runtime/session/session.h"
#include "support/diagnostic.h"
#include "support/half.h"
#include "support/mapped_file.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <random>

namespace kvopt::runtime {
using namespace ir;

namespace {

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

/// Made-up rows of a cache in the session's order of axes.
llvm::Expected<Tensor> Session::presetRows(size_t index, int64_t tokens) const {
  const CacheGeometry& geometry = caches.geometry(index);
  const ManifestCache& cache = cacheInfo(index);
  if (cache.holdsAttendedRows)
    return unsupported("rows of cache '{}' cannot be made up: attention reads them as they are, "
                       "and would not in the exported model",
                       cache.past);
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
  auto rows = Tensor::copyOf(allocator(), inOwnOrder(made->view, cache));
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
  return restoreRows(contents, hasShared() ? *room : 0);
}

} // namespace kvopt::runtime
