// A step of two models in floats, and what it says about a difference.
#include "driver/verify/step_replay.h"

#include "driver/synthetic/decoder.h"
#include "driver/synthetic/random_tensor.h"
#include "driver/verify/verify_request.h"
#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace kvopt::driver {
using namespace runtime;

namespace {

/// Most bytes of weights, or of inputs, of a model that is run without a request.
constexpr int64_t mostReplayedBytes = int64_t(1) << 30;

template <class Stored, class Number>
std::vector<std::byte> stored(const std::vector<Number>& numbers) {
  std::vector<std::byte> bytes(numbers.size() * sizeof(Stored));
  for (size_t i = 0; i < numbers.size(); ++i) {
    const auto element = static_cast<Stored>(numbers[i]);
    std::memcpy(bytes.data() + i * sizeof(Stored), &element, sizeof(Stored));
  }
  return bytes;
}

/// Contents of an input, as the model declares its element type.
llvm::Expected<ir::TensorRef> tensorFor(const ir::Value& input, const check::Tensor& contents) {
  const ir::ElementType type = input.type().elementType();
  if (contents.isReal())
    return randomNumbers(type, contents.shape, keyOf(1, input.name()), 0, 1);
  const bool isInteger = contents.isInteger();
  auto made = [&](std::vector<std::byte> bytes) {
    return ir::makeTensor(type, contents.shape, std::move(bytes));
  };
  switch (type) {
  case ir::ElementType::Int64:
    if (isInteger)
      return made(stored<int64_t>(contents.integers));
    break;
  case ir::ElementType::Int32:
    if (isInteger)
      return made(stored<int32_t>(contents.integers));
    break;
  case ir::ElementType::Bool:
    if (isInteger)
      return made(stored<uint8_t>(contents.integers));
    break;
  case ir::ElementType::Float:
    if (!isInteger)
      return made(stored<float>(contents.known));
    break;
  default:
    break;
  }
  return unsupported("the input '{}' has an element type that counterexamples do not have",
                     input.name());
}

/// The reason that a model is too large to run without a request; empty if it is not.
std::string excessOf(const check::DrivenModel& before, const check::DrivenModel& after) {
  const int64_t bytes = std::max(weightBytes(before.model), weightBytes(after.model));
  return bytes <= mostReplayedBytes ? "" : "a model has more than 1 GiB of weights";
}

bool isLarge(const ReferenceStep& recorded) {
  int64_t bytes = 0;
  for (const auto& [name, tensor] : recorded.inputs)
    bytes += tensor->byteSize().value_or(0);
  return bytes > mostReplayedBytes;
}

/// A copy that a session can own.
llvm::Expected<PreparedModel> preparedCopy(const check::DrivenModel& driven) {
  auto copy = ir::copySharingConstants(driven.model);
  if (!copy)
    return copy.takeError();
  if (llvm::Error error = ir::inferShapes((*copy)->graph()))
    return error;
  PreparedModel prepared;
  prepared.model = std::move(*copy);
  prepared.manifest = driven.manifest;
  return prepared;
}

/// The message of an error without paths, so that certificates do not depend on folders.
std::string messageOf(llvm::Error error) {
  Diagnostic failure = takeDiagnostic(std::move(error));
  failure.file.clear();
  return failure.str();
}

FloatReplay notPossible(std::string reason) { return {std::nullopt, std::move(reason)}; }

} // namespace

llvm::Expected<ReferenceStep> floatInputs(const check::DrivenModel& before,
                                          const check::DrivenModel& after, const check::Step& step,
                                          unsigned seed) {
  check::Arithmetic math(seed);
  check::Feeding feeding(before, after);
  ReferenceStep recorded;
  recorded.tokens = step.tokens;
  for (const auto& input : before.model.graph().inputs()) {
    const check::Ref contents = feeding.beforeInput(*input, step, math);
    if (!contents)
      return unsupported("{}", feeding.failure());
    auto tensor = tensorFor(*input, *contents);
    if (!tensor)
      return tensor.takeError();
    recorded.inputs.push_back({input->name().str(), std::move(*tensor)});
  }
  return recorded;
}

llvm::Error addOutputs(const ir::Model& model, ReferenceStep& recorded, const Toolkit& toolkit) {
  auto executor = Executor::create(model, toolkit.runner->kernels());
  if (!executor)
    return executor.takeError();
  std::vector<std::vector<std::byte>> contents;
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : recorded.inputs) {
    auto bytes = tensor->bytes();
    if (!bytes)
      return bytes.takeError();
    contents.emplace_back(bytes->begin(), bytes->end());
    views.push_back(
        TensorView::contiguous(tensor->elementType(), tensor->shape(), contents.back().data()));
  }
  auto results = (*executor)->run(views);
  if (!results)
    return results.takeError();
  for (const auto& [value, result] : llvm::zip(model.graph().outputs(), *results)) {
    auto tensor = ir::makeTensor(result.view.element, result.view.shape, packedBytes(result.view));
    if (!tensor)
      return tensor.takeError();
    recorded.outputs.push_back({value->name().str(), std::move(*tensor)});
  }
  return llvm::Error::success();
}

FloatReplay replayRecorded(const PreparedModel& after, const ReferenceStep& recorded,
                           const Toolkit& toolkit) {
  auto report = verifyRecorded(after, recorded, VerifyWords(), toolkit);
  if (!report)
    return notPossible(messageOf(report.takeError()));
  const TensorComparison* worst = report->comparison.worst();
  if (!worst)
    return notPossible("no output is compared");
  return {report->comparison.isDifferent(),
          worst->mismatch.empty() ? formatted("the largest difference is {:.1e}, of '{}'",
                                              worst->comparison.maxAbs, worst->name)
                                  : formatted("'{}': {}", worst->name, worst->mismatch)};
}

FloatReplay replayStep(const check::DrivenModel& before, const check::DrivenModel& after,
                       const check::Step& step, unsigned seed, const Toolkit& toolkit) {
  if (std::string excess = excessOf(before, after); !excess.empty())
    return notPossible(std::move(excess));
  auto recorded = floatInputs(before, after, step, seed);
  if (!recorded)
    return notPossible(messageOf(recorded.takeError()));
  if (isLarge(*recorded))
    return notPossible("the step has more than 1 GiB of inputs");
  if (llvm::Error error = addOutputs(before.model, *recorded, toolkit))
    return notPossible("the first model does not run: " + messageOf(std::move(error)));
  auto prepared = preparedCopy(after);
  if (!prepared)
    return notPossible(messageOf(prepared.takeError()));
  return replayRecorded(*prepared, *recorded, toolkit);
}

} // namespace kvopt::driver
