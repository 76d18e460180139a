// Constants, placement of intermediate tensors, and the steps of one graph.
#include "runtime/run_state.h"

#include "ir/diagnostic.h"
#include "runtime/execution_context.h"

#include <algorithm>
#include <chrono>

namespace kvopt {

llvm::Expected<Tensor> RunEnvironment::allocate(ElementType element,
                                                llvm::ArrayRef<int64_t> shape) {
  llvm::Expected<Tensor> tensor = Tensor::create(allocator, element, shape);
  if (tensor && tensor->view.byteSize() != 0) {
    statistics.bytesAllocated += tensor->view.byteSize();
    ++statistics.allocations;
  }
  return tensor;
}

RunState::RunState(const ExecutionPlan& executionPlan, RunEnvironment& runEnvironment)
    : plan(executionPlan), environment(runEnvironment), tensors(plan.slots.size()),
      packed(plan.slots.size()), present(plan.slots.size(), false),
      writable(plan.groups.size(), false), offsets(plan.groups.size(), -1),
      plannedBytes(plan.groups.size(), -1) {
  for (const ExecutionPlan::Step& step : plan.steps)
    for (const ExecutionPlan::Branch& branch : step.branches) {
      assert(branch.index == branches.size());
      branches.push_back(std::make_unique<RunState>(*branch.plan, environment));
    }
}

llvm::Error RunState::loadConstants() {
  for (const ExecutionPlan::Group& group : plan.groups) {
    if (group.kind != ExecutionPlan::Group::Kind::Constant)
      continue;
    unsigned slot = group.slots.front();
    const Value& value = *plan.slots[slot].value;
    llvm::Expected<Tensor> tensor = Tensor::of(environment.allocator, value.constantRef());
    if (!tensor)
      return invalid("constant '{}' cannot be used", value.name())
          .note(takeDiagnostic(tensor.takeError()).str());
    tensors[slot] = std::move(*tensor);
    present[slot] = true;
  }
  for (const std::unique_ptr<RunState>& branch : branches)
    if (llvm::Error error = branch->loadConstants())
      return error;
  return llvm::Error::success();
}

llvm::Expected<std::vector<int64_t>> RunState::neededBytes() const {
  std::vector<int64_t> needed(plan.groups.size(), -1);
  int64_t total = 0;
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
      if (extents[dim])
        shape.push_back(*extents[dim]);
    if (shape.size() != root.shape.size())
      continue;
    llvm::Expected<int64_t> count = checkedElementCount(shape);
    if (!count)
      return withNode(count.takeError(), root.value->name());
    if (__builtin_mul_overflow(*count, int64_t{*width}, &needed[index]) ||
        __builtin_add_overflow(total, needed[index], &total))
      return invalid("the intermediate tensors' sizes overflow").value(root.value->name());
  }
  return needed;
}

llvm::Error RunState::place(const std::vector<int64_t>& needed) {
  std::vector<StorageInterval> intervals;
  placedGroups.clear();
  bool isFirst = !arena;
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
  auto peak = static_cast<size_t>(fresh->peak);
  if (!arena || arena->size() < peak || arena->size() / 2 > peak) {
    arena = nullptr;
    llvm::Expected<std::shared_ptr<Buffer>> buffer = Buffer::create(environment.allocator, peak);
    if (!buffer)
      return buffer.takeError();
    arena = std::move(*buffer);
    if (peak != 0) {
      environment.statistics.bytesAllocated += fresh->peak;
      ++environment.statistics.allocations;
    }
  }
  placement = std::move(*fresh);
  return llvm::Error::success();
}

llvm::Error RunState::placeIntermediates() {
  extents.resize(plan.dims.size());
  for (size_t i = 0; i < plan.dims.size(); ++i)
    extents[i] = plan.dims[i].evaluate([&](llvm::StringRef name) -> std::optional<int64_t> {
      auto found = environment.symbols.find(name);
      if (found == environment.symbols.end())
        return std::nullopt;
      return found->second;
    });
  llvm::Expected<std::vector<int64_t>> needed = neededBytes();
  if (!needed)
    return needed.takeError();
  bool fits = true;
  int64_t neededTotal = 0;
  int64_t plannedTotal = 0;
  for (size_t index = 0; index < needed->size(); ++index) {
    if ((*needed)[index] < 0)
      continue;
    fits &= plannedBytes[index] >= (*needed)[index];
    neededTotal += (*needed)[index];
    plannedTotal += std::max<int64_t>(plannedBytes[index], 0);
  }
  if (!fits || !arena || plannedTotal / 2 > neededTotal)
    if (llvm::Error error = place(*needed))
      return error;
  offsets.assign(plan.groups.size(), -1);
  for (size_t i = 0; i < placedGroups.size(); ++i)
    if ((*needed)[placedGroups[i]] >= 0)
      offsets[placedGroups[i]] = placement.offsets[i];
  environment.statistics.arenaBytes += placement.peak;
  environment.statistics.arenaLowerBound += placement.lowerBound;
  return llvm::Error::success();
}

llvm::Error RunState::runSteps() {
  for (const ExecutionPlan::Step& step : plan.steps) {
    // The operators of a subgraph count for themselves.
    bool isTimed = environment.timeOperators && step.branches.empty();
    auto begin = std::chrono::steady_clock::time_point();
    if (isTimed)
      begin = std::chrono::steady_clock::now();
    if (llvm::Error error = ExecutionContext(*this, step).execute())
      return error;
    if (isTimed)
      environment.statistics.operatorNanoseconds[step.node->op().str()] +=
          std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() -
                                                               begin)
              .count();
    for (unsigned group : step.dying)
      release(group);
  }
  return llvm::Error::success();
}

void RunState::release(unsigned group) {
  // A constant stays for the next run; views of it are made anew.
  bool isConstant = plan.groups[group].kind == ExecutionPlan::Group::Kind::Constant;
  llvm::ArrayRef<unsigned> slots = plan.groups[group].slots;
  for (unsigned slot : isConstant ? slots.drop_front() : slots) {
    tensors[slot] = Tensor();
    packed[slot] = Tensor();
    present[slot] = false;
  }
}

void RunState::clear() {
  for (unsigned group = 0; group < plan.groups.size(); ++group)
    release(group);
}

void RunState::dropMemory() {
  arena = nullptr;
  scratch.clear();
  for (const std::unique_ptr<RunState>& branch : branches)
    branch->dropMemory();
}

} // namespace kvopt
