// Copies of models and of their parts that share the contents of constants.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

#include <vector>

namespace kvopt::ir {

/// An equivalent model that can be edited and run independently. Only FamilyExport::addSubmodel may
/// write it. Large contents of initializers are shared with the original and stay as long as either
/// needs them; inferred types are not copied. Fails if the model could not be written for reasons
/// other than its size.
llvm::Expected<std::unique_ptr<Model>> copySharingConstants(const Model& model);

/// A part of a main graph: the nodes that compute `outputs` from `inputs`, inputs of the graph, and
/// constants.
struct GraphPart {
  std::vector<const Value*> inputs;
  std::vector<const Value*> outputs;
};

/// Copies parts of one model; copySharingConstants copies all of it. Creating a copier is linear in
/// the model; each copy is linear in its part.
class PartCopier {
public:
  /// The model must outlive the copier and must not change. Metadata entries with the given keys
  /// are not copied. Fails if copySharingConstants does.
  static llvm::Expected<PartCopier> create(const Model& model,
                                           llvm::ArrayRef<llvm::StringRef> omittedMetadata);
  PartCopier(PartCopier&&) noexcept;
  PartCopier& operator=(PartCopier&&) noexcept;
  ~PartCopier();

  /// A model with the nodes of the part. Its inputs are those of the original that the part needs,
  /// followed by the values of `part.inputs` that are not inputs of the original, with the same
  /// names. Its outputs are those of `part.outputs` that are outputs of the original.
  llvm::Expected<std::unique_ptr<Model>> copy(const GraphPart& part) const;

private:
  struct Messages;
  explicit PartCopier(std::unique_ptr<Messages> written);

  std::unique_ptr<Messages> messages;
};

} // namespace kvopt::ir
