// ai.kvopt::Sdpa: grouped attention over keys and values of one length; those of int8 are the
// numbers that they are. The formula is that of
// AttentionView (runtime/simd/attention/attention.h).
#include "runtime/attention/attention_call.h"
#include "runtime/attention/past_lengths.h"
#include "support/format.h"

#include <algorithm>

namespace kvopt::kernels {
using namespace ir;
using namespace runtime;

namespace {

/// Keys of each batch row: past_length[b] + S, in [0, T].
llvm::Expected<IntegerList> totalLengths(KernelContext& context,
                                         const AttentionOperands& operands) {
  if (operands.query.rank() != 4 || operands.key.rank() != 4)
    return context.error("query and key must have rank 4");
  auto lengths = pastLengths(context, 5, operands.query.shape[0]);
  if (!lengths)
    return lengths.takeError();
  int64_t rows = operands.query.shape[2];
  int64_t tokens = operands.key.shape[2];
  for (int64_t& length : *lengths) {
    int64_t total = 0;
    if (__builtin_add_overflow(length, rows, &total) || total < 0 || total > tokens)
      return context.error(
          fmt::format("past length {} and {} query rows do not fit {} keys", length, rows, tokens));
    length = total;
  }
  return lengths;
}

llvm::Error sdpa(KernelContext& context) {
  const Node& node = context.node();
  AttentionOperands operands;
  operands.query = context.in(0);
  operands.key = context.in(1);
  operands.value = context.in(2);
  operands.mask = context.input(3);
  operands.sinks = context.input(4);
  bool isBoolean = operands.mask && operands.mask->element == ElementType::Bool;
  if (node.attribute("mask_boolean") && operands.mask &&
      isBoolean != (node.intAttr("mask_boolean", 0) != 0))
    return context.error("mask_boolean does not agree with the mask's element type");
  operands.scale = node.floatAttr("scale", 1.0f);
  operands.causal = node.intAttr("causal", 0) != 0;
  operands.window = node.intAttr("window", 0);
  operands.softcap = node.floatAttr("softcap", 0.0f);
  if (operands.key.rank() == 4 && operands.value.rank() == 4)
    readBytesAsNumbers(operands);
  if (context.has(5)) {
    auto lengths = totalLengths(context, operands);
    if (!lengths)
      return lengths.takeError();
    operands.totalLengths = *lengths;
    const int64_t longest = *std::max_element(lengths->begin(), lengths->end());
    const bool isOfReadKeys =
        operands.mask && operands.mask->rank() != 0 && operands.mask->shape.back() == longest;
    operands.maskTokens = isOfReadKeys ? longest : operands.key.shape[2];
  }
  return attentionResult(context, operands, 0);
}

} // namespace

void register_sdpa(KernelRegistry& registry) { registry.add("ai.kvopt::Sdpa", 1, sdpa); }

} // namespace kvopt::kernels
