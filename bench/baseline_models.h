// Attention of several layers as models that other engines run.
#pragma once

#include "bench/attention_case.h"
#include "ir/op.h"

#include "llvm/Support/Error.h"

namespace kvopt {

/// How a model says attention over a cache.
enum class BaselineSpelling {
  GroupQuery,  ///< com.microsoft's GroupQueryAttention; past and present may be one buffer
  Scatter,     ///< TensorScatter, then Attention of opset 24; past and present may be one buffer
  PastPresent, ///< Attention of opset 23 with past and present
  Concat,      ///< Concat, groups repeated by Expand, MatMul, Softmax, MatMul
};

const char* spellingName(BaselineSpelling spelling);
/// Whether past and present have room for `capacity` rows and may be one buffer; otherwise the past
/// has only the rows before the new ones.
bool isInPlace(BaselineSpelling spelling);

struct BaselineModel {
  BaselineSpelling spelling = BaselineSpelling::GroupQuery;
  AttentionShape shape;
  ir::ElementType element = ir::ElementType::Float;
  int64_t layers = 1;
  int64_t rows = 0;     ///< T: valid keys after the step
  int64_t newRows = 1;  ///< S; several are causal
  int64_t capacity = 0; ///< rows of a cache in place
};

/// Empty, or why the spelling cannot say this.
std::string whyImpossible(const BaselineModel& model);

/// Extents of the inputs `query`, `key` and `value`, that all layers share, and of the outputs
/// `out_<layer>`; of `past_{key,value}_<layer>` and `present_{key,value}_<layer>`.
struct BaselineExtents {
  std::vector<int64_t> query, key, value, out, pastKey, pastValue, presentKey, presentValue;
};
BaselineExtents extentsOf(const BaselineModel& model);

/// Writes the model to a file. In place, it also has inputs `row` (T - 1) and `rows` (T), int32 of
/// shapes [1] and [] for GroupQuery, and int64 [1] each for Scatter.
llvm::Error writeBaselineModel(const BaselineModel& model, const ir::OpRegistry& ops,
                               const std::string& path);

} // namespace kvopt
