// Loop (every version): a subgraph that runs again and again.
//
//   for i = 0, 1, …  while i < M and condition:
//     condition, v…, s… = body(i, condition, v…)
//
// M (int64) and the condition (bool) are absent or hold one element; an absent M has no end, an
// absent condition is true. Results are v… after the last iteration, the initial ones when there
// was none, and every s stacked along a new first axis, one row for each iteration. The condition
// that the body computes last is no result. What the body reads from the graphs around it is the
// same in every iteration.
#include "runtime/buffer.h"
#include "runtime/integer_input.h"
#include "runtime/kernel.h"

#include <fmt/format.h>

namespace kvopt {
namespace {

/// A file may ask for iterations without end.
constexpr int64_t mostIterations = int64_t{1} << 20;

struct LoopState {
  const Graph* body = nullptr;
  int64_t trips = INT64_MAX;
  bool condition = true;
  /// v…
  std::vector<Tensor> carried;
  /// By scanned result: one tensor for each iteration so far.
  std::vector<std::vector<Tensor>> scanned;

  unsigned carriedCount() const { return static_cast<unsigned>(carried.size()); }
};

llvm::Expected<bool> conditionOf(const KernelContext& context, const TensorView& view) {
  if (view.element != ElementType::Bool || view.elementCount() != 1)
    return context.error("the condition is not one bool");
  return *view.as<uint8_t>() != 0;
}

llvm::Expected<LoopState> start(KernelContext& context) {
  LoopState loop;
  const Attribute* attribute = context.node().attribute("body");
  if (!attribute || attribute->graphs().size() != 1)
    return context.error("the body is missing");
  loop.body = attribute->graphs().front().get();
  if (context.has(0)) {
    auto trips = integersOf(context, 0);
    if (!trips)
      return trips.takeError();
    if (trips->size() != 1)
      return context.error("the trip count is not one number");
    loop.trips = (*trips)[0];
  }
  if (context.has(1)) {
    auto condition = conditionOf(context, context.in(1));
    if (!condition)
      return condition.takeError();
    loop.condition = *condition;
  }
  for (unsigned i = 2; i < context.inputCount(); ++i) {
    if (!context.has(i))
      return context.error(fmt::format("the initial value {} is absent", i - 2));
    loop.carried.push_back(context.share(i));
  }
  const size_t results = context.node().results().size();
  if (loop.body->inputs().size() != loop.carried.size() + 2)
    return context.error(fmt::format("the body has {} inputs, the node {} initial values",
                                     loop.body->inputs().size(), loop.carried.size()));
  if (results < loop.carried.size() || loop.body->outputs().size() != results + 1)
    return context.error(fmt::format("the body has {} outputs, the node {} results",
                                     loop.body->outputs().size(), results));
  loop.scanned.resize(results - loop.carried.size());
  return loop;
}

template <class T>
llvm::Expected<Tensor> scalar(KernelContext& context, ElementType element, T value) {
  llvm::Expected<Tensor> tensor = context.temporary(element, {});
  if (tensor)
    *tensor->view.as<T>() = value;
  return tensor;
}

llvm::Error iterate(KernelContext& context, LoopState& loop, int64_t iteration) {
  std::vector<Tensor> inputs;
  auto index = scalar<int64_t>(context, ElementType::Int64, iteration);
  if (!index)
    return index.takeError();
  inputs.push_back(std::move(*index));
  auto condition = scalar<uint8_t>(context, ElementType::Bool, 1);
  if (!condition)
    return condition.takeError();
  inputs.push_back(std::move(*condition));
  // Moved: what an iteration made may be overwritten by the next one.
  std::move(loop.carried.begin(), loop.carried.end(), std::back_inserter(inputs));
  auto outputs = context.runBody("body", std::move(inputs));
  if (!outputs)
    return outputs.takeError();
  auto goesOn = conditionOf(context, (*outputs)[0].view);
  if (!goesOn)
    return goesOn.takeError();
  loop.condition = *goesOn;
  for (unsigned i = 0; i < loop.carriedCount(); ++i)
    loop.carried[i] = std::move((*outputs)[i + 1]);
  for (unsigned i = 0; i < loop.scanned.size(); ++i) {
    const unsigned result = loop.carriedCount() + i;
    if (!context.wants(result))
      continue;
    Tensor& made = (*outputs)[result + 1];
    if (!loop.scanned[i].empty() && (loop.scanned[i].front().view.shape != made.view.shape ||
                                     loop.scanned[i].front().view.element != made.view.element))
      return context.error(fmt::format("result {} differs in shape between iterations", result));
    loop.scanned[i].push_back(std::move(made));
  }
  return llvm::Error::success();
}

llvm::Error stack(KernelContext& context, unsigned result, llvm::ArrayRef<Tensor> rows,
                  const TensorType& declared) {
  Extents shape{static_cast<int64_t>(rows.size())};
  ElementType element = declared.elementType();
  if (!rows.empty()) {
    const TensorView& first = rows.front().view;
    shape.append(first.shape.begin(), first.shape.end());
    element = first.element;
  } else if (declared.hasRank()) {
    for (const Dim& extent : declared.shape())
      shape.push_back(extent.value().value_or(0));
  }
  if (element == ElementType::Undefined)
    return context.error(fmt::format("nothing tells the element type of result {}", result));
  auto whole = context.output(result, element, shape);
  if (!whole)
    return whole.takeError();
  for (size_t i = 0; i < rows.size(); ++i) {
    TensorView row = sliceAxis(*whole, 0, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1);
    row.shape.erase(row.shape.begin());
    row.strides.erase(row.strides.begin());
    copyElements(rows[i].view, row);
  }
  return llvm::Error::success();
}

llvm::Error runLoop(KernelContext& context) {
  auto loop = start(context);
  if (!loop)
    return loop.takeError();
  for (int64_t i = 0; i < loop->trips && loop->condition; ++i) {
    if (i == mostIterations)
      return context.error(fmt::format("more than {} iterations", mostIterations));
    if (llvm::Error error = iterate(context, *loop, i))
      return error;
  }
  for (unsigned i = 0; i < loop->carriedCount(); ++i) {
    if (!context.wants(i))
      continue;
    const TensorView& last = loop->carried[i].view;
    auto result = context.output(i, last.element, last.shape);
    if (!result)
      return result.takeError();
    copyElements(last, *result);
  }
  for (unsigned i = 0; i < loop->scanned.size(); ++i) {
    const unsigned result = loop->carriedCount() + i;
    if (!context.wants(result))
      continue;
    if (llvm::Error error =
            stack(context, result, loop->scanned[i], loop->body->outputs()[result + 1]->type()))
      return error;
  }
  return llvm::Error::success();
}

} // namespace

void register_loop(KernelRegistry& registry) { registry.add("Loop", 1, runLoop); }

} // namespace kvopt
