// Replaying recorded steps.
#include "runtime/equivalence/reference.h"

#include "ir/manifest/fed_length.h"
#include "runtime/session/cache_part.h"
#include "runtime/session/dequantized_cache.h"
#include "runtime/session/ring_rows.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <map>

namespace kvopt::runtime {
using namespace ir;

bool ComparisonReport::isDifferent() const {
  auto isBeyond = [](const TensorComparison& tensor) { return !tensor.comparison.isWithin(); };
  return !differences.empty() || llvm::any_of(steps, [&](const StepComparison& step) {
    return llvm::any_of(step.outputs, isBeyond) || llvm::any_of(step.caches, isBeyond);
  });
}

bool ComparisonReport::differsInPaddingOnly() const {
  const auto agrees = [](const TensorComparison& tensor) {
    return tensor.comparison.isWithin() ||
           (tensor.mismatch.empty() && tensor.visible && tensor.visible->isWithin());
  };
  return (isDifferent() || !tokensEqual) && differences.empty() && visibleTokensEqual &&
         llvm::all_of(steps, [&](const StepComparison& step) {
           return llvm::all_of(step.outputs, agrees) && llvm::all_of(step.caches, agrees);
         });
}

bool ComparisonReport::isConclusive() const {
  auto isCompared = [](const TensorComparison& tensor) { return tensor.comparison.compared != 0; };
  return nothingButNan().empty() &&
         llvm::any_of(steps,
                      [&](const StepComparison& step) {
                        return llvm::any_of(step.outputs, isCompared) ||
                               llvm::any_of(step.caches, isCompared);
                      }) &&
         (!hasCaches || refusedSteps != 0 ||
          llvm::any_of(steps, [](const StepComparison& step) { return step.pastTokens != 0; }));
}

int64_t ComparisonReport::nanInFirst() const {
  int64_t elements = 0;
  for (const StepComparison& step : steps)
    for (const auto* group : {&step.outputs, &step.caches})
      for (const TensorComparison& tensor : *group)
        elements += tensor.nanInFirst;
  return elements;
}

std::vector<std::string> ComparisonReport::nothingButNan() const {
  std::map<std::string, std::pair<int64_t, int64_t>> counts; // NaN and compared, by name
  for (const StepComparison& step : steps)
    for (const auto* group : {&step.outputs, &step.caches})
      for (const TensorComparison& tensor : *group) {
        auto& [nans, compared] = counts[tensor.name];
        nans += tensor.nanInFirst;
        compared += tensor.comparison.compared;
      }
  std::vector<std::string> names;
  for (const auto& [name, count] : counts)
    if (count.first != 0 && count.second == 0)
      names.push_back(name);
  return names;
}

const TensorComparison* ComparisonReport::worst() const {
  const TensorComparison* worst = nullptr;
  for (const StepComparison& step : steps)
    for (const auto* group : {&step.outputs, &step.caches})
      for (const TensorComparison& tensor : *group)
        if (tensor.comparison.compared != 0 &&
            (!worst || tensor.comparison.maxAbs > worst->comparison.maxAbs))
          worst = &tensor;
  return worst;
}

namespace {

/// Extent of a cache in the exported model before the first step.
std::optional<int64_t> recordedExtent(const ManifestCache& cache, size_t axis,
                                      llvm::ArrayRef<ReferenceStep> steps) {
  const auto exported =
      cache.permutation.empty() ? static_cast<int64_t>(axis) : cache.permutation[axis];
  return referenceExtent(steps, cache.past, exported);
}

} // namespace

int64_t recordedPast(const Manifest& manifest, llvm::ArrayRef<ReferenceStep> steps) {
  int64_t rows = 0;
  for (const ManifestCache& cache : manifest.caches)
    if (cache.update() == CacheUpdate::Grows && !cache.part)
      rows = std::max(
          rows, recordedExtent(cache, static_cast<size_t>(cache.sequenceAxis), steps).value_or(0));
  return rows;
}

std::optional<int64_t> recordedBatch(const Manifest& manifest,
                                     llvm::ArrayRef<ReferenceStep> steps) {
  for (const ManifestCache& cache : manifest.caches)
    if (const auto layout = cache.layout(); layout && !layout->hasFoldedHeads() && !cache.part)
      if (auto extent = recordedExtent(cache, layout->batchAxis(), steps))
        return extent;
  for (const ManifestInput& input : manifest.inputs)
    if (input.shape.size() >= 2 && input.shape[1] == ManifestExtent("new"))
      if (auto extent = referenceExtent(steps, input.input, 0))
        return extent;
  return referenceBatch(steps);
}

namespace {

/// Positions of each batch row that are real tokens, according to the recorded attention mask.
class VisiblePositions {
public:
  explicit VisiblePositions(const ReferenceStep& step) {
    const TensorData* mask = findTensor(step.inputs, "attention_mask");
    if (!mask || mask->shape().size() != 2)
      return;
    auto values = integerValues(*mask, INT64_MAX);
    if (!values)
      return;
    columns = mask->shape()[1];
    visible.assign(values->begin(), values->end());
  }

  /// The axis, other than the first, whose extent is the number of positions in the mask; nullopt
  /// if there is no mask or not exactly one such axis.
  std::optional<unsigned> positionAxis(llvm::ArrayRef<int64_t> shape) const {
    std::optional<unsigned> found;
    for (unsigned axis = 1; axis < shape.size() && columns != 0; ++axis) {
      if (shape[axis] != columns)
        continue;
      if (found)
        return std::nullopt;
      found = axis;
    }
    return found;
  }

  /// Axis of batch rows: the first axis whose extent is the number of rows in the mask, except for
  /// the sequence axis, which may come first.
  unsigned batchAxis(llvm::ArrayRef<int64_t> shape, unsigned sequenceAxis) const {
    const int64_t rows = columns == 0 ? 0 : static_cast<int64_t>(visible.size()) / columns;
    for (unsigned axis = 0; axis < shape.size(); ++axis)
      if (axis != sequenceAxis && shape[axis] == rows)
        return axis;
    return 0;
  }

  bool operator()(int64_t row, int64_t position) const {
    int64_t index = row * columns + position;
    return columns == 0 || position >= columns || index >= static_cast<int64_t>(visible.size()) ||
           visible[static_cast<size_t>(index)] != 0;
  }

private:
  int64_t columns = 0;
  std::vector<int64_t> visible;
};

/// Compares the elements at real tokens. `sequenceAxis` starts at position `firstPosition`.
llvm::Expected<TensorComparison>
compareVisible(const std::string& name, const TensorView& ours, const TensorView& recorded,
               std::optional<unsigned> sequenceAxis, int64_t firstPosition,
               const VisiblePositions& visible, Tolerance tolerance) {
  TensorComparison result;
  result.name = name;
  const unsigned batchAxis = sequenceAxis ? visible.batchAxis(ours.shape, *sequenceAxis) : 0;
  auto select = [&](llvm::ArrayRef<int64_t> index) {
    return !sequenceAxis || visible(index[batchAxis], firstPosition + index[*sequenceAxis]);
  };
  auto comparison = compareTensors(ours, recorded, tolerance, select);
  if (!comparison)
    return withValue(comparison.takeError(), name);
  result.comparison = std::move(*comparison);
  result.skipped = ours.elementCount() - result.comparison.compared;
  result.allowed = tolerance.absolute;
  return result;
}

const TensorRef* findRecorded(llvm::ArrayRef<std::pair<std::string, TensorRef>> tensors,
                              llvm::StringRef name) {
  const auto* found =
      llvm::find_if(tensors, [&](const auto& entry) { return entry.first == name; });
  return found == tensors.end() ? nullptr : &found->second;
}

/// Runs the session on the recorded inputs.
llvm::Expected<StepResult> feed(Session& session, const ReferenceStep& step) {
  std::vector<Tensor> kept;
  std::vector<NamedView> views;
  auto give = [&](llvm::StringRef name, const TensorRef& data) -> llvm::Error {
    auto tensor = Tensor::of(session.allocator(), data);
    if (!tensor)
      return tensor.takeError();
    views.push_back({name, tensor->view});
    kept.push_back(std::move(*tensor));
    return llvm::Error::success();
  };
  for (const Value* input : session.callerInputs()) {
    const TensorRef* recorded = findRecorded(step.inputs, input->name());
    if (!recorded)
      return invalid("the reference has no tensor for input '{}'", input->name());
    if (llvm::Error error = give(input->name(), *recorded))
      return error;
  }
  for (const ManifestLength& length : session.manifest().lengths)
    if (const TensorRef* recorded = findRecorded(step.inputs, length.input))
      if (llvm::Error error = give(length.input, *recorded))
        return error;
  return session.step(views, step.tokens);
}

/// Fills the session's caches with the rows recorded before the first step.
llvm::Error seedRecorded(Session& session, llvm::ArrayRef<ReferenceStep> steps) {
  const int64_t rows = steps.empty() ? 0 : recordedPast(session.manifest(), steps);
  if (rows == 0)
    return llvm::Error::success();
  std::vector<Tensor> kept;
  std::vector<NamedView> views;
  for (size_t i = 0; i < session.cacheCount(); ++i) {
    const std::string& past = session.cacheInfo(i).past; // not a part: recordedPast()
    const TensorRef* recorded = findRecorded(steps.front().inputs, past);
    if (!recorded)
      return invalid("the reference has rows before the first step, but none of '{}'", past);
    auto tensor = Tensor::of(session.allocator(), *recorded);
    if (!tensor)
      return tensor.takeError();
    views.push_back({past, tensor->view});
    kept.push_back(std::move(*tensor));
  }
  return session.seed(views, rows);
}

/// Whether the recorded lengths are those that the manifest prescribes.
bool hasFedLengths(const Manifest& manifest, llvm::ArrayRef<ReferenceStep> steps) {
  int64_t past = 0;
  for (const ReferenceStep& step : steps) {
    for (const ManifestLength& length : manifest.lengths) {
      const auto fed = fedLength(length.feed, past, step.tokens);
      const TensorData* recorded = findTensor(step.inputs, length.input);
      const auto numbers = recorded && fed ? integerValues(*recorded, INT64_MAX) : std::nullopt;
      if (numbers && llvm::any_of(*numbers, [&](int64_t number) { return number != *fed; }))
        return false;
    }
    past += step.tokens;
  }
  return true;
}

/// A constant with the elements of a view, which may be strided.
llvm::Expected<TensorRef> constantOf(const Session& session, const TensorView& view) {
  auto packed = Tensor::copyOf(session.allocator(), view);
  if (!packed)
    return packed.takeError();
  return makeTensor(view.element, view.shape, packedBytes(packed->view));
}

class Replay {
public:
  Replay(Session& replayed, Tolerance allowed) : session(replayed), tolerance(allowed) {}

  llvm::Expected<StepComparison> run(const ReferenceStep& step) {
    int64_t before = session.length();
    auto outputs = feed(session, step);
    if (!outputs)
      return outputs.takeError();
    StepComparison result;
    result.tokens = step.tokens;
    result.phase = before == 0 ? "prefill" : step.tokens == 1 ? "decode" : "chunk";
    VisiblePositions visible(step);
    for (const auto& [name, recorded] : step.outputs) {
      auto expected = Tensor::of(session.allocator(), recorded);
      if (!expected)
        return expected.takeError();
      const size_t known = result.caches.size();
      for (size_t i = 0; i < session.cacheCount(); ++i)
        if (llvm::Error error = compareCache(i, name, expected->view, visible, result))
          return error;
      if (result.caches.size() != known)
        continue;
      const Tensor* ours = outputs->find(name);
      if (!ours)
        continue; // not declared by this graph
      // A present that is not in the manifest has one row per position; other outputs have one row
      // per new token on axis 1.
      const Extents& shape = ours->view.shape;
      bool perBatchRow = !shape.empty() && shape[0] == session.batch();
      std::optional<unsigned> axis = perBatchRow ? visible.positionAxis(shape) : std::nullopt;
      int64_t first = axis ? 0 : before;
      if (!axis && perBatchRow && shape.size() >= 2 && shape[1] == step.tokens)
        axis = 1;
      auto compared =
          compareVisible(name, ours->view, expected->view, axis, first, visible, tolerance);
      if (!compared)
        return compared.takeError();
      result.outputs.push_back(std::move(*compared));
    }
    return result;
  }

private:
  /// Compares the cache if it is the one recorded under that name, or a part of it.
  llvm::Error compareCache(size_t cache, const std::string& name, const TensorView& recorded,
                           const VisiblePositions& visible, StepComparison& result) {
    const ManifestCache& info = session.cacheInfo(cache);
    const bool isPart = info.part && info.part->present == name;
    if (!isPart && info.present != name)
      return llvm::Error::success();
    // Attention computes its rows from the recorded rows, or rounds those.
    if (info.holdsAttendedRows || info.exportedDtype != ElementType::Undefined)
      return llvm::Error::success();
    std::optional<TensorView> part = isPart ? viewOfPart(recorded, info) : recorded;
    const std::string what = isPart ? info.part->text(name) : name;
    if (!part)
      return invalid("the reference's '{}' has no part {}", name, what);
    TensorView theirs = *part;
    // Recordings contain computed numbers, not codes.
    Tensor numbers;
    const std::optional<size_t> scales = session.caches().scalesOf(cache);
    if (scales) {
      auto dequantized = dequantizedCache(session.caches(), cache, *scales, theirs.element);
      if (!dequantized)
        return dequantized.takeError();
      numbers = std::move(*dequantized);
    }
    // The scale of codes with constant scales is unknown here.
    const ElementType code = session.cacheBuffer(cache).element;
    if (!numbers.owner && (code == ElementType::Int8 || code == ElementType::UInt8) &&
        theirs.element != code)
      return llvm::Error::success();
    const unsigned sequence = session.exportedSequenceAxis(cache);
    if (!numbers.owner) {
      auto exported = session.exportedCacheRows(cache);
      if (!exported)
        return exported.takeError();
      numbers = std::move(*exported);
    }
    TensorView ours = numbers.view;
    int64_t first = 0;
    // A ring and another cache have only some last rows in common. So does a cache if the model
    // returned only the rows of each step.
    // model returned only the rows of each step.
    const bool hasLastRows =
        theirs.rank() == ours.rank() &&
        (isRing(session.caches(), cache) || theirs.shape[sequence] == result.tokens);
    if (hasLastRows && theirs.shape[sequence] != ours.shape[sequence]) {
      const int64_t recordedRows = theirs.shape[sequence];
      const int64_t rows = std::min(recordedRows, heldRows(session.caches(), cache));
      auto held = lastNumbers(cache, scales, rows, theirs.element);
      if (!held)
        return held.takeError();
      numbers = std::move(*held);
      ours = numbers.view;
      theirs = sliceAxis(theirs, sequence, recordedRows - rows, recordedRows);
      first = session.length() - rows;
    }
    auto compared = compareVisible(what, ours, theirs, sequence, first, visible, tolerance);
    if (!compared)
      return compared.takeError();
    result.caches.push_back(std::move(*compared));
    return llvm::Error::success();
  }

  /// The last rows of a cache, or the numbers that they represent if it has scales.
  llvm::Expected<Tensor> lastNumbers(size_t cache, std::optional<size_t> scales, int64_t rows,
                                     ElementType element) const {
    auto held = lastRowsInOrder(session.caches(), cache, rows);
    if (!held || !scales)
      return held;
    auto factors = lastRowsInOrder(session.caches(), *scales, rows);
    if (!factors)
      return factors;
    return dequantizedRows(session.caches(), cache, held->view, factors->view, element);
  }

  Session& session;
  Tolerance tolerance;
};

} // namespace

llvm::Expected<std::vector<ReferenceStep>>
recordOutputs(Session& session, llvm::ArrayRef<ReferenceStep> steps, std::string& ended) {
  std::vector<ReferenceStep> own;
  for (const ReferenceStep& step : steps) {
    auto computed = feed(session, step);
    if (!computed) {
      Diagnostic diagnostic = takeDiagnostic(computed.takeError());
      if (own.empty())
        return makeError(std::move(diagnostic));
      ended = diagnostic.str();
      return own;
    }
    ReferenceStep recorded;
    recorded.tokens = step.tokens;
    recorded.inputs = step.inputs;
    auto record = [&](const std::string& name, const TensorView& view) -> llvm::Error {
      auto constant = constantOf(session, view);
      if (!constant)
        return constant.takeError();
      recorded.outputs.emplace_back(name, std::move(*constant));
      return llvm::Error::success();
    };
    for (const NamedTensor& output : computed->outputs)
      if (llvm::Error error = record(output.name, output.tensor.view))
        return error;
    for (size_t i = 0; i < session.cacheCount(); ++i) {
      auto rows = session.exportedCacheRows(i);
      if (!rows)
        return rows.takeError();
      if (llvm::Error error = record(session.cacheInfo(i).present, rows->view))
        return error;
    }
    own.push_back(std::move(recorded));
  }
  return own;
}

/// Whether the steps of a recording add another number of rows to a growing cache than they have
/// tokens.
static bool addsOtherRows(const Manifest& manifest, llvm::ArrayRef<ReferenceStep> steps) {
  for (const ManifestCache& cache : manifest.caches) {
    if (cache.update() != CacheUpdate::Grows || cache.isOneBuffer() || cache.givesNewRows())
      continue;
    for (const ReferenceStep& step : steps) {
      const auto axis = static_cast<size_t>(cache.sequenceAxis);
      const TensorData* past = findTensor(step.inputs, cache.past);
      const TensorData* present = findTensor(step.outputs, cache.present);
      if (past && present && axis < past->shape().size() && axis < present->shape().size() &&
          present->shape()[axis] != past->shape()[axis] + step.tokens)
        return true;
    }
  }
  return false;
}

bool isDrivenOtherwise(const Graph& graph, const Manifest& manifest,
                       llvm::ArrayRef<ReferenceStep> steps) {
  for (const ReferenceStep& step : steps)
    for (const std::unique_ptr<Value>& input : graph.inputs())
      if (!input->isInitializer() && !findTensor(step.inputs, input->name()))
        return false;
  return !steps.empty() && (recordedPast(manifest, steps) != 0 || !hasFedLengths(manifest, steps) ||
                            !recordedBatch(manifest, steps) || addsOtherRows(manifest, steps));
}

llvm::Expected<ComparisonReport> replayAsRecorded(const Graph& graph, Executor& executor,
                                                  llvm::ArrayRef<ReferenceStep> steps,
                                                  Tolerance tolerance) {
  ComparisonReport report;
  for (const ReferenceStep& step : steps) {
    std::vector<Tensor> kept;
    std::vector<NamedView> views;
    for (const auto& [name, data] : step.inputs) {
      const Value* input = graph.findValue(name);
      if (!input || !input->isGraphInput())
        return invalid("the model has no input '{}', which is recorded", name);
      auto tensor = Tensor::of(executor.allocator(), data);
      if (!tensor)
        return tensor.takeError();
      views.push_back({name, tensor->view});
      kept.push_back(std::move(*tensor));
    }
    auto outputs = executor.run(views);
    if (!outputs)
      return withNode(outputs.takeError(), "step " + std::to_string(report.steps.size()));
    StepComparison compared;
    compared.tokens = step.tokens;
    compared.phase = report.steps.empty() ? "prefill" : step.tokens == 1 ? "decode" : "chunk";
    const VisiblePositions visible(step);
    for (size_t i = 0; i < outputs->size(); ++i) {
      const std::string name = graph.outputs()[i]->name().str();
      const TensorRef* recorded = findRecorded(step.outputs, name);
      if (!recorded)
        continue;
      auto expected = Tensor::of(executor.allocator(), *recorded);
      if (!expected)
        return expected.takeError();
      const TensorView& ours = (*outputs)[i].view;
      auto result = compareVisible(name, ours, expected->view, visible.positionAxis(ours.shape), 0,
                                   visible, tolerance);
      if (!result)
        return result.takeError();
      compared.outputs.push_back(std::move(*result));
    }
    report.steps.push_back(std::move(compared));
  }
  return report;
}

llvm::Expected<ComparisonReport>
replayReference(Session& session, llvm::ArrayRef<ReferenceStep> steps, Tolerance tolerance) {
  ComparisonReport report;
  Replay replay(session, tolerance);
  if (llvm::Error error = seedRecorded(session, steps))
    return error;
  for (size_t i = 0; i < steps.size(); ++i) {
    auto compared = replay.run(steps[i]);
    if (!compared)
      return withNode(compared.takeError(), "step " + std::to_string(i));
    report.steps.push_back(std::move(*compared));
  }
  return report;
}

} // namespace kvopt::runtime
