// com.microsoft's normalizations of a residual sum over the last axis:
//
//   SkipLayerNormalization, SkipSimplifiedLayerNormalization
//     sum = input + skip (+ bias), result 3;  output = layer or root mean square norm of sum
//   EmbedLayerNormalization
//     sum = word[input_ids] + position[positions] (+ segment[segment_ids]), result 2;
//     output = layer norm of sum; result 1: number of nonzero mask elements of each batch row
//
// input is [B,S,N] or [S,N]; skip has its shape, or [1,S,N] or [S,N]. The sum is rounded to the
// element type before it is normalized. Mean and inverse deviation are not returned.
#include "runtime/attention/attention_heads.h"
#include "runtime/kernels/support/float_operand.h"
#include "runtime/kernels/support/integer_input.h"
#include "runtime/simd/normalize_row.h"
#include "support/format.h"

#include <algorithm>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// A vector with the width of the sum; null if absent.
llvm::Expected<const float*> vectorOf(KernelContext& context, unsigned operand, int64_t width) {
  if (!context.has(operand))
    return nullptr;
  const TensorView& vector = context.in(operand);
  if (vector.elementCount() != width)
    return context.error(formatted("operand {} must have {} elements", operand, width));
  return floatsOf(context, vector);
}

/// Normalizes the rows of `sum`, which has its own memory, into result 0.
llvm::Error normalized(KernelContext& context, const TensorView& sum, bool centred, unsigned gamma,
                       std::optional<unsigned> beta) {
  const int64_t width = sum.shape.back();
  auto scale = vectorOf(context, gamma, width);
  if (!scale)
    return scale.takeError();
  auto bias = beta ? vectorOf(context, *beta, width) : llvm::Expected<const float*>(nullptr);
  if (!bias)
    return bias.takeError();
  auto output = context.output(0, sum.element, sum.shape);
  if (!output)
    return output.takeError();
  if (sum.elementCount() == 0)
    return llvm::Error::success();
  auto from = floatsOf(context, sum);
  if (!from)
    return from.takeError();
  auto to = floatResult(context, *output);
  if (!to)
    return to.takeError();
  const auto epsilon = static_cast<double>(context.node().floatAttr("epsilon", 1e-12f));
  context.parallelFor(sum.elementCount() / width, [&](int64_t row) {
    simd::normalizeRow(*from + row * width, *to + row * width, width, epsilon, centred, *scale,
                       *bias);
  });
  storeFloats(*to, *output);
  return llvm::Error::success();
}

llvm::Error skipNormalization(KernelContext& context, bool centred, unsigned biasOperand) {
  const TensorView& input = context.in(0);
  const TensorView& skip = context.in(1);
  if (context.wants(1) || context.wants(2))
    return context.error("the results mean and inv_std_var are not supported");
  if (input.rank() != 2 && input.rank() != 3)
    return context.error("the input must be [B,S,N] or [S,N]");
  llvm::ArrayRef<int64_t> shape = input.shape;
  llvm::ArrayRef<int64_t> skipped = skip.shape;
  const bool repeats = shape.size() == 3 && skipped.size() >= 2 &&
                       skipped.take_back(2) == shape.take_back(2) &&
                       (skipped.size() == 2 || (skipped.size() == 3 && skipped[0] == 1));
  if ((skipped != shape && !repeats) || skip.element != input.element)
    return context.error("skip must be of the input's shape, [1,S,N] or [S,N], and of its type");
  const int64_t width = shape.back();
  auto x = floatsOf(context, input);
  if (!x)
    return x.takeError();
  auto added = floatsOf(context, skip);
  if (!added)
    return added.takeError();
  auto bias = vectorOf(context, biasOperand, width);
  if (!bias)
    return bias.takeError();
  auto sum = outputOrScratch(context, 3, input.element, shape);
  if (!sum)
    return sum.takeError();
  auto sums = floatResult(context, *sum);
  if (!sums)
    return sums.takeError();
  const int64_t count = input.elementCount();
  const int64_t period = skip.elementCount();
  for (int64_t i = 0; i < count; ++i) {
    (*sums)[i] = (*x)[i] + (*added)[i % period];
    if (*bias)
      (*sums)[i] += (*bias)[i % width];
  }
  storeFloats(*sums, *sum);
  return normalized(context, *sum, centred, 2, centred ? std::optional(3u) : std::nullopt);
}

llvm::Error skipLayerNormalization(KernelContext& context) {
  return skipNormalization(context, true, 4);
}
llvm::Error skipSimplifiedLayerNormalization(KernelContext& context) {
  return skipNormalization(context, false, 3);
}

enum Embedding : unsigned {
  Ids,
  SegmentIds,
  WordTable,
  PositionTable,
  SegmentTable,
  Gamma,
  Beta,
  Mask,
  PositionIds,
};

/// Adds row ids[i] of the table to row i of the sums.
llvm::Error addRows(KernelContext& context, unsigned table, llvm::ArrayRef<int64_t> ids,
                    int64_t width, float* sums) {
  const TensorView& rows = context.in(table);
  if (rows.rank() != 2 || rows.shape[1] != width)
    return context.error(formatted("table {} must have rows of {} elements", table, width));
  auto floats = floatsOf(context, rows);
  if (!floats)
    return floats.takeError();
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= rows.shape[0])
      return context.error(formatted("row {} of a table of {}", ids[i], rows.shape[0]));
    const float* row = *floats + ids[i] * width;
    float* out = sums + static_cast<int64_t>(i) * width;
    for (int64_t d = 0; d < width; ++d)
      out[d] += row[d];
  }
  return llvm::Error::success();
}

/// Positions [B,S], or one row for all batch rows, or 0 … S-1.
llvm::Expected<IntegerList> positionsOf(KernelContext& context, int64_t batches, int64_t rows) {
  auto positions = scratchIntegers(context, static_cast<size_t>(batches * rows));
  if (!positions)
    return positions;
  int64_t* next = positions->data();
  if (context.has(PositionIds)) {
    auto given = integerListOf(context, PositionIds);
    if (!given || static_cast<int64_t>(given->size()) == batches * rows)
      return given;
    if (static_cast<int64_t>(given->size()) != rows)
      return context.error("position_ids must be [B,S] or [1,S]");
    for (int64_t batch = 0; batch < batches; ++batch)
      next = std::copy(given->begin(), given->end(), next);
    return positions;
  }
  for (int64_t i = 0; i < batches * rows; ++i)
    *next++ = i % rows;
  return positions;
}

llvm::Error maskCounts(KernelContext& context, int64_t batches, int64_t rows) {
  if (!context.wants(1))
    return llvm::Error::success();
  auto counts = context.output(1, ElementType::Int32, {batches});
  if (!counts)
    return counts.takeError();
  std::fill_n(counts->as<int32_t>(), batches, 0);
  if (!context.has(Mask))
    return llvm::Error::success();
  auto mask = integerListOf(context, Mask);
  if (!mask)
    return mask.takeError();
  if (static_cast<int64_t>(mask->size()) != batches * rows)
    return context.error("mask must be [B,S]");
  for (int64_t i = 0; i < batches * rows; ++i)
    counts->as<int32_t>()[i / rows] += (*mask)[static_cast<size_t>(i)] != 0 ? 1 : 0;
  return llvm::Error::success();
}

llvm::Error embedLayerNormalization(KernelContext& context) {
  const TensorView& ids = context.in(Ids);
  const TensorView& words = context.in(WordTable);
  if (ids.rank() != 2 || words.rank() != 2 || words.shape[1] == 0)
    return context.error("input_ids must be [B,S] and word_embedding [V,N]");
  if (context.has(SegmentIds) != context.has(SegmentTable))
    return context.error("segment_ids without their table, or the other way round");
  const int64_t width = words.shape[1];
  auto sum = outputOrScratch(context, 2, words.element, {ids.shape[0], ids.shape[1], width});
  if (!sum)
    return sum.takeError();
  auto sums = floatResult(context, *sum);
  if (!sums)
    return sums.takeError();
  std::fill_n(*sums, sum->elementCount(), 0.0f);
  auto tokens = integerListOf(context, Ids);
  if (!tokens)
    return tokens.takeError();
  if (llvm::Error error = addRows(context, WordTable, *tokens, width, *sums))
    return error;
  auto positions = positionsOf(context, ids.shape[0], ids.shape[1]);
  if (!positions)
    return positions.takeError();
  if (llvm::Error error = addRows(context, PositionTable, *positions, width, *sums))
    return error;
  if (context.has(SegmentIds)) {
    auto segments = integerListOf(context, SegmentIds);
    if (!segments)
      return segments.takeError();
    if (segments->size() != tokens->size())
      return context.error("segment_ids must be [B,S]");
    if (llvm::Error error = addRows(context, SegmentTable, *segments, width, *sums))
      return error;
  }
  storeFloats(*sums, *sum);
  if (llvm::Error error = maskCounts(context, ids.shape[0], ids.shape[1]))
    return error;
  return normalized(context, *sum, true, Gamma, Beta);
}

} // namespace

void register_skip_normalization(KernelRegistry& registry) {
  registry.add("com.microsoft::SkipLayerNormalization", 1, skipLayerNormalization);
  registry.add("com.microsoft::SkipSimplifiedLayerNormalization", 1,
               skipSimplifiedLayerNormalization);
  registry.add("com.microsoft::EmbedLayerNormalization", 1, embedLayerNormalization);
}

} // namespace kvopt::kernels
