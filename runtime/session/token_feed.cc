// Making the inputs of a step, and running it.
#include "runtime/session/token_feed.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::runtime {
using namespace ir;

void TokenFeed::hidePadding(size_t padding, size_t tokensBefore) {
  visible.emplace_back(static_cast<size_t>(session.length()) + tokensBefore, 1);
  visible.back().insert(visible.back().end(), padding, 0);
  hidesAny |= padding != 0;
}

int64_t TokenFeed::length() const {
  if (session.cacheCount() != 0)
    return session.length();
  return whole.empty() ? 0 : static_cast<int64_t>(whole.front().size());
}

llvm::Expected<StepResult> TokenFeed::run(const std::vector<std::vector<int64_t>>& tokens) {
  DecoderStep step;
  if (session.cacheCount() != 0) {
    step.tokens = tokens;
    step.pastLength = session.length();
    return runInputs(step);
  }
  whole.resize(tokens.size());
  for (size_t row = 0; row < tokens.size(); ++row)
    whole[row].insert(whole[row].end(), tokens[row].begin(), tokens[row].end());
  step.tokens = whole;
  return runInputs(step);
}

bool TokenFeed::isComputed(const Value& input) const {
  return llvm::any_of(options.computed,
                      [&](const NamedTensor& computed) { return computed.name == input.name(); });
}

llvm::Expected<StepResult> TokenFeed::runInputs(DecoderStep& step) {
  const size_t total = static_cast<size_t>(step.pastLength) + step.tokens.front().size();
  if (hidesAny)
    for (std::vector<uint8_t>& row : visible) {
      step.visible.push_back(row);
      step.visible.back().resize(total, 1);
    }
  step.recipes = options.recipes;
  std::vector<const Value*> made;
  llvm::copy_if(drivenInputs(session, step.recipes), std::back_inserter(made),
                [&](const Value* input) { return !isComputed(*input); });
  auto inputs = decoderInputs(made, step, session.allocator(), session.manifest().inputs);
  if (!inputs)
    return inputs.takeError();
  inputs->insert(inputs->end(), options.computed.begin(), options.computed.end());
  std::vector<NamedView> views;
  for (const NamedTensor& input : *inputs)
    views.push_back({input.name, input.tensor.view});
  const auto tokens = static_cast<int64_t>(step.tokens.front().size());
  auto outputs = session.step(views, tokens);
  if (outputs && options.onStep)
    if (llvm::Error error = options.onStep(tokens, *inputs, *outputs))
      return error;
  return outputs;
}

} // namespace kvopt::runtime
