// Runs of a graph: inputs in, steps in order, outputs out.
#include "runtime/executor.h"

#include "ir/diagnostic.h"
#include "runtime/execution_context.h"
#include "runtime/inline_functions.h"

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
  RunEnvironment environment;
  std::unique_ptr<RunState> state;

private:
  struct BoundOutput {
    unsigned output;
    TensorView buffer;
  };
  llvm::Error loadDefaults();
  llvm::Expected<llvm::SmallVector<BoundOutput, 8>> bind(llvm::ArrayRef<const TensorView*> views,
                                                         llvm::ArrayRef<Binding> bindings);
  llvm::Expected<std::vector<Tensor>> takeOutputs(llvm::ArrayRef<BoundOutput> bound);
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
  environment.allocator = options.allocator;
  environment.threads = &pool;
  environment.timeOperators = options.timeOperators;
  state = std::make_unique<RunState>(plan, environment);
  if (llvm::Error error = state->loadConstants())
    return error;
  return loadDefaults();
}

llvm::Error Executor::Impl::loadDefaults() {
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
  state->writable.assign(plan.groups.size(), false);
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
      state->writable[plan.slots[plan.inputs[input]].group] = true;
  }
  return bound;
}

llvm::Expected<std::vector<Tensor>> Executor::Impl::takeOutputs(llvm::ArrayRef<BoundOutput> bound) {
  std::vector<Tensor> outputs;
  llvm::SmallVector<const BoundOutput*, 16> destinations;
  for (unsigned index = 0; index < plan.outputs.size(); ++index) {
    const Tensor& tensor = state->tensors[plan.outputs[index]];
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
    bool isForeign =
        !tensor.owner || plan.groups[plan.slots[plan.outputs[index]].group].mayBeConstant;
    if (isInBuffer || !isForeign) {
      outputs.push_back(tensor);
      continue;
    }
    llvm::Expected<Tensor> copy = environment.allocate(tensor.view.element, tensor.view.shape);
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
    environment.statistics.inPlaceBytesCopied += buffer.byteSize();
    outputs[index] = Tensor{nullptr, buffer};
  }
  return outputs;
}

llvm::Expected<std::vector<Tensor>> Executor::Impl::run(llvm::ArrayRef<const TensorView*> given,
                                                        llvm::ArrayRef<Binding> bindings) {
  environment.statistics = RunStatistics();
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
  environment.symbols = std::move(*symbols);
  if (llvm::Error error = state->placeIntermediates())
    return error;
  for (size_t i = 0; i < views.size(); ++i) {
    if (plan.inputs[i] == ExecutionPlan::none)
      continue;
    state->tensors[plan.inputs[i]] = Tensor{nullptr, *views[i]};
    state->present[plan.inputs[i]] = true;
  }
  if (llvm::Error error = state->runSteps()) {
    state->clear();
    return error;
  }
  llvm::Expected<std::vector<Tensor>> outputs = takeOutputs(*bound);
  state->clear();
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

const RunStatistics& Executor::statistics() const { return impl->environment.statistics; }
const std::shared_ptr<Allocator>& Executor::allocator() const {
  return impl->environment.allocator;
}
const Graph& Executor::graph() const { return *impl->graph; }

} // namespace kvopt
