// Plain loops over the scores of attention, because only tests and debuggers use the matrix.
#include "runtime/attention/attention_scores.h"

#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/float_operand.h"

#include <algorithm>
#include <cmath>

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

namespace {

constexpr float minusInfinity = -std::numeric_limits<float>::infinity();

float elementAt(const TensorView& tensor, int64_t offset) {
  switch (tensor.element) {
  case ElementType::Float16:
    return load(tensor.as<Float16>()[offset]);
  case ElementType::BFloat16:
    return load(tensor.as<BFloat16>()[offset]);
  default:
    return tensor.as<float>()[offset];
  }
}

/// One query row of one head.
struct ScoreRow {
  const AttentionOperands& operands;
  int64_t batch, head, row;

  int64_t total() const {
    return operands.totalLengths.empty() ? operands.value.shape[2]
                                         : operands.totalLengths[static_cast<size_t>(batch)];
  }

  bool sees(int64_t key) const {
    const int64_t position = row + total() - operands.query.shape[2];
    if (key >= total() || (operands.causal && key > position))
      return false;
    return operands.window == 0 || position - key < operands.window;
  }

  float scaled(int64_t key) const {
    const TensorView& q = operands.query;
    const TensorView& k = operands.key;
    const int64_t group = q.shape[1] / k.shape[1];
    const int64_t query = batch * q.strides[0] + head * q.strides[1] + row * q.strides[2];
    const unsigned keyAxis = operands.keyTransposed ? 3 : 2;
    const int64_t base =
        batch * k.strides[0] + head / group * k.strides[1] + key * k.strides[keyAxis];
    double sum = 0;
    for (int64_t d = 0; d < q.shape[3]; ++d)
      sum += static_cast<double>(elementAt(q, query + d * q.strides[3])) *
             static_cast<double>(elementAt(k, base + d * k.strides[5 - keyAxis]));
    return static_cast<float>(sum * static_cast<double>(operands.scale));
  }

  float masked(float score, int64_t key) const {
    if (!sees(key))
      return minusInfinity;
    if (!operands.mask)
      return score;
    const TensorView& mask = *operands.mask;
    const int64_t index[] = {batch, head, row, key};
    int64_t offset = 0;
    for (unsigned axis = 0; axis < mask.rank(); ++axis)
      if (mask.shape[axis] != 1)
        offset += index[axis + 4 - mask.rank()] * mask.strides[axis];
    if (mask.element == ElementType::Bool)
      return mask.as<uint8_t>()[offset] != 0 ? score : minusInfinity;
    return score + elementAt(mask, offset);
  }

  float capped(float score) const {
    const float cap = operands.softcap;
    return cap == 0 ? score : cap * std::tanh(score / cap);
  }
};

void toWeights(float* row, int64_t length) {
  const float maximum = *std::max_element(row, row + length);
  double sum = 0;
  for (int64_t i = 0; i < length; ++i) {
    row[i] = maximum == minusInfinity ? 0.0f : std::exp(row[i] - maximum);
    sum += static_cast<double>(row[i]);
  }
  for (int64_t i = 0; i < length && sum != 0; ++i)
    row[i] = static_cast<float>(static_cast<double>(row[i]) / sum);
}

} // namespace

llvm::Error attentionScoresResult(KernelContext& context, const AttentionOperands& operands,
                                  ScoreStage stage, unsigned result) {
  assert(!operands.sinks);
  const TensorView& query = operands.query;
  const int64_t columns = operands.value.shape[2];
  auto output = context.output(result, query.element,
                               {query.shape[0], query.shape[1], query.shape[2], columns});
  if (!output)
    return output.takeError();
  if (output->elementCount() == 0)
    return llvm::Error::success();
  auto scores = floatResult(context, *output);
  if (!scores)
    return scores.takeError();
  const int64_t heads = query.shape[1];
  const int64_t rows = query.shape[2];
  context.parallelFor(query.shape[0] * heads * rows, [&](int64_t unit) {
    const ScoreRow row{operands, unit / rows / heads, unit / rows % heads, unit % rows};
    float* out = *scores + unit * columns;
    for (int64_t key = 0; key < columns; ++key) {
      const float score = row.scaled(key);
      out[key] = stage == ScoreStage::Scaled   ? score
                 : stage == ScoreStage::Capped ? row.capped(score)
                                               : row.masked(row.capped(score), key);
    }
    if (stage == ScoreStage::Weights)
      toWeights(out, columns);
  });
  storeFloats(*scores, *output);
  return llvm::Error::success();
}

} // namespace kvopt::runtime
