// Writers of recorded steps, in both forms that kvopt reads.
#pragma once

#include "ir/onnx/export.h"
#include "ir/op.h"
#include "runtime/equivalence/reference_steps.h"
#include "support/format.h"
#include "tests/support/output_at.h"

#include <filesystem>

namespace kvopt {

using NamedTensors = std::vector<std::pair<std::string, ir::TensorRef>>;

/// Writes an ONNX file whose initializers are the tensors, and nothing else.
inline std::string writeReferenceFile(const std::string& path, const NamedTensors& tensors) {
  const ir::OpRegistry noOperators;
  ir::Model model(noOperators);
  for (const auto& [name, tensor] : tensors)
    model.graph().addInitializer(name, tensor);
  llvm::cantFail(ir::exportModel(model, path));
  return path;
}

/// Writes a folder with one file per tensor.
inline std::string writeReferenceFolder(const std::string& path,
                                        llvm::ArrayRef<runtime::ReferenceStep> steps) {
  for (size_t k = 0; k < steps.size(); ++k) {
    const std::string step = formatted("{}/step{}_q{}", path, k, steps[k].tokens);
    std::filesystem::create_directories(step);
    auto write = [&](const char* kind, const NamedTensors& tensors) {
      for (size_t i = 0; i < tensors.size(); ++i)
        llvm::cantFail(ir::exportTensorFile(*tensors[i].second, tensors[i].first,
                                            outputAt(formatted("{}/{}_{}.pb", step, kind, i))));
    };
    write("input", steps[k].inputs);
    write("output", steps[k].outputs);
  }
  return path;
}

} // namespace kvopt
