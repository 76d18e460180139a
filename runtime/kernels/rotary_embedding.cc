// RotaryEmbedding (opset 23): rotates pairs of the first `rotary` elements of every head,
//
//   y[first]  = cos * x[first] - sin * x[second]
//   y[second] = sin * x[first] + cos * x[second]
//
// where pair i is (i, i + rotary/2), or (2i, 2i + 1) when interleaved; elements beyond `rotary` are
// copied. X is [B,H,S,D], or [B,S,H*D] with num_heads. The caches are [B,S,rotary/2], or
// [positions,rotary/2] looked up by position_ids [B,S].
#include "runtime/float_operand.h"
#include "runtime/integer_input.h"

#include <algorithm>
#include <fmt/format.h>

namespace kvopt {
namespace {

struct Layout {
  int64_t batches = 0;
  int64_t heads = 0;
  int64_t rows = 0;
  int64_t width = 0;
  int64_t headStride = 0;
  int64_t rowStride = 0;
};

llvm::Expected<Layout> layoutOf(const KernelContext& context) {
  llvm::ArrayRef<int64_t> shape = context.in(0).shape;
  Layout layout;
  if (shape.size() == 4) {
    layout.batches = shape[0];
    layout.heads = shape[1];
    layout.rows = shape[2];
    layout.width = shape[3];
    layout.rowStride = layout.width;
    layout.headStride = layout.rows * layout.width;
    return layout;
  }
  int64_t heads = context.node().intAttr("num_heads", 0);
  if (shape.size() != 3 || heads <= 0 || shape[2] % heads != 0)
    return context.error("X must be [B,H,S,D], or [B,S,H*D] with num_heads");
  layout.batches = shape[0];
  layout.heads = heads;
  layout.rows = shape[1];
  layout.width = shape[2] / heads;
  layout.rowStride = shape[2];
  layout.headStride = layout.width;
  return layout;
}

/// The row of the caches for every [b, s].
llvm::Expected<Extents> cacheRows(KernelContext& context, const Layout& layout) {
  const TensorView& cosine = context.in(1);
  Extents rows;
  if (!context.has(3)) {
    if (cosine.rank() != 3 || cosine.shape[0] != layout.batches || cosine.shape[1] != layout.rows)
      return context.error("without position_ids the caches must be [B,S,rotary/2]");
    for (int64_t row = 0; row < layout.batches * layout.rows; ++row)
      rows.push_back(row);
    return rows;
  }
  if (cosine.rank() != 2)
    return context.error("with position_ids the caches must be [positions,rotary/2]");
  auto positions = integersOf(context, 3);
  if (!positions)
    return positions.takeError();
  if (static_cast<int64_t>(positions->size()) != layout.batches * layout.rows)
    return context.error("position_ids must be [B,S]");
  for (int64_t position : *positions) {
    if (position < 0 || position >= cosine.shape[0])
      return context.error(
          fmt::format("position {} is outside of the caches' {} rows", position, cosine.shape[0]));
    rows.push_back(position);
  }
  return rows;
}

llvm::Error rotaryEmbedding(KernelContext& context) {
  const Node& node = context.node();
  const TensorView& input = context.in(0);
  const TensorView& cosine = context.in(1);
  const TensorView& sine = context.in(2);
  auto layout = layoutOf(context);
  if (!layout)
    return layout.takeError();
  int64_t rotary = node.intAttr("rotary_embedding_dim", 0);
  if (rotary == 0)
    rotary = layout->width;
  int64_t half = rotary / 2;
  if (rotary < 0 || rotary % 2 != 0 || rotary > layout->width)
    return context.error(
        fmt::format("{} rotated elements of heads {} wide", rotary, layout->width));
  if (cosine.shape != sine.shape || cosine.shape.empty() || cosine.shape.back() != half)
    return context.error(fmt::format("the caches' rows must have {} elements", half));
  if (input.elementCount() == 0)
    return context.output(0, input.element, input.shape).takeError();
  auto rows = cacheRows(context, *layout);
  if (!rows)
    return rows.takeError();
  auto x = floatsOf(context, input);
  if (!x)
    return x.takeError();
  auto cosines = floatsOf(context, cosine);
  if (!cosines)
    return cosines.takeError();
  auto sines = floatsOf(context, sine);
  if (!sines)
    return sines.takeError();
  auto output = context.output(0, input.element, input.shape);
  if (!output)
    return output.takeError();
  auto y = floatResult(context, *output);
  if (!y)
    return y.takeError();

  bool interleaved = node.intAttr("interleaved", 0) != 0;
  context.parallelFor(layout->batches * layout->heads, [&](int64_t unit) {
    int64_t batch = unit / layout->heads;
    int64_t head = unit % layout->heads;
    for (int64_t row = 0; row < layout->rows; ++row) {
      int64_t start = batch * layout->heads * layout->rows * layout->width +
                      head * layout->headStride + row * layout->rowStride;
      int64_t cacheRow = (*rows)[static_cast<size_t>(batch * layout->rows + row)] * half;
      for (int64_t i = 0; i < half; ++i) {
        int64_t first = start + (interleaved ? 2 * i : i);
        int64_t second = interleaved ? first + 1 : first + half;
        float c = (*cosines)[cacheRow + i];
        float s = (*sines)[cacheRow + i];
        (*y)[first] = c * (*x)[first] - s * (*x)[second];
        (*y)[second] = s * (*x)[first] + c * (*x)[second];
      }
      std::copy_n(*x + start + rotary, layout->width - rotary, *y + start + rotary);
    }
  });
  storeFloats(*y, *output);
  return llvm::Error::success();
}

} // namespace

void register_rotary_embedding(KernelRegistry& registry) {
  registry.add("RotaryEmbedding", 23, rotaryEmbedding);
}

} // namespace kvopt
