// Caches between steps: growing ones are handed from step to step, shared ones stay where they are.
#include "runtime/session.h"

#include "ir/diagnostic.h"
#include "runtime/input_binding.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <cstring>

namespace kvopt {

namespace {
constexpr int64_t firstStatefulCapacity = 64;

const Value* findInput(const Graph& graph, llvm::StringRef name) {
  for (const std::unique_ptr<Value>& input : graph.inputs())
    if (input->name() == name)
      return input.get();
  return nullptr;
}
} // namespace

const Tensor* StepResult::find(llvm::StringRef name) const {
  for (const NamedTensor& output : outputs)
    if (output.name == name)
      return &output.tensor;
  return nullptr;
}

llvm::Expected<std::unique_ptr<Session>> Session::create(const Model& model,
                                                         const KernelRegistry& kernels,
                                                         const Manifest& manifest,
                                                         const SessionOptions& options) {
  std::unique_ptr<Session> session(new Session(manifest, options));
  ExecutorOptions executorOptions;
  executorOptions.threads = options.threads;
  executorOptions.pool = options.pool;
  executorOptions.allocator = options.allocator;
  executorOptions.timeOperators = options.timeOperators;
  llvm::Expected<std::unique_ptr<Executor>> executor =
      Executor::create(model, kernels, executorOptions);
  if (!executor)
    return executor.takeError();
  session->executor = std::move(*executor);
  if (llvm::Error error = session->start())
    return withFile(std::move(error), model.path);
  return session;
}

namespace {
/// Caches that are only read are inputs like others: the caller gives them with every step.
Manifest withoutReadOnlyCaches(Manifest manifest) {
  llvm::erase_if(manifest.caches,
                 [](const ManifestCache& cache) { return cache.kind == CacheKind::Cross; });
  return manifest;
}
} // namespace

Session::Session(const Manifest& manifest, const SessionOptions& sessionOptions)
    : description(withoutReadOnlyCaches(manifest)), options(sessionOptions) {}

llvm::Error Session::checkInterface() const {
  if (description.contract == CacheContract::Stateful ||
      description.contract == CacheContract::Blocks)
    return unsupported("sessions drive growing and shared-buffer models only");
  llvm::StringSet<> names;
  for (const ManifestCache& cache : description.caches) {
    if (cache.policy == CachePolicy::Block)
      return unsupported("cache '{}' is held in blocks", cache.past);
    if (cache.oneBuffer && cache.policy != CachePolicy::Fixed)
      return unsupported("cache '{}' is one buffer, but no row of it stays in place", cache.past);
    if (!findInput(graph(), cache.past))
      return invalid("the manifest's cache '{}' is no input of the model", cache.past);
    if (cache.sequenceAxis < 0 || cache.sequenceAxis >= static_cast<int64_t>(cache.shape.size()))
      return invalid("cache '{}' has no axis {}", cache.past, cache.sequenceAxis);
    // A model rewritten in part has caches of both kinds.
    if (cache.oneBuffer && description.contract != CacheContract::SharedBuffer)
      return invalid("cache '{}' contradicts the manifest's contract", cache.past);
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

llvm::Error Session::start() {
  if (llvm::Error error = checkInterface())
    return error;
  if (options.batch < 1 || options.capacity < 0)
    return usageError("a session needs a batch of at least 1 and a capacity that is not negative");
  llvm::ArrayRef<Value*> outputs = graph().outputs();
  for (const ManifestCache& cache : description.caches) {
    auto found =
        llvm::find_if(outputs, [&](const Value* value) { return value->name() == cache.present; });
    if (found == outputs.end())
      return invalid("the manifest's cache '{}' is no output of the model", cache.present);
    presentOutputs.push_back(static_cast<unsigned>(found - outputs.begin()));
  }
  if (hasShared()) {
    bool canGrow = options.mode == SessionOptions::Mode::Stateful && !description.capacityValue;
    room = options.capacity != 0       ? options.capacity
           : description.capacityValue ? *description.capacityValue
           : canGrow                   ? firstStatefulCapacity
                                       : 0;
    if (room <= 0)
      return usageError("the model's cache capacity is open: the session must be given one");
    if (description.capacityValue && room != *description.capacityValue)
      return usageError("the model's cache capacity is {}, not {}", *description.capacityValue,
                        room);
  }
  for (size_t i = 0; i < description.caches.size(); ++i) {
    int64_t rows = startRows(i);
    if (policy(i) == CachePolicy::Static) {
      if (rows == 0)
        return usageError("the capacity of cache '{}' is open: the session must be given one",
                          description.caches[i].past);
      staticRoom = std::min(staticRoom, rows);
    }
    llvm::Expected<Tensor> fresh = freshCache(i, rows);
    if (!fresh)
      return fresh.takeError();
    caches.push_back(std::move(*fresh));
  }
  return prepareSteps();
}

llvm::Error Session::prepareSteps() {
  for (const Value* input : callerInputs())
    callerNames.insert(input->name());
  for (const std::unique_ptr<Value>& input : graph().inputs())
    if (input->initializer())
      callerNames.insert(input->name());
  for (const ManifestLength& length : description.lengths) {
    callerNames.erase(length.input);
    llvm::Expected<Extents> shape = extents(length.shape, std::nullopt, 0);
    if (!shape)
      return shape.takeError();
    llvm::Expected<Tensor> tensor = Tensor::create(allocator(), length.dtype, *shape);
    if (!tensor)
      return tensor.takeError();
    lengthTensors.push_back(std::move(*tensor));
  }
  for (const ManifestCache& cache : description.caches) {
    callerNames.erase(cache.past);
    llvm::Expected<Extents> shape = cacheShape(cache, 0);
    if (!shape)
      return shape.takeError();
    presentShapes.push_back(std::move(*shape));
  }
  for (unsigned i = 0; i < graph().outputs().size(); ++i)
    if (!llvm::is_contained(presentOutputs, i))
      resultOutputs.push_back(i);
  return llvm::Error::success();
}

int64_t Session::startRows(size_t index) const {
  const ManifestCache& cache = description.caches[index];
  if (cache.oneBuffer)
    return room;
  if (cache.policy == CachePolicy::Fixed)
    return 0;
  if (const auto* fixed =
          std::get_if<int64_t>(&cache.shape[static_cast<size_t>(cache.sequenceAxis)]))
    return *fixed;
  return cache.policy == CachePolicy::Static ? options.capacity : 0;
}

bool Session::hasShared() const {
  return llvm::any_of(description.caches,
                      [](const ManifestCache& cache) { return cache.oneBuffer; });
}

llvm::Expected<Extents> Session::extents(llvm::ArrayRef<ManifestExtent> shape,
                                         std::optional<unsigned> axisOfTokens,
                                         int64_t tokens) const {
  Extents result;
  for (unsigned axis = 0; axis < shape.size(); ++axis) {
    if (axisOfTokens == axis) {
      result.push_back(tokens);
      continue;
    }
    if (const auto* fixed = std::get_if<int64_t>(&shape[axis])) {
      result.push_back(*fixed);
      continue;
    }
    // Whatever else is symbolic in a cache counts batch rows: `batch`, or `batch*heads` where they
    // are folded.
    const std::string& text = std::get<std::string>(shape[axis]);
    std::optional<Dim> parsed = Dim::parse(text);
    Dim dim = parsed ? *parsed : Dim::symbol(text);
    std::optional<int64_t> value;
    if (dim.symbols().size() == 1)
      value = dim.evaluate([&](llvm::StringRef) -> std::optional<int64_t> { return batch(); });
    if (!value || *value < 0)
      return unsupported("the extent '{}' of a cache or length cannot be resolved", text);
    result.push_back(*value);
  }
  return result;
}

llvm::Expected<Extents> Session::cacheShape(const ManifestCache& cache, int64_t tokens) const {
  return extents(cache.shape, static_cast<unsigned>(cache.sequenceAxis), tokens);
}

llvm::Expected<Tensor> Session::freshCache(size_t cache, int64_t tokens) const {
  llvm::Expected<Extents> shape = cacheShape(description.caches[cache], tokens);
  if (!shape)
    return shape.takeError();
  llvm::Expected<Tensor> tensor =
      Tensor::create(allocator(), description.caches[cache].dtype, *shape);
  if (!tensor)
    return tensor.takeError();
  // Bits that are all ones are a NaN in every floating-point format.
  if (tensor->view.byteSize() != 0)
    std::memset(tensor->view.data, options.poison && isShared(cache) ? 0xff : 0,
                static_cast<size_t>(tensor->view.byteSize()));
  return tensor;
}

int64_t Session::capacity() const { return std::min(hasShared() ? room : INT64_MAX, staticRoom); }

TensorView Session::cacheView(size_t index) const {
  if (policy(index) != CachePolicy::Fixed)
    return caches[index].view;
  return sliceAxis(caches[index].view, sequenceAxis(index), 0, validLength);
}

std::vector<const Value*> Session::callerInputs() const {
  std::vector<const Value*> given;
  for (const std::unique_ptr<Value>& input : graph().inputs()) {
    bool isOurs =
        llvm::any_of(description.caches,
                     [&](const ManifestCache& cache) { return input->name() == cache.past; }) ||
        llvm::any_of(description.lengths,
                     [&](const ManifestLength& length) { return input->name() == length.input; });
    if (!isOurs && !input->initializer())
      given.push_back(input.get());
  }
  return given;
}

/// Sees to capacity for `tokens`, before anything runs.
llvm::Error Session::makeRoom(int64_t tokens) {
  if (tokens > staticRoom)
    return usageError("{} tokens do not fit into the cache's capacity of {} ({} are in it)", tokens,
                      staticRoom, validLength);
  if (!hasShared() || tokens <= room)
    return llvm::Error::success();
  if (options.mode != SessionOptions::Mode::Stateful || description.capacityValue)
    return usageError("{} tokens do not fit into the cache's capacity of {} ({} are in it)", tokens,
                      room, validLength);
  int64_t larger = room > INT64_MAX / 2 ? tokens : std::max(tokens, 2 * room);
  std::vector<Tensor> grown;
  int64_t moved = 0;
  for (size_t i = 0; i < caches.size(); ++i) {
    if (!isShared(i)) {
      grown.push_back(caches[i]);
      continue;
    }
    llvm::Expected<Tensor> fresh = freshCache(i, larger);
    if (!fresh)
      return fresh.takeError();
    TensorView valid = cacheView(i);
    copyElements(valid, sliceAxis(fresh->view, sequenceAxis(i), 0, validLength));
    moved += valid.byteSize();
    grown.push_back(std::move(*fresh));
  }
  counters.cacheBytesMoved += moved;
  caches = std::move(grown);
  room = larger;
  ++counters.cacheReallocations;
  return llvm::Error::success();
}

llvm::Error Session::writeLengths(int64_t newTokens) {
  for (size_t i = 0; i < lengthTensors.size(); ++i) {
    const ManifestLength& length = description.lengths[i];
    int64_t value = 0;
    switch (length.feed) {
    case LengthFeed::PastLength:
    case LengthFeed::PastLengthPerBatch:
      value = validLength;
      break;
    case LengthFeed::TotalLength:
    case LengthFeed::TotalLengthPerBatch:
      value = validLength + newTokens;
      break;
    case LengthFeed::TotalLengthMinusOne:
    case LengthFeed::TotalLengthPerBatchMinusOne:
      value = validLength + newTokens - 1;
      break;
    case LengthFeed::HasPast:
      value = validLength > 0 ? 1 : 0;
      break;
    case LengthFeed::NoPast:
      value = validLength > 0 ? 0 : 1;
      break;
    }
    if (length.dtype == ElementType::Int32 && value > INT32_MAX)
      return unsupported("length '{}' does not hold {}", length.input, value);
    const TensorView& view = lengthTensors[i].view;
    int64_t count = view.elementCount();
    if (length.dtype == ElementType::Bool)
      std::fill_n(view.as<uint8_t>(), count, static_cast<uint8_t>(value));
    else if (length.dtype == ElementType::Int32)
      std::fill_n(view.as<int32_t>(), count, static_cast<int32_t>(value));
    else
      std::fill_n(view.as<int64_t>(), count, value);
  }
  return llvm::Error::success();
}

llvm::Error Session::checkPresents(llvm::ArrayRef<Tensor> outputs, int64_t tokens) const {
  for (size_t i = 0; i < caches.size(); ++i) {
    const TensorView& present = outputs[presentOutputs[i]].view;
    int64_t rows = isShared(i) ? room : tokens;
    if (policy(i) == CachePolicy::Static)
      rows = caches[i].view.shape[sequenceAxis(i)];
    else if (policy(i) == CachePolicy::Ring && sequenceAxis(i) < present.rank())
      rows = present.shape[sequenceAxis(i)]; // as many as the model keeps
    Extents shape = presentShapes[i];
    shape[sequenceAxis(i)] = rows;
    if (present.shape != shape || present.element != description.caches[i].dtype)
      return invalid("output '{}' has shape {}, but the manifest makes it {}",
                     description.caches[i].present, extentsText(present.shape), extentsText(shape));
  }
  return llvm::Error::success();
}

llvm::Error Session::checkInputs(llvm::ArrayRef<NamedView> inputs) const {
  for (const NamedView& input : inputs)
    if (!callerNames.contains(input.name))
      return usageError("'{}' is no input that a session's caller gives", input.name);
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
  if (newTokens < 1 || __builtin_add_overflow(validLength, newTokens, &total))
    return usageError("a step needs at least one token, not {}", newTokens);
  if (llvm::Error error = checkInputs(inputs))
    return error;
  if (llvm::Error error = makeRoom(total))
    return error;
  if (llvm::Error error = writeLengths(newTokens))
    return error;

  stepInputs.assign(inputs.begin(), inputs.end());
  stepBindings.clear();
  for (size_t i = 0; i < lengthTensors.size(); ++i)
    stepInputs.push_back({description.lengths[i].input, lengthTensors[i].view});
  for (size_t i = 0; i < caches.size(); ++i) {
    const ManifestCache& cache = description.caches[i];
    stepInputs.push_back({cache.past, isShared(i) ? caches[i].view : cacheView(i)});
    if (isShared(i))
      stepBindings.push_back({cache.past, cache.present});
  }
  if (llvm::Error error = executor->run(stepInputs, stepBindings, stepOutputs))
    return error;
  if (llvm::Error error = checkPresents(stepOutputs, total)) {
    stepOutputs.clear();
    return error;
  }

  for (size_t i = 0; i < caches.size(); ++i)
    if (!isShared(i))
      caches[i] = std::move(stepOutputs[presentOutputs[i]]);
  // Without caches nothing is remembered: every step is a whole sequence.
  if (!caches.empty())
    validLength = total;
  counters.lastRun = executor->statistics();
  ++counters.steps;
  counters.inPlaceBytesCopied += counters.lastRun.inPlaceBytesCopied;
  counters.cacheBytesWritten += counters.lastRun.cacheBytesWritten;
  counters.temporaryPeak = std::max(counters.temporaryPeak, counters.lastRun.temporaryPeak());
  result.outputs.resize(resultOutputs.size());
  for (size_t i = 0; i < resultOutputs.size(); ++i) {
    NamedTensor& output = result.outputs[i];
    llvm::StringRef name = graph().outputs()[resultOutputs[i]]->name();
    if (output.name != name)
      output.name = name.str();
    output.tensor = std::move(stepOutputs[resultOutputs[i]]);
  }
  return llvm::Error::success();
}

void Session::reset() {
  validLength = 0;
  for (size_t i = 0; i < caches.size(); ++i) {
    if (isShared(i))
      continue;
    TensorView& view = caches[i].view;
    if (int64_t rows = startRows(i); rows != 0 && view.shape[sequenceAxis(i)] == rows)
      std::memset(view.data, 0, static_cast<size_t>(view.byteSize()));
    else
      view = sliceAxis(view, sequenceAxis(i), 0, 0);
  }
}

llvm::Error Session::crop(int64_t tokens) {
  if (tokens < 0 || tokens > validLength)
    return usageError("cannot keep {} of {} tokens", tokens, validLength);
  for (const ManifestCache& cache : description.caches)
    if (cache.policy == CachePolicy::Ring && tokens != validLength)
      return unsupported("cache '{}' keeps its last rows only: it cannot be cropped", cache.past);
  validLength = tokens;
  return llvm::Error::success();
}

} // namespace kvopt
