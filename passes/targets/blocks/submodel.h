// A part of a model as a model of its own.
#pragma once

#include "ir/model.h"
#include "ir/onnx/model_copy.h"

#include "llvm/Support/Error.h"

#include <memory>
#include <string>
#include <vector>

namespace kvopt::targets {

/// A value of the main graph and what a submodel calls it.
struct BoundaryValue {
  const ir::Value* value;
  std::string name;
};

/// What a submodel is cut out between: `inputs` are given to it, whatever computes them in the
/// model, and it computes `outputs`, each of which stands here once. Inputs of the model that it
/// needs besides are inputs of the same names.
struct SubmodelBoundary {
  std::vector<BoundaryValue> inputs;
  std::vector<BoundaryValue> outputs;
};

/// Cuts submodels out of one model, each at the cost of what is in it.
class SubmodelCutter {
public:
  /// The model must outlive the cutter and not change.
  static llvm::Expected<SubmodelCutter> create(const ir::Model& model);

  /// A copy (PartCopier) that computes the outputs of the boundary and nothing else, in the order
  /// of the boundary; inputs that nothing reads are left out. It has no manifest, and its shapes
  /// are inferred.
  llvm::Expected<std::unique_ptr<ir::Model>> cut(const SubmodelBoundary& boundary) const;

private:
  SubmodelCutter(const ir::Model& cutModel, ir::PartCopier partCopier)
      : model(&cutModel), copier(std::move(partCopier)) {}

  const ir::Model* model;
  ir::PartCopier copier;
};

} // namespace kvopt::targets
