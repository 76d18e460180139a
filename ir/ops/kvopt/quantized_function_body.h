// Function bodies of the operators over rows of codes (function_body.h).
#pragma once

#include "ir/ops/kvopt/function_body.h"

namespace kvopt::ir {

/// The text of a function for `ai.kvopt::InPlaceQuantizedKvSdpa`, as inPlaceKvSdpaFunctionText.
/// Codes are handled as floats, which hold them exactly: engines select and gather floats, but not
/// all of them int8.
std::string
inPlaceQuantizedKvSdpaFunctionText(const BodyForm& form,
                                   const CacheLayout& key = CacheLayout::ofAttention(),
                                   const CacheLayout& value = CacheLayout::ofAttention());

/// The same for `ai.kvopt::RingQuantizedKvSdpa`.
std::string ringQuantizedKvSdpaFunctionText(const BodyForm& form,
                                            const CacheLayout& key = CacheLayout::ofAttention(),
                                            const CacheLayout& value = CacheLayout::ofAttention());

/// The same for `ai.kvopt::InPlaceQuantizedLatentKvSdpa`, with the attributes v_offset and v_width
/// as well.
std::string
inPlaceQuantizedLatentKvSdpaFunctionText(const BodyForm& form,
                                         const CacheLayout& cache = CacheLayout::ofAttention());

/// The same for `ai.kvopt::BlockQuantizedKvSdpa` with `blocks` blocks of the codes of keys, and as
/// many of all else.
std::string blockQuantizedKvSdpaFunctionText(const BodyForm& form, size_t blocks,
                                             const CacheLayout& key = CacheLayout::ofAttention(),
                                             const CacheLayout& value = CacheLayout::ofAttention());

/// The text of a function for `ai.kvopt::QuantizeRows`.
std::string quantizeRowsFunctionText(int64_t opset);

/// The same for `ai.kvopt::QuantizedSdpa`, with the attribute v_width as well.
std::string quantizedSdpaFunctionText(const BodyForm& form);

} // namespace kvopt::ir
