// Subgraphs that run repeatedly.
//
// Loop (every opset):
//   for i = 0, 1, …  while i < M and condition:
//     condition, v…, s… = body(i, condition, v…)
//
// M (int64) and the condition (bool) are absent or hold one element; without M there is no limit,
// and an absent condition is true. The last condition that the body computes is not a result.
//
// Scan (from opset 9; before, it had a batch axis and lengths):
//   for t = 0 … length - 1:
//     v…, s… = body(v…, x[t]…)      x[t] is row t of scan_input_axes, from the end if reversed
//
// Results are v… after the last iteration (the initial ones if there was none), and every s stacked
// along a new axis (the first, or scan_output_axes), with one row for each iteration. Values that a
// body captures from enclosing graphs are the same in every iteration.
#include "runtime/exec/kernel.h"
#include "runtime/kernels/support/integer_input.h"
#include "runtime/memory/buffer.h"
#include "support/format.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// Limit of the iterations that a file may request.
constexpr int64_t mostIterations = int64_t{1} << 20;

/// Values carried between iterations, and the results of each iteration.
struct Progress {
  /// The values v…
  std::vector<Tensor> carried;
  /// For each stacked result: one tensor for each iteration so far.
  std::vector<std::vector<Tensor>> stacked;

  /// Index of the result for the i-th stacked one.
  unsigned resultOf(size_t i) const { return static_cast<unsigned>(carried.size() + i); }
};

llvm::Expected<const Graph*> bodyOf(const KernelContext& context) {
  const Attribute* attribute = context.node().attribute("body");
  if (!attribute || attribute->graphs().size() != 1)
    return context.error("the body is missing");
  return attribute->graphs().front().get();
}

/// Initial values from `operands` [first, last), and space for the other results. `extra` inputs
/// and outputs of the body are not values.
llvm::Expected<Progress> start(KernelContext& context, const Graph& body, unsigned first,
                               unsigned last, size_t extraInputs, size_t extraOutputs) {
  Progress progress;
  for (unsigned i = first; i < last; ++i) {
    if (!context.has(i))
      return context.error(formatted("the initial value {} is absent", i - first));
    progress.carried.push_back(context.share(i));
  }
  const size_t results = context.node().results().size();
  if (body.inputs().size() != progress.carried.size() + extraInputs)
    return context.error(formatted("the body has {} inputs instead of {}", body.inputs().size(),
                                   progress.carried.size() + extraInputs));
  if (results < progress.carried.size() || body.outputs().size() != results + extraOutputs)
    return context.error(
        formatted("the body has {} outputs, the node {} results", body.outputs().size(), results));
  progress.stacked.resize(results - progress.carried.size());
  return progress;
}

/// Stores the results of an iteration: v…, s… .
llvm::Error advance(KernelContext& context, Progress& progress, std::vector<Tensor> outputs) {
  for (size_t i = 0; i < progress.carried.size(); ++i)
    progress.carried[i] = std::move(outputs[i]);
  for (size_t i = 0; i < progress.stacked.size(); ++i) {
    const unsigned result = progress.resultOf(i);
    if (!context.wants(result))
      continue;
    std::vector<Tensor>& rows = progress.stacked[i];
    Tensor& made = outputs[result];
    if (!rows.empty() && (rows.front().view.shape != made.view.shape ||
                          rows.front().view.element != made.view.element))
      return context.error(formatted("result {} differs in shape between iterations", result));
    rows.push_back(std::move(made));
  }
  return llvm::Error::success();
}

/// One row along an axis, without the axis.
TensorView rowOf(const TensorView& view, unsigned axis, int64_t row) {
  TensorView slice = sliceAxis(view, axis, row, row + 1);
  slice.shape.erase(slice.shape.begin() + axis);
  slice.strides.erase(slice.strides.begin() + axis);
  return slice;
}

/// Destination of the rows of a stacked result.
struct StackLayout {
  int64_t axis = 0; ///< axis of the result; negative axes count from its end
  bool isReversed = false;
};

llvm::Error stack(KernelContext& context, unsigned result, llvm::ArrayRef<Tensor> rows,
                  const TensorType& declared, StackLayout layout) {
  Extents shape;
  ElementType element = declared.elementType();
  if (!rows.empty()) {
    shape = rows.front().view.shape;
    element = rows.front().view.element;
  } else if (declared.hasRank()) {
    for (const Dim& extent : declared.shape())
      shape.push_back(extent.value().value_or(0));
  }
  if (element == ElementType::Undefined)
    return context.error(formatted("the element type of result {} is unknown", result));
  const std::optional<unsigned> axis =
      normalizedAxis(layout.axis, static_cast<unsigned>(shape.size()) + 1);
  if (!axis)
    return context.error(formatted("result {} has no axis {}", result, layout.axis));
  const auto count = static_cast<int64_t>(rows.size());
  shape.insert(shape.begin() + *axis, count);
  auto whole = context.output(result, element, shape);
  if (!whole)
    return whole.takeError();
  for (int64_t i = 0; i < count; ++i) {
    const int64_t place = layout.isReversed ? count - 1 - i : i;
    copyElements(rows[static_cast<size_t>(i)].view, rowOf(*whole, *axis, place));
  }
  return llvm::Error::success();
}

/// Stores the carried values as results 0 … .
llvm::Error storeCarried(KernelContext& context, llvm::ArrayRef<Tensor> carried) {
  for (unsigned i = 0; i < carried.size(); ++i) {
    if (!context.wants(i))
      continue;
    const TensorView& last = carried[i].view;
    auto result = context.output(i, last.element, last.shape);
    if (!result)
      return result.takeError();
    copyElements(last, *result);
  }
  return llvm::Error::success();
}

llvm::Expected<bool> conditionOf(const KernelContext& context, const TensorView& view) {
  if (view.element != ElementType::Bool || view.elementCount() != 1)
    return context.error("the condition is not one bool");
  return *view.as<uint8_t>() != 0;
}

llvm::Expected<int64_t> tripsOf(KernelContext& context) {
  if (!context.has(0))
    return INT64_MAX;
  auto trips = integersOf(context, 0);
  if (!trips)
    return trips.takeError();
  if (trips->size() != 1)
    return context.error("the trip count is not one number");
  return (*trips)[0];
}

template <class T>
llvm::Expected<Tensor> scalar(KernelContext& context, ElementType element, T value) {
  llvm::Expected<Tensor> tensor = context.temporary(element, {});
  if (tensor)
    *tensor->view.as<T>() = value;
  return tensor;
}

/// Runs the body and returns its condition.
llvm::Expected<bool> iterate(KernelContext& context, Progress& progress, int64_t iteration) {
  std::vector<Tensor> inputs;
  auto index = scalar<int64_t>(context, ElementType::Int64, iteration);
  if (!index)
    return index.takeError();
  inputs.push_back(std::move(*index));
  auto condition = scalar<uint8_t>(context, ElementType::Bool, 1);
  if (!condition)
    return condition.takeError();
  inputs.push_back(std::move(*condition));
  // Moved, so that the next iteration may overwrite the results of this one.
  std::move(progress.carried.begin(), progress.carried.end(), std::back_inserter(inputs));
  auto outputs = context.runBody("body", std::move(inputs));
  if (!outputs)
    return outputs.takeError();
  auto goesOn = conditionOf(context, outputs->front().view);
  if (!goesOn)
    return goesOn.takeError();
  outputs->erase(outputs->begin());
  if (llvm::Error error = advance(context, progress, std::move(*outputs)))
    return error;
  return *goesOn;
}

llvm::Error runLoop(KernelContext& context) {
  auto body = bodyOf(context);
  if (!body)
    return body.takeError();
  auto trips = tripsOf(context);
  if (!trips)
    return trips.takeError();
  auto condition = context.has(1) ? conditionOf(context, context.in(1)) : true;
  if (!condition)
    return condition.takeError();
  auto progress = start(context, **body, 2, context.inputCount(), 2, 1);
  if (!progress)
    return progress.takeError();
  for (int64_t i = 0; i < *trips && *condition; ++i) {
    if (i == mostIterations)
      return context.error(formatted("more than {} iterations", mostIterations));
    condition = iterate(context, *progress, i);
    if (!condition)
      return condition.takeError();
  }
  if (llvm::Error error = storeCarried(context, progress->carried))
    return error;
  for (size_t i = 0; i < progress->stacked.size(); ++i) {
    const unsigned result = progress->resultOf(i);
    if (!context.wants(result))
      continue;
    const TensorType& declared = (*body)->outputs()[result + 1]->type();
    if (llvm::Error error = stack(context, result, progress->stacked[i], declared, {}))
      return error;
  }
  return llvm::Error::success();
}

/// Entry `index` of a list attribute; 0 if the list is absent.
llvm::Expected<int64_t> listed(const KernelContext& context, const char* name, size_t index) {
  const auto list = context.node().intsAttr(name);
  if (!list)
    return 0;
  if (index >= list->size())
    return context.error(formatted("{} is too short", name));
  return (*list)[index];
}

/// A tensor that is divided along an axis.
struct ScanInput {
  Tensor tensor;
  unsigned axis = 0;
  bool isReversed = false;

  int64_t length() const { return tensor.view.shape[axis]; }
  Tensor row(int64_t t) const {
    return {tensor.owner, rowOf(tensor.view, axis, isReversed ? length() - 1 - t : t)};
  }
};

llvm::Expected<std::vector<ScanInput>> scanInputs(KernelContext& context, unsigned first) {
  std::vector<ScanInput> inputs;
  for (unsigned i = first; i < context.inputCount(); ++i) {
    if (!context.has(i))
      return context.error(formatted("operand {} is absent", i));
    auto axis = listed(context, "scan_input_axes", i - first);
    if (!axis)
      return axis.takeError();
    auto direction = listed(context, "scan_input_directions", i - first);
    if (!direction)
      return direction.takeError();
    const auto normalized = normalizedAxis(*axis, context.in(i).rank());
    if (!normalized)
      return context.error(formatted("operand {} has no axis {}", i, *axis));
    inputs.push_back({context.share(i), *normalized, *direction == 1});
    if (inputs.back().length() != inputs.front().length())
      return context.error(formatted("operand {} has {} rows, operand {} has {}", i,
                                     inputs.back().length(), first, inputs.front().length()));
  }
  return inputs;
}

llvm::Error storeScanned(KernelContext& context, const Progress& progress, const Graph& body) {
  for (size_t i = 0; i < progress.stacked.size(); ++i) {
    const unsigned result = progress.resultOf(i);
    if (!context.wants(result))
      continue;
    auto axis = listed(context, "scan_output_axes", i);
    if (!axis)
      return axis.takeError();
    auto direction = listed(context, "scan_output_directions", i);
    if (!direction)
      return direction.takeError();
    if (llvm::Error error = stack(context, result, progress.stacked[i],
                                  body.outputs()[result]->type(), {*axis, *direction == 1}))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error runScan(KernelContext& context) {
  auto body = bodyOf(context);
  if (!body)
    return body.takeError();
  const int64_t scans = context.node().intAttr("num_scan_inputs", 0);
  if (scans < 1 || scans > context.inputCount())
    return context.error(
        formatted("{} of {} operands cannot be scanned", scans, context.inputCount()));
  const unsigned states = context.inputCount() - static_cast<unsigned>(scans);
  auto inputs = scanInputs(context, states);
  if (!inputs)
    return inputs.takeError();
  auto progress = start(context, **body, 0, states, inputs->size(), 0);
  if (!progress)
    return progress.takeError();
  for (int64_t t = 0; t < inputs->front().length(); ++t) {
    std::vector<Tensor> given;
    std::move(progress->carried.begin(), progress->carried.end(), std::back_inserter(given));
    for (const ScanInput& input : *inputs)
      given.push_back(input.row(t));
    auto outputs = context.runBody("body", std::move(given));
    if (!outputs)
      return outputs.takeError();
    if (llvm::Error error = advance(context, *progress, std::move(*outputs)))
      return error;
  }
  if (llvm::Error error = storeCarried(context, progress->carried))
    return error;
  return storeScanned(context, *progress, **body);
}

} // namespace

void register_loop(KernelRegistry& registry) {
  registry.add("Loop", 1, runLoop);
  registry.add("Scan", 9, runScan);
}

} // namespace kvopt::kernels
