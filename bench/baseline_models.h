// Attention of several layers as models for other engines.
#pragma once

#include "bench/attention_case.h"
#include "ir/op.h"

#include "llvm/Support/Error.h"

namespace kvopt {

/// Spelling of attention over a cache in a model.
enum class BaselineSpelling {
  GroupQuery,  ///< com.microsoft's GroupQueryAttention; past and present may be one buffer
  Scatter,     ///< TensorScatter, then Attention of opset 24; past and present may be one buffer
  PastPresent, ///< Attention of opset 23 with past and present
  Concat,      ///< Concat, groups repeated by Expand, MatMul, Softmax, MatMul
};

const char* spellingName(BaselineSpelling spelling);
/// Whether past and present have room for `capacity` rows and may be one buffer. Otherwise the past
/// holds only the rows before the new ones.
bool isInPlace(BaselineSpelling spelling);

struct BaselineModel {
  BaselineSpelling spelling = BaselineSpelling::GroupQuery;
  AttentionShape shape;
  ir::ElementType element = ir::ElementType::Float;
  int64_t layers = 1;
  int64_t rows = 0;     ///< T, the number of valid keys after the step
  int64_t newRows = 1;  ///< S; several rows are causal
  int64_t capacity = 0; ///< rows of a cache in place
};

/// Reason that the spelling cannot express the model; empty if it can.
std::string whyImpossible(const BaselineModel& model);

/// Extents of the inputs `query`, `key` and `value`, which all layers share, of the outputs
/// `out_<layer>`, and of `past_{key,value}_<layer>` and `present_{key,value}_<layer>`.
struct BaselineExtents {
  std::vector<int64_t> query, key, value, out, pastKey, pastValue, presentKey, presentValue;
};
BaselineExtents extentsOf(const BaselineModel& model);

/// Writes the model to a file. In place, it also has inputs `row` (T - 1) and `rows` (T): int32
/// with shapes [1] and [] for GroupQuery, int64 [1] each for Scatter.
llvm::Error writeBaselineModel(const BaselineModel& model, const ir::OpRegistry& ops,
                               const std::string& path);

} // namespace kvopt
