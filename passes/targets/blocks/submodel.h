// A part of a model as a model of its own.
#pragma once

#include "ir/model.h"

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

/// A copy of the model (copySharingConstants) that computes the outputs of the boundary and nothing
/// else, in the order in which they stand there; inputs that nothing reads are none of its. It has
/// no manifest, and its shapes are inferred.
llvm::Expected<std::unique_ptr<ir::Model>> submodelOf(const ir::Model& model,
                                                      const SubmodelBoundary& boundary);

} // namespace kvopt::targets
