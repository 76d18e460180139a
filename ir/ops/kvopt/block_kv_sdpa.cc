// ai.kvopt::BlockKvSdpa: attention over a past that lies in blocks, and the new tokens' keys and
// values behind it. `blocks` are first all blocks of the keys and then as many of the values, in
// the order of their tokens; each has as many rows as it holds tokens, which may be none.
#include "ir/ops/kvopt/attention_shapes.h"
#include "support/format.h"

namespace kvopt::ir {
namespace {

llvm::Error inferBlockKvSdpa(ShapeContext& context) {
  if (llvm::Error error = checkAttentionOperands(context))
    return error;
  constexpr unsigned firstBlock = 5;
  const auto operands = static_cast<unsigned>(context.node().operands().size());
  const unsigned blocks = operands > firstBlock ? operands - firstBlock : 0;
  if (blocks % 2 != 0)
    return context.error(fmt::format("{} blocks are not as many of keys as of values", blocks));
  for (unsigned i = 0; i < blocks / 2; ++i) {
    const unsigned key = firstBlock + i;
    const unsigned value = key + blocks / 2;
    llvm::Expected<Dim> keyRows = checkCache(context, {1, key, "key_axis"});
    if (!keyRows)
      return keyRows.takeError();
    llvm::Expected<Dim> valueRows = checkCache(context, {2, value, "value_axis"});
    if (!valueRows)
      return valueRows.takeError();
    if (llvm::Error error =
            requireEqual(context, *keyRows, *valueRows, "rows of a block's keys and values"))
      return error;
  }
  // The number of tokens attended to is a sum over the blocks.
  if (llvm::Error error = checkMaskAndSinks(context, 3))
    return error;
  context.setResult(0, attentionResultType(context));
  return llvm::Error::success();
}

} // namespace

void register_block_kv_sdpa(OpRegistry& registry) {
  OpDefBuilder definition = define(registry, OpName(kvoptDomain, "BlockKvSdpa"), 1);
  addAttentionAttributes(definition);
  definition.in("query")
      .in("key_new")
      .in("value_new")
      .in("mask?")
      .in("sinks?")
      .in("blocks*")
      .out("output")
      .attr("key_axis", int64_t{2})
      .attr("value_axis", int64_t{2})
      .shape(inferBlockKvSdpa);
}

} // namespace kvopt::ir
