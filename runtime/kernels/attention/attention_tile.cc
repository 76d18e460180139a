// ai.kvopt::AttentionTile: attention to the keys of a tile, merged with the state of earlier tiles.
// ir/ops/kvopt/attention_tile.cc defines the state.
#include "runtime/attention/attention_call.h"
#include "runtime/attention/attention_heads.h"
#include "runtime/memory/element_storage.h"
#include "runtime/simd/attention/tile_state.h"
#include "support/format.h"

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// Elements that are merged in less time than waking a thread takes.
constexpr int64_t fewElements = 32768;

constexpr unsigned maskOfTile = 3, firstState = 4, noSinks = 7;

/// Checks the state, operands 4 to 6 of one element type, for rows [B,H,S] with `width` values.
llvm::Expected<simd::TileState> stateBefore(const KernelContext& context, const Extents& query,
                                            int64_t width) {
  const ElementType element = context.in(firstState).element;
  if (element != ElementType::Float && element != ElementType::Float16)
    return context.error(
        formatted("a state of {} is neither of float32 nor of float16", onnxName(element)));
  const int64_t columns[] = {width, element == ElementType::Float16 ? 2 : 1, 1};
  std::byte* parts[3];
  for (unsigned i = 0; i < 3; ++i) {
    const TensorView& part = context.in(firstState + i);
    if (part.element != element || part.shape != Extents{query[0], query[1], query[2], columns[i]})
      return context.error(formatted("operand {} does not have the state's element type, or the "
                                     "extents of the query's rows and {} columns",
                                     firstState + i, columns[i]));
    parts[i] = part.data;
  }
  return simd::TileState{*storageOf(element), parts[0], parts[1], parts[2]};
}

llvm::Error attentionTile(KernelContext& context) {
  auto operands = attentionOperands(context, maskOfTile, noSinks);
  if (!operands)
    return operands.takeError();
  operands->key = context.in(1);
  operands->value = context.in(2);
  if (llvm::Error error = checkAttention(context, *operands))
    return error;
  const Extents& query = operands->query.shape;
  const int64_t width = operands->value.shape[3], rows = query[0] * query[1] * query[2];
  auto before = stateBefore(context, query, width);
  if (!before)
    return before.takeError();
  simd::TileState after{before->storage};
  std::byte** const parts[] = {&after.output, &after.maximum, &after.sum};
  for (unsigned i = 0; i < 3; ++i) {
    const TensorView& part = context.in(firstState + i);
    auto next = context.output(i, part.element, part.shape);
    if (!next)
      return next.takeError();
    *parts[i] = next->data;
  }
  if (rows == 0)
    return llvm::Error::success();
  auto tile = scratchTensor(context, ElementType::Float, {query[0], query[1], query[2], width});
  if (!tile)
    return tile.takeError();
  auto weights = scratchTensor(context, ElementType::Float, {2, rows});
  if (!weights)
    return weights.takeError();
  simd::AttentionView view = attentionView(*operands, *tile);
  view.maxima = weights->as<float>();
  view.sums = view.maxima + rows;
  view.lowestScore = simd::lowestScoreOf(before->storage);
  if (llvm::Error error = runAttentions(context, view))
    return error;
  const auto merge = [&](int64_t row) {
    simd::mergeTileRow({tile->as<float>() + row * width, view.maxima[row], view.sums[row]}, *before,
                       after, row, width);
  };
  if (rows * width > fewElements)
    context.parallelFor(rows, merge);
  for (int64_t row = 0; row < rows && rows * width <= fewElements; ++row)
    merge(row);
  return llvm::Error::success();
}

} // namespace

void register_attention_tile(KernelRegistry& registry) {
  registry.add("ai.kvopt::AttentionTile", 1, attentionTile);
}

} // namespace kvopt::kernels
