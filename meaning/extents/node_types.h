// Types of a node's results, and their integers, from the definition of its operator.
#pragma once

#include "ir/shapes/shape_inference.h"

namespace kvopt::meaning {

/// An `ir::ShapeRule` for all operators that have a definition. It infers nothing of a node that
/// the definition does not know.
llvm::Error inferTypes(ir::ShapeContext& context);

} // namespace kvopt::meaning
