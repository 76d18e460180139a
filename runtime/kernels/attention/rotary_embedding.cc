// RotaryEmbedding of ONNX (opset 23) and of com.microsoft. X is [B,H,S,D], or [B,S,H*D] with
// num_heads; the formula is that of rotateHeads (runtime/attention/rotary.h).
//
//   ONNX           the caches are [B,S,rotary/2], or [positions,rotary/2] with position_ids [B,S]
//   com.microsoft  the caches are [positions,rotary/2]; position_ids are [B,S], or one number, the
//                  position of the first row of each batch row. Without num_heads, the width of a
//                  head is that of a row of both caches.
#include "runtime/attention/attention_heads.h"
#include "runtime/attention/rotary.h"
#include "runtime/kernels/support/integer_input.h"
#include "support/format.h"

#include <numeric>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// Stores the rotated X as result 0.
llvm::Error rotated(KernelContext& context, const TensorView& heads, const RotaryTable& table,
                    llvm::ArrayRef<int64_t> positions) {
  const TensorView& x = context.in(0);
  if (llvm::Error error = checkPositions(context, table, positions))
    return error;
  auto y = context.output(0, x.element, x.shape);
  if (!y)
    return y.takeError();
  const TensorView to = x.rank() == 3 ? viewOfHeads(*y, heads.shape[1]) : *y;
  return rotateHeads(context, heads, to, table, positions);
}

/// Row of the caches for every [b, s].
llvm::Expected<IntegerList> cacheRows(KernelContext& context, const TensorView& heads) {
  const TensorView& cosine = context.in(1);
  const int64_t count = heads.shape[0] * heads.shape[2];
  if (!context.has(3)) {
    if (cosine.rank() != 3 || cosine.shape[0] != heads.shape[0] ||
        cosine.shape[1] != heads.shape[2])
      return context.error("without position_ids the caches must be [B,S,rotary/2]");
    auto rows = scratchIntegers(context, static_cast<size_t>(count));
    if (rows)
      std::iota(rows->begin(), rows->end(), int64_t{0});
    return rows;
  }
  if (cosine.rank() != 2)
    return context.error("with position_ids the caches must be [positions,rotary/2]");
  auto positions = integerListOf(context, 3);
  if (positions && static_cast<int64_t>(positions->size()) != count)
    return context.error("position_ids must be [B,S]");
  return positions;
}

llvm::Error rotaryEmbedding(KernelContext& context) {
  const Node& node = context.node();
  const TensorView& x = context.in(0);
  auto heads = headsOf(context, x, node.intAttr("num_heads", 0), "X");
  if (!heads)
    return heads.takeError();
  if (x.elementCount() == 0)
    return context.output(0, x.element, x.shape).takeError();
  const int64_t width = heads->shape[3];
  const int64_t asked = node.intAttr("rotary_embedding_dim", 0);
  const int64_t rotary = asked == 0 ? width : asked;
  if (rotary < 0 || rotary % 2 != 0 || rotary > width)
    return context.error(formatted("{} rotated elements of heads {} wide", rotary, width));
  auto table = rotaryTable(context, 1, 2, width, node.intAttr("interleaved", 0) != 0);
  if (!table)
    return table.takeError();
  if (table->half != rotary / 2)
    return context.error(formatted("the caches' rows must have {} elements", rotary / 2));
  auto rows = cacheRows(context, *heads);
  if (!rows)
    return rows.takeError();
  return rotated(context, *heads, *table, *rows);
}

/// Position of every [b, s].
llvm::Expected<IntegerList> contribPositions(KernelContext& context, const TensorView& heads) {
  const int64_t batches = heads.shape[0];
  const int64_t rows = heads.shape[2];
  auto given = integerListOf(context, 1);
  if (!given)
    return given;
  if (context.in(1).rank() == 2 && static_cast<int64_t>(given->size()) == batches * rows)
    return given;
  if (given->size() != 1)
    return context.error("position_ids must be [B,S] or one number");
  auto positions = scratchIntegers(context, static_cast<size_t>(batches * rows));
  if (!positions)
    return positions;
  int64_t* next = positions->data();
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t row = 0; row < rows; ++row) {
      int64_t position = 0;
      if (__builtin_add_overflow(given->front(), row, &position))
        return context.error("a position is too large");
      *next++ = position;
    }
  return positions;
}

llvm::Error contribRotaryEmbedding(KernelContext& context) {
  const Node& node = context.node();
  const TensorView& x = context.in(0);
  const TensorView& cosine = context.in(2);
  if (node.floatAttr("scale", 1.0f) != 1.0f)
    return context.error("a scale other than 1 is not supported");
  if (cosine.rank() != 2 || cosine.shape[1] == 0)
    return context.error("the caches must be [positions,rotary/2]");
  int64_t heads = node.intAttr("num_heads", 0);
  if (heads == 0 && x.rank() == 3)
    heads = x.shape[2] / 2 / cosine.shape[1];
  auto split = headsOf(context, x, heads, "X");
  if (!split)
    return split.takeError();
  if (x.elementCount() == 0)
    return context.output(0, x.element, x.shape).takeError();
  const int64_t rotary = node.intAttr("rotary_embedding_dim", 0);
  if (rotary != 0 && rotary / 2 != cosine.shape[1])
    return context.error(formatted("the caches' rows must have {} elements", rotary / 2));
  // ONNX Runtime treats flags other than 1 as unset.
  auto table = rotaryTable(context, 2, 3, split->shape[3], node.intAttr("interleaved", 0) == 1);
  if (!table)
    return table.takeError();
  auto positions = contribPositions(context, *split);
  if (!positions)
    return positions.takeError();
  return rotated(context, *split, *table, *positions);
}

} // namespace

void register_rotary_embedding(KernelRegistry& registry) {
  registry.add("RotaryEmbedding", 23, rotaryEmbedding);
  registry.add("com.microsoft::RotaryEmbedding", 1, contribRotaryEmbedding);
}

} // namespace kvopt::kernels
