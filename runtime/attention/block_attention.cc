// Attention over caches in blocks, without copying them:
//
//   output = Sdpa over the rows of block 0, block 1, …, followed by the new rows
//
// The sums are the same as over one contiguous cache: the number of rows in a block does not change
// any bit. Only the scales of codes are copied to contiguous memory.
#include "runtime/attention/attention_heads.h"
#include "runtime/attention/cache_stores.h"
#include "runtime/memory/buffer.h"
#include "support/format.h"

namespace kvopt::runtime {
using namespace ir;

namespace {

/// The tensor or, if the elements of its rows are not adjacent, a copy in scratch memory.
llvm::Expected<TensorView> withContiguousRows(KernelContext& context, const TensorView& view) {
  if (view.shape.back() <= 1 || view.strides.back() == 1)
    return view;
  auto memory = context.scratch(static_cast<size_t>(view.byteSize()));
  if (!memory)
    return memory.takeError();
  TensorView packed = TensorView::contiguous(view.element, view.shape, memory->data());
  copyElements(view, packed);
  return packed;
}

TensorView withLastAxesSwapped(TensorView view) {
  std::swap(view.shape[2], view.shape[3]);
  std::swap(view.strides[2], view.strides[3]);
  return view;
}

class BlockAttention {
public:
  BlockAttention(KernelContext& nodeContext, const CacheOperator& which, unsigned blockCount)
      : context(nodeContext), op(which), blocks(blockCount) {}

  llvm::Error run() {
    auto given = attentionOperands(context, op.mask(), op.sinks());
    if (!given)
      return given.takeError();
    operands = std::move(*given);
    if (llvm::Error error = checkNewRows())
      return error;
    auto valueColumns = ValueColumns::of(context, op, fresh(op.sides() - 1).shape[3]);
    if (!valueColumns)
      return valueColumns.takeError();
    columns = *valueColumns;
    if (llvm::Error error = prepare())
      return error;
    for (unsigned i = 0; i < blocks; ++i)
      if (llvm::Error error = addBlock(i))
        return error;
    if (llvm::Error error = addNewRows())
      return error;
    return attentionResult(context, operands, CacheOperator::output);
  }

private:
  const TensorView& fresh(unsigned side) const { return context.in(CacheOperator::fresh(side)); }

  llvm::Error checkNewRows() const {
    bool areRows = operands.query.rank() == 4, areCodes = true;
    for (unsigned side = 0; side < op.sides(); ++side) {
      areRows &= fresh(side).rank() == 4;
      areCodes &= fresh(side).element == ElementType::Int8;
    }
    if (!areRows)
      return context.error("query and new rows must have rank 4");
    if (op.hasCodes() && !areCodes)
      return context.error("new rows must be int8 codes");
    if (fresh(0).shape[2] != operands.query.shape[2])
      return context.error(formatted("{} new key rows and {} query rows", fresh(0).shape[2],
                                     operands.query.shape[2]));
    return llvm::Error::success();
  }

  /// Number of tokens of all blocks, along `axis` of the keys; without blocks that `addBlock`
  /// refuses because of their rank.
  int64_t cachedTokens(int64_t axis) const {
    int64_t tokens = 0;
    for (unsigned i = 0; i < blocks; ++i) {
      const TensorView& block = context.in(op.block(0, blocks) + i);
      if (axis >= 0 && axis < int64_t{block.rank()})
        tokens += block.shape[static_cast<unsigned>(axis)];
    }
    return tokens;
  }

  llvm::Error prepare() {
    auto query = withContiguousRows(context, operands.query);
    if (!query)
      return query.takeError();
    operands.query = std::move(*query);
    const int64_t keyAxis = context.node().intAttr(CacheOperator::axisName(0), 2);
    operands.keyTransposed = keyAxis == 3;
    operands.segmentTokens = cachedTokens(keyAxis) + fresh(0).shape[2];
    auto memory = scratchSegments(context, blocks + 1);
    if (!memory)
      return memory.takeError();
    segments = *memory;
    operands.segments = segments;
    for (unsigned side = 0; side < op.sides() && op.hasCodes(); ++side) {
      auto joined =
          scratchTensor(context, ElementType::Float,
                        {fresh(side).shape[0], fresh(side).shape[1], operands.segmentTokens});
      if (!joined)
        return joined.takeError();
      (side == 0 ? operands.keyScales : operands.valueScales) = std::move(*joined);
    }
    if (op.isLatent())
      operands.valueScales = operands.keyScales;
    return llvm::Error::success();
  }

  /// Copies scales [B,G,n] to the positions of the next rows.
  void addScales(unsigned side, const TensorView& scales) {
    const TensorView& joined = side == 0 ? *operands.keyScales : *operands.valueScales;
    copyElements(scales, slicedAxis(joined, 2, tokens, scales.shape[2]));
  }

  bool isOfValues(unsigned side) const { return side + 1 == op.sides(); }

  /// Makes `rows` the keys, the values, or both of a segment.
  void setRows(unsigned segment, unsigned side, const TensorView& rows) {
    segments[segment].begin = tokens;
    if (side == 0) {
      segments[segment].key = rows.data;
      segments[segment].keyStrides = rowStrides(rows);
    }
    if (isOfValues(side)) {
      segments[segment].value = columns.beginIn(rows);
      segments[segment].valueStrides = rowStrides(rows);
    }
  }

  llvm::Error addBlock(unsigned index) {
    int64_t count = 0;
    for (unsigned side = 0; side < op.sides(); ++side) {
      auto store = RowStore::ofBlock(context, op, side, index, blocks);
      if (!store)
        return store.takeError();
      if (isOfValues(side) && store->isTransposed())
        return context.error(formatted("{} with the sequence on the last axis are not supported",
                                       op.isLatent() ? "rows" : "values"));
      if (side == 0) {
        count = store->capacity();
        if (index == 0)
          operands.keyTransposed = store->isTransposed();
        if (operands.keyTransposed != store->isTransposed())
          return context.error(formatted("only one of blocks {} and {} of the keys has the "
                                         "sequence on the last axis",
                                         index - 1, index));
      }
      if (store->capacity() != count)
        return context.error(formatted("block {} has {} rows of keys and {} of values", index,
                                       count, store->capacity()));
      const CacheSlots slots = store->pastSlots();
      auto rows = withContiguousRows(context, slots.rows);
      if (!rows)
        return rows.takeError();
      setRows(index, side, *rows);
      if (slots.scales)
        addScales(side, *slots.scales);
    }
    tokens += count;
    return llvm::Error::success();
  }

  llvm::Error addNewRows() {
    for (unsigned side = 0; side < op.sides(); ++side) {
      auto rows = side == 0 && operands.keyTransposed
                      ? withContiguousRows(context, withLastAxesSwapped(fresh(side)))
                      : withContiguousRows(context, fresh(side));
      if (!rows)
        return rows.takeError();
      setRows(blocks, side, *rows);
      if (side == 0)
        operands.key = *rows;
      if (isOfValues(side)) {
        operands.value = std::move(*rows);
        columns.narrow(operands.value);
      }
      if (op.hasCodes())
        if (llvm::Error error = addNewScales(side))
          return error;
    }
    return llvm::Error::success();
  }

  llvm::Error addNewScales(unsigned side) {
    TensorView scales = context.in(op.freshScale(side));
    const Extents& shape = fresh(side).shape;
    if (llvm::Error error = checkScales(context, side == 0 ? "keys" : "values", scales,
                                        {shape[0], shape[1], shape[2], 1}))
      return error;
    scales.shape.pop_back();
    scales.strides.pop_back();
    addScales(side, scales);
    return llvm::Error::success();
  }

  KernelContext& context;
  CacheOperator op;
  unsigned blocks; ///< number of blocks in each list
  ValueColumns columns{};
  AttentionOperands operands;
  std::span<simd::KeyValueSegment> segments;
  int64_t tokens = 0; ///< number of tokens in all segments so far
};

} // namespace

llvm::Error attendInBlocks(KernelContext& context, const CacheOperator& op) {
  const unsigned count =
      context.inputCount() > op.firstBlock() ? context.inputCount() - op.firstBlock() : 0;
  if (count % op.blockLists() != 0)
    return context.error(formatted("{} blocks cannot be divided equally into keys and values{}",
                                   count, op.hasCodes() ? ", and their scales" : ""));
  return BlockAttention(context, op, count / op.blockLists()).run();
}

} // namespace kvopt::runtime
