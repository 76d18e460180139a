// Storage of results on request of kernels.
#include "runtime/exec/execution_context.h"

#include "runtime/exec/input_binding.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::runtime {
using namespace ir;

llvm::Error ExecutionContext::execute() {
  if (llvm::Error error = packOperands())
    return error;
  ScratchStack::Mark mark = state.environment.scratch.mark();
  llvm::Error failure = step.kernel->execute(*this);
  state.environment.scratch.returnTo(mark);
  if (failure)
    return withNode(std::move(failure), node().name(), node().op().str());
  for (unsigned result = 0; result < step.results.size(); ++result)
    if (step.results[result] != ExecutionPlan::none && !state.present[step.results[result]])
      return internalError(formatted("the kernel did not produce result {}", result));
  return llvm::Error::success();
}

llvm::Error ExecutionContext::packOperands() {
  if (step.kernel->acceptsStrides)
    return llvm::Error::success();
  for (unsigned operand = 0; operand < step.operands.size(); ++operand) {
    const unsigned slot = step.operands[operand];
    if (slot == ExecutionPlan::none || weights(operand))
      continue;
    assert(state.present[slot]);
    const TensorView& view = state.tensors[slot].view;
    if (view.isContiguous() || state.packed[slot].view.data)
      continue;
    llvm::Expected<Tensor> copy = state.environment.allocate(view.element, view.shape);
    if (!copy)
      return withNode(copy.takeError(), node().name(), node().op().str());
    copyElements(view, copy->view);
    state.environment.statistics.packedBytes += view.byteSize();
    state.packed[slot] = std::move(*copy);
  }
  return llvm::Error::success();
}

const Tensor& ExecutionContext::operandTensor(unsigned index) const {
  assert(index < step.operands.size() && step.operands[index] != ExecutionPlan::none);
  unsigned slot = step.operands[index];
  if (!step.kernel->acceptsStrides && state.packed[slot].view.data)
    return state.packed[slot];
  return state.tensors[slot];
}

const TensorView* ExecutionContext::input(unsigned index) const {
  if (index >= step.operands.size() || step.operands[index] == ExecutionPlan::none)
    return nullptr;
  if (const ConstantWeights* constant = weights(index))
    return &constant->described;
  return &operandTensor(index).view;
}

llvm::Error ExecutionContext::internalError(const std::string& message) const {
  return error("internal error: " + message);
}

llvm::Error ExecutionContext::checkResult(unsigned result, ElementType element,
                                          llvm::ArrayRef<int64_t> shape) {
  assert(wants(result) && "only wanted results are given");
  unsigned slot = step.results[result];
  if (state.present[slot])
    return internalError(formatted("result {} is given twice", result));
  const ExecutionPlan::Slot& planned = state.plan.slots[slot];
  ElementType declared = planned.value->type().elementType();
  if (declared != ElementType::Undefined && declared != element)
    return internalError(formatted("result {} is {}, but its inferred type is {}", result,
                                   onnxName(element), onnxName(declared)));
  if (!planned.ranked)
    return llvm::Error::success();
  bool isAsPredicted = planned.shape.size() == shape.size();
  for (size_t axis = 0; isAsPredicted && axis < shape.size(); ++axis) {
    const std::optional<int64_t>& expected = state.extents[planned.shape[axis]];
    isAsPredicted = !expected || *expected == shape[axis];
  }
  // If no iteration ran, only the number of axes of stacked rows is known.
  const bool isNeverRun = (node().is("Loop") || node().is("Scan")) &&
                          planned.shape.size() == shape.size() && llvm::is_contained(shape, 0);
  if (isAsPredicted || isNeverRun)
    return llvm::Error::success();
  return internalError(formatted("result '{}' has shape {}, but shape inference says {}",
                                 planned.value->name(), extentsText(shape),
                                 planned.value->type().str()));
}

llvm::Expected<TensorView> ExecutionContext::output(unsigned result, ElementType element,
                                                    llvm::ArrayRef<int64_t> shape) {
  if (llvm::Expected<int64_t> count = checkedElementCount(shape); !count)
    return withNode(count.takeError(), node().name(), node().op().str());
  if (!wants(result))
    return scratchTensor(element, shape);
  if (llvm::Error error = checkResult(result, element, shape))
    return error;
  unsigned slot = step.results[result];
  unsigned group = state.plan.slots[slot].group;
  Tensor& tensor = state.tensors[slot];
  if (state.offsets[group] >= 0 && state.plan.groups[group].slots.front() == slot) {
    // The size follows from the extents that were just compared. Not counted: the arena outlives
    // the run and never holds tensors that leave it.
    tensor.owner = std::shared_ptr<const void>(std::shared_ptr<const void>(), state.arena.get());
    tensor.view =
        TensorView::contiguous(element, shape, state.arena->data() + state.offsets[group]);
  } else {
    llvm::Expected<Tensor> fresh = state.environment.allocate(element, shape);
    if (!fresh)
      return withNode(fresh.takeError(), node().name(), node().op().str());
    tensor = std::move(*fresh);
  }
  state.present[slot] = true;
  return tensor.view;
}

llvm::Error ExecutionContext::outputView(unsigned result, unsigned operand,
                                         llvm::ArrayRef<int64_t> shape) {
  if (!wants(result))
    return llvm::Error::success();
  unsigned slot = step.results[result];
  const Tensor& source = operandTensor(operand);
  if (llvm::Error error = checkResult(result, source.view.element, shape))
    return error;
  llvm::Expected<int64_t> count = checkedElementCount(shape);
  if (!count)
    return withNode(count.takeError(), node().name(), node().op().str());
  if (*count != source.view.elementCount())
    return error(formatted("{} elements cannot take shape {}", source.view.elementCount(),
                           extentsText(shape)));
  if (state.plan.slots[slot].group != state.plan.slots[step.operands[operand]].group)
    return internalError(
        formatted("result {} is a view that its definition does not declare", result));
  if (!source.view.isContiguous()) {
    llvm::Expected<TensorView> copy = output(result, source.view.element, shape);
    if (!copy)
      return copy.takeError();
    TensorView target = TensorView::contiguous(source.view.element, source.view.shape, copy->data);
    copyElements(source.view, target);
    return llvm::Error::success();
  }
  state.tensors[slot] = {source.owner,
                         TensorView::contiguous(source.view.element, shape, source.view.data)};
  state.present[slot] = true;
  return llvm::Error::success();
}

bool ExecutionContext::isCallersMemory(unsigned operand) const {
  using Kind = ExecutionPlan::Group::Kind;
  const Kind kind = state.plan.groups[state.plan.slots[step.operands[operand]].group].kind;
  return kind == Kind::Input || kind == Kind::Captured;
}

llvm::Expected<TensorView> ExecutionContext::outputInPlace(unsigned result, unsigned operand) {
  unsigned source = step.operands[operand];
  if (!wants(result)) {
    const TensorView view = state.tensors[source].view;
    llvm::Expected<TensorView> copy = scratchTensor(view.element, view.shape);
    if (copy)
      copyElements(view, *copy);
    return copy;
  }
  unsigned slot = step.results[result];
  // The operand's own memory, not the packed copy of a strided one.
  const TensorView view = state.tensors[source].view;
  unsigned sourceGroup = state.plan.slots[source].group;
  bool isStorageShared = state.plan.slots[slot].group == sourceGroup;
  bool isOffered = state.writable[sourceGroup] && step.overwritable[operand];
  bool isUsable = step.kernel->acceptsStrides || view.isContiguous();
  if (isUsable && (isStorageShared || isOffered)) {
    if (llvm::Error error = checkResult(result, view.element, view.shape))
      return error;
    state.tensors[slot] = state.tensors[source];
    state.present[slot] = true;
    return view;
  }
  llvm::Expected<TensorView> copy = output(result, view.element, view.shape);
  if (!copy)
    return copy;
  copyElements(view, *copy);
  if (isCallersMemory(operand))
    state.environment.statistics.inPlaceBytesCopied += view.byteSize();
  return copy;
}

llvm::Expected<std::span<std::byte>> ExecutionContext::scratch(size_t bytes) {
  llvm::Expected<std::span<std::byte>> memory = state.environment.takeScratch(bytes);
  if (!memory)
    return withNode(memory.takeError(), node().name(), node().op().str());
  return memory;
}

void ExecutionContext::parallelFor(int64_t count, llvm::function_ref<void(int64_t)> body) {
  state.environment.threads.parallelFor(count, body);
}

/// Passes the captured tensors to the subgraph.
llvm::Error ExecutionContext::enter(const ExecutionPlan::Branch& branch, RunState& inner) {
  for (unsigned i = 0; i < branch.captured.size(); ++i) {
    unsigned outside = branch.captured[i];
    unsigned inside = branch.plan->captured[i];
    assert(state.present[outside]);
    inner.tensors[inside] = state.tensors[outside];
    inner.packed[inside] = state.packed[outside];
    inner.present[inside] = true;
    inner.writable[branch.plan->slots[inside].group] =
        branch.overwritable[i] && state.writable[state.plan.slots[outside].group];
  }
  return inner.placeIntermediates();
}

llvm::Error ExecutionContext::takeResults(RunState& inner) {
  for (unsigned result = 0; result < step.results.size(); ++result) {
    if (step.results[result] == ExecutionPlan::none)
      continue;
    const Tensor& tensor = inner.tensors[inner.plan.outputs[result]];
    if (llvm::Error error = checkResult(result, tensor.view.element, tensor.view.shape))
      return error;
    state.tensors[step.results[result]] = tensor;
    state.present[step.results[result]] = true;
  }
  return llvm::Error::success();
}

llvm::Expected<Tensor> ExecutionContext::temporary(ElementType element,
                                                   llvm::ArrayRef<int64_t> shape) {
  llvm::Expected<Tensor> tensor = state.environment.allocate(element, shape);
  if (!tensor)
    return withNode(tensor.takeError(), node().name(), node().op().str());
  return tensor;
}

namespace {

/// Checks an input against its declaration in the body; symbols match any extent.
llvm::Error checkBodyInput(const Value& input, const TensorView& view) {
  const TensorType& type = input.type();
  bool fits = type.elementType() == ElementType::Undefined || type.elementType() == view.element;
  fits &= !type.hasRank() || type.rank() == view.rank();
  for (unsigned axis = 0; fits && type.hasRank() && axis < type.rank(); ++axis) {
    const std::optional<int64_t> extent = type.shape()[axis].value();
    fits = !extent || *extent == view.shape[axis];
  }
  if (fits)
    return llvm::Error::success();
  return invalid("'{}' is declared as {}, but gets {} {}", input.name(), type.str(),
                 onnxName(view.element), extentsText(view.shape));
}

} // namespace

llvm::Error ExecutionContext::enterBody(const Graph& body, const ExecutionPlan::Branch& branch,
                                        RunState& inner, std::vector<Tensor> inputs) {
  if (inputs.size() != body.inputs().size())
    return invalid("the subgraph has {} inputs and is given {}", body.inputs().size(),
                   inputs.size());
  RunStatistics& statistics = state.environment.statistics;
  const int64_t arenaBytes = statistics.arenaBytes;
  const int64_t arenaLowerBound = statistics.arenaLowerBound;
  if (llvm::Error error = enter(branch, inner))
    return error;
  if (hasRunBody) { // its arena is counted
    statistics.arenaBytes = arenaBytes;
    statistics.arenaLowerBound = arenaLowerBound;
  }
  hasRunBody = true;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (llvm::Error error = checkBodyInput(*body.inputs()[i], inputs[i].view))
      return error;
    const unsigned slot = inner.plan.inputs[i];
    if (slot == ExecutionPlan::none)
      continue;
    const bool isUnshared = inputs[i].owner && inputs[i].owner.use_count() == 1;
    inner.writable[inner.plan.slots[slot].group] = isUnshared;
    inner.tensors[slot] = std::move(inputs[i]);
    inner.present[slot] = true;
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<Tensor>> ExecutionContext::runBody(llvm::StringRef attribute,
                                                              std::vector<Tensor> inputs) {
  const auto found = llvm::find_if(step.branches, [&](const ExecutionPlan::Branch& branch) {
    return branch.attribute == attribute;
  });
  if (found == step.branches.end())
    return error(formatted("the subgraph '{}' is missing", attribute.str()));
  const Graph& body = *node().attribute(attribute)->graphs().front();
  RunState& inner = *state.branches[found->index];
  std::vector<Tensor> outputs;
  llvm::Error failure = enterBody(body, *found, inner, std::move(inputs));
  if (!failure)
    failure = inner.runSteps();
  if (!failure)
    for (unsigned slot : inner.plan.outputs)
      outputs.push_back(inner.tensors[slot]);
  inner.clear();
  if (failure)
    return inBranch(std::move(failure), attribute, node());
  return outputs;
}

llvm::Error ExecutionContext::runBranch(llvm::StringRef attribute) {
  RunState* inner = nullptr;
  const ExecutionPlan::Branch* taken = nullptr;
  for (const ExecutionPlan::Branch& branch : step.branches) {
    RunState& candidate = *state.branches[branch.index];
    if (branch.attribute == attribute) {
      taken = &branch;
      inner = &candidate;
    } else {
      candidate.dropMemory();
    }
  }
  if (!taken)
    return error(formatted("the subgraph '{}' is missing", attribute.str()));
  if (!taken->plan->inputs.empty())
    return error(formatted("the subgraph '{}' has inputs", attribute.str()));
  llvm::Error failure = enter(*taken, *inner);
  if (!failure)
    failure = inner->runSteps();
  if (!failure)
    failure = takeResults(*inner);
  inner->clear();
  return inBranch(std::move(failure), attribute, node());
}

} // namespace kvopt::runtime
