// The table of operators: how a random instance of each one is made.
#pragma once

#include "tests/differential/instance.h"

namespace kvopt::differential {

struct Operator {
  const char* name;
  /// An instance that is valid according to ONNX.
  Instance (*make)(const char* name, Dice& dice);
};

/// The families of the table.
llvm::ArrayRef<Operator> elementwiseOperators();
llvm::ArrayRef<Operator> activationOperators();
llvm::ArrayRef<Operator> movementOperators();
llvm::ArrayRef<Operator> rangeOperators();
llvm::ArrayRef<Operator> indexOperators();
llvm::ArrayRef<Operator> reductionOperators();
llvm::ArrayRef<Operator> productOperators();
llvm::ArrayRef<Operator> layerOperators();

/// Extents of `count` operands that broadcast to each other: some axes are 1 or absent.
std::vector<Extents> broadcastExtents(Dice& dice, size_t count);

} // namespace kvopt::differential
