// Building of execution plans: liveness, storage sharing, lifetimes.
#include "runtime/execution_plan.h"

#include "ir/diagnostic.h"
#include "ir/op.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <unordered_map>

namespace kvopt {

namespace {

struct DimHash {
  size_t operator()(const Dim& dim) const { return static_cast<size_t>(hash_value(dim)); }
};

class PlanBuilder {
public:
  PlanBuilder(const Graph& source, const KernelRegistry& registry)
      : graph(source), kernels(registry) {}

  llvm::Expected<ExecutionPlan> build() {
    if (llvm::Error error = addSteps())
      return error;
    addLeavesAndOutputs();
    for (size_t step = 0; step < plan.steps.size(); ++step)
      groupResults(static_cast<int64_t>(step));
    closeLifetimes();
    return std::move(plan);
  }

private:
  using Group = ExecutionPlan::Group;
  static constexpr unsigned none = ExecutionPlan::none;

  llvm::Error addSteps();
  void addLeavesAndOutputs();
  void groupResults(int64_t step);
  void closeLifetimes();
  unsigned slotOf(const Value& value);
  unsigned dimIndex(const Dim& dim);
  unsigned newGroup(Group::Kind kind, unsigned slot, int64_t step);
  bool isOverwritable(int64_t step, unsigned operand) const;

  const Graph& graph;
  const KernelRegistry& kernels;
  ExecutionPlan plan;
  llvm::DenseMap<const Value*, unsigned> slotByValue;
  std::unordered_map<Dim, unsigned, DimHash> dimByValue;
};

unsigned PlanBuilder::dimIndex(const Dim& dim) {
  auto [found, isNew] = dimByValue.try_emplace(dim, static_cast<unsigned>(plan.dims.size()));
  if (isNew)
    plan.dims.push_back(dim);
  return found->second;
}

unsigned PlanBuilder::slotOf(const Value& value) {
  auto [found, isNew] = slotByValue.try_emplace(&value, static_cast<unsigned>(plan.slots.size()));
  if (isNew) {
    ExecutionPlan::Slot& slot = plan.slots.emplace_back();
    slot.value = &value;
    if (value.type().hasRank()) {
      slot.ranked = true;
      for (const Dim& dim : value.type().shape())
        slot.shape.push_back(dimIndex(dim));
    }
  }
  return found->second;
}

llvm::Error missingKernel(const Node& node) {
  int64_t version = node.graph().opsetVersion(node.op().domain());
  llvm::StringRef domain = node.op().isOnnx() ? llvm::StringRef("ai.onnx") : node.op().domain();
  return unsupported("the runtime has no kernel for operator {} (domain {}, opset {})",
                     node.op().type(), domain, version)
      .node(node.name(), node.op().str());
}

llvm::Error PlanBuilder::addSteps() {
  for (const Node* node : liveNodes(graph)) {
    const Kernel* kernel = kernels.find(node->op(), graph.opsetVersion(node->op().domain()));
    if (!kernel)
      return missingKernel(*node);
    auto index = static_cast<int64_t>(plan.steps.size());
    ExecutionPlan::Step& step = plan.steps.emplace_back();
    step.node = node;
    step.kernel = kernel;
    for (const Use& use : node->operands()) {
      unsigned slot = use.value() ? slotOf(*use.value()) : none;
      step.operands.push_back(slot);
      if (slot != none)
        plan.slots[slot].lastRead = std::max(plan.slots[slot].lastRead, index);
    }
    for (const Value& result : node->results()) {
      bool isWanted = !result.isAbsent() && !result.isUnused();
      unsigned slot = isWanted ? slotOf(result) : none;
      step.results.push_back(slot);
      if (isWanted)
        plan.slots[slot].lastRead = std::max(plan.slots[slot].lastRead, index);
    }
  }
  return llvm::Error::success();
}

void PlanBuilder::addLeavesAndOutputs() {
  auto end = static_cast<int64_t>(plan.steps.size());
  for (const Value* output : graph.outputs()) {
    unsigned slot = slotOf(*output);
    plan.outputs.push_back(slot);
    plan.slots[slot].lastRead = end;
  }
  for (const std::unique_ptr<Value>& input : graph.inputs()) {
    auto found = slotByValue.find(input.get());
    plan.inputs.push_back(found == slotByValue.end() ? none : found->second);
  }
  for (unsigned slot = 0; slot < plan.slots.size(); ++slot) {
    const Value& value = *plan.slots[slot].value;
    if (value.isGraphInput())
      newGroup(Group::Kind::Input, slot, 0);
    else if (value.constant())
      newGroup(Group::Kind::Constant, slot, 0);
  }
}

unsigned PlanBuilder::newGroup(Group::Kind kind, unsigned slot, int64_t step) {
  auto index = static_cast<unsigned>(plan.groups.size());
  Group& group = plan.groups.emplace_back();
  group.kind = kind;
  group.first = step;
  group.slots.push_back(slot);
  plan.slots[slot].group = index;
  return index;
}

/// Whether nothing but this step's results will see the operand's storage after the step. Tensors
/// that join the storage later do so by reading one that is in it now.
bool PlanBuilder::isOverwritable(int64_t step, unsigned operand) const {
  const ExecutionPlan::Step& current = plan.steps[static_cast<size_t>(step)];
  unsigned slot = current.operands[operand];
  const Group& group = plan.groups[plan.slots[slot].group];
  if (group.kind == Group::Kind::Constant)
    return false;
  for (unsigned other = 0; other < current.operands.size(); ++other)
    if (other != operand && current.operands[other] != none &&
        plan.slots[current.operands[other]].group == plan.slots[slot].group)
      return false;
  return llvm::all_of(group.slots,
                      [&](unsigned member) { return plan.slots[member].lastRead <= step; });
}

void PlanBuilder::groupResults(int64_t index) {
  ExecutionPlan::Step& step = plan.steps[static_cast<size_t>(index)];
  step.overwritable.assign(step.operands.size(), false);
  const OpDef* definition = step.node->definition();
  // Decided before any result joins a group.
  if (definition)
    for (const Alias& alias : definition->aliases)
      if (alias.kind == Alias::Kind::InPlace && alias.operand < step.operands.size() &&
          step.operands[alias.operand] != none)
        step.overwritable[alias.operand] = isOverwritable(index, alias.operand);
  for (unsigned result = 0; result < step.results.size(); ++result) {
    unsigned slot = step.results[result];
    if (slot == none)
      continue;
    Group::Kind kind = Group::Kind::Planned;
    unsigned joined = none;
    for (const Alias& alias :
         definition ? llvm::makeArrayRef(definition->aliases) : llvm::ArrayRef<Alias>()) {
      if (alias.result != result || alias.operand >= step.operands.size() ||
          step.operands[alias.operand] == none)
        continue;
      unsigned group = plan.slots[step.operands[alias.operand]].group;
      bool isExternal = plan.groups[group].kind == Group::Kind::Input ||
                        plan.groups[group].kind == Group::Kind::Constant;
      if (alias.kind == Alias::Kind::View || (step.overwritable[alias.operand] && !isExternal))
        joined = group;
      else if (isExternal)
        kind = Group::Kind::OnDemand;
      break;
    }
    if (joined == none) {
      newGroup(kind, slot, index);
    } else {
      plan.groups[joined].slots.push_back(slot);
      plan.slots[slot].group = joined;
    }
  }
}

void PlanBuilder::closeLifetimes() {
  auto end = static_cast<int64_t>(plan.steps.size());
  for (unsigned index = 0; index < plan.groups.size(); ++index) {
    Group& group = plan.groups[index];
    group.last = group.first;
    for (unsigned slot : group.slots)
      group.last = std::max(group.last, plan.slots[slot].lastRead);
    if (group.last == end) {
      if (group.kind == Group::Kind::Planned)
        group.kind = Group::Kind::OnDemand;
    } else {
      plan.steps[static_cast<size_t>(group.last)].dying.push_back(index);
    }
  }
}

} // namespace

std::vector<const Node*> liveNodes(const Graph& graph) {
  llvm::DenseSet<const Value*> needed;
  for (const Value* output : graph.outputs())
    needed.insert(output);
  std::vector<const Node*> live;
  for (const Node& node : llvm::reverse(graph.nodes())) {
    bool isNeeded =
        llvm::any_of(node.results(), [&](const Value& result) { return needed.contains(&result); });
    // A Constant node's result is known without running it.
    if (!isNeeded || (node.results().size() == 1 && node.result().constant()))
      continue;
    live.push_back(&node);
    for (const Use& use : node.operands())
      if (use.value())
        needed.insert(use.value());
  }
  std::reverse(live.begin(), live.end());
  return live;
}

llvm::Expected<ExecutionPlan> ExecutionPlan::build(const Graph& graph,
                                                   const KernelRegistry& kernels) {
  return PlanBuilder(graph, kernels).build();
}

} // namespace kvopt
