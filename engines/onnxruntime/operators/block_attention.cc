// Attention over caches in blocks, each an operand, without copying their rows. The new rows are
// the last segment. Only scales of codes are copied to contiguous memory.
#include "engines/onnxruntime/operators/cache_call.h"

namespace kvopt::onnxruntime {

namespace {

constexpr ElementType codes = ONNX_TENSOR_ELEMENT_DATA_TYPE_INT8;
constexpr ElementType scaleType = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;

class BlockCall : public CacheAttentionCall {
public:
  BlockCall(Call& ofNode, const CacheSettings& of) : CacheAttentionCall(ofNode, of) {}

  void run() {
    countBlocks();
    for (unsigned side = 0; side < form.sides(); ++side)
      fresh[side] = freshRows(ir::CacheOperatorForm::fresh(side));
    const CacheRows& key = fresh[0];
    const CacheRows& value = fresh[form.sides() - 1];
    call.require(key.type == value.type && (!form.hasCodes() || key.type == codes),
                 form.hasCodes() ? "new rows must be int8 codes"
                                 : "new keys and values differ in element type");
    setWidths(key, value);
    valueBytes = offsetOfValues(key.width, false) * elementBytes(key.type);
    if (!form.hasCodes())
      operands.view.cacheStorage = storageOfNumbers(key.type);
    for (unsigned i = 0; i < each; ++i)
      addBlock(i);
    addFresh();
    operands.view.totalLength = tokens;
    operands.view.segments = segments;
    for (unsigned side = 0; side < form.sides() && form.hasCodes(); ++side)
      joinScales(side);
    if (operands.mask)
      operands.mask->apply(call, operands.view);
    operands.attend(call);
  }

private:
  simd::FloatStorage storageOfNumbers(ElementType type) const {
    const auto storage = storageOf(type);
    if (!storage)
      call.fail(std::string("blocks of ") + elementName(type) + " are not supported");
    return *storage;
  }

  void countBlocks() {
    const auto given = static_cast<unsigned>(call.operandCount());
    const unsigned blocks = given > form.firstBlock() ? given - form.firstBlock() : 0;
    if (blocks % form.blockLists() != 0)
      call.fail(std::to_string(blocks) + " blocks cannot be divided equally into keys and values" +
                (form.hasCodes() ? ", and their scales" : ""));
    each = blocks / form.blockLists();
    segments.reserve(each + 1);
  }

  /// The rows of a block of a side.
  CacheRows openBlock(unsigned side, unsigned index) {
    const Tensor block = call.input(form.block(side, each) + index);
    const CacheRows rows_ = slotsOf(block, side, fresh[side].heads);
    if (rows_.width != fresh[side].width || rows_.type != fresh[side].type)
      call.fail("a block " + std::string(elementName(block.type)) + textOf(block.shape) +
                " does not fit new rows of " + std::to_string(fresh[side].width) + " columns of " +
                elementName(fresh[side].type));
    const bool isTransposed = settings.axes[side] + 1 == static_cast<int64_t>(block.rank());
    if (side + 1 == form.sides())
      call.require(!isTransposed, "values with the sequence on the last axis are not supported");
    if (side == 0 && index == 0)
      operands.view.keyTransposed = isTransposed;
    call.require(side != 0 || operands.view.keyTransposed == isTransposed,
                 "blocks of the keys differ in rank");
    if (form.hasCodes()) {
      const Tensor given = call.input(form.scaleBlock(side, each) + index);
      const CacheRows scales = slotsOf(given, side, fresh[side].heads);
      if (given.type != scaleType || scales.width != 1 || scales.slots != rows_.slots)
        call.fail("scales " + textOf(given.shape) + " for a block " + textOf(block.shape) +
                  "; they should be float, one per row");
      scaleBlocks[side].push_back(scales);
    }
    return rows_;
  }

  void addBlock(unsigned index) {
    const CacheRows key = openBlock(0, index);
    const CacheRows value = form.isLatent() ? key : openBlock(1, index);
    if (key.slots != value.slots)
      call.fail("block " + std::to_string(index) + " has " + std::to_string(key.slots) +
                " rows of keys and " + std::to_string(value.slots) + " of values");
    add(key, value);
  }

  void addFresh() {
    CacheRows key = fresh[0];
    if (operands.view.keyTransposed) {
      const Tensor memory =
          call.scratchTensor(key.type, {batches(), key.heads, key.width, key.slots});
      const CacheRows columns = *cacheRows(memory, 3, batches(), key.heads);
      call.forEach(batches() * key.heads, memory.count(), [&](int64_t unit) {
        copySlots(columns, 0, key, 0, key.slots, unit / key.heads, unit % key.heads);
      });
      key = columns;
    }
    for (unsigned side = 0; side < form.sides() && form.hasCodes(); ++side) {
      const CacheRows scales = freshRows(form.freshScale(side));
      call.require(scales.type == scaleType && scales.width == 1 &&
                       scales.heads == fresh[side].heads,
                   "scales of new rows must be float, one per row");
      scaleBlocks[side].push_back(scales);
    }
    add(key, form.isLatent() ? key : fresh[1]);
  }

  void add(const CacheRows& key, const CacheRows& value) {
    simd::KeyValueSegment segment{tokens, key.data, value.data + valueBytes, key.strides(),
                                  value.strides()};
    if (operands.view.keyTransposed)
      segment.keyStrides.row = key.columnStride;
    segments.push_back(segment);
    if (__builtin_add_overflow(tokens, key.slots, &tokens))
      call.fail("the blocks have too many rows");
  }

  /// Copies the scales of all blocks of a side to contiguous memory.
  void joinScales(unsigned side) {
    const int64_t heads = fresh[side].heads;
    const Tensor memory = call.scratchTensor(scaleType, {batches(), heads, tokens, 1});
    const CacheRows joined = *cacheRows(memory, 2, batches(), heads);
    call.forEach(batches() * heads, memory.count(), [&](int64_t unit) {
      int64_t slot = 0;
      for (const CacheRows& scales : scaleBlocks[side]) {
        copySlots(joined, slot, scales, 0, scales.slots, unit / heads, unit % heads);
        slot += scales.slots;
      }
    });
    simd::AttentionView& view = operands.view;
    if (side == 0) {
      view.keyScales = memory.as<float>();
      view.keyScaleStrides = joined.strides();
    }
    if (side + 1 == form.sides()) {
      view.valueScales = memory.as<float>();
      view.valueScaleStrides = joined.strides();
    }
  }

  unsigned each = 0; ///< number of blocks in each list
  CacheRows fresh[2];
  std::vector<CacheRows> scaleBlocks[2]; ///< with those of the new rows
  std::vector<simd::KeyValueSegment> segments;
  int64_t valueBytes = 0; ///< distance of the values from the start of their rows
  int64_t tokens = 0;     ///< number of rows in all segments so far
};

} // namespace

void attendInBlocks(Call& call, const CacheSettings& settings) { BlockCall(call, settings).run(); }

} // namespace kvopt::onnxruntime
