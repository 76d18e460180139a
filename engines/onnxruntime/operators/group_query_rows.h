// New rows of GroupQueryAttention: their heads, lengths, angles and norms.
#pragma once

#include "engines/onnxruntime/call.h"
#include "engines/onnxruntime/operators/group_query_settings.h"
#include "runtime/simd/rotate_row.h"

namespace kvopt::onnxruntime {

struct GqaLengths {
  std::vector<int64_t> past;  ///< number of valid rows of the past, per batch row
  std::vector<int64_t> held;  ///< number of rows of the present before the new rows
  std::vector<int64_t> total; ///< number including the new rows and padding
  std::vector<int64_t> valid; ///< number without padding
  int64_t longest = 0;        ///< total_sequence_length
  bool isPrompt = false;
};

struct GqaRows {
  HeadRows query, key, value;
};

/// Cosines and sines of the rows' positions, [B,S,half].
struct GqaAngles {
  const float* cosines = nullptr;
  const float* sines = nullptr;
  int64_t half = 0;

  simd::RotaryRow of(int64_t row, bool interleaved) const {
    return {cosines + row * half, sines + row * half, half, interleaved};
  }
};

/// Heads of query, key and value, which may be packed in one operand. Fails if they do not fit.
GqaRows gqaRows(Call& call, const GqaSettings& settings, const Tensor& query);

/// Lengths from seqlens_k and total_sequence_length. Fails if they are impossible.
GqaLengths gqaLengths(Call& call, const GqaRows& fresh);

/// Angles of the new rows' positions. Fails for positions without angles.
GqaAngles gqaAngles(Call& call, const GqaRows& fresh, const GqaLengths& lengths);

/// Copies of the rows in scratch memory, normalized with the weight in operand `operand`.
HeadRows normalized(Call& call, const HeadRows& from, unsigned operand, float epsilon);

} // namespace kvopt::onnxruntime
