// Inputs of a step as tensors of floats, and their replay.
#include "driver/check/counterexample.h"

#include "driver/synthetic/random_tensor.h"
#include "driver/verify/verify_request.h"
#include "ir/onnx/export.h"
#include "runtime/exec/executor.h"
#include "support/child_process.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/output_folder.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>

namespace kvopt::driver {
using namespace runtime;
using check::Obligation;
using check::Verdict;

namespace {

using NamedTensors = std::vector<std::pair<std::string, ir::TensorRef>>;

/// The first output that differs in a step; null if there is none.
const Obligation* differenceOf(const FileCheck& result) {
  for (const Obligation& part : result.report.obligations)
    if (part.isOutput && part.verdict == Verdict::Different && !part.node.empty())
      return &part;
  return nullptr;
}

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

llvm::Expected<NamedTensors> inputsOf(const PreparedModel& before, const PreparedModel& after,
                                      const check::Step& step, unsigned seed) {
  check::Arithmetic math(seed);
  check::Feeding feeding({*before.model, before.manifest}, {*after.model, after.manifest});
  NamedTensors inputs;
  for (const auto& input : before.model->graph().inputs()) {
    const check::Ref contents = feeding.beforeInput(*input, step, math);
    if (!contents)
      return unsupported("{}", feeding.failure());
    auto tensor = tensorFor(*input, *contents);
    if (!tensor)
      return tensor.takeError();
    inputs.push_back({input->name().str(), std::move(*tensor)});
  }
  return inputs;
}

llvm::Expected<NamedTensors> outputsOf(const PreparedModel& model, const NamedTensors& inputs,
                                       const Toolkit& toolkit) {
  auto executor = Executor::create(*model.model, toolkit.kernels);
  if (!executor)
    return executor.takeError();
  std::vector<std::vector<std::byte>> contents;
  std::vector<TensorView> views;
  for (const auto& [name, tensor] : inputs) {
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
  NamedTensors outputs;
  for (const auto& [value, result] : llvm::zip(model.model->graph().outputs(), *results)) {
    auto tensor = ir::makeTensor(result.view.element, result.view.shape, packedBytes(result.view));
    if (!tensor)
      return tensor.takeError();
    outputs.push_back({value->name().str(), std::move(*tensor)});
  }
  return outputs;
}

llvm::Error write(OutputFolder& folder, const std::string& step, const char* kind,
                  const NamedTensors& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto file = folder.addFile(step, fmt::format("{}_{}.pb", kind, i));
    if (!file)
      return file.takeError();
    if (llvm::Error error =
            ir::exportTensorFile(*tensors[i].second, tensors[i].first, std::move(*file)))
      return error;
  }
  return llvm::Error::success();
}

/// Compares the second model with the recording, as the command does.
void replay(const PreparedModel& after, const Toolkit& toolkit, Counterexample& example) {
  VerifyWords words;
  words.reference = example.folder;
  auto report = verify(after, nullptr, words, toolkit);
  if (!report) {
    example.remark = takeDiagnostic(report.takeError()).str();
    return;
  }
  const TensorComparison* worst = report->comparison.worst();
  if (!worst) {
    example.remark = "no output is compared";
    return;
  }
  example.isVisible = report->comparison.isDifferent();
  example.remark = worst->mismatch.empty()
                       ? fmt::format("the largest difference is {:.1e}, of '{}'",
                                     worst->comparison.maxAbs, worst->name)
                       : fmt::format("'{}': {}", worst->name, worst->mismatch);
}

} // namespace

llvm::Expected<std::optional<Counterexample>>
writeCounterexample(const FileCheck& result, const CheckRequest& request, const std::string& folder,
                    const Toolkit& toolkit, FileAccess& files) {
  const Obligation* difference = folder.empty() ? nullptr : differenceOf(result);
  if (!difference)
    return std::nullopt;
  const check::Step& step = difference->counterexample;
  auto before = prepareModel(request.before, toolkit);
  if (!before)
    return before.takeError();
  auto after = prepareModel(request.after, toolkit);
  if (!after)
    return after.takeError();
  auto inputs = inputsOf(*before, *after, step, request.seed);
  if (!inputs)
    return inputs.takeError();
  Counterexample example;
  example.folder = folder;
  if (!request.after.bytes)
    example.command = fmt::format("kvopt verify {} --reference {}", shellWord(request.after.path),
                                  shellWord(folder));
  auto outputs = outputsOf(*before, *inputs, toolkit);
  if (!outputs)
    example.remark = "the first model does not run: " + takeDiagnostic(outputs.takeError()).str();
  auto written = OutputFolder::create(folder, files);
  if (!written)
    return written.takeError();
  const std::string name = fmt::format("step0_q{}", step.tokens);
  if (llvm::Error error = written->addFolder(name))
    return error;
  if (llvm::Error error = write(*written, name, "input", *inputs))
    return error;
  if (example.remark.empty())
    if (llvm::Error error = write(*written, name, "output", *outputs))
      return error;
  if (llvm::Error error = written->commit())
    return error;
  if (!request.manifest.empty() && example.remark.empty())
    example.remark = "verify takes no other manifest than the model's own";
  if (example.remark.empty())
    replay(*after, toolkit, example);
  return example;
}

SafeText counterexampleText(const Counterexample& example) {
  SafeText text = formatText("  written  {}: the inputs of the step, with random numbers, and the "
                             "outputs of the first model\n",
                             example.folder);
  if (!example.isVisible)
    return text + formatText("  replay   not possible: {}\n", example.remark);
  text += formatText("  replay   {}\n", example.command);
  text += formatText("           {}: {}\n",
                     *example.isVisible ? "shows the difference in floats"
                                        : "does not show the difference, which is too small in "
                                          "floats or only in rows that are not compared",
                     example.remark);
  return text;
}

} // namespace kvopt::driver
