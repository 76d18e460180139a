// Function bodies: kvopt's operators as standard ONNX operators, written into every model that uses
// them. An engine without kvopt's kernels inlines the body and computes the same result more
// slowly. Tests compare the kernels with the bodies.
#pragma once

#include "ir/rows/row_code.h"

#include <cstdint>
#include <string>

namespace kvopt::ir {

/// Properties for which a body is written, because it cannot query them. `opset` is the version of
/// the ONNX domain (>= 13), `element` the element type of query and result.
struct BodyForm {
  int64_t opset = 17;
  ElementType element = ElementType::Float;
  /// Whether the operand `sinks` is present.
  bool sinks = false;
  /// Whether the operand `past_length` of Sdpa is present.
  bool lengths = false;
  /// The codes that rows are stored as, of a body that reads codes.
  const RowCode* code = &int8Rows;
  /// Whether caches of InPlaceKvSdpa, and their new rows, are int8: engines select and gather
  /// floats, but not all of them int8.
  bool int8Caches = false;
};

/// Text of a function (in ONNX's textual syntax) for `ai.kvopt::Sdpa`. Nodes must have the
/// attributes scale, causal, window, softcap and mask_boolean, and the mask operand (a neutral mask
/// is a single additive zero).
std::string sdpaFunctionText(const BodyForm& form);

/// Text of a function for `ai.kvopt::AppendRows`; `element` is the type of the rows.
std::string appendRowsFunctionText(int64_t opset, ElementType element);

} // namespace kvopt::ir
