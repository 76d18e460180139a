// Function body of an operator over caches (function_body.h).
#pragma once

#include "ir/cache_layout.h"
#include "ir/ops/kvopt/cache_operator.h"
#include "ir/ops/kvopt/function_body.h"

namespace kvopt::ir {

/// Properties of the caches for which a body is written; a body cannot query them.
struct CacheBody {
  CacheLayout key = CacheLayout::ofAttention();
  CacheLayout value = CacheLayout::ofAttention(); ///< unused if rows are latent
  size_t blocks = 0; ///< number of blocks in each list, if caches are in blocks
};

/// The text of a function (ONNX's textual syntax) for the operator. Attributes scale, causal,
/// window, softcap and mask_boolean and, of latent rows, v_offset and v_width must be written on
/// the node; the mask operand must be present (a neutral one is a single additive zero), key_axis
/// and value_axis be those of the caches. `op` says which codes rows are, whatever `form` says.
/// Codes are handled as floats, which hold them exactly: engines select and gather floats, but not
/// all of them int8.
std::string cacheFunctionText(const CacheOperator& op, const BodyForm& form,
                              const CacheBody& caches = {});

} // namespace kvopt::ir
