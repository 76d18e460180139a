// Finding the rows of blocks.
#include "runtime/attention/block_attention.h"

#include "runtime/attention/attention_heads.h"
#include "runtime/attention/block_rows.h"
#include "runtime/attention/in_place_cache.h"
#include "runtime/exec/input_binding.h"
#include "runtime/memory/buffer.h"
#include "support/format.h"

namespace kvopt::runtime {
using namespace ir;
using namespace kernels;

namespace {

TensorView withLastAxesSwapped(TensorView view) {
  std::swap(view.shape[2], view.shape[3]);
  std::swap(view.strides[2], view.strides[3]);
  return view;
}

/// Keys or values.
struct Side {
  const char* name;
  unsigned fresh; ///< operand
  unsigned firstBlock;
  const char* axisName;
  unsigned freshScale = 0;
  unsigned firstScale = 0;

  llvm::Expected<InPlaceCache> block(const KernelContext& context, unsigned index) const {
    return InPlaceCache::create(context, {name, fresh, firstBlock + index, 0, axisName});
  }
};

class BlockAttention {
public:
  BlockAttention(KernelContext& nodeContext, const BlockOperands& given, unsigned blockCount)
      : context(nodeContext), hasScales(given.hasScales),
        blocks(blockCount), key{"keys",     1, given.firstBlock,
                                "key_axis", 5, given.firstBlock + 2 * blocks},
        value{"values",     2, given.firstBlock + blocks,
              "value_axis", 6, given.firstBlock + 3 * blocks} {}

  llvm::Error run() {
    auto given = attentionOperands(context, 3, 4);
    if (!given)
      return given.takeError();
    operands = std::move(*given);
    for (const TensorView* rows : {&context.in(0), &context.in(1), &context.in(2)})
      if (rows->rank() != 4)
        return context.error("query and new rows must have rank 4");
    if (hasScales &&
        (context.in(1).element != ElementType::Int8 || context.in(2).element != ElementType::Int8))
      return context.error("new rows must be int8 codes");
    auto query = withContiguousRows(context, context.in(0));
    if (!query)
      return query.takeError();
    operands.query = std::move(*query);
    operands.keyTransposed = context.node().intAttr("key_axis", 2) == 3;
    if (llvm::Error error = findSegments())
      return error;
    if (hasScales)
      if (llvm::Error error = joinScales())
        return error;
    return attentionResult(context, operands, 0);
  }

private:
  llvm::Error findSegments() {
    auto segments = scratchSegments(context, blocks + 1);
    if (!segments)
      return segments.takeError();
    int64_t total = 0;
    for (unsigned i = 0; i < blocks; ++i) {
      auto keys = key.block(context, i);
      if (!keys)
        return keys.takeError();
      auto values = value.block(context, i);
      if (!values)
        return values.takeError();
      operands.keyTransposed = keys->isTransposed();
      if (values->isTransposed())
        return context.error("values with the sequence on the last axis are not supported");
      if (keys->capacity() != values->capacity())
        return context.error(fmt::format("block {} has {} rows of keys and {} of values", i,
                                         keys->capacity(), values->capacity()));
      auto keyRows = withContiguousRows(context, keys->pastSlots());
      if (!keyRows)
        return keyRows.takeError();
      auto valueRows = withContiguousRows(context, values->pastSlots());
      if (!valueRows)
        return valueRows.takeError();
      (*segments)[i] = {total, keyRows->data, valueRows->data, rowStridesOf(*keyRows),
                        rowStridesOf(*valueRows)};
      total += keys->capacity();
    }
    auto newKeys = withContiguousRows(
        context, operands.keyTransposed ? withLastAxesSwapped(context.in(1)) : context.in(1));
    if (!newKeys)
      return newKeys.takeError();
    auto newValues = withContiguousRows(context, context.in(2));
    if (!newValues)
      return newValues.takeError();
    if (context.in(1).shape[2] != operands.query.shape[2])
      return context.error(fmt::format("{} new key rows and {} query rows", context.in(1).shape[2],
                                       operands.query.shape[2]));
    (*segments)[blocks] = {total, newKeys->data, newValues->data, rowStridesOf(*newKeys),
                           rowStridesOf(*newValues)};
    operands.key = std::move(*newKeys);
    operands.value = std::move(*newValues);
    operands.segments = *segments;
    operands.segmentTokens = total + context.in(1).shape[2];
    return llvm::Error::success();
  }

  llvm::Error joinScales() {
    auto ofKeys = joinedScales(key);
    if (!ofKeys)
      return ofKeys.takeError();
    auto ofValues = joinedScales(value);
    if (!ofValues)
      return ofValues.takeError();
    operands.keyScales = std::move(*ofKeys);
    operands.valueScales = std::move(*ofValues);
    return llvm::Error::success();
  }

  /// The scales of all rows of one side: [B,G,T].
  llvm::Expected<TensorView> joinedScales(const Side& side) {
    const Extents& fresh = context.in(side.fresh).shape;
    auto joined =
        scratchTensor(context, ElementType::Float, {fresh[0], fresh[1], operands.segmentTokens});
    if (!joined)
      return joined;
    int64_t first = 0;
    auto append = [&](const TensorView& scales) {
      TensorView to = *joined;
      to.shape = scales.shape;
      to.strides.push_back(1);
      to.data += first * static_cast<int64_t>(sizeof(float));
      copyElements(scales, to);
      first += scales.shape[2];
    };
    for (unsigned i = 0; i < blocks; ++i) {
      auto block = side.block(context, i);
      if (!block)
        return block.takeError();
      const TensorView& scales = context.in(side.firstScale + i);
      Extents expected = context.in(side.firstBlock + i).shape;
      expected[block->cacheLayout().columnAxis()] = 1;
      if (scales.element != ElementType::Float || scales.shape != expected)
        return wrongScales(side, scales, expected);
      const TensorView slots = block->slots(scales);
      append(block->isTransposed() ? withLastAxesSwapped(slots) : slots);
    }
    const TensorView& scales = context.in(side.freshScale);
    const Extents expected{fresh[0], fresh[1], fresh[2], 1};
    if (scales.element != ElementType::Float || scales.shape != expected)
      return wrongScales(side, scales, expected);
    append(scales);
    return joined;
  }

  llvm::Error wrongScales(const Side& side, const TensorView& scales,
                          const Extents& expected) const {
    return context.error(fmt::format("scales of the {} are {} {}, they should be float {}",
                                     side.name, onnxName(scales.element), extentsText(scales.shape),
                                     extentsText(expected)));
  }

  KernelContext& context;
  bool hasScales;
  unsigned blocks;
  Side key;
  Side value;
  AttentionOperands operands;
};

} // namespace

llvm::Error attendToBlocks(KernelContext& context, const BlockOperands& given) {
  const unsigned count =
      context.inputCount() > given.firstBlock ? context.inputCount() - given.firstBlock : 0;
  const unsigned groups = given.hasScales ? 4 : 2;
  if (count % groups != 0)
    return context.error(fmt::format("{} blocks are not as many of keys as of values{}", count,
                                     given.hasScales ? ", and as many of scales" : ""));
  return BlockAttention(context, given, count / groups).run();
}

} // namespace kvopt::runtime
