// One step: its inputs, its run, its outputs.
#include "runtime/session/step_runner.h"

#include "runtime/exec/input_binding.h"
#include "runtime/session/unpadded_masks.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"

namespace kvopt::runtime {
using namespace ir;

StepRunner::StepRunner(const Manifest& described, CacheState& caches,
                       std::unique_ptr<ModelRunner> modelRunner)
    : manifest(described), runner(std::move(modelRunner)), state(caches),
      lengths(described, caches.allocator()), growth(described, caches, counters) {}

StepRunner::~StepRunner() = default;

llvm::Expected<std::unique_ptr<StepRunner>>
StepRunner::create(const Model& model, const KernelRegistry& kernels, const Manifest& manifest,
                   const SessionOptions& options, CacheState& caches, const StepRunner* like) {
  auto runner =
      ModelRunner::create(model, kernels, manifest, options, like ? like->runner.get() : nullptr);
  if (!runner)
    return runner.takeError();
  std::unique_ptr<StepRunner> steps(new StepRunner(manifest, caches, std::move(*runner)));
  steps->listInputs();
  return steps;
}

void StepRunner::listInputs() {
  llvm::StringSet<> ours;
  for (const ManifestCache& cache : manifest.caches) {
    ours.insert(cache.past);
    for (const std::string& block : cache.blocks())
      ours.insert(block);
  }
  for (const ManifestLength& length : manifest.lengths)
    ours.insert(length.input);
  for (const std::unique_ptr<Value>& input : runner->graph().inputs()) {
    if (ours.contains(input->name()))
      continue;
    takenInputs.insert(input->name());
    if (!input->initializer())
      given.push_back(input.get());
  }
}

int64_t StepRunner::mostStepTokens() const {
  const bool takesNoChunk = manifest.chunkBatch == 0 && state.length() > 0;
  return takesNoChunk ? 1 : manifest.stepLimit.value_or(INT64_MAX);
}

llvm::Error StepRunner::checkStep(llvm::ArrayRef<NamedView> inputs, int64_t newTokens) const {
  int64_t total = 0;
  if (newTokens < 1 || __builtin_add_overflow(state.length(), newTokens, &total))
    return usageError("a step needs at least one token, not {}", newTokens);
  if (newTokens > mostStepTokens())
    return usageError("a step of {} tokens: the model takes at most {} at a time", newTokens,
                      mostStepTokens());
  if (llvm::Error error = state.checkRunning())
    return error;
  for (const NamedView& input : inputs)
    if (!takenInputs.contains(input.name) && !lengths.contain(input.name))
      return usageError("'{}' is not an input that a session's caller provides", input.name);
  return checkUnpadded(manifest, inputs, total);
}

llvm::Error StepRunner::step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens,
                             StepResult& result) {
  if (llvm::Error error = checkStep(inputs, newTokens))
    return error;
  if (llvm::Error error = growth.makeRoom(newTokens))
    return error;
  if (llvm::Error error = takeOrder(inputs))
    return error;
  if (llvm::Error error = lengths.fill(state.set(), newTokens))
    return error;
  if (llvm::Error error = state.set().reserve(newTokens))
    return error;
  auto cancel = llvm::make_scope_exit([&] { state.set().cancel(); });
  if (llvm::Error error = prepare(inputs))
    return error;
  if (llvm::Error error = runner->run(stepInputs, stepBindings, state.length(), stepOutputs))
    return error;
  auto forget = llvm::make_scope_exit([&] { stepOutputs.clear(); });
  if (llvm::Error error = growth.take(stepOutputs, newTokens))
    return error;
  forget.release();
  cancel.release();
  noteRun();
  takeResult(result);
  return llvm::Error::success();
}

/// Reorders batch rows according to the manifest's input for this.
llvm::Error StepRunner::takeOrder(llvm::ArrayRef<NamedView> inputs) {
  const NamedView* order =
      llvm::find_if(inputs, [&](const NamedView& input) { return input.name == manifest.reorder; });
  if (manifest.reorder.empty() || order == inputs.end() || state.length() == 0)
    return llvm::Error::success();
  const int64_t batch = state.batch();
  const TensorView& view = order->view;
  const bool isNarrow = view.element == ElementType::Int32;
  if (view.rank() != 1 || view.shape[0] != batch ||
      (!isNarrow && view.element != ElementType::Int64))
    return usageError("'{}' is {} {}, not a number for each of the session's {} batch rows",
                      order->name, onnxName(view.element), extentsText(view.shape), batch);
  llvm::SmallVector<int64_t, 8> rows;
  for (int64_t row = 0; row < batch; ++row) {
    const TensorView entry = sliceAxis(view, 0, row, row + 1);
    rows.push_back(isNarrow ? *entry.as<int32_t>() : *entry.as<int64_t>());
    if (rows.back() < 0)
      rows.back() += batch;
  }
  for (int64_t row = 0; row < batch; ++row)
    if (rows[static_cast<size_t>(row)] != row)
      return state.reorder(rows);
  return llvm::Error::success();
}

/// Collects all inputs of the step: inputs of the caller, lengths, and caches.
llvm::Error StepRunner::prepare(llvm::ArrayRef<NamedView> inputs) {
  if (llvm::Error error = runner->chooseVariant(state.length()))
    return error;
  stepInputs.assign(inputs.begin(), inputs.end());
  stepBindings.clear();
  feedLengths();
  return feedCaches();
}

/// Inputs of the caller have priority over those from the manifest.
void StepRunner::feedLengths() {
  const size_t fromCaller = stepInputs.size();
  for (size_t i = 0; i < lengths.size(); ++i)
    if (llvm::none_of(llvm::ArrayRef(stepInputs).take_front(fromCaller),
                      [&](const NamedView& input) { return input.name == lengths.name(i); }))
      stepInputs.push_back({lengths.name(i), lengths.view(i)});
}

llvm::Error StepRunner::feedCaches() {
  const CacheSet& caches = state.set();
  for (size_t i = 0; i < caches.size(); ++i) {
    const ManifestCache& cache = manifest.caches[i];
    if (caches.geometry(i).isInBlocks()) {
      if (llvm::Error error = feedBlocks(i))
        return error;
      continue;
    }
    const bool isOverwritten = caches.geometry(i).isOverwritten;
    if (isOverwritten)
      stepBindings.push_back({cache.past, cache.present});
    stepInputs.push_back({cache.past, cache.isPool()  ? state.poolView(i)
                                      : isOverwritten ? caches.buffer(i)
                                                      : caches.view(i)});
  }
  return llvm::Error::success();
}

llvm::Error StepRunner::feedBlocks(size_t index) {
  const ManifestCache& cache = manifest.caches[index];
  const CacheSet& caches = state.set();
  const bool areWhole = !runner->variants().empty();
  const size_t count = runner->blockCount(cache);
  for (size_t position = 0; position < count; ++position) {
    llvm::Expected<TensorView> rows =
        areWhole ? caches.wholeBlock(index, position) : caches.blockRows(index, position);
    if (!rows)
      return rows.takeError();
    stepInputs.push_back({cache.blocks()[position], std::move(*rows)});
  }
  return llvm::Error::success();
}

void StepRunner::noteRun() {
  counters.lastRun = runner->statistics();
  ++counters.steps;
  counters.inPlaceBytesCopied += counters.lastRun.inPlaceBytesCopied;
  counters.cacheBytesWritten += counters.lastRun.cacheBytesWritten;
  counters.temporaryPeak = std::max(counters.temporaryPeak, counters.lastRun.temporaryPeak());
}

void StepRunner::takeResult(StepResult& result) {
  const llvm::ArrayRef<unsigned> outputs = growth.resultOutputs();
  result.outputs.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    NamedTensor& output = result.outputs[i];
    llvm::StringRef name = runner->graph().outputs()[outputs[i]]->name();
    if (output.name != name)
      output.name = name.str();
    output.tensor = std::move(stepOutputs[outputs[i]]);
  }
}

void StepRunner::dropMemory() {
  stepInputs.clear(); // they may refer to memory that was freed
  stepOutputs.clear();
  runner->dropMemory();
}

} // namespace kvopt::runtime
