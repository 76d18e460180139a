// Runs of a graph: inputs in, steps in order, outputs out.
#include "runtime/executor.h"

#include "ir/diagnostic.h"
#include "runtime/execution_context.h"
#include "runtime/inline_functions.h"
#include "runtime/input_binding.h"
#include "runtime/memory_plan.h"

#include <chrono>

namespace kvopt {

class Executor::Impl {
public:
  Impl(const ExecutorOptions& executorOptions)
      : options(executorOptions), pool(executorOptions.threads) {
    if (!options.allocator)
      options.allocator = std::make_shared<Allocator>();
  }

  llvm::Error prepare(const Model& model, const KernelRegistry& kernels);
  llvm::Expected<std::vector<Tensor>> run(llvm::ArrayRef<const TensorView*> views,
                                          llvm::ArrayRef<Binding> bindings);
  llvm::Expected<std::vector<const TensorView*>> byName(llvm::ArrayRef<NamedView> inputs) const;

  ExecutorOptions options;
  ThreadPool pool;
  std::unique_ptr<InlinedGraph> inlined; // when the model's functions had to be inlined
  const Graph* graph = nullptr;
  ExecutionPlan plan;
  std::vector<Tensor> inputDefaults; // per graph input; null data where there is none
  RunState state;

private:
  struct BoundOutput {
    unsigned output;
    TensorView buffer;
  };
  llvm::Error loadConstants();
  llvm::Error placeIntermediates(const SymbolValues& symbols);
  llvm::Expected<llvm::SmallVector<BoundOutput, 8>> bind(llvm::ArrayRef<const TensorView*> views,
                                                         llvm::ArrayRef<Binding> bindings);
  llvm::Error runSteps();
  llvm::Expected<std::vector<Tensor>> takeOutputs(llvm::ArrayRef<BoundOutput> bound);
  void clear();

  std::vector<int64_t> plannedBytes; // per group, what the current placement provides
  MemoryPlan placement;
  std::vector<unsigned> placedGroups;
};

llvm::Error Executor::Impl::prepare(const Model& model, const KernelRegistry& kernels) {
  llvm::Expected<std::unique_ptr<InlinedGraph>> copy = inlineFunctions(model, kernels);
  if (!copy)
    return copy.takeError();
  inlined = std::move(*copy);
  graph = inlined ? &inlined->graph() : &model.graph();
  llvm::Expected<ExecutionPlan> built = ExecutionPlan::build(*graph, kernels);
  if (!built)
    return built.takeError();
  plan = std::move(*built);
  state.plan = &plan;
  state.allocator = options.allocator;
  state.threads = &pool;
  state.tensors.resize(plan.slots.size());
  state.packed.resize(plan.slots.size());
  state.present.assign(plan.slots.size(), false);
  state.writable.assign(plan.groups.size(), false);
  state.offsets.assign(plan.groups.size(), -1);
  plannedBytes.assign(plan.groups.size(), -1);
  return loadConstants();
}

llvm::Error Executor::Impl::loadConstants() {
  for (const ExecutionPlan::Group& group : plan.groups) {
    if (group.kind != ExecutionPlan::Group::Kind::Constant)
      continue;
    unsigned slot = group.slots.front();
    const Value& value = *plan.slots[slot].value;
    llvm::Expected<Tensor> tensor = Tensor::of(options.allocator, value.constantRef());
    if (!tensor)
      return invalid("constant '{}' cannot be used", value.name())
          .note(takeDiagnostic(tensor.takeError()).str());
    state.tensors[slot] = std::move(*tensor);
    state.present[slot] = true;
  }
  for (const std::unique_ptr<Value>& input : graph->inputs()) {
    Tensor& otherwise = inputDefaults.emplace_back();
    if (!input->initializer())
      continue;
    llvm::Expected<Tensor> tensor = Tensor::of(options.allocator, input->initializer());
    if (!tensor)
      return invalid("default of input '{}' cannot be used", input->name())
          .note(takeDiagnostic(tensor.takeError()).str());
    otherwise = std::move(*tensor);
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<const TensorView*>>
Executor::Impl::byName(llvm::ArrayRef<NamedView> inputs) const {
  std::vector<const TensorView*> views(graph->inputs().size(), nullptr);
  llvm::StringMap<size_t> indices;
  for (size_t i = 0; i < views.size(); ++i)
    indices[graph->inputs()[i]->name()] = i;
  for (const NamedView& input : inputs) {
    auto found = indices.find(input.name);
    if (found == indices.end())
      return invalid("the model has no input '{}'", input.name);
    if (views[found->second])
      return invalid("input '{}' is given twice", input.name);
    views[found->second] = &input.view;
  }
  return views;
}

llvm::Expected<llvm::SmallVector<Executor::Impl::BoundOutput, 8>>
Executor::Impl::bind(llvm::ArrayRef<const TensorView*> views, llvm::ArrayRef<Binding> bindings) {
  llvm::SmallVector<BoundOutput, 8> bound;
  state.writable.assign(plan.groups.size(), false);
  for (const Binding& binding : bindings) {
    size_t input = 0;
    while (input < views.size() && graph->inputs()[input]->name() != binding.input)
      ++input;
    unsigned output = 0;
    while (output < plan.outputs.size() && graph->outputs()[output]->name() != binding.output)
      ++output;
    if (input == views.size() || !views[input])
      return invalid("a bound buffer is no input that is given: '{}'", binding.input);
    if (output == plan.outputs.size())
      return invalid("the model has no output '{}'", binding.output);
    bound.push_back({output, *views[input]});
    if (plan.inputs[input] != ExecutionPlan::none)
      state.writable[plan.slots[plan.inputs[input]].group] = true;
  }
  return bound;
}

/// Sizes of planned groups, and a new placement when the current one is too small or far too large.
llvm::Error Executor::Impl::placeIntermediates(const SymbolValues& symbols) {
  state.extents.resize(plan.dims.size());
  for (size_t i = 0; i < plan.dims.size(); ++i)
    state.extents[i] = plan.dims[i].evaluate([&](llvm::StringRef name) -> std::optional<int64_t> {
      auto found = symbols.find(name);
      if (found == symbols.end())
        return std::nullopt;
      return found->second;
    });

  std::vector<int64_t> needed(plan.groups.size(), -1);
  bool fits = true;
  int64_t neededTotal = 0;
  int64_t plannedTotal = 0;
  for (size_t index = 0; index < plan.groups.size(); ++index) {
    const ExecutionPlan::Group& group = plan.groups[index];
    if (group.kind != ExecutionPlan::Group::Kind::Planned)
      continue;
    const ExecutionPlan::Slot& root = plan.slots[group.slots.front()];
    std::optional<unsigned> width = byteWidth(root.value->type().elementType());
    if (!root.ranked || !width)
      continue;
    llvm::SmallVector<int64_t, 6> shape;
    for (unsigned dim : root.shape)
      if (state.extents[dim])
        shape.push_back(*state.extents[dim]);
    if (shape.size() != root.shape.size())
      continue;
    llvm::Expected<int64_t> count = checkedElementCount(shape);
    if (!count)
      return withNode(count.takeError(), root.value->name());
    if (__builtin_mul_overflow(*count, int64_t{*width}, &needed[index]) ||
        __builtin_add_overflow(neededTotal, needed[index], &neededTotal))
      return invalid("the intermediate tensors' sizes overflow").value(root.value->name());
    fits &= plannedBytes[index] >= needed[index];
    plannedTotal += std::max<int64_t>(plannedBytes[index], 0);
  }
  if (!fits || !state.arena || plannedTotal / 2 > neededTotal) {
    std::vector<StorageInterval> intervals;
    placedGroups.clear();
    bool isFirst = !state.arena;
    for (unsigned index = 0; index < needed.size(); ++index) {
      // A tensor that has grown since the last placement will probably go on growing.
      if (!isFirst && plannedBytes[index] >= 0 && needed[index] > plannedBytes[index])
        plannedBytes[index] = needed[index] + std::min(needed[index] / 8, INT64_MAX / 4);
      else
        plannedBytes[index] = needed[index];
      if (plannedBytes[index] < 0)
        continue;
      placedGroups.push_back(index);
      intervals.push_back({plannedBytes[index], plan.groups[index].first, plan.groups[index].last});
    }
    llvm::Expected<MemoryPlan> fresh = planMemory(intervals);
    if (!fresh)
      return fresh.takeError();
    if (!state.arena || state.arena->size() < static_cast<size_t>(fresh->peak) ||
        state.arena->size() / 2 > static_cast<size_t>(fresh->peak)) {
      state.arena = nullptr;
      llvm::Expected<std::shared_ptr<Buffer>> arena =
          Buffer::create(options.allocator, static_cast<size_t>(fresh->peak));
      if (!arena)
        return arena.takeError();
      state.arena = std::move(*arena);
      if (fresh->peak != 0) {
        state.statistics.bytesAllocated += fresh->peak;
        ++state.statistics.allocations;
      }
    }
    placement = std::move(*fresh);
  }
  state.offsets.assign(plan.groups.size(), -1);
  for (size_t i = 0; i < placedGroups.size(); ++i)
    if (needed[placedGroups[i]] >= 0)
      state.offsets[placedGroups[i]] = placement.offsets[i];
  state.statistics.arenaBytes = placement.peak;
  state.statistics.arenaLowerBound = placement.lowerBound;
  return llvm::Error::success();
}

llvm::Error Executor::Impl::runSteps() {
  for (const ExecutionPlan::Step& step : plan.steps) {
    auto begin = std::chrono::steady_clock::time_point();
    if (options.timeOperators)
      begin = std::chrono::steady_clock::now();
    if (llvm::Error error = ExecutionContext(state, step).execute())
      return error;
    if (options.timeOperators)
      state.statistics.operatorNanoseconds[step.node->op().str()] +=
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                               begin)
              .count();
    for (unsigned group : step.dying)
      state.release(group);
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<Tensor>> Executor::Impl::takeOutputs(llvm::ArrayRef<BoundOutput> bound) {
  std::vector<Tensor> outputs;
  llvm::SmallVector<const BoundOutput*, 16> destinations;
  for (unsigned index = 0; index < plan.outputs.size(); ++index) {
    const Tensor& tensor = state.tensors[plan.outputs[index]];
    const BoundOutput* destination = nullptr;
    for (const BoundOutput& candidate : bound)
      if (candidate.output == index)
        destination = &candidate;
    destinations.push_back(destination);
    if (destination && (destination->buffer.element != tensor.view.element ||
                        destination->buffer.shape != tensor.view.shape))
      return invalid("output '{}' has shape {}, but the buffer bound to it {}",
                     graph->outputs()[index]->name(), extentsText(tensor.view.shape),
                     extentsText(destination->buffer.shape));
    bool isInBuffer = destination && destination->buffer.data == tensor.view.data &&
                      destination->buffer.strides == tensor.view.strides;
    ExecutionPlan::Group::Kind kind = plan.groups[plan.slots[plan.outputs[index]].group].kind;
    bool isForeign = !tensor.owner || kind == ExecutionPlan::Group::Kind::Constant;
    if (isInBuffer || !isForeign) {
      outputs.push_back(tensor);
      continue;
    }
    llvm::Expected<Tensor> copy = state.allocate(tensor.view.element, tensor.view.shape);
    if (!copy)
      return copy.takeError();
    copyElements(tensor.view, copy->view);
    outputs.push_back(std::move(*copy));
  }
  // Buffers are written last: until here an output may have been a view of one.
  for (unsigned index = 0; index < outputs.size(); ++index) {
    if (!destinations[index])
      continue;
    const TensorView& buffer = destinations[index]->buffer;
    if (buffer.data == outputs[index].view.data && buffer.strides == outputs[index].view.strides)
      continue;
    copyElements(outputs[index].view, buffer);
    state.statistics.inPlaceBytesCopied += buffer.byteSize();
    outputs[index] = Tensor{nullptr, buffer};
  }
  return outputs;
}

void Executor::Impl::clear() {
  for (unsigned group = 0; group < plan.groups.size(); ++group)
    state.release(group);
}

llvm::Expected<std::vector<Tensor>> Executor::Impl::run(llvm::ArrayRef<const TensorView*> given,
                                                        llvm::ArrayRef<Binding> bindings) {
  state.statistics = RunStatistics();
  llvm::SmallVector<const TensorView*, 16> views(given.begin(), given.end());
  for (size_t i = 0; i < views.size(); ++i) {
    const Value& input = *graph->inputs()[i];
    if (!views[i] && inputDefaults[i].view.data)
      views[i] = &inputDefaults[i].view;
    if (!views[i])
      return invalid("input '{}' is missing", input.name())
          .hint(fmt::format("it is {}", input.type().str()));
  }
  llvm::Expected<SymbolValues> symbols = bindInputs(*graph, views);
  if (!symbols)
    return symbols.takeError();
  llvm::Expected<llvm::SmallVector<BoundOutput, 8>> bound = bind(given, bindings);
  if (!bound)
    return bound.takeError();
  if (llvm::Error error = placeIntermediates(*symbols))
    return error;
  for (size_t i = 0; i < views.size(); ++i) {
    if (plan.inputs[i] == ExecutionPlan::none)
      continue;
    state.tensors[plan.inputs[i]] = Tensor{nullptr, *views[i]};
    state.present[plan.inputs[i]] = true;
  }
  if (llvm::Error error = runSteps()) {
    clear();
    return error;
  }
  llvm::Expected<std::vector<Tensor>> outputs = takeOutputs(*bound);
  clear();
  return outputs;
}

Executor::Executor(std::unique_ptr<Impl> implementation) : impl(std::move(implementation)) {}
Executor::~Executor() = default;

llvm::Expected<std::unique_ptr<Executor>> Executor::create(const Model& model,
                                                           const KernelRegistry& kernels,
                                                           const ExecutorOptions& options) {
  auto impl = std::make_unique<Impl>(options);
  if (llvm::Error error = impl->prepare(model, kernels))
    return withFile(std::move(error), model.path);
  return std::unique_ptr<Executor>(new Executor(std::move(impl)));
}

llvm::Expected<std::vector<Tensor>> Executor::run(llvm::ArrayRef<NamedView> inputs,
                                                  llvm::ArrayRef<Binding> bindings) {
  llvm::Expected<std::vector<const TensorView*>> views = impl->byName(inputs);
  if (!views)
    return views.takeError();
  return impl->run(*views, bindings);
}

llvm::Expected<std::vector<Tensor>> Executor::run(llvm::ArrayRef<TensorView> inputs,
                                                  llvm::ArrayRef<Binding> bindings) {
  if (inputs.size() != impl->graph->inputs().size())
    return invalid("{} inputs are given, but the model has {}", inputs.size(),
                   impl->graph->inputs().size());
  std::vector<const TensorView*> views;
  for (const TensorView& view : inputs)
    views.push_back(&view);
  return impl->run(views, bindings);
}

const RunStatistics& Executor::statistics() const { return impl->state.statistics; }
const std::shared_ptr<Allocator>& Executor::allocator() const { return impl->state.allocator; }
const Graph& Executor::graph() const { return *impl->graph; }

} // namespace kvopt
