// Recorded steps: inputs and outputs of another engine, read from a file or folder.
#pragma once

#include "ir/tensor.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kvopt::runtime {

/// One recorded step: input and output tensors by name, in the order of the recording.
struct ReferenceStep {
  int64_t tokens = 0;
  std::vector<std::pair<std::string, ir::TensorRef>> inputs;
  std::vector<std::pair<std::string, ir::TensorRef>> outputs;
};

/// Reads the steps of one case in the order of their numbers k, which count from 0. `path` is
/// * an ONNX file without nodes, inputs and outputs, with initializers named
///   `step<k>_q<tokens>/input/<name>` and `step<k>_q<tokens>/output/<name>`; or
/// * a folder with one file per tensor, `step<k>_q<tokens>/{input,output}_<i>.pb`.
///
/// Fails if the path has neither format, if there are no steps, if k has gaps, if a step has two
/// numbers of tokens, or if tensors or their names are malformed.
llvm::Expected<std::vector<ReferenceStep>> readReference(const std::string& path);

/// One recorded case of a model.
struct ReferenceCase {
  std::string name;
  std::string path; ///< for readReference()
};

/// Cases in `<modelFolder>/ref`, sorted by name: every file `<name>.onnx` and every folder
/// `<name>`. A case that is recorded in both formats appears twice.
std::vector<ReferenceCase> referenceCases(const std::string& modelFolder);

/// The recorded tensor with that name; null if there is none.
const ir::TensorData* findTensor(llvm::ArrayRef<std::pair<std::string, ir::TensorRef>> tensors,
                                 llvm::StringRef name);

/// Batch size of the recorded token ids or embeddings; nullopt if neither is recorded.
std::optional<int64_t> referenceBatch(llvm::ArrayRef<ReferenceStep> steps);
/// Number of tokens in all steps together.
int64_t referenceLength(llvm::ArrayRef<ReferenceStep> steps);

/// Recorded extent of an input of the first step; nullopt if it is not recorded.
std::optional<int64_t> referenceExtent(llvm::ArrayRef<ReferenceStep> steps, llvm::StringRef input,
                                       int64_t axis);

} // namespace kvopt::runtime
