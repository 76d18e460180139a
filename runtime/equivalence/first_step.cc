// Running a first step.
#include "runtime/equivalence/first_step.h"

namespace kvopt::runtime {
using namespace ir;

std::vector<NamedView> viewsOf(llvm::ArrayRef<NamedTensor> inputs) {
  std::vector<NamedView> views;
  for (const NamedTensor& input : inputs)
    views.push_back({input.name, input.tensor.view});
  return views;
}

llvm::Error FirstStep::take(llvm::ArrayRef<NamedTensor> inputs, int64_t tokens) {
  if (!session || !results.empty())
    return llvm::Error::success();
  std::vector<NamedTensor> taken;
  for (const Value* wanted : session->callerInputs())
    for (const NamedTensor& input : inputs)
      if (input.name == wanted->name())
        taken.push_back(input);
  auto result = session->step(viewsOf(taken), tokens);
  if (!result)
    return result.takeError();
  results = std::move(result->outputs);
  return llvm::Error::success();
}

void FirstStep::give(std::vector<NamedTensor>& inputs) const {
  for (NamedTensor& input : inputs)
    for (const NamedTensor& result : results)
      if (input.name == result.name)
        input.tensor = result.tensor;
}

} // namespace kvopt::runtime
