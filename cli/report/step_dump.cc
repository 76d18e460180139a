// Tensors to files.
#include "cli/report/step_dump.h"

#include "ir/onnx/export.h"
#include "support/diagnostic.h"

#include <cstring>
#include <filesystem>

namespace kvopt::cli {
using namespace ir;
using namespace runtime;

namespace {

namespace fs = std::filesystem;

llvm::Error writeTensors(const fs::path& folder, const char* kind,
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
    std::string path = (folder / fmt::format("{}_{}.pb", kind, i)).string();
    if (llvm::Error error = exportTensorFile(**data, tensors[i].name, path))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error createFolder(const fs::path& folder) {
  std::error_code code;
  fs::create_directory(folder, code);
  if (code)
    return ioError("cannot create the folder: {}", code.message()).file(folder.string());
  return llvm::Error::success();
}

} // namespace

llvm::Expected<StepDump> StepDump::create(const std::string& folder) {
  if (llvm::Error error = createFolder(folder))
    return error;
  std::error_code code;
  bool isEmpty = fs::is_empty(folder, code);
  if (code)
    return ioError("cannot read the folder: {}", code.message()).file(folder);
  if (!isEmpty)
    return usageError("the folder is not empty").file(folder);
  return StepDump(folder);
}

llvm::Error StepDump::write(int64_t tokens, llvm::ArrayRef<NamedTensor> inputs,
                            const StepResult& result) {
  fs::path step = fs::path(folder) / fmt::format("step{}_q{}", steps, tokens);
  if (llvm::Error error = createFolder(step))
    return error;
  ++steps;
  if (llvm::Error error = writeTensors(step, "input", inputs))
    return error;
  return writeTensors(step, "output", result.outputs);
}

} // namespace kvopt::cli
