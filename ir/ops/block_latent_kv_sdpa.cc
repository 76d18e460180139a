// ai.kvopt::BlockLatentKvSdpa: attention over a past of one cache that lies in blocks, whose rows
// are keys, with values among their columns.
#include "ir/attention_shapes.h"

#include <fmt/format.h>

namespace kvopt {
namespace {

llvm::Error inferBlockLatentKvSdpa(ShapeContext& context) {
  for (unsigned operand : {0u, 1u})
    if (llvm::Error error = requireRank(context, operand, 4))
      return error;
  const TensorType& query = context.type(0);
  const TensorType& added = context.type(1);
  if (llvm::Error error = requireEqual(context, query.dim(0), added.dim(0), "batch sizes"))
    return error;
  if (llvm::Error error = requireEqual(context, query.dim(2), added.dim(2), "new rows"))
    return error;
  if (llvm::Error error = requireEqual(context, query.dim(3), added.dim(3), "head widths"))
    return error;
  if (llvm::Error error = checkHeads(context, query.dim(1), added.dim(1)))
    return error;
  constexpr unsigned firstBlock = 4;
  for (unsigned block = firstBlock; block < context.node().operands().size(); ++block)
    if (llvm::Expected<Dim> rows = checkCache(context, {1, block, "key_axis"}); !rows)
      return rows.takeError();
  if (llvm::Error error = checkMask(context, 2, Dim::unknown()))
    return error;
  if (llvm::Error error = checkMaskElements(context, 2))
    return error;
  if (llvm::Error error = checkSinks(context, 3))
    return error;
  int64_t offset = context.node().intAttr("v_offset", 0);
  int64_t width = context.node().intAttr("v_width", 0);
  int64_t end = 0;
  if (offset < 0 || width < 1 || __builtin_add_overflow(offset, width, &end) ||
      added.dim(3).isKnownLess(Dim::fixed(end)))
    return context.error(fmt::format("values in {} columns from {} on are not in rows of {}", width,
                                     offset, added.dim(3).str()));
  context.setResult(
      0, TensorType(context.element(0), Shape{mergedExtent(query.dim(0), added.dim(0)),
                                              query.dim(1), query.dim(2), Dim::fixed(width)}));
  return llvm::Error::success();
}

} // namespace

void register_block_latent_kv_sdpa(OpRegistry& registry) {
  define(registry, OpName(kvoptDomain, "BlockLatentKvSdpa"), 1)
      .in("query")
      .in("key_new")
      .in("mask?")
      .in("sinks?")
      .in("blocks*")
      .out("output")
      .requiredAttr("scale", AttributeKind::Float)
      .requiredAttr("v_width", AttributeKind::Int)
      .attr("v_offset", int64_t{0})
      .attr("causal", int64_t{0})
      .attr("window", int64_t{0})
      .attr("softcap", 0.0f)
      .attr("mask_boolean", int64_t{0})
      .attr("key_axis", int64_t{2})
      .shape(inferBlockLatentKvSdpa);
}

} // namespace kvopt
