// GatherND: with b = batch_dims and n the last extent of indices,
//
//   y[i_0 … i_{q-2}, …] = data[i_0 … i_{b-1}, indices[i_0 … i_{q-2}, 0 … n-1], …]
//
// Versions: from opset 11; batch_dims from 12.
#include "runtime/kernels/support/element_dispatch.h"
#include "runtime/kernels/support/integer_input.h"

#include <cstring>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

llvm::Error gatherNd(KernelContext& context) {
  const TensorView& data = context.in(0);
  const TensorView& indices = context.in(1);
  int64_t batchDims = context.node().intAttr("batch_dims", 0);
  if (data.rank() == 0 || indices.rank() == 0)
    return context.error("a scalar operand");
  int64_t depth = indices.shape.back();
  if (batchDims < 0 || batchDims >= std::min<int64_t>(data.rank(), indices.rank()) || depth < 1 ||
      depth > static_cast<int64_t>(data.rank()) - batchDims)
    return context.error(formatted("batch_dims {} and an index depth of {} do not fit a rank of "
                                   "{}",
                                   batchDims, depth, data.rank()));
  llvm::ArrayRef<int64_t> dataShape = data.shape;
  llvm::ArrayRef<int64_t> indexShape = indices.shape;
  auto batchRank = static_cast<size_t>(batchDims);
  if (dataShape.take_front(batchRank) != indexShape.take_front(batchRank))
    return context.error("the batch axes of data and indices differ");
  llvm::ArrayRef<int64_t> indexed = dataShape.slice(batchRank, static_cast<size_t>(depth));
  llvm::ArrayRef<int64_t> rest = dataShape.drop_front(batchRank + static_cast<size_t>(depth));

  Extents shape(indexShape.begin(), indexShape.end() - 1);
  shape.append(rest.begin(), rest.end());
  auto output = context.output(0, data.element, shape);
  if (!output)
    return output.takeError();
  auto positions = integerListOf(context, 1);
  if (!positions)
    return positions.takeError();
  auto width = static_cast<int64_t>(memoryWidth(data.element).value_or(0));
  int64_t sliceBytes = product(rest) * width;
  int64_t batches = product(indexShape.take_front(batchRank));
  int64_t batchElements = product(dataShape.drop_front(batchRank));
  int64_t rows = product(indexShape.slice(batchRank, indexShape.size() - batchRank - 1));
  const int64_t* index = positions->data();
  std::byte* to = output->data;
  for (int64_t batch = 0; batch < batches; ++batch)
    for (int64_t row = 0; row < rows; ++row) {
      int64_t offset = 0;
      for (int64_t extent : indexed) {
        auto position = indexOf(context, *index++, extent);
        if (!position)
          return position.takeError();
        offset = offset * extent + *position;
      }
      if (sliceBytes != 0)
        std::memcpy(to, data.data + batch * batchElements * width + offset * sliceBytes,
                    static_cast<size_t>(sliceBytes));
      to += sliceBytes;
    }
  return llvm::Error::success();
}

} // namespace

void register_gather_nd(KernelRegistry& registry) { registry.add("GatherND", 11, gatherNd); }

} // namespace kvopt::kernels
