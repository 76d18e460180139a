// Recorded steps: what another engine was fed and what it computed, read from a file or a folder.
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

/// One recorded step: the tensors that were fed and computed, by name, in the order in which they
/// were recorded.
struct ReferenceStep {
  int64_t tokens = 0;
  std::vector<std::pair<std::string, ir::TensorRef>> inputs;
  std::vector<std::pair<std::string, ir::TensorRef>> outputs;
};

/// Reads the steps of one case in the order of their numbers k, which count from 0. `path` is
/// * an ONNX file without nodes, inputs and outputs, whose initializers are named
///   `step<k>_q<tokens>/input/<name>` and `step<k>_q<tokens>/output/<name>`; or
/// * a folder with one file per tensor, `step<k>_q<tokens>/{input,output}_<i>.pb`.
///
/// Errors: neither a file nor a folder of this form, no steps, gaps in k, a step with two numbers
/// of tokens, tensors that are malformed or whose names are of another form.
llvm::Expected<std::vector<ReferenceStep>> readReference(const std::string& path);

/// One case that was recorded for a model.
struct ReferenceCase {
  std::string name;
  std::string path; ///< for readReference()
};

/// The cases in `<modelFolder>/ref`, sorted by name: every file `<name>.onnx` and every folder
/// `<name>`. A case that is recorded both ways appears twice.
std::vector<ReferenceCase> referenceCases(const std::string& modelFolder);

/// The recorded tensor of that name; null if there is none.
const ir::TensorData* findTensor(llvm::ArrayRef<std::pair<std::string, ir::TensorRef>> tensors,
                                 llvm::StringRef name);

/// The batch size of the recorded token ids, or of embeddings in their place; nullopt where neither
/// is recorded.
std::optional<int64_t> referenceBatch(llvm::ArrayRef<ReferenceStep> steps);
/// Tokens of all steps together.
int64_t referenceLength(llvm::ArrayRef<ReferenceStep> steps);

/// The recorded extent of an input of the first step; nullopt when it is not recorded.
std::optional<int64_t> referenceExtent(llvm::ArrayRef<ReferenceStep> steps, llvm::StringRef input,
                                       int64_t axis);

} // namespace kvopt::runtime
