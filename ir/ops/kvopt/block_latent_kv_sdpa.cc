// ai.kvopt::BlockLatentKvSdpa: attention over a past of one cache that lies in blocks, whose rows
// are keys, with values among their columns.
#include "ir/ops/kvopt/attention_shapes.h"
#include "ir/ops/kvopt/own_body.h"

namespace kvopt::ir {
namespace {

llvm::Error inferBlockLatentKvSdpa(ShapeContext& context) {
  if (llvm::Error error = checkLatentOperands(context))
    return error;
  constexpr unsigned firstBlock = 4;
  for (unsigned block = firstBlock; block < context.node().operands().size(); ++block)
    if (llvm::Expected<Dim> rows = checkCache(context, {1, block, "key_axis"}); !rows)
      return rows.takeError();
  if (llvm::Error error = checkMaskAndSinks(context, 2))
    return error;
  llvm::Expected<TensorType> output = latentResultType(context);
  if (!output)
    return output.takeError();
  context.setResult(0, std::move(*output));
  return llvm::Error::success();
}

} // namespace

void register_block_latent_kv_sdpa(OpRegistry& registry) {
  OpDefBuilder definition = define(registry, OpName(kvoptDomain, "BlockLatentKvSdpa"), 1);
  addAttentionAttributes(definition);
  definition.in("query")
      .in("key_new")
      .in("mask?")
      .in("sinks?")
      .in("blocks*")
      .out("output")
      .requiredAttr("v_width", AttributeKind::Int)
      .attr("v_offset", int64_t{0})
      .attr("key_axis", int64_t{2})
      .shape(inferBlockLatentKvSdpa)
      .body(checkOwnBody);
}

} // namespace kvopt::ir
