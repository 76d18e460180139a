// Operands and attributes of GroupQueryAttention.
#pragma once

#include "engines/onnxruntime/node_description.h"
#include "ir/ops/contrib/group_query_operands.h"
#include "runtime/simd/code_form.h"

namespace kvopt::onnxruntime {

namespace gqa = ir::gqa;

/// What the attributes say.
struct GqaSettings {
  int64_t heads = 0;
  int64_t groups = 0;
  float scale = 0.0f; ///< 0: 1 / sqrt(D)
  float softcap = 0.0f;
  int64_t window = 0; ///< 0 for none
  bool causal = true;
  bool rotates = false;
  bool interleaved = false;
  bool hasZeroSink = false;
  bool normalizes = false;
  float normEpsilon = 1e-6f;
  /// Format of quantized caches; nullopt if caches hold numbers.
  std::optional<simd::CodeForm> codes;
  bool keyScalesPerColumn = false;
  bool valueScalesPerColumn = false;
};

/// Reads the settings of a node. Empty if the node is supported; otherwise what is not, in words.
std::string readSettings(const NodeDescription& node, GqaSettings& settings);

} // namespace kvopt::onnxruntime
