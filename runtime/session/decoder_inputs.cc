// Inputs of single steps.
#include "runtime/session/decoder_inputs.h"

#include "runtime/session/step_inputs.h"
#include "support/diagnostic.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

llvm::Error checkMask(const DecoderStep& step) {
  if (step.visible.empty())
    return llvm::Error::success();
  if (step.visible.size() != step.tokens.size())
    return invalid("the mask's batch size is not the step's");
  const auto total = static_cast<size_t>(step.total());
  for (const std::vector<uint8_t>& row : step.visible)
    if (row.size() != total)
      return invalid("the mask names {} positions, there are {}", row.size(), total);
  return llvm::Error::success();
}

HiddenPositions hiddenIn(const DecoderStep& step) {
  HiddenPositions hidden;
  for (size_t row = 0; row < step.visible.size(); ++row)
    for (size_t position = 0; position < step.visible[row].size(); ++position)
      if (step.visible[row][position] == 0)
        hidden.hide(row, static_cast<int64_t>(position));
  return hidden;
}

} // namespace

llvm::Error checkTokens(const DecoderStep& step) {
  if (step.tokens.empty() || step.tokens.front().empty())
    return invalid("a step without tokens");
  for (const std::vector<int64_t>& row : step.tokens)
    if (row.size() != step.tokens.front().size())
      return invalid("the batch rows of a step differ in length");
  return llvm::Error::success();
}

llvm::Expected<std::vector<NamedTensor>> decoderInputs(llvm::ArrayRef<const Value*> inputs,
                                                       const DecoderStep& step,
                                                       const std::shared_ptr<Allocator>& allocator,
                                                       llvm::ArrayRef<ManifestInput> described,
                                                       int64_t slots) {
  if (llvm::Error error = checkTokens(step))
    return error;
  if (llvm::Error error = checkMask(step))
    return error;
  llvm::Expected<DecoderPlan> plan = DecoderPlan::create(inputs, step.recipes, described, slots);
  if (!plan)
    return plan.takeError();
  StepInputs made(std::move(*plan), allocator);
  if (llvm::Error error = made.prepare(step, hiddenIn(step)))
    return error;
  return made.take();
}

llvm::SmallVector<const Value*, 8> drivenInputs(const Session& session,
                                                llvm::ArrayRef<InputRecipe> recipes) {
  llvm::SmallVector<const Value*, 8> driven(session.callerInputs().begin(),
                                            session.callerInputs().end());
  for (const ManifestLength& length : session.manifest().lengths)
    if (llvm::any_of(recipes, [&](const auto& recipe) { return recipe.input == length.input; }))
      if (const Value* input = session.graph().findValue(length.input))
        driven.push_back(input);
  return driven;
}

llvm::Expected<std::vector<NamedTensor>> decoderInputs(const Session& session,
                                                       const DecoderStep& step) {
  return decoderInputs(drivenInputs(session, step.recipes), step, session.allocator(),
                       session.manifest().inputs, slotsOf(session.manifest()));
}

llvm::Expected<StepResult> stepDecoder(Session& session, const DecoderStep& step) {
  auto inputs = decoderInputs(session, step);
  if (!inputs)
    return inputs.takeError();
  std::vector<NamedView> views;
  for (const NamedTensor& input : *inputs)
    views.push_back({input.name, input.tensor.view});
  return session.step(views, step.newTokens());
}

} // namespace kvopt::runtime
