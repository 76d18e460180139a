// Execution of a graph: inputs, steps in order, outputs.
#include "runtime/exec/executor.h"

#include "runtime/exec/execution_context.h"
#include "runtime/exec/inline_functions.h"
#include "support/diagnostic.h"

#include "llvm/ADT/ScopeExit.h"

#include <unistd.h>

namespace kvopt::runtime {
using namespace ir;

class Executor::Impl {
public:
  Impl(const ExecutorOptions& executorOptions)
      : options(executorOptions),
        pool(options.pool ? options.pool : std::make_shared<ThreadPool>(options.threads)) {
    if (!options.allocator)
      options.allocator = std::make_shared<Allocator>();
  }

  llvm::Error prepare(const Model& model, const KernelRegistry& kernels);
  /// Requires one view for each graph input in `given`; null if there is none.
  llvm::Error run(llvm::ArrayRef<Binding> bindings, std::vector<Tensor>& outputs);
  llvm::Error giveByName(llvm::ArrayRef<NamedView> inputs);

  ExecutorOptions options;
  std::shared_ptr<ThreadPool> pool;
  std::unique_ptr<InlinedGraph> inlined; // set if functions of the model had to be inlined
  const Graph* graph = nullptr;
  ExecutionPlan plan;
  std::shared_ptr<ConstantMemory> constantMemory;
  std::shared_ptr<const FoldedConstants> constants;
  llvm::StringMap<int64_t> definedNodes;
  std::vector<Tensor> inputDefaults; // for each graph input; null data if it has no default
  std::unique_ptr<InputBinding> declared;
  std::unique_ptr<RunEnvironment> environment;
  std::unique_ptr<RunState> state;
  std::vector<const TensorView*> given; // for each graph input

private:
  llvm::Error foldConstants();
  llvm::Error loadDefaults();
  llvm::Error bind(llvm::ArrayRef<Binding> bindings);
  llvm::Error collectOutputs();

  llvm::StringMap<unsigned> inputIndices;
  llvm::StringMap<unsigned> outputIndices;
  // Kept between runs to reuse their storage.
  std::vector<const TensorView*> views;   // for each graph input, including defaults
  std::vector<const TensorView*> buffers; // for each graph output: the buffer for it, or null
  std::vector<Tensor> collected;          // for each graph output
};

namespace {

void countDefinedNodes(const ExecutionPlan& plan, llvm::StringMap<int64_t>& counts) {
  for (const ExecutionPlan::Step& step : plan.steps) {
    if (step.kernel->definition)
      ++counts[step.node->op().str()];
    for (const ExecutionPlan::Branch& branch : step.branches)
      countDefinedNodes(*branch.plan, counts);
  }
}

} // namespace

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
  countDefinedNodes(plan, definedNodes);
  declared = std::make_unique<InputBinding>(*graph);
  environment = std::make_unique<RunEnvironment>(options.allocator, declared->symbols(), *pool);
  environment->timeOperators = options.timeOperators;
  state = std::make_unique<RunState>(plan, *environment);
  for (unsigned i = 0; i < graph->inputs().size(); ++i)
    inputIndices.try_emplace(graph->inputs()[i]->name(), i);
  for (unsigned i = 0; i < graph->outputs().size(); ++i)
    outputIndices.try_emplace(graph->outputs()[i]->name(), i);
  if (llvm::Error error = foldConstants())
    return error;
  return loadDefaults();
}

int64_t defaultFoldedConstantsLimit() {
  const int64_t pages = sysconf(_SC_PHYS_PAGES);
  const int64_t pageBytes = sysconf(_SC_PAGESIZE);
  return pages > 0 && pageBytes > 0 ? pages / 4 * pageBytes : 0;
}

llvm::Error Executor::Impl::foldConstants() {
  if (options.constantsOf) {
    constantMemory = options.constantsOf->impl->constantMemory;
    constants = options.constantsOf->impl->constants;
    options.constantsOf = nullptr; // it may be destroyed before this one
  } else {
    const int64_t limit = options.foldedConstantsLimit < 0 ? defaultFoldedConstantsLimit()
                                                           : options.foldedConstantsLimit;
    constantMemory = std::make_shared<ConstantMemory>(options.allocator, limit);
    llvm::Expected<std::unique_ptr<const FoldedConstants>> folded =
        FoldedConstants::compute(plan, *constantMemory, *pool);
    if (!folded)
      return folded.takeError();
    constants = std::move(*folded);
  }
  assert(constants->isFolded.size() == plan.steps.size());
  state->takeConstants(*constants);
  return llvm::Error::success();
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

llvm::Error Executor::Impl::giveByName(llvm::ArrayRef<NamedView> inputs) {
  given.assign(graph->inputs().size(), nullptr);
  for (const NamedView& input : inputs) {
    auto found = inputIndices.find(input.name);
    if (found == inputIndices.end())
      return invalid("the model has no input '{}'", input.name);
    if (given[found->second])
      return invalid("input '{}' is given twice", input.name);
    given[found->second] = &input.view;
  }
  return llvm::Error::success();
}

llvm::Error Executor::Impl::bind(llvm::ArrayRef<Binding> bindings) {
  state->writable.assign(plan.groups.size(), false);
  buffers.assign(plan.outputs.size(), nullptr);
  for (const Binding& binding : bindings) {
    auto input = inputIndices.find(binding.input);
    if (input == inputIndices.end() || !given[input->second])
      return invalid("a bound buffer is not an input of this run: '{}'", binding.input);
    auto output = outputIndices.find(binding.output);
    if (output == outputIndices.end())
      return invalid("the model has no output '{}'", binding.output);
    buffers[output->second] = given[input->second];
    unsigned slot = plan.inputs[input->second];
    if (slot != ExecutionPlan::none)
      state->writable[plan.slots[slot].group] = true;
  }
  return llvm::Error::success();
}

llvm::Error Executor::Impl::collectOutputs() {
  for (unsigned index = 0; index < plan.outputs.size(); ++index) {
    const Tensor& tensor = state->tensors[plan.outputs[index]];
    const TensorView* buffer = buffers[index];
    if (buffer && (buffer->element != tensor.view.element || buffer->shape != tensor.view.shape))
      return invalid("output '{}' has shape {}, but the buffer bound to it {}",
                     graph->outputs()[index]->name(), extentsText(tensor.view.shape),
                     extentsText(buffer->shape));
    bool isInBuffer =
        buffer && buffer->data == tensor.view.data && buffer->strides == tensor.view.strides;
    bool isForeign =
        !tensor.owner || plan.groups[plan.slots[plan.outputs[index]].group].mayBeConstant;
    if (isInBuffer || !isForeign) {
      collected.push_back(tensor);
      continue;
    }
    llvm::Expected<Tensor> copy = environment->allocate(tensor.view.element, tensor.view.shape);
    if (!copy)
      return copy.takeError();
    copyElements(tensor.view, copy->view);
    collected.push_back(std::move(*copy));
  }
  // Buffers are written last, because outputs may be views of buffers until here.
  for (unsigned index = 0; index < collected.size(); ++index) {
    const TensorView* buffer = buffers[index];
    const TensorView& view = collected[index].view;
    if (!buffer || (buffer->data == view.data && buffer->strides == view.strides))
      continue;
    copyElements(view, *buffer);
    environment->statistics.inPlaceBytesCopied += buffer->byteSize();
    collected[index] = Tensor{nullptr, *buffer};
  }
  return llvm::Error::success();
}

llvm::Error Executor::Impl::run(llvm::ArrayRef<Binding> bindings, std::vector<Tensor>& outputs) {
  RunStatistics& statistics = environment->statistics;
  statistics = RunStatistics();
  statistics.foldedNodes = constants->foldedNodes;
  statistics.foldedBytes = constantMemory->used();
  statistics.streamedNodes = constants->streamedNodes;
  statistics.definedNodes = definedNodes;
  environment->pool.restartPeak();
  environment->scratch.restartPeak();
  size_t inUseBefore = environment->pool.bytesInUse();
  views = given;
  collected.clear(); // a run that an exception ended may have left some
  for (size_t i = 0; i < views.size(); ++i) {
    const Value& input = *graph->inputs()[i];
    if (!views[i] && inputDefaults[i].view.data)
      views[i] = &inputDefaults[i].view;
    if (!views[i])
      return invalid("input '{}' is missing", input.name())
          .hint(formatted("it is {}", input.type().str()));
  }
  if (llvm::Error error = declared->bind(views))
    return error;
  if (llvm::Error error = bind(bindings))
    return error;
  if (llvm::Error error = state->placeIntermediates())
    return error;
  // Also where memory runs out: the next run must not find results of this one.
  auto clearing = llvm::make_scope_exit([this] { state->clear(); });
  for (size_t i = 0; i < views.size(); ++i) {
    if (plan.inputs[i] == ExecutionPlan::none)
      continue;
    state->tensors[plan.inputs[i]] = Tensor{nullptr, *views[i]};
    state->present[plan.inputs[i]] = true;
  }
  llvm::Error failure = state->runSteps();
  if (!failure)
    failure = collectOutputs();
  state->clear();
  clearing.release();
  statistics.scratchBytes = static_cast<int64_t>(environment->scratch.peakBytes());
  statistics.dynamicBytes = static_cast<int64_t>(environment->pool.peakBytesInUse() - inUseBefore);
  if (!failure) {
    outputs.resize(collected.size());
    outputs.swap(collected);
  }
  collected.clear();
  environment->pool.endRound();
  statistics.reservedBytes = state->arenaBytes() +
                             static_cast<int64_t>(environment->scratch.reservedBytes()) +
                             static_cast<int64_t>(environment->pool.freeBytes());
  return failure;
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
  std::vector<Tensor> outputs;
  if (llvm::Error error = run(inputs, bindings, outputs))
    return error;
  return outputs;
}

llvm::Expected<std::vector<Tensor>> Executor::run(llvm::ArrayRef<TensorView> inputs,
                                                  llvm::ArrayRef<Binding> bindings) {
  if (inputs.size() != impl->graph->inputs().size())
    return invalid("{} inputs are given, but the model has {}", inputs.size(),
                   impl->graph->inputs().size());
  impl->given.clear();
  for (const TensorView& view : inputs)
    impl->given.push_back(&view);
  std::vector<Tensor> outputs;
  if (llvm::Error error = impl->run(bindings, outputs))
    return error;
  return outputs;
}

llvm::Error Executor::run(llvm::ArrayRef<NamedView> inputs, llvm::ArrayRef<Binding> bindings,
                          std::vector<Tensor>& outputs) {
  if (llvm::Error error = impl->giveByName(inputs))
    return error;
  return impl->run(bindings, outputs);
}

void Executor::dropMemory() {
  impl->state->dropMemory();
  impl->environment->scratch.releaseFree();
  impl->environment->pool.releaseFree();
}

const RunStatistics& Executor::statistics() const { return impl->environment->statistics; }
const std::shared_ptr<Allocator>& Executor::allocator() const {
  return impl->environment->allocator;
}
const Graph& Executor::graph() const { return *impl->graph; }

} // namespace kvopt::runtime
