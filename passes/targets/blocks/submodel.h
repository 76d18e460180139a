// A part of a model as a separate model.
#pragma once

#include "ir/model.h"
#include "ir/onnx/model_copy.h"

#include "llvm/Support/Error.h"

#include <memory>
#include <string>
#include <vector>

namespace kvopt::targets {

/// A value of the main graph and its name in a submodel.
struct BoundaryValue {
  const ir::Value* value;
  std::string name;
};

/// Boundary of a submodel. The submodel receives `inputs`, whatever computes them in the model, and
/// computes `outputs`, which are distinct. Other inputs of the model that it needs keep their
/// names.
struct SubmodelBoundary {
  std::vector<BoundaryValue> inputs;
  std::vector<BoundaryValue> outputs;
};

/// Cuts submodels out of one model. The cost of each is linear in its size.
class SubmodelCutter {
public:
  /// The model must outlive the cutter and not change.
  static llvm::Expected<SubmodelCutter> create(const ir::Model& model);

  /// A copy (PartCopier) that computes only the outputs of the boundary, in the boundary's order.
  /// Unread inputs are left out. The copy has no manifest, and its shapes are inferred.
  llvm::Expected<std::unique_ptr<ir::Model>> cut(const SubmodelBoundary& boundary) const;

private:
  SubmodelCutter(const ir::Model& cutModel, ir::PartCopier partCopier)
      : model(&cutModel), copier(std::move(partCopier)) {}

  const ir::Model* model;
  ir::PartCopier copier;
};

} // namespace kvopt::targets
