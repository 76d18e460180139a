// Selection and computation of constants before the first run.
#include "runtime/exec/folded_constants.h"

#include "support/diagnostic.h"

#include <map>

namespace kvopt::runtime {
using namespace ir;

namespace {

class Folder {
public:
  Folder(const ExecutionPlan& foldedPlan, ConstantMemory& constantMemory, ThreadPool& workers,
         FoldedConstants& result)
      : plan(foldedPlan), memory(constantMemory), pool(workers), folded(result),
        isRead(plan.slots.size()), readers(plan.slots.size()) {
    folded.tensors.resize(plan.slots.size());
    folded.isFolded.resize(plan.steps.size());
    folded.weights.resize(plan.steps.size());
  }

  llvm::Error run() {
    chooseWeights();
    findReaders();
    for (size_t step = 0; step < plan.steps.size(); ++step)
      if (plan.steps[step].isConstant)
        fold(step);
    return loadInitializers();
  }

private:
  static constexpr unsigned none = ExecutionPlan::none;

  const Value& valueOf(unsigned slot) const { return *plan.slots[slot].value; }
  void chooseWeights();
  void findReaders();
  void fold(size_t index);
  bool compute(const ExecutionPlan::Step& step);
  llvm::Error load(unsigned slot);
  llvm::Error loadInitializers();

  const ExecutionPlan& plan;
  ConstantMemory& memory;
  ThreadPool& pool;
  FoldedConstants& folded;
  /// For each slot: whether runs read it.
  std::vector<bool> isRead;
  /// For each slot: number of required constant steps that read it and are not folded yet.
  std::vector<int64_t> readers;
};

/// Lets products read the constants from which their operands are computed.
void Folder::chooseWeights() {
  std::vector<WeightForm> forms(plan.slots.size());
  std::map<std::pair<unsigned, bool>, std::shared_ptr<const ConstantWeights>> known;
  const auto formOf = [&](unsigned slot) {
    return forms[slot].kind == WeightForm::Kind::None ? WeightForm::ofConstant(valueOf(slot))
                                                      : forms[slot];
  };
  for (size_t index = 0; index < plan.steps.size(); ++index) {
    const ExecutionPlan::Step& step = plan.steps[index];
    if (step.isConstant && !step.operands.empty() && step.operands[0] != none &&
        step.results[0] != none)
      forms[step.results[0]] = WeightForm::ofResult(*step.node, formOf(step.operands[0]));
    if (step.isConstant || !step.kernel->weightOperand)
      continue;
    const unsigned operand = *step.kernel->weightOperand;
    if (operand >= step.operands.size() || step.operands[operand] == none)
      continue;
    // Products with the same weight read the same format.
    const unsigned slot = step.operands[operand];
    const bool isTransposed = step.node->intAttr("transB", 0) != 0;
    // The kernel reorders such an operand.
    if (step.node->intAttr("transBatchB", 0) != 0)
      continue;
    std::shared_ptr<const ConstantWeights>& weights = known[{slot, isTransposed}];
    if (!weights && !step.kernel->packWeights)
      weights = weightsOf(formOf(slot), *step.node, memory, pool);
    else if (!weights && valueOf(slot).constant())
      weights = step.kernel->packWeights(valueOf(slot), memory, pool);
    folded.weights[index] = weights;
  }
}

void Folder::findReaders() {
  for (size_t index = 0; index < plan.steps.size(); ++index) {
    const ExecutionPlan::Step& step = plan.steps[index];
    if (step.isConstant)
      continue;
    for (unsigned operand = 0; operand < step.operands.size(); ++operand)
      if (step.operands[operand] != none &&
          !(folded.weights[index] && operand == *step.kernel->weightOperand))
        isRead[step.operands[operand]] = true;
    for (const ExecutionPlan::Branch& branch : step.branches)
      for (unsigned slot : branch.captured)
        isRead[slot] = true;
  }
  for (unsigned slot : plan.outputs)
    isRead[slot] = true;
  for (const ExecutionPlan::Step& step : llvm::reverse(plan.steps)) {
    const bool isNeeded = step.isConstant && llvm::any_of(step.results, [&](unsigned slot) {
                            return slot != none && (isRead[slot] || readers[slot] > 0);
                          });
    for (unsigned slot : step.operands)
      if (isNeeded && slot != none)
        ++readers[slot];
  }
}

void Folder::fold(size_t index) {
  const ExecutionPlan::Step& step = plan.steps[index];
  const bool isNeeded = llvm::any_of(step.results, [&](unsigned slot) {
    return slot != none && (isRead[slot] || readers[slot] > 0);
  });
  folded.isFolded[index] = !isNeeded || compute(step);
  ++(folded.isFolded[index] ? folded.foldedNodes : folded.streamedNodes);
  for (unsigned slot : step.results)
    if (slot != none && !isRead[slot] && readers[slot] == 0)
      folded.tensors[slot] = Tensor();
  for (unsigned slot : step.operands) {
    if (!isNeeded || slot == none)
      continue;
    if (!folded.isFolded[index])
      isRead[slot] = true;
    if (--readers[slot] == 0 && !isRead[slot])
      folded.tensors[slot] = Tensor();
  }
}

bool Folder::compute(const ExecutionPlan::Step& step) {
  for (unsigned slot : step.operands) {
    if (slot == none || folded.tensors[slot].view.data)
      continue;
    // The result of a step that every run executes, or an initializer.
    if (!valueOf(slot).constant())
      return false;
    if (llvm::Error error = load(slot)) {
      llvm::consumeError(std::move(error));
      return false;
    }
  }
  if (llvm::Error error = ConstantContext(plan, step, folded.tensors, memory, pool).execute()) {
    // Memory is short, or every run that reaches the step fails in the same way.
    llvm::consumeError(std::move(error));
    return false;
  }
  return true;
}

llvm::Error Folder::load(unsigned slot) {
  llvm::Expected<Tensor> tensor = Tensor::of(memory.allocator(), valueOf(slot).constantRef());
  if (!tensor)
    return invalid("constant '{}' cannot be used", valueOf(slot).name())
        .note(takeDiagnostic(tensor.takeError()).str());
  folded.tensors[slot] = std::move(*tensor);
  return llvm::Error::success();
}

llvm::Error Folder::loadInitializers() {
  for (unsigned slot = 0; slot < plan.slots.size(); ++slot)
    if (isRead[slot] && !folded.tensors[slot].view.data && valueOf(slot).constant())
      if (llvm::Error error = load(slot))
        return error;
  return llvm::Error::success();
}

} // namespace

llvm::Expected<std::unique_ptr<const FoldedConstants>>
FoldedConstants::compute(const ExecutionPlan& plan, ConstantMemory& memory, ThreadPool& pool) {
  auto folded = std::make_unique<FoldedConstants>();
  if (llvm::Error error = Folder(plan, memory, pool, *folded).run())
    return error;
  for (const ExecutionPlan::Step& step : plan.steps)
    for (const ExecutionPlan::Branch& branch : step.branches) {
      llvm::Expected<std::unique_ptr<const FoldedConstants>> inner =
          compute(*branch.plan, memory, pool);
      if (!inner)
        return inner.takeError();
      folded->foldedNodes += (*inner)->foldedNodes;
      folded->streamedNodes += (*inner)->streamedNodes;
      folded->branches.push_back(std::move(*inner));
    }
  return std::unique_ptr<const FoldedConstants>(std::move(folded));
}

} // namespace kvopt::runtime
