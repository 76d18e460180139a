// Writing of tensors to files.
#include "cli/running/step_dump.h"

#include "ir/onnx/export.h"
#include "support/diagnostic.h"
#include "support/output_file.h"

#include <cstring>

namespace kvopt::cli {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error writeTensors(OutputFolder& folder, const std::string& step, const char* kind,
                         llvm::ArrayRef<NamedTensor> tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    TensorView view = tensors[i].tensor.view;
    std::vector<std::byte> bytes(static_cast<size_t>(view.byteSize()));
    if (!bytes.empty())
      copyElements(view, TensorView::contiguous(view.element, view.shape, bytes.data()));
    auto data =
        makeTensor(view.element, view.shape,
                   packedBytes(TensorView::contiguous(view.element, view.shape, bytes.data())));
    if (!data)
      return data.takeError();
    auto file = folder.addFile(step, formatted("{}_{}.pb", kind, i));
    if (!file)
      return file.takeError();
    if (llvm::Error error = exportTensorFile(**data, tensors[i].name, std::move(*file)))
      return error;
  }
  return llvm::Error::success();
}

} // namespace

llvm::Expected<StepDump> StepDump::create(const std::string& folder, FileAccess& files) {
  auto output = OutputFolder::create(folder, files);
  if (!output)
    return output.takeError();
  return StepDump(std::move(*output));
}

llvm::Error StepDump::write(int64_t tokens, llvm::ArrayRef<NamedTensor> inputs,
                            const StepResult& result) {
  const std::string step = formatted("step{}_q{}", steps, tokens);
  if (llvm::Error error = folder.addFolder(step))
    return error;
  ++steps;
  if (llvm::Error error = writeTensors(folder, step, "input", inputs))
    return error;
  return writeTensors(folder, step, "output", result.outputs);
}

} // namespace kvopt::cli
