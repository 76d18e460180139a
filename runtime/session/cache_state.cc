// Caches between steps: cropping, shifting, seeding, reordering, files.
#include "runtime/session/cache_state.h"

#include "ir/onnx/model_files.h"
#include "ir/rows/row_code.h"
#include "runtime/cache/rotate_rows.h"
#include "runtime/exec/input_binding.h"
#include "runtime/session/cache_part.h"
#include "runtime/session/length_inputs.h"
#include "runtime/session/seeded_rows.h"
#include "support/file_access.h"
#include "support/mapped_file.h"
#include "support/output_file.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::runtime {
using namespace ir;

namespace {
/// True if there is a length, and all are the same. LLVM 16 renamed its own function.
bool areAllEqual(llvm::ArrayRef<int64_t> lengths) {
  return !lengths.empty() &&
         llvm::all_of(lengths, [&](int64_t length) { return length == lengths.front(); });
}

/// Axis of the exported model that corresponds to `axis`.
unsigned exportedAxis(const ManifestCache& cache, unsigned axis) {
  return cache.permutation.empty() ? axis : static_cast<unsigned>(cache.permutation[axis]);
}

} // namespace

llvm::Error CacheState::start(bool readsWholeBlocks) {
  llvm::Expected<int64_t> first = room.first();
  if (!first)
    return first.takeError();
  CacheSetOptions settings;
  settings.batch = options.batch;
  settings.room = *first;
  settings.openRows = options.capacity;
  settings.roomUnit = room.wholeBlocks(1);
  settings.poison = options.poison;
  settings.allocator = allocator();
  if (manifest.blockSize != 0) {
    settings.blockTokens = manifest.blockSize;
    settings.readsWholeBlocks = readsWholeBlocks;
    settings.blockRoom = manifest.capacityValue.value_or(0);
    if (options.blockLimit != 0)
      settings.blockLimit = options.blockLimit;
  }
  llvm::Expected<CacheSet> created = CacheSet::create(manifest.caches, std::move(settings));
  if (!created)
    return created.takeError();
  caches = std::move(*created);
  lengthObstacle = lengthPerRowObstacle(manifest, caches);
  return llvm::Error::success();
}

llvm::Error CacheState::copyFrom(const CacheState& other) {
  llvm::Expected<CacheSet> copied = other.caches.clone();
  if (!copied)
    return copied.takeError();
  caches = std::move(*copied);
  lengthObstacle = other.lengthObstacle;
  knownFingerprint = other.knownFingerprint;
  intact = other.intact;
  return llvm::Error::success();
}

std::optional<size_t> CacheState::scalesOf(size_t index) const {
  const ManifestCache& codes = info(index);
  const RowCode* code = rowCodeOf(codes.dtype);
  if (!code || (code->isPacked() && codes.codeColumns == 0) || isScale(codes.role))
    return std::nullopt;
  for (size_t i = 0; i < size(); ++i)
    if (info(i).layer == codes.layer && info(i).role == scaleRole(codes.role))
      return i;
  return std::nullopt;
}

llvm::Expected<Tensor> CacheState::exportedRows(size_t index) const {
  llvm::Expected<Tensor> held = rows(index);
  if (!held)
    return held;
  const TensorView own = held->view;
  llvm::ArrayRef<int64_t> permutation = info(index).permutation;
  for (size_t axis = 0; axis < permutation.size(); ++axis) {
    held->view.shape[static_cast<size_t>(permutation[axis])] = own.shape[axis];
    held->view.strides[static_cast<size_t>(permutation[axis])] = own.strides[axis];
  }
  return held;
}

unsigned CacheState::exportedSequenceAxis(size_t index) const {
  return exportedAxis(info(index), static_cast<unsigned>(info(index).sequenceAxis));
}

std::optional<unsigned> CacheState::exportedBatchAxis(size_t index) const {
  const CacheGeometry& geometry = caches.geometry(index);
  if (!geometry.batchAxis() || geometry.slicesPerRow != 1)
    return std::nullopt;
  return exportedAxis(info(index), *geometry.batchAxis());
}

TensorView CacheState::poolView(size_t index) const {
  const TensorView& buffer = caches.buffer(index);
  const Extents& shape = buffer.shape;
  return TensorView::contiguous(
      buffer.element,
      {shape[0] * (shape[1] / manifest.blockSize), manifest.blockSize, shape[2], shape[3]},
      buffer.data);
}

llvm::Error CacheState::checkRoom(int64_t newTokens) const {
  return roomFor(length() + newTokens).takeError();
}

llvm::Error CacheState::checkRunning() const {
  if (isFrozen())
    return usageError("the session is frozen").hint("thaw it first, or fork it and thaw the fork");
  return llvm::Error::success();
}

// Removal of rows.

llvm::Error CacheState::crop(int64_t tokens) {
  if (tokens < 0 || tokens > length())
    return usageError("cannot keep {} of {} tokens", tokens, length());
  llvm::SmallVector<int64_t, 4> kept;
  for (int64_t held : rowLengths())
    kept.push_back(std::min(held, tokens));
  return cropRows(kept);
}

llvm::Error CacheState::cropRows(llvm::ArrayRef<int64_t> tokens) {
  if (llvm::Error error = checkRunning())
    return error;
  if (static_cast<int64_t>(tokens.size()) != batch())
    return usageError("{} lengths are given for {} batch rows", tokens.size(), batch());
  for (size_t row = 0; row < tokens.size(); ++row)
    if (tokens[row] < 0 || tokens[row] > rowLengths()[row])
      return usageError("cannot keep {} of {} tokens of batch row {}", tokens[row],
                        rowLengths()[row], row);
  if (!hasLengthPerRow() && !areAllEqual(tokens))
    return unsupported("batch rows cannot be of different lengths: {}", lengthObstacle)
        .hint("pad shorter rows on the left, and hide the padding with attention_mask");
  if (llvm::Error error = caches.crop(tokens))
    return error;
  if (length() <= intact)
    intact = INT64_MAX;
  return llvm::Error::success();
}

llvm::Error CacheState::checkShift() const {
  if (size() == 0)
    return unsupported("the model has no caches whose tokens could be dropped");
  if (!manifest.rotations)
    return unsupported("the manifest does not say how cached rows are moved to other positions")
        .hint("see `kvopt inspect` for why, or rewrite the model again where kvopt wrote it before "
              "manifests said so");
  if (const std::string obstacle = caches.shiftObstacle(); !obstacle.empty())
    return unsupported("tokens cannot be dropped from the middle: {}", obstacle);
  for (size_t i = 0; i < size(); ++i) {
    const ManifestCache& cache = info(i);
    if (!cache.rotation)
      continue;
    const auto scales = scalesOf(i);
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

llvm::Error CacheState::shift(int64_t keptFirst, int64_t dropped) {
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
  std::vector<CacheTurn> turns(size());
  for (size_t i = 0; i < size(); ++i)
    if (const ManifestCache& cache = info(i); cache.rotation)
      turns[i] = {&(*manifest.rotations)[*cache.rotation], cache.layout()->columnAxis(),
                  scalesOf(i), cache.codeColumns};
  if (llvm::Error error = caches.shift(keptFirst, dropped, turns))
    return error;
  intact = std::min(intact, keptFirst);
  return llvm::Error::success();
}

llvm::Error CacheState::reset() {
  if (llvm::Error error = checkRunning())
    return error;
  if (llvm::Error error = caches.reset())
    return error;
  intact = INT64_MAX;
  return llvm::Error::success();
}

// Replacement of rows.

llvm::Error CacheState::restore(const CacheFileContents& contents) {
  const int64_t longest = *std::max_element(contents.lengths.begin(), contents.lengths.end());
  llvm::Expected<int64_t> needed = roomFor(longest);
  if (!needed)
    return needed.takeError();
  if (llvm::Error error = caches.restore(contents, room.hasShared() ? *needed : 0))
    return error;
  intact = INT64_MAX;
  return llvm::Error::success();
}

llvm::Error CacheState::preset(int64_t tokens) {
  if (llvm::Error error = checkRunning())
    return error;
  if (tokens < 0)
    return usageError("cannot make up {} tokens", tokens);
  // Checked before rows are created that do not fit.
  if (llvm::Error error = roomFor(tokens).takeError())
    return error;
  StoredRows stored;
  stored.contents.lengths.assign(static_cast<size_t>(batch()), tokens);
  for (size_t i = 0; i < size(); ++i) {
    auto made = madeUpRows({info(i), caches.geometry(i), tokens, manifest.stepLimit.value_or(1)},
                           allocator());
    if (!made)
      return made.takeError();
    stored.add(caches.geometry(i), std::move(*made));
  }
  return restore(stored.contents);
}

llvm::Error CacheState::findSeeded(const NamedView& view, SeedOrigin origin,
                                   std::vector<std::optional<TensorView>>& sources) const {
  bool isKnown = false;
  for (size_t i = 0; i < size(); ++i) {
    const ManifestCache& cache = info(i);
    const bool isPart = cache.part && cache.part->past == view.name;
    if (!isPart && cache.past != view.name)
      continue;
    isKnown = true;
    if (cache.holdsAttendedRows && origin == SeedOrigin::AnyModel)
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

llvm::Error CacheState::seed(llvm::ArrayRef<NamedView> seeds, int64_t tokens, SeedOrigin origin) {
  if (llvm::Error error = checkRunning())
    return error;
  if (tokens < 0)
    return usageError("a session cannot hold {} tokens", tokens);
  if (caches.isRagged())
    return usageError("batch rows of different lengths cannot be seeded");
  std::vector<std::optional<TensorView>> sources(size());
  for (const NamedView& view : seeds)
    if (llvm::Error error = findSeeded(view, origin, sources))
      return error;
  // Checked before rows are copied that do not fit.
  if (llvm::Error error = roomFor(tokens).takeError())
    return error;
  StoredRows stored;
  stored.contents.lengths.assign(static_cast<size_t>(batch()), tokens);
  for (size_t i = 0; i < size(); ++i) {
    if (!sources[i] && tokens != length())
      return usageError("cache '{}' must be given too: the session holds {} tokens, not {}",
                        info(i).past, length(), tokens);
    auto taken =
        sources[i]
            ? seededRows({info(i), caches.geometry(i), tokens, manifest.stepLimit.value_or(1)},
                         *sources[i], allocator())
            : caches.copyOfRows(i);
    if (!taken)
      return taken.takeError();
    stored.add(caches.geometry(i), std::move(*taken));
  }
  return restore(stored.contents);
}

llvm::Error CacheState::reorder(llvm::ArrayRef<int64_t> sources) {
  if (llvm::Error error = checkRunning())
    return error;
  if (sources.empty())
    return usageError("a session needs at least one batch row");
  for (int64_t row : sources)
    if (row < 0 || row >= batch())
      return usageError("there is no batch row {}: the session has {}", row, batch());
  if (static_cast<int64_t>(sources.size()) == batch())
    return caches.reorder(sources);
  llvm::Expected<CacheSet> gathered = caches.gathered(manifest.caches, sources);
  if (!gathered)
    return gathered.takeError();
  caches = std::move(*gathered);
  lengthObstacle = lengthPerRowObstacle(manifest, caches);
  return llvm::Error::success();
}

llvm::Error CacheState::thaw() {
  if (!isFrozen())
    return llvm::Error::success();
  // Its initial capacity, or the larger one to which it has grown.
  llvm::Expected<int64_t> first = room.first();
  if (!first)
    return first.takeError();
  return caches.thaw(room.wholeBlocks(std::max(*first, length())));
}

// Files.

const ModelFingerprint& CacheState::fingerprint() const {
  if (!knownFingerprint)
    knownFingerprint = modelFingerprint(model);
  return *knownFingerprint;
}

llvm::Error CacheState::save(const std::string& path, FileAccess& access) const {
  if (size() == 0)
    return usageError("the model has no caches that could be saved");
  if (llvm::Error error = access.ensureWrites(path, "the saved cache"))
    return error;
  if (llvm::Error error = registerFiles(model, access))
    return error;
  auto stored = caches.stored();
  if (!stored)
    return stored.takeError();
  auto file = OutputFile::create(path, access);
  if (!file)
    return file.takeError();
  return withFile(writeCacheFile(std::move(*file), fingerprint(), rowLengths(), *stored), path);
}

llvm::Error CacheState::load(const std::string& path) {
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

llvm::Error CacheState::adopt(const CacheFileContents& contents) {
  if (contents.fingerprint != fingerprint())
    return invalid("the cache was saved from another model")
        .hint("it fits the very model it was saved from, not one that was rewritten since");
  if (!hasLengthPerRow() && !areAllEqual(contents.lengths))
    return invalid("the cache has batch rows of different lengths: {}", lengthObstacle);
  return restore(contents);
}

} // namespace kvopt::runtime
