// Folders of recorded steps, and their replay.
#include "driver/verify/counterexample_files.h"

#include "driver/verify/step_replay.h"
#include "ir/onnx/export.h"
#include "support/child_process.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/output_folder.h"

namespace kvopt::driver {
using check::Obligation;
using check::Verdict;

namespace {

using NamedTensors = std::vector<std::pair<std::string, ir::TensorRef>>;

/// The first output that differs in a step, at least in exact arithmetic; null if there is none.
const Obligation* differenceOf(const FileCheck& result) {
  for (const Obligation& part : result.report.obligations)
    if (part.isOutput && !part.node.empty() &&
        (part.verdict == Verdict::Different || part.hasElements()))
      return &part;
  return nullptr;
}

llvm::Error write(OutputFolder& folder, const std::string& step, const char* kind,
                  const NamedTensors& tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    auto file = folder.addFile(step, formatted("{}_{}.pb", kind, i));
    if (!file)
      return file.takeError();
    if (llvm::Error error =
            ir::exportTensorFile(*tensors[i].second, tensors[i].first, std::move(*file)))
      return error;
  }
  return llvm::Error::success();
}

} // namespace

llvm::Expected<std::optional<Counterexample>> writeStep(const FileCheck& result,
                                                        const CheckRequest& request,
                                                        const std::string& folder,
                                                        const Toolkit& toolkit, FileAccess& files) {
  const Obligation* difference = differenceOf(result);
  if (!difference)
    return std::nullopt;
  const check::Step& step = difference->counterexample;
  auto before = prepareModel(request.before, toolkit);
  if (!before)
    return before.takeError();
  auto after = prepareModel(request.after, toolkit);
  if (!after)
    return after.takeError();
  auto recorded = floatInputs({*before->model, before->manifest}, {*after->model, after->manifest},
                              step, result.report.seed);
  if (!recorded)
    return recorded.takeError();
  Counterexample example;
  example.folder = folder;
  if (!request.after.bytes)
    example.command = formatted("kvopt verify {} --reference {}", shellWord(request.after.path),
                                shellWord(folder));
  if (llvm::Error error = addOutputs(*before->model, *recorded, toolkit))
    example.remark = "the first model does not run: " + takeDiagnostic(std::move(error)).str();
  auto written = OutputFolder::create(folder, files);
  if (!written)
    return written.takeError();
  const std::string name = formatted("step0_q{}", step.tokens);
  if (llvm::Error error = written->addFolder(name))
    return error;
  if (llvm::Error error = write(*written, name, "input", recorded->inputs))
    return error;
  if (example.remark.empty())
    if (llvm::Error error = write(*written, name, "output", recorded->outputs))
      return error;
  if (llvm::Error error = written->commit())
    return error;
  if (!request.manifest.empty() && example.remark.empty())
    example.remark = "verify takes no other manifest than the model's own";
  if (example.remark.empty()) {
    FloatReplay replay = replayRecorded(*after, *recorded, toolkit);
    example.isVisible = replay.isVisible;
    example.remark = std::move(replay.remark);
  }
  return example;
}

} // namespace kvopt::driver
