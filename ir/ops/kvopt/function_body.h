// Function bodies: kvopt's operators spelled in standard ONNX, written into every model that uses
// them. An engine that has never heard of kvopt inlines the body and is right, only slower; tests
// hold the kernels to it.
#pragma once

#include "ir/cache_layout.h"
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

/// The text of a function (ONNX's textual syntax) for `ai.kvopt::InPlaceKvSdpa`. Attributes scale,
/// causal, window, softcap and mask_boolean must be written on the node; the mask operand must be
/// present (a neutral one is a single additive zero), key_axis and value_axis be those of `key` and
/// `value`.
std::string inPlaceKvSdpaFunctionText(const BodyForm& form,
                                      const CacheLayout& key = CacheLayout::ofAttention(),
                                      const CacheLayout& value = CacheLayout::ofAttention());

/// The same for `ai.kvopt::RingKvSdpa`.
std::string ringKvSdpaFunctionText(const BodyForm& form,
                                   const CacheLayout& key = CacheLayout::ofAttention(),
                                   const CacheLayout& value = CacheLayout::ofAttention());

/// The same for `ai.kvopt::InPlaceLatentKvSdpa`, with the attributes v_offset and v_width as well.
std::string inPlaceLatentKvSdpaFunctionText(const BodyForm& form,
                                            const CacheLayout& cache = CacheLayout::ofAttention());

/// The same for `ai.kvopt::BlockKvSdpa` with `blocks` blocks of keys, and as many of values.
std::string blockKvSdpaFunctionText(const BodyForm& form, size_t blocks,
                                    const CacheLayout& key = CacheLayout::ofAttention(),
                                    const CacheLayout& value = CacheLayout::ofAttention());

/// The same for `ai.kvopt::BlockLatentKvSdpa` with `blocks` blocks, and the attributes v_offset and
/// v_width as well.
std::string blockLatentKvSdpaFunctionText(const BodyForm& form, size_t blocks,
                                          const CacheLayout& cache = CacheLayout::ofAttention());

/// The same for `ai.kvopt::Sdpa`.
std::string sdpaFunctionText(const BodyForm& form);

/// The text of a function for `ai.kvopt::AppendRows`; `element` is the type of the rows.
std::string appendRowsFunctionText(int64_t opset, ElementType element);

} // namespace kvopt::ir
