// Copies of models, and of parts of them, that share the contents of constants.
#pragma once

#include "ir/model.h"

#include "llvm/Support/Error.h"

#include <vector>

namespace kvopt::ir {

/// A model that says the same, to be edited and run by itself; it must not be written but by
/// FamilyExport::addSubmodel. Contents of
/// initializers that are large are the original's, which stay as long as either needs them; types
/// that were inferred are left behind. Fails where the model could not be written for other reasons
/// than its size.
llvm::Expected<std::unique_ptr<Model>> copySharingConstants(const Model& model);

/// A part of a main graph: the nodes that compute `outputs` from `inputs`, from inputs of the graph
/// and from constants.
struct GraphPart {
  std::vector<const Value*> inputs;
  std::vector<const Value*> outputs;
};

/// Copies parts of one model as copySharingConstants copies all of it. Making a copier costs what
/// the whole model costs; each copy costs what its part does.
class PartCopier {
public:
  /// The model must outlive the copier and not change. Entries of its metadata under the given keys
  /// are not copied. Fails where copySharingConstants does.
  static llvm::Expected<PartCopier> create(const Model& model,
                                           llvm::ArrayRef<llvm::StringRef> omittedMetadata);
  PartCopier(PartCopier&&) noexcept;
  PartCopier& operator=(PartCopier&&) noexcept;
  ~PartCopier();

  /// A model with the nodes of the part. Its inputs are those of the original that the part needs,
  /// then those of `part.inputs` that are none of the original, under the same names. It has no
  /// outputs but those of `part.outputs` that are outputs of the original.
  llvm::Expected<std::unique_ptr<Model>> copy(const GraphPart& part) const;

private:
  struct Messages;
  explicit PartCopier(std::unique_ptr<Messages> written);

  std::unique_ptr<Messages> messages;
};

} // namespace kvopt::ir
