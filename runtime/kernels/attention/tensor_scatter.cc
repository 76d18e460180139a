// TensorScatter (opset 24): a cache with new rows written along one axis,
//
//   present[b, …, (write_indices[b] + s) mod C, …] = update[b, …, s, …]     mode "circular"
//   present[b, …,  write_indices[b] + s       , …] = update[b, …, s, …]     mode "linear"
//
// and past_cache elsewhere. write_indices default to 0; C is the cache's extent on the axis. If the
// past cache may be overwritten, only the new rows are written.
#include "runtime/kernels/support/integer_input.h"
#include "support/format.h"

#include <cstring>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// First index of every batch row, checked against the mode.
llvm::Expected<Extents> writeIndices(KernelContext& context, int64_t batches, int64_t rows,
                                     int64_t capacity, bool circular) {
  Extents indices(static_cast<size_t>(batches), 0);
  if (context.has(2)) {
    auto given = integersOf(context, 2);
    if (!given)
      return given;
    if (static_cast<int64_t>(given->size()) != batches)
      return context.error("write_indices must be one number per batch row");
    indices = std::move(*given);
  }
  if (rows > capacity)
    return context.error(formatted("{} rows do not fit a cache of {}", rows, capacity));
  for (int64_t index : indices)
    if (index < 0 || (!circular && index > capacity - rows))
      return context.error(
          formatted("{} rows from row {} on do not fit a cache of {}", rows, index, capacity));
  return indices;
}

llvm::Error tensorScatter(KernelContext& context) {
  const TensorView& past = context.in(0);
  const TensorView& update = context.in(1);
  const llvm::StringRef mode = context.node().stringAttr("mode", "linear");
  if (mode != "linear" && mode != "circular")
    return context.error(formatted("mode '{}' is not known", mode.str()));
  auto axis = axisOf(context, context.node().intAttr("axis", -2), past.rank());
  if (!axis)
    return axis.takeError();
  if (*axis == 0)
    return context.error("axis 0 is the batch axis");
  Extents expected = past.shape;
  if (update.rank() == past.rank())
    expected[*axis] = update.shape[*axis];
  const std::optional<unsigned> width = byteWidth(past.element);
  if (!width)
    return context.error(formatted("caches of {} are not supported", onnxName(past.element)));
  if (update.shape != expected || update.element != past.element)
    return context.error("update must be like the cache but for the extent on the axis");
  const int64_t capacity = past.shape[*axis];
  const int64_t rows = update.shape[*axis];
  auto first = writeIndices(context, past.shape[0], rows, capacity, mode == "circular");
  if (!first)
    return first.takeError();
  auto present = context.outputInPlace(0, 0);
  if (!present)
    return present.takeError();
  llvm::ArrayRef<int64_t> shape = past.shape;
  const int64_t outerCount = product(shape.take_front(*axis));
  const int64_t inBatch = product(shape.slice(1, *axis - 1));
  const int64_t bytes = product(shape.drop_front(*axis + 1)) * *width;
  if (bytes == 0)
    return llvm::Error::success();
  const std::byte* from = update.data;
  for (int64_t outer = 0; outer < outerCount; ++outer) {
    int64_t place = (*first)[static_cast<size_t>(outer / inBatch)] % std::max<int64_t>(capacity, 1);
    // One piece for each time that the rows wrap around.
    for (int64_t row = 0; row < rows;) {
      const int64_t piece = std::min(rows - row, capacity - place);
      std::memcpy(present->data + (outer * capacity + place) * bytes, from,
                  static_cast<size_t>(piece * bytes));
      from += piece * bytes;
      row += piece;
      place = 0;
    }
  }
  context.noteCacheWrite(update.byteSize());
  return llvm::Error::success();
}

} // namespace

void register_tensor_scatter(KernelRegistry& registry) {
  registry.add("TensorScatter", 24, tensorScatter);
}

} // namespace kvopt::kernels
