// Function bodies: kvopt's operators spelled in standard ONNX, written into every model that uses
// them. An engine that has never heard of kvopt inlines the body and is right, only slower; tests
// hold the kernels to it.
#pragma once

#include "ir/element_type.h"

#include <cstdint>
#include <string>

namespace kvopt::ir {

/// What a body is written for, since it cannot ask: `opset` is the version of the ONNX domain
/// (>= 13), `element` the element type of query and result.
struct BodyForm {
  int64_t opset = 17;
  ElementType element = ElementType::Float;
  /// Whether the operand `sinks` is given.
  bool sinks = false;
  /// Whether the operand `past_length` of Sdpa is given.
  bool lengths = false;
  /// Whether codes of quantized rows have four bits, not eight.
  bool fourBitCodes = false;
  /// Whether caches of InPlaceKvSdpa, and their new rows, are int8: engines select and gather
  /// floats, but not all of them int8.
  bool int8Caches = false;
};

/// The text of a function (ONNX's textual syntax) for `ai.kvopt::Sdpa`. Attributes scale, causal,
/// window, softcap and mask_boolean must be written on the node; the mask operand must be present
/// (a neutral one is a single additive zero).
std::string sdpaFunctionText(const BodyForm& form);

/// The text of a function for `ai.kvopt::AppendRows`; `element` is the type of the rows.
std::string appendRowsFunctionText(int64_t opset, ElementType element);

} // namespace kvopt::ir
