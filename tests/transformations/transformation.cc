// The table of transformations.
#include "tests/transformations/transformation.h"

namespace kvopt {

llvm::ArrayRef<Transformation> transformations() {
  static constexpr Transformation all[] = {
      {"scrambled-names", "Nodes and intermediate values have meaningless names.", Rounding::Same,
       scrambleNames},
      {"scrambled-interface", "Inputs and outputs have meaningless names and another order.",
       Rounding::Same, scrambleInterface},
      {"dropped-declarations", "Only inputs and outputs have types.", Rounding::Same,
       dropDeclarations},
      {"renamed-extents", "Every symbolic extent has another name.", Rounding::Same, renameExtents},
      {"forgotten-extents", "Symbolic extents of inputs and outputs have no names.", Rounding::Same,
       forgetExtents},
      {"split-extents", "Each input has names of its own for its extents.", Rounding::Same,
       splitExtents},
      {"constants-to-nodes", "Initializers become Constant nodes.", Rounding::Same,
       constantsToNodes},
      {"constants-to-initializers", "Constant nodes become initializers.", Rounding::Same,
       constantsToInitializers},
      {"constants-to-inputs",
       "All constants are initializers listed as inputs, as IR version 3 demands.",
       Rounding::Reordered, constantsToInputs},
      {"constants-for-each-reader", "No two operands share a small constant.", Rounding::Same,
       constantsForEachReader},
      {"functions", "Runs of nodes become calls of local functions.", Rounding::Same,
       wrapInFunctions},
      {"nested-functions", "Local functions call local functions, and take attributes.",
       Rounding::Same, wrapInNestedFunctions},
      {"identities", "An Identity follows every node and every input.", Rounding::Same,
       insertIdentities},
      {"shuffled-nodes", "Nodes are in another order in which operands still come first.",
       Rounding::Same, shuffleNodes},
      {"newest-opset", "The newest opset that the model can be brought to.", Rounding::Reordered,
       raiseToNewestOpset},
      {"dynamic-int8", "Linear layers quantize their activations as they come.",
       Rounding::Quantized, quantizeActivations},
      {"static-int8", "Linear layers between pairs of QuantizeLinear and DequantizeLinear.",
       Rounding::Quantized, quantizeAroundLinear},
      {"blocks-of-four-bits", "Linear layers are MatMulNBits.", Rounding::Quantized,
       quantizeWeights},
      {"float16", "float16 inside, with casts at inputs and outputs, which keep their types.",
       Rounding::Narrow, narrowNumbers},
  };
  return all;
}

} // namespace kvopt
