// Offsets of single elements from a tensor of indices along one axis.
#include "runtime/kernels/support/element_offsets.h"

#include "runtime/kernels/support/integer_input.h"
#include "support/format.h"

namespace kvopt::kernels {
using namespace runtime;

llvm::Expected<IntegerList> elementOffsets(KernelContext& context, const TensorView& data) {
  llvm::Expected<unsigned> axis = axisOf(context, context.node().intAttr("axis", 0), data.rank());
  if (!axis)
    return axis.takeError();
  const TensorView& positions = context.in(1);
  if (positions.rank() != data.rank())
    return context.error("indices must have the rank of the input");
  for (unsigned i = 0; i < data.rank(); ++i)
    if (i != *axis && positions.shape[i] > data.shape[i])
      return context.error(formatted("indices have extent {} on axis {}, more than {}",
                                     positions.shape[i], i, data.shape[i]));
  auto indices = integerListOf(context, 1);
  if (!indices)
    return indices.takeError();
  Extents at(data.rank(), 0);
  for (int64_t& index : *indices) {
    llvm::Expected<int64_t> checked = indexOf(context, index, data.shape[*axis]);
    if (!checked)
      return checked.takeError();
    index = 0;
    for (unsigned i = 0; i < data.rank(); ++i)
      index += (i == *axis ? *checked : at[i]) * data.strides[i];
    for (unsigned i = data.rank(); i-- > 0;) {
      if (++at[i] < positions.shape[i])
        break;
      at[i] = 0;
    }
  }
  return indices;
}

} // namespace kvopt::kernels
