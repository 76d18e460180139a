// Constants, placement of intermediate tensors, and the steps of one graph.
#include "runtime/exec/run_state.h"

#include "runtime/exec/execution_context.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <chrono>

namespace kvopt::runtime {
using namespace ir;

namespace {
/// Number of runs for which a placement may be far too large before it is replaced, so that a
/// single prompt between decoding steps does not cause new placements.
constexpr unsigned patience = 4;

/// Size for a tensor of `needed` bytes that had `before` bytes.
int64_t roomFor(int64_t needed, int64_t before) {
  bool isGradual = needed / 2 <= before;
  return isGradual ? needed + std::min(needed, INT64_MAX - needed) : needed;
}

void addSymbols(const TensorType& type, llvm::StringSet<>& symbols) {
  if (type.hasRank())
    for (const Dim& extent : type.shape())
      for (const std::string& symbol : extent.symbols())
        symbols.insert(symbol);
}
} // namespace

llvm::Expected<Tensor> RunEnvironment::allocate(ElementType element,
                                                llvm::ArrayRef<int64_t> shape) {
  llvm::Expected<int64_t> bytes = checkedTensorBytes(element, shape);
  if (!bytes)
    return bytes.takeError();
  llvm::Expected<BufferPool::Memory> memory = pool.take(static_cast<size_t>(*bytes));
  if (!memory)
    return memory.takeError();
  if (memory->isFresh) {
    statistics.bytesAllocated += static_cast<int64_t>(memory->bytes);
    ++statistics.allocations;
  }
  return Tensor{std::move(memory->owner), TensorView::contiguous(element, shape, memory->data)};
}

llvm::Expected<std::span<std::byte>> RunEnvironment::takeScratch(size_t bytes) {
  llvm::Expected<ScratchStack::Memory> memory = scratch.take(bytes);
  if (!memory)
    return memory.takeError();
  if (memory->allocated != 0) {
    statistics.bytesAllocated += static_cast<int64_t>(memory->allocated);
    ++statistics.allocations;
  }
  return memory->bytes;
}

RunState::RunState(const ExecutionPlan& executionPlan, RunEnvironment& runEnvironment,
                   const llvm::StringSet<>& openSymbols)
    : plan(executionPlan), environment(runEnvironment), tensors(plan.slots.size()),
      packed(plan.slots.size()), present(plan.slots.size(), false),
      writable(plan.groups.size(), false), extents(plan.dims.size()),
      offsets(plan.groups.size(), -1), isOpen(plan.dims.size()),
      neededBytes(plan.groups.size(), -1), plannedBytes(plan.groups.size(), -1) {
  for (size_t i = 0; i < plan.dims.size(); ++i)
    isOpen[i] = llvm::any_of(plan.dims[i].symbols(), [&](const std::string& symbol) {
      return openSymbols.contains(symbol);
    });
  for (const ExecutionPlan::Step& step : plan.steps)
    for (const ExecutionPlan::Branch& branch : step.branches) {
      assert(branch.index == branches.size());
      llvm::StringSet<> open = openSymbols;
      const Graph& graph = *step.node->attribute(branch.attribute)->graphs().front();
      for (const std::unique_ptr<Value>& input : graph.inputs())
        addSymbols(input->type(), open);
      branches.push_back(std::make_unique<RunState>(*branch.plan, environment, open));
    }
}

void RunState::takeConstants(const FoldedConstants& folded) {
  constants = &folded;
  for (size_t slot = 0; slot < tensors.size(); ++slot)
    if (folded.tensors[slot].view.data) {
      tensors[slot] = folded.tensors[slot];
      present[slot] = true;
    }
  for (size_t branch = 0; branch < branches.size(); ++branch)
    branches[branch]->takeConstants(*folded.branches[branch]);
}

/// Computes `extents` and `neededBytes`.
llvm::Error RunState::measure() {
  for (size_t i = 0; i < plan.dims.size(); ++i)
    extents[i] = isOpen[i] ? std::nullopt : environment.symbols.evaluate(plan.dims[i]);
  int64_t total = 0;
  for (size_t index = 0; index < plan.groups.size(); ++index) {
    const ExecutionPlan::Group& group = plan.groups[index];
    neededBytes[index] = -1;
    if (group.kind != ExecutionPlan::Group::Kind::Planned)
      continue;
    const ExecutionPlan::Slot& root = plan.slots[group.slots.front()];
    ElementType element = root.value->type().elementType();
    if (!root.ranked || !memoryWidth(element))
      continue;
    Extents shape;
    for (unsigned dim : root.shape)
      if (extents[dim])
        shape.push_back(*extents[dim]);
    if (shape.size() != root.shape.size())
      continue;
    llvm::Expected<int64_t> bytes = checkedTensorBytes(element, shape);
    if (!bytes)
      return withNode(bytes.takeError(), root.value->name());
    neededBytes[index] = *bytes;
    if (__builtin_add_overflow(total, *bytes, &total))
      return invalid("the intermediate tensors' sizes overflow").value(root.value->name());
  }
  return llvm::Error::success();
}

bool RunState::isTooSmall() const {
  if (!arena)
    return true;
  for (size_t index = 0; index < neededBytes.size(); ++index)
    if (neededBytes[index] > plannedBytes[index])
      return true;
  return false;
}

bool RunState::isTooLarge() const {
  int64_t needed = 0;
  int64_t planned = 0;
  for (size_t index = 0; index < neededBytes.size(); ++index) {
    needed += std::max<int64_t>(neededBytes[index], 0);
    planned += std::max<int64_t>(plannedBytes[index], 0);
  }
  return planned / 2 > needed;
}

/// Makes room for the current sizes. A tensor that has slightly outgrown its place will probably
/// continue to grow: its room doubles, and stays so when other tensors grow.
llvm::Error RunState::place(bool fromScratch) {
  std::vector<StorageInterval> intervals;
  placedGroups.clear();
  for (unsigned index = 0; index < neededBytes.size(); ++index) {
    bool hadPlace = !fromScratch && plannedBytes[index] >= 0;
    if (!hadPlace)
      plannedBytes[index] = neededBytes[index];
    else if (neededBytes[index] > plannedBytes[index])
      plannedBytes[index] = roomFor(neededBytes[index], plannedBytes[index]);
    if (plannedBytes[index] < 0)
      continue;
    placedGroups.push_back(index);
    intervals.push_back({plannedBytes[index], plan.groups[index].first, plan.groups[index].last});
  }
  llvm::Expected<MemoryPlan> fresh = planMemory(intervals);
  if (!fresh) {
    arena = nullptr;
    return fresh.takeError();
  }
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
  bool isNew = !arena || measuredFor != environment.symbols.version();
  if (isNew) {
    measuredFor = std::nullopt;
    if (llvm::Error error = measure())
      return error;
  }
  bool isUnfit = isNew && isTooSmall();
  if (isNew)
    tooLarge = !isUnfit && isTooLarge();
  runsTooLarge = tooLarge ? runsTooLarge + 1 : 0;
  bool isShrinking = runsTooLarge == patience;
  if (isShrinking)
    environment.scratch.releaseFree();
  isUnfit |= isShrinking;
  if (isUnfit) {
    measuredFor = std::nullopt;
    tooLarge = false;
    runsTooLarge = 0;
    if (llvm::Error error = place(isShrinking || !arena))
      return error;
  }
  if (isNew || isUnfit) {
    for (size_t i = 0; i < placedGroups.size(); ++i)
      offsets[placedGroups[i]] = neededBytes[placedGroups[i]] >= 0 ? placement.offsets[i] : -1;
    measuredFor = environment.symbols.version();
  }
  environment.statistics.arenaBytes += placement.peak;
  environment.statistics.arenaLowerBound += placement.lowerBound;
  return llvm::Error::success();
}

llvm::Error RunState::runSteps() {
  for (size_t index = 0; index < plan.steps.size(); ++index) {
    const ExecutionPlan::Step& step = plan.steps[index];
    if (constants->isFolded[index])
      continue;
    // The operators of a subgraph are timed separately.
    bool isTimed = environment.timeOperators && step.branches.empty();
    auto begin = std::chrono::steady_clock::time_point();
    if (isTimed)
      begin = std::chrono::steady_clock::now();
    if (llvm::Error error =
            ExecutionContext(*this, step, constants->weights[index].get()).execute())
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
  for (unsigned slot : plan.groups[group].slots) {
    // A constant stays for the next run; views that the run made of it are recreated.
    if (!present[slot] || constants->tensors[slot].view.data)
      continue;
    // The extents stay until the next tensor replaces them.
    tensors[slot].owner = nullptr;
    tensors[slot].view.data = nullptr;
    packed[slot].owner = nullptr;
    packed[slot].view.data = nullptr;
    present[slot] = false;
  }
}

void RunState::clear() {
  for (unsigned group = 0; group < plan.groups.size(); ++group)
    release(group);
}

void RunState::dropMemory() {
  arena = nullptr;
  for (const std::unique_ptr<RunState>& branch : branches)
    branch->dropMemory();
}

int64_t RunState::arenaBytes() const {
  int64_t total = arena ? static_cast<int64_t>(arena->size()) : 0;
  for (const std::unique_ptr<RunState>& branch : branches)
    total += branch->arenaBytes();
  return total;
}

} // namespace kvopt::runtime
