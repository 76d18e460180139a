// Function bodies: kvopt's operators spelled in standard ONNX, written into every model that uses
// them. An engine that has never heard of kvopt inlines the body and is right, only slower; tests
// hold the kernels to it.
#pragma once

#include "ir/element_type.h"

#include <cstdint>
#include <string>

namespace kvopt {

/// The text of a function (ONNX's textual syntax) for `ai.kvopt::InPlaceKvSdpa` on caches whose
/// sequence axis is 2, without sinks. `opset` is the version of the ONNX domain the body is written
/// in (>= 13), `element` the element type of query and result. Attributes scale, causal, window,
/// softcap and mask_boolean must be written on the node; the mask operand must be present (a
/// neutral one is a single additive zero).
std::string inPlaceKvSdpaFunctionText(int64_t opset, ElementType element);

/// The same for `ai.kvopt::Sdpa`, without sinks: attributes scale, causal, window, softcap and
/// mask_boolean written, the mask operand present.
std::string sdpaFunctionText(int64_t opset, ElementType element);

/// The same for `ai.kvopt::Sdpa` whose past_length operand is present too.
std::string raggedSdpaFunctionText(int64_t opset, ElementType element);

/// The text of a function for `ai.kvopt::AppendRows`; `element` is the type of the rows.
std::string appendRowsFunctionText(int64_t opset, ElementType element);

} // namespace kvopt
