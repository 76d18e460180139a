// Construction of execution plans: liveness, shared storage, lifetimes.
#include "runtime/exec/execution_plan.h"

#include "ir/op.h"
#include "ir/random.h"
#include "runtime/exec/known_attributes.h"
#include "support/diagnostic.h"
#include "support/nearest_word.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <unordered_map>

namespace kvopt::runtime {
using namespace ir;

namespace {

struct DimHash {
  size_t operator()(const Dim& dim) const { return static_cast<size_t>(hash_value(dim)); }
};

class PlanBuilder {
public:
  /// `open` are symbols whose values do not follow from the run's inputs.
  PlanBuilder(const Graph& source, const KernelRegistry& registry, unsigned nesting,
              std::vector<std::string> open)
      : graph(source), kernels(registry), depth(nesting), openSymbols(std::move(open)) {}

  llvm::Expected<ExecutionPlan> build() {
    if (llvm::Error error = addSteps())
      return error;
    if (llvm::Error error = addLeavesAndOutputs())
      return error;
    for (size_t step = 0; step < plan.steps.size(); ++step)
      groupResults(static_cast<int64_t>(step));
    closeLifetimes();
    describeOutputs();
    return std::move(plan);
  }

private:
  using Group = ExecutionPlan::Group;
  static constexpr unsigned none = ExecutionPlan::none;

  llvm::Error addSteps();
  llvm::Error addBranches(ExecutionPlan::Step& step);
  llvm::Error addBranch(ExecutionPlan::Step& step, llvm::StringRef attribute, const Graph& branch);
  bool isConstantStep(const ExecutionPlan::Step& step) const;
  llvm::Error addLeavesAndOutputs();
  void groupResults(int64_t step);
  void groupBranchResults(int64_t step);
  void closeLifetimes();
  void describeOutputs();
  unsigned slotOf(const Value& value);
  unsigned dimIndex(const Dim& declared);
  unsigned newGroup(Group::Kind kind, unsigned slot, int64_t step);
  bool isOverwritable(int64_t step, llvm::ArrayRef<unsigned> reads, unsigned read) const;
  bool isUnreadAfter(int64_t step, unsigned storage) const;
  const Group& groupOf(unsigned slot) const { return plan.groups[plan.slots[slot].group]; }
  /// Class of a group, found from any member. The groups of a class may have the same memory.
  unsigned classOf(unsigned group) const { return classByGroup[group]; }
  void unite(unsigned groupA, unsigned groupB);
  bool isForeign(unsigned group) const;
  void addSlot(unsigned group, unsigned slot);
  void setMayBeConstant(unsigned group);

  const Graph& graph;
  const KernelRegistry& kernels;
  unsigned depth;
  std::vector<std::string> openSymbols;
  ExecutionPlan plan;
  llvm::DenseMap<const Value*, unsigned> slotByValue;
  /// Results of constant steps.
  llvm::DenseSet<const Value*> computedConstants;
  std::unordered_map<Dim, unsigned, DimHash> dimByValue;
  std::vector<unsigned> classByGroup;

  /// Known properties of all groups of one class.
  struct GroupClass {
    llvm::SmallVector<unsigned, 1> groups;
    int64_t lastRead = -1;
    bool mayBeConstant = false;
    bool isForeign = false;
  };
  std::vector<GroupClass> classes;
};

unsigned PlanBuilder::dimIndex(const Dim& declared) {
  const bool isOpen =
      !openSymbols.empty() && llvm::any_of(declared.symbols(), [&](const std::string& symbol) {
        return llvm::is_contained(openSymbols, symbol);
      });
  const Dim dim = isOpen ? Dim::unknown() : declared;
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

constexpr unsigned maxNesting = 64;

/// An operator that kvopt knows and cannot run is spelled right: nothing is suggested for it.
std::string meantOperator(const Node& node, const KernelRegistry& kernels) {
  std::vector<std::string> known;
  for (const Kernel* kernel : kernels.all())
    if (kernel->op.domain() == node.op().domain())
      known.push_back(kernel->op.type().str());
  return node.definition() ? "" : didYouMean(std::string_view(node.op().type()), known);
}

llvm::Error missingKernel(const Node& node, const KernelRegistry& kernels) {
  int64_t version = node.graph().opsetVersion(node.op().domain());
  llvm::StringRef domain = node.op().isOnnx() ? llvm::StringRef("ai.onnx") : node.op().domain();
  return unsupported("the runtime has no kernel for operator {} (domain {}, opset {}){}",
                     node.op().type(), domain, version, meantOperator(node, kernels))
      .node(node.name(), node.op().str());
}

/// Kernel for a node; an error if its version has none.
llvm::Expected<const Kernel*> kernelFor(const Node& node, const KernelRegistry& kernels) {
  const int64_t version = node.graph().opsetVersion(node.op().domain());
  if (llvm::Error error = checkKnownAttributes(node))
    return error;
  if (const Kernel* kernel = kernels.find(node.op(), version))
    return kernel;
  return missingKernel(node, kernels);
}

llvm::Error PlanBuilder::addBranch(ExecutionPlan::Step& step, llvm::StringRef attribute,
                                   const Graph& branch) {
  if (depth == maxNesting)
    return unsupported("subgraphs are nested more than {} deep", maxNesting);
  // Runs with separate operands, possibly several times.
  const bool isBody = step.node->is("Loop") || step.node->is("Scan") ||
                      step.node->is("ai.onnx.preview::FlexAttention");
  // A symbol of a body's inputs has another value in every iteration.
  std::vector<std::string> open = openSymbols;
  for (const std::unique_ptr<Value>& input : branch.inputs())
    if (isBody && input->type().hasRank())
      for (const Dim& extent : input->type().shape())
        llvm::append_range(open, extent.symbols());
  llvm::Expected<ExecutionPlan> built =
      PlanBuilder(branch, kernels, depth + 1, std::move(open)).build();
  if (!built)
    return built.takeError();
  if (built->outputs.size() < step.node->results().size())
    return invalid("the subgraph has {} outputs, its node has {} results", built->outputs.size(),
                   step.node->results().size());
  ExecutionPlan::Branch& added = step.branches.emplace_back();
  added.attribute = attribute;
  added.index = plan.branchCount++;
  added.isBody = isBody;
  added.plan = std::make_unique<ExecutionPlan>(std::move(*built));
  return llvm::Error::success();
}

llvm::Error PlanBuilder::addBranches(ExecutionPlan::Step& step) {
  for (const NamedAttribute& attribute : step.node->attributes()) {
    if (attribute.value.kind() != AttributeKind::Graph || attribute.value.isReference())
      continue;
    if (llvm::Error error = addBranch(step, attribute.name, *attribute.value.graphs().front()))
      return inBranch(std::move(error), attribute.name, *step.node);
  }
  return llvm::Error::success();
}

/// Whether a reader overwrites the value. It would have to copy a constant first, which takes as
/// long as computing a value that it may overwrite.
bool isOverwrittenByReader(const Value& value) {
  return llvm::any_of(value.uses(), [](const Use& use) {
    const OpDef* definition = use.user().definition();
    return definition && llvm::any_of(definition->aliases, [&](const Alias& alias) {
             return alias.kind != Alias::Kind::View && alias.operand == use.operandIndex();
           });
  });
}

bool PlanBuilder::isConstantStep(const ExecutionPlan::Step& step) const {
  return step.branches.empty() && !isRandom(step.node->op()) &&
         llvm::all_of(step.node->operands(),
                      [&](const Use& use) {
                        return !use.value() || use.value()->constant() ||
                               computedConstants.contains(use.value());
                      }) &&
         llvm::none_of(step.node->results(), isOverwrittenByReader);
}

llvm::Error PlanBuilder::addSteps() {
  for (const Node* node : liveNodes(graph)) {
    llvm::Expected<const Kernel*> kernel = kernelFor(*node, kernels);
    if (!kernel)
      return kernel.takeError();
    auto index = static_cast<int64_t>(plan.steps.size());
    ExecutionPlan::Step& step = plan.steps.emplace_back();
    step.node = node;
    step.kernel = *kernel;
    for (const Use& use : node->operands()) {
      unsigned slot = use.value() ? slotOf(*use.value()) : none;
      step.operands.push_back(slot);
      if (slot != none)
        plan.slots[slot].lastRead = std::max(plan.slots[slot].lastRead, index);
    }
    if (llvm::Error error = addBranches(step))
      return error;
    step.isConstant = isConstantStep(step);
    for (ExecutionPlan::Branch& branch : step.branches)
      for (unsigned inner : branch.plan->captured) {
        unsigned slot = slotOf(*branch.plan->slots[inner].value);
        branch.captured.push_back(slot);
        plan.slots[slot].lastRead = std::max(plan.slots[slot].lastRead, index);
      }
    for (const Value& result : node->results()) {
      bool isWanted = !result.isAbsent() && !result.isUnused();
      unsigned slot = isWanted ? slotOf(result) : none;
      step.results.push_back(slot);
      if (isWanted)
        plan.slots[slot].lastRead = std::max(plan.slots[slot].lastRead, index);
      if (isWanted && step.isConstant)
        computedConstants.insert(&result);
    }
  }
  return llvm::Error::success();
}

llvm::Error PlanBuilder::addLeavesAndOutputs() {
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
    if (value.constant()) { // also of an enclosing graph
      setMayBeConstant(newGroup(Group::Kind::Constant, slot, 0));
    } else if (&value.graph() != &graph) {
      newGroup(Group::Kind::Captured, slot, 0);
      plan.captured.push_back(slot);
    } else if (value.isGraphInput()) {
      newGroup(Group::Kind::Input, slot, 0);
    } else if (!value.producer()) {
      return unsupported("the runtime does not read sparse constants").value(value.name());
    }
  }
  return llvm::Error::success();
}

unsigned PlanBuilder::newGroup(Group::Kind kind, unsigned slot, int64_t step) {
  auto index = static_cast<unsigned>(plan.groups.size());
  Group& group = plan.groups.emplace_back();
  group.kind = kind;
  group.first = step;
  classByGroup.push_back(static_cast<unsigned>(classes.size()));
  GroupClass& own = classes.emplace_back();
  own.groups.push_back(index);
  own.isForeign = kind == Group::Kind::Input || kind == Group::Kind::Captured;
  addSlot(index, slot);
  return index;
}

void PlanBuilder::addSlot(unsigned group, unsigned slot) {
  plan.groups[group].slots.push_back(slot);
  plan.slots[slot].group = group;
  int64_t& lastRead = classes[classOf(group)].lastRead;
  lastRead = std::max(lastRead, plan.slots[slot].lastRead);
}

void PlanBuilder::setMayBeConstant(unsigned group) {
  plan.groups[group].mayBeConstant = true;
  classes[classOf(group)].mayBeConstant = true;
}

void PlanBuilder::unite(unsigned groupA, unsigned groupB) {
  unsigned kept = classOf(groupA);
  unsigned merged = classOf(groupB);
  if (kept == merged)
    return;
  if (classes[kept].groups.size() < classes[merged].groups.size())
    std::swap(kept, merged);
  GroupClass& into = classes[kept];
  GroupClass& from = classes[merged];
  for (unsigned member : from.groups)
    classByGroup[member] = kept;
  into.groups.append(from.groups.begin(), from.groups.end());
  into.lastRead = std::max(into.lastRead, from.lastRead);
  into.mayBeConstant |= from.mayBeConstant;
  into.isForeign |= from.isForeign;
  from.groups.clear();
}

/// Whether the memory may have another owner, who must have permitted writing.
bool PlanBuilder::isForeign(unsigned group) const {
  const GroupClass& storage = classes[classOf(group)];
  return storage.isForeign || storage.mayBeConstant;
}

/// Whether only this step's results use the storage of `reads[read]` after the step; `reads` are
/// all tensors that the step reads. Tensors that join the storage later do so by reading one of its
/// present members.
bool PlanBuilder::isOverwritable(int64_t step, llvm::ArrayRef<unsigned> reads,
                                 unsigned read) const {
  unsigned storage = classOf(plan.slots[reads[read]].group);
  for (unsigned other = 0; other < reads.size(); ++other)
    if (other != read && reads[other] != none && classOf(plan.slots[reads[other]].group) == storage)
      return false;
  return isUnreadAfter(step, storage);
}

bool PlanBuilder::isUnreadAfter(int64_t step, unsigned storage) const {
  return !classes[storage].mayBeConstant && classes[storage].lastRead <= step;
}

/// Assigns the memory that the subgraph returns to the results of a step with subgraphs.
void PlanBuilder::groupBranchResults(int64_t index) {
  ExecutionPlan::Step& step = plan.steps[static_cast<size_t>(index)];
  // Decided before the results, because a subgraph may return captured values as results.
  for (ExecutionPlan::Branch& branch : step.branches) {
    llvm::DenseMap<unsigned, unsigned> reads; // number of reads of each storage by the step
    for (llvm::ArrayRef<unsigned> slots :
         {llvm::ArrayRef<unsigned>(branch.captured), llvm::ArrayRef<unsigned>(step.operands)})
      for (unsigned slot : slots)
        if (slot != none)
          ++reads[classOf(plan.slots[slot].group)];
    for (unsigned slot : branch.captured) {
      const unsigned storage = classOf(plan.slots[slot].group);
      branch.overwritable.push_back(reads.lookup(storage) == 1 && isUnreadAfter(index, storage));
    }
  }
  for (unsigned slot : step.results)
    if (slot != none)
      newGroup(Group::Kind::OnDemand, slot, index);
  for (const ExecutionPlan::Branch& branch : step.branches) {
    llvm::DenseMap<unsigned, unsigned> groupByStorage;
    for (unsigned result = 0; result < step.results.size(); ++result) {
      if (step.results[result] == none)
        continue;
      const ExecutionPlan::OutputStorage& output = branch.plan->outputStorage[result];
      unsigned group = plan.slots[step.results[result]].group;
      if (output.mayBeConstant)
        setMayBeConstant(group);
      for (unsigned captured : output.captured)
        unite(group, plan.slots[branch.captured[captured]].group);
      unite(group, groupByStorage.try_emplace(output.storage, group).first->second);
    }
  }
}

void PlanBuilder::groupResults(int64_t index) {
  ExecutionPlan::Step& step = plan.steps[static_cast<size_t>(index)];
  step.overwritable.assign(step.operands.size(), false);
  if (!step.branches.empty() && !step.branches.front().isBody)
    return groupBranchResults(index);
  // Values that a body captures are read again in its next run.
  for (ExecutionPlan::Branch& branch : step.branches)
    branch.overwritable.assign(branch.captured.size(), false);
  const OpDef* definition = step.node->definition();
  // Decided before any result joins a group.
  if (definition)
    for (const Alias& alias : definition->aliases)
      if (alias.kind != Alias::Kind::View && alias.operand < step.operands.size() &&
          step.operands[alias.operand] != none)
        step.overwritable[alias.operand] = isOverwritable(index, step.operands, alias.operand);
  for (unsigned result = 0; result < step.results.size(); ++result) {
    unsigned slot = step.results[result];
    if (slot == none)
      continue;
    Group::Kind kind = Group::Kind::Planned;
    unsigned joined = none;
    for (const Alias& alias :
         definition ? llvm::ArrayRef(definition->aliases) : llvm::ArrayRef<Alias>()) {
      if (alias.result != result || alias.operand >= step.operands.size() ||
          step.operands[alias.operand] == none)
        continue;
      unsigned group = plan.slots[step.operands[alias.operand]].group;
      bool isExternal = isForeign(group);
      if (alias.kind == Alias::Kind::Reuse)
        kind = Group::Kind::OnDemand; // the kernel determines its extents
      else if (alias.kind == Alias::Kind::View || (step.overwritable[alias.operand] && !isExternal))
        joined = group;
      else if (isExternal)
        kind = Group::Kind::OnDemand;
      break;
    }
    if (joined == none) {
      const unsigned group = newGroup(step.isConstant ? Group::Kind::Constant : kind, slot, index);
      if (step.isConstant)
        setMayBeConstant(group);
    } else {
      addSlot(joined, slot);
    }
  }
}

void PlanBuilder::closeLifetimes() {
  auto end = static_cast<int64_t>(plan.steps.size());
  for (unsigned index = 0; index < plan.groups.size(); ++index) {
    Group& group = plan.groups[index];
    const GroupClass& storage = classes[classOf(index)];
    group.mayBeConstant |= storage.mayBeConstant;
    group.last = std::max(group.first, storage.lastRead);
    if (group.last == end) {
      if (group.kind == Group::Kind::Planned)
        group.kind = Group::Kind::OnDemand;
    } else {
      plan.steps[static_cast<size_t>(group.last)].dying.push_back(index);
    }
  }
}

void PlanBuilder::describeOutputs() {
  llvm::DenseMap<unsigned, unsigned> captureBySlot;
  for (unsigned i = 0; i < plan.captured.size(); ++i)
    captureBySlot[plan.captured[i]] = i;
  for (unsigned slot : plan.outputs) {
    ExecutionPlan::OutputStorage& output = plan.outputStorage.emplace_back();
    output.storage = classOf(plan.slots[slot].group);
    output.mayBeConstant = groupOf(slot).mayBeConstant;
    for (unsigned member : classes[output.storage].groups)
      if (plan.groups[member].kind == Group::Kind::Captured)
        output.captured.push_back(captureBySlot.lookup(plan.groups[member].slots.front()));
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
    // The result of a Constant node is known without running it.
    if (!isNeeded || (node.results().size() == 1 && node.result().constant()))
      continue;
    live.push_back(&node);
    for (const Use& use : node.operands())
      if (use.value())
        needed.insert(use.value());
    for (const Value* captured : capturedValues(node))
      needed.insert(captured);
  }
  std::reverse(live.begin(), live.end());
  return live;
}

llvm::Error inBranch(llvm::Error error, llvm::StringRef attribute, const Node& node) {
  if (!error)
    return error;
  Diagnostic diagnostic = takeDiagnostic(std::move(error));
  diagnostic.notes.push_back(formatted("in '{}' of {}", attribute, node.describe()));
  return makeError(std::move(diagnostic));
}

llvm::Expected<ExecutionPlan> ExecutionPlan::build(const Graph& graph,
                                                   const KernelRegistry& kernels) {
  return PlanBuilder(graph, kernels, 0, {}).build();
}

} // namespace kvopt::runtime
