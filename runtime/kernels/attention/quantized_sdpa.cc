// ai.kvopt::QuantizedSdpa: attention over caches of codes to which another attention has appended
// rows. The sums equal those of ai.kvopt::InPlaceQuantizedKvSdpa over the same rows.
#include "runtime/attention/attention_call.h"
#include "runtime/attention/decoded_rows.h"
#include "runtime/attention/past_lengths.h"

#include <tuple>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// View of scales [B,G,C,1] as [B,G,C].
TensorView scalesOf(TensorView scales) {
  scales.shape.pop_back();
  scales.strides.pop_back();
  return scales;
}

/// Makes attention read the codes, or the numbers that they represent.
llvm::Error readCodes(KernelContext& context, AttentionOperands& operands) {
  const RowCode* code = rowCodeOf(context.in(1).element);
  const int64_t width = operands.fourBitColumns;
  if (!code || context.in(3).element != code->element)
    return context.error("keys and values must be codes of one kind");
  if (width < 1 || context.in(3).shape[3] != code->elementsOf(width))
    return context.error("values do not have v_width columns");
  operands.key = context.in(1);
  operands.value = context.in(3);
  if (code->hasKernels()) {
    operands.keyScales = scalesOf(context.in(2));
    operands.valueScales = scalesOf(context.in(4));
    return llvm::Error::success();
  }
  if (operands.key.shape[3] != code->elementsOf(operands.query.shape[3]))
    return context.error("keys do not have the query's columns");
  for (const auto& [rows, scales, columns] :
       {std::tuple(&operands.key, context.in(2), operands.query.shape[3]),
        std::tuple(&operands.value, context.in(4), width)}) {
    auto numbers = decodedRows(context, *code, {*rows, scalesOf(scales)}, columns);
    if (!numbers)
      return numbers.takeError();
    *rows = std::move(*numbers);
  }
  return llvm::Error::success();
}

llvm::Error quantizedSdpa(KernelContext& context) {
  for (unsigned operand : {0u, 1u, 2u, 3u, 4u})
    if (context.in(operand).rank() != 4)
      return context.error("query, codes and scales must have rank 4");
  const auto isScaled = [&](unsigned codes) {
    Extents extents = context.in(codes).shape;
    extents.back() = 1;
    return context.in(codes + 1).shape == extents &&
           context.in(codes + 1).element == ElementType::Float;
  };
  if (!isScaled(1) || !isScaled(3))
    return context.error("there must be one scale of float32 for each row of codes");
  auto operands = attentionOperands(context, 6, 7);
  if (!operands)
    return operands.takeError();
  const int64_t capacity = context.in(1).shape[2];
  auto lengths =
      totalLengths(context, 5, operands->query.shape[0], operands->query.shape[2], capacity);
  if (!lengths)
    return lengths.takeError();
  operands->totalLengths = *lengths;
  if (operands->mask && operands->mask->rank() != 0 && operands->mask->shape.back() == capacity)
    operands->maskTokens = capacity;
  operands->fourBitColumns = context.node().intAttr("v_width", 0);
  if (llvm::Error error = readCodes(context, *operands))
    return error;
  if (llvm::Error error = checkAttention(context, *operands))
    return error;
  const TensorView& query = operands->query;
  auto output = context.output(
      0, query.element, {query.shape[0], query.shape[1], query.shape[2], operands->fourBitColumns});
  if (!output)
    return output.takeError();
  return runAttention(context, *operands, *output);
}

} // namespace

void register_quantized_sdpa(KernelRegistry& registry) {
  registry.add("ai.kvopt::QuantizedSdpa", 1, quantizedSdpa);
}

} // namespace kvopt::kernels
