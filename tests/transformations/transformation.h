// Transformations that exporters, optimizers and people apply to models, none of which changes what
// a model computes: recognition must not depend on them.
#pragma once

#include "ir/model.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <map>
#include <random>
#include <string>

namespace kvopt {

/// A model while it is transformed. What it was read from is forgotten: everything that is written
/// of it later is what the graph says.
struct TransformedModel {
  std::unique_ptr<ir::Model> model;
  /// Names of inputs, outputs and extents that changed: before, after.
  std::map<std::string, std::string> renamed;
  /// The same for every model and transformation, whatever else is run.
  std::mt19937_64 random;

  ir::Graph& graph() const { return model->graph(); }
  /// Uniform in [0, bound).
  size_t below(size_t bound) { return std::uniform_int_distribution<size_t>(0, bound - 1)(random); }
  /// What an input or output of that name is called now.
  std::string nameOf(const std::string& before) const {
    auto found = renamed.find(before);
    return found == renamed.end() ? before : found->second;
  }
};

/// How far a transformed model's results may be from those before.
enum class Rounding {
  Same,      ///< the same operations on the same numbers: bit for bit
  Reordered, ///< other operators for the same sums: a few units of float32
  Narrow,    ///< float16 numbers inside
  Quantized, ///< another model: its results are compared with its rewrite's only
};

struct Transformation {
  /// Kebab case.
  const char* name;
  const char* summary;
  Rounding rounding;
  /// Returns false where there is nothing to transform; the model is of no use then.
  llvm::Expected<bool> (*apply)(TransformedModel& transformed);
};

/// All transformations.
llvm::ArrayRef<Transformation> transformations();

// One file per group defines these.

// names.cc
llvm::Expected<bool> scrambleNames(TransformedModel& transformed);
llvm::Expected<bool> scrambleInterface(TransformedModel& transformed);
// declarations.cc
llvm::Expected<bool> dropDeclarations(TransformedModel& transformed);
llvm::Expected<bool> renameExtents(TransformedModel& transformed);
llvm::Expected<bool> forgetExtents(TransformedModel& transformed);
llvm::Expected<bool> splitExtents(TransformedModel& transformed);
// constants.cc
llvm::Expected<bool> constantsToNodes(TransformedModel& transformed);
llvm::Expected<bool> constantsToInitializers(TransformedModel& transformed);
llvm::Expected<bool> constantsToInputs(TransformedModel& transformed);
llvm::Expected<bool> constantsForEachReader(TransformedModel& transformed);
// functions.cc
llvm::Expected<bool> wrapInFunctions(TransformedModel& transformed);
llvm::Expected<bool> wrapInNestedFunctions(TransformedModel& transformed);
// nodes.cc
llvm::Expected<bool> insertIdentities(TransformedModel& transformed);
llvm::Expected<bool> shuffleNodes(TransformedModel& transformed);
llvm::Expected<bool> raiseToNewestOpset(TransformedModel& transformed);
// quantization.cc
llvm::Expected<bool> quantizeActivations(TransformedModel& transformed);
llvm::Expected<bool> quantizeAroundLinear(TransformedModel& transformed);
llvm::Expected<bool> quantizeWeights(TransformedModel& transformed);
// narrow_numbers.cc
llvm::Expected<bool> narrowNumbers(TransformedModel& transformed);

} // namespace kvopt
