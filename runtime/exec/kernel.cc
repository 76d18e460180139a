// Registry of kernels, and the common part of all KernelContexts.
#include "runtime/exec/kernel.h"

#include "runtime/exec/run_definition.h"
#include "runtime/memory/buffer.h"
#include "support/diagnostic.h"

#include <algorithm>

namespace kvopt::runtime {
using namespace ir;

int64_t KernelContext::opset() const {
  return executed.graph().opsetVersion(executed.op().domain());
}

const TensorView& KernelContext::in(unsigned index) const {
  const TensorView* view = input(index);
  assert(view && "a required operand is present");
  return *view;
}

bool KernelContext::wants(unsigned result) const {
  llvm::ArrayRef<Value> results = executed.results();
  return result < results.size() && !results[result].isAbsent() && !results[result].isUnused();
}

llvm::Expected<TensorView> KernelContext::scratchTensor(ElementType element,
                                                        llvm::ArrayRef<int64_t> shape) {
  llvm::Expected<int64_t> bytes = checkedTensorBytes(element, shape);
  if (!bytes)
    return bytes.takeError();
  auto memory = scratch(static_cast<size_t>(*bytes));
  if (!memory)
    return memory.takeError();
  return TensorView::contiguous(element, shape, memory->data());
}

llvm::Error KernelContext::error(const std::string& message) const {
  return invalid("{}", message).node(executed.name(), executed.op().str());
}

llvm::Error KernelContext::runBranch(llvm::StringRef attribute) {
  return error(formatted("the subgraph '{}' cannot be run here", attribute.str()));
}

llvm::Expected<std::vector<Tensor>> KernelContext::runBody(llvm::StringRef attribute,
                                                           std::vector<Tensor>) {
  return error(formatted("the subgraph '{}' cannot be run here", attribute.str()));
}

Tensor KernelContext::share(unsigned index) const { return {nullptr, in(index)}; }

llvm::Expected<Tensor> KernelContext::temporary(ElementType, llvm::ArrayRef<int64_t>) {
  return error("no memory of its own can be had here");
}

llvm::Error Kernel::execute(KernelContext& context) const {
  return run ? run(context) : runDefinition(definition, context);
}

Kernel& KernelRegistry::insert(ByName& map, OpName op, int64_t since) {
  llvm::StringRef domain = names.emplace_back(op.domain().str());
  llvm::StringRef type = names.emplace_back(op.type().str());
  OpName stored(domain, type);
  auto found = map.find(op);
  if (found == map.end())
    found = map.insert({stored, {}}).first;
  Kernel& kernel = (&map == &byName ? kernels : definitions).emplace_back();
  kernel.op = stored;
  kernel.since = since;
  found->second.push_back(&kernel);
  return kernel;
}

Kernel& KernelRegistry::add(OpName op, int64_t since, KernelFunction run, int64_t until) {
  assert(run && since <= until);
  if (auto found = byName.find(op); found != byName.end())
    for ([[maybe_unused]] const Kernel* other : found->second)
      assert((until < other->since || other->until < since) && "version ranges do not overlap");
  Kernel& kernel = insert(byName, op, since);
  kernel.until = until;
  kernel.run = run;
  return kernel;
}

void KernelRegistry::addDefinition(OpName op, int64_t since, void (*definition)(meaning::Call&)) {
  insert(definitionsByName, op, since).definition = definition;
}

const Kernel* KernelRegistry::find(OpName op, int64_t version) const {
  const Kernel* own = nullptr;
  if (auto found = byName.find(op); found != byName.end())
    for (const Kernel* kernel : found->second)
      if (kernel->since <= version && version <= kernel->until)
        own = kernel;
  if (own && !prefersDefinitions)
    return own;
  const Kernel* newest = nullptr;
  if (auto found = definitionsByName.find(op); found != definitionsByName.end())
    for (const Kernel* kernel : found->second)
      if (kernel->since <= version && (!newest || newest->since < kernel->since))
        newest = kernel;
  return newest ? newest : own;
}

std::vector<const Kernel*> KernelRegistry::all() const {
  std::vector<const Kernel*> sorted;
  sorted.reserve(kernels.size());
  for (const Kernel& kernel : kernels)
    sorted.push_back(&kernel);
  std::sort(sorted.begin(), sorted.end(), [](const Kernel* a, const Kernel* b) {
    return a->op != b->op ? a->op < b->op : a->since < b->since;
  });
  return sorted;
}

} // namespace kvopt::runtime
