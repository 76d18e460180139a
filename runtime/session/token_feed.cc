// Preparation of a step's inputs, and the run.
#include "runtime/session/token_feed.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::runtime {
using namespace ir;

void TokenFeed::hidePadding(size_t padding, size_t tokensBefore) {
  const int64_t first = session.length() + static_cast<int64_t>(tokensBefore);
  for (size_t i = 0; i < padding; ++i)
    hidden.hide(paddedRows, first + static_cast<int64_t>(i));
  ++paddedRows;
}

int64_t TokenFeed::length() const {
  if (session.cacheCount() != 0)
    return session.length();
  return step.tokens.empty() ? 0 : step.newTokens();
}

void TokenFeed::takeTokens(llvm::ArrayRef<std::vector<int64_t>> tokens) {
  const bool hasCaches = session.cacheCount() != 0;
  step.pastLength = hasCaches ? session.length() : 0;
  step.tokens.resize(tokens.size());
  for (size_t row = 0; row < tokens.size(); ++row) {
    if (hasCaches)
      step.tokens[row].clear();
    step.tokens[row].insert(step.tokens[row].end(), tokens[row].begin(), tokens[row].end());
  }
}

llvm::Error TokenFeed::planInputs() {
  std::vector<const Value*> made;
  for (const Value* input : drivenInputs(session, options.recipes))
    if (llvm::none_of(options.computed,
                      [&](const NamedTensor& computed) { return computed.name == input->name(); }))
      made.push_back(input);
  auto plan = DecoderPlan::create(made, options.recipes, session.manifest().inputs,
                                  slotsOf(session.manifest()));
  if (!plan)
    return plan.takeError();
  madeUpInputs = options.madeUp;
  llvm::append_range(madeUpInputs, plan->madeUp());
  inputs.emplace(std::move(*plan), session.allocator());
  return llvm::Error::success();
}

llvm::Error TokenFeed::run(llvm::ArrayRef<std::vector<int64_t>> tokens, StepResult& result) {
  if (!limits)
    limits = TokenLimits::of(session.graph(), session.manifest().inputs);
  for (const std::vector<int64_t>& row : tokens)
    if (llvm::Error error = limits->check(row))
      return error;
  takeTokens(tokens);
  if (llvm::Error error = checkTokens(step))
    return error;
  if (!inputs)
    if (llvm::Error error = planInputs())
      return error;
  if (llvm::Error error = inputs->prepare(step, hidden))
    return error;
  views.clear();
  for (const NamedTensor& input : inputs->tensors())
    views.push_back({input.name, input.tensor.view});
  for (const NamedTensor& input : options.computed)
    views.push_back({input.name, input.tensor.view});
  if (llvm::Error error = session.step(views, step.newTokens(), result))
    return error;
  return options.onStep ? tell(result) : llvm::Error::success();
}

llvm::Error TokenFeed::tell(const StepResult& result) const {
  std::vector<NamedTensor> fed = inputs->tensors().vec();
  fed.insert(fed.end(), options.computed.begin(), options.computed.end());
  return options.onStep(step.newTokens(), fed, result);
}

} // namespace kvopt::runtime
