// Decoding row by row.
#include "runtime/attention/decoded_rows.h"

#include "runtime/attention/attention_heads.h"
#include "runtime/memory/coded_row.h"

#include <cstring>

namespace kvopt::runtime {
using namespace ir;

llvm::Expected<TensorView> decodedRows(KernelContext& context, const RowCode& code,
                                       const CodedRows& rows, int64_t columns) {
  const auto& [codes, scales, isTransposed] = rows;
  const int64_t batches = codes.shape[0], heads = codes.shape[1];
  const unsigned slotAxis = isTransposed ? 3 : 2, columnAxis = isTransposed ? 2 : 3;
  const int64_t slots = codes.shape[slotAxis], elements = codes.shape[columnAxis];
  const int64_t slotStride = codes.strides[slotAxis], columnStride = codes.strides[columnAxis];
  auto numbers = scratchTensor(context, ElementType::Float, {batches, heads, slots, columns});
  if (!numbers)
    return numbers;
  const auto bytes = static_cast<int64_t>(*byteWidth(codes.element));
  const int64_t codeStrides[] = {codes.strides[0], codes.strides[1]};
  context.parallelFor(batches * heads, [&](int64_t unit) {
    const int64_t batch = unit / heads, head = unit % heads;
    const std::byte* from =
        rows.codes.data + (batch * codeStrides[0] + head * codeStrides[1]) * bytes;
    const float* scale =
        rows.scales.as<float>() + batch * rows.scales.strides[0] + head * rows.scales.strides[1];
    float* to = numbers->as<float>() + unit * slots * columns;
    // A row whose columns are not adjacent is gathered first.
    llvm::SmallVector<std::byte, 1024> together(static_cast<size_t>(elements * bytes));
    for (int64_t slot = 0; slot < slots; ++slot, to += columns) {
      const std::byte* row = from + slot * slotStride * bytes;
      if (columnStride != 1) {
        for (int64_t i = 0; i < elements; ++i)
          std::memcpy(together.data() + i * bytes, row + i * columnStride * bytes,
                      static_cast<size_t>(bytes));
        row = together.data();
      }
      decodeRow(code, row, columns, to);
      const float factor = scale[slot * rows.scales.strides[2]];
      for (int64_t i = 0; i < columns; ++i)
        to[i] *= factor;
    }
  });
  return numbers;
}

} // namespace kvopt::runtime
