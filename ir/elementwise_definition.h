// Definitions of elementwise operators.
#pragma once

#include "ir/op.h"

namespace kvopt::ir {

/// Starts the definition of an elementwise operator with required operands. Attributes and optional
/// operands may follow.
inline OpDefBuilder defineElementwise(OpRegistry& registry, OpName name, int64_t since,
                                      std::initializer_list<const char*> operands,
                                      const char* result, ElementFunction function) {
  OpDefBuilder builder = define(registry, name, since);
  for (const char* operand : operands)
    builder.in(operand);
  return builder.out(result).elementwise(function);
}

} // namespace kvopt::ir
