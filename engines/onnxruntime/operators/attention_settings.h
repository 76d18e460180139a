// Attributes and operands that all attention operators of ai.kvopt have.
#pragma once

#include "engines/onnxruntime/node_description.h"
#include "engines/onnxruntime/operators/attention_mask.h"

#include <initializer_list>
#include <string_view>

namespace kvopt::onnxruntime {

struct AttentionSettings {
  float scale = 1.0f;
  float softcap = 0.0f;
  int64_t window = 0;
  bool causal = false;
  /// What the attribute mask_boolean says; nullopt without it.
  std::optional<bool> hasBooleanMask;
};

/// Reads the attributes. Returns the reason against the node, which is empty if all values are
/// possible and every other attribute that says something is among `others`.
std::string readAttributes(const NodeDescription& node,
                           std::initializer_list<std::string_view> others,
                           AttentionSettings& settings);

/// The reason against the element types of a query, a mask and sinks; empty if they are supported.
std::string reasonAgainstTypes(const NodeDescription& node, unsigned mask, unsigned sinks);

/// The part of a call that does not depend on caches.
struct AttentionOperands {
  Tensor query; ///< [B,H,S,D]
  std::optional<AttentionMask> mask;
  simd::AttentionView view; ///< without keys, values, their lengths, and the output

  /// Reads operand 0 and those at the given places.
  AttentionOperands(Call& call, const AttentionSettings& settings, unsigned maskPlace,
                    unsigned sinksPlace);

  int64_t batches() const { return query.shape[0]; }
  int64_t rows() const { return query.shape[2]; }

  /// Sets the number of keys and values and their heads. Fails if these do not divide the query's.
  void setHeads(const Call& call, int64_t heads);
  /// Sets the element type of keys and values. Int8 rows without scales are plain numbers.
  void setRowType(const Call& call, ElementType type);
  /// Makes `key` and `value`, [B,G,T,·] in any storage, what the attention reads.
  void setRows(const Call& call, const Tensor& key, const Tensor& value);
  /// The same for numbers: sets their type and widths.
  void setNumbers(const Call& call, const Tensor& key, const Tensor& value);
  /// Number of keys of each batch row: operand `place`, int64 [1] or [B], plus the new rows. Fails
  /// if there are more than `most`. The view refers to the result.
  std::vector<int64_t> setLengths(const Call& call, unsigned place, int64_t most);

  /// Computes result 0, [B,H,S,Dv], once everything is set.
  void attend(Call& call);
};

/// Values of an operand that is int64 [1] or [B], one for each batch row.
std::vector<int64_t> pastLengths(const Call& call, unsigned place, int64_t batches);

} // namespace kvopt::onnxruntime
