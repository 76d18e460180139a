// One tile: attention to its keys, and the state of earlier tiles.
#include "engines/onnxruntime/operators/attention_tile.h"

#include "engines/onnxruntime/operators/attention_settings.h"
#include "runtime/simd/attention/tile_state.h"

namespace kvopt::onnxruntime {

namespace {

enum TileOperand : unsigned {
  TileQuery,
  TileKey,
  TileValue,
  TileMask,
  StateOutput,
  StateMaximum,
  StateSum
};

/// The operator has no sinks: they are part of the first state.
constexpr unsigned noOperand = StateSum + 1;

class AttentionTile : public Operation {
public:
  explicit AttentionTile(const AttentionSettings& ofNode) : settings(ofNode) {}
  void compute(Call& call) const override {
    AttentionOperands operands(call, settings, TileMask, noOperand);
    operands.setNumbers(call, call.input(TileKey), call.input(TileValue));
    simd::AttentionView& view = operands.view;
    call.require(operands.mask.has_value(), "the mask is missing");
    operands.mask->apply(call, view);
    const simd::TileState before = stateOf(call, view);
    const simd::TileState after = nextState(call, view, before.storage);
    const int64_t rows = view.batches * view.queryHeads * view.queryRows;
    if (rows == 0)
      return;
    const Tensor tile = call.scratchTensor(f32, {rows, view.valueWidth});
    view.outputStorage = simd::FloatStorage::f32;
    view.output = tile.data;
    const int64_t head = view.queryRows * view.valueWidth;
    view.outputStrides = {view.queryHeads * head, head, view.valueWidth};
    view.maxima = call.scratchTensor(f32, {rows}).as<float>();
    view.sums = call.scratchTensor(f32, {rows}).as<float>();
    view.lowestScore = simd::lowestScoreOf(before.storage);
    call.attend({&view, 1});
    call.forEach(rows, rows * view.valueWidth, [&](int64_t row) {
      simd::mergeTileRow(
          {tile.as<float>() + row * view.valueWidth, view.maxima[row], view.sums[row]}, before,
          after, row, view.valueWidth);
    });
  }

private:
  static int64_t maximumColumns(simd::FloatStorage storage) {
    return storage == simd::FloatStorage::f16 ? 2 : 1;
  }

  static simd::TileState stateOf(const Call& call, const simd::AttentionView& view) {
    const ElementType type = call.input(StateOutput).type;
    const simd::FloatStorage storage = *storageOf(type);
    std::byte* data[3] = {};
    for (unsigned i = 0; i < 3; ++i) {
      const Tensor part = call.input(StateOutput + i);
      const int64_t columns = i == 0 ? view.valueWidth : i == 1 ? maximumColumns(storage) : 1;
      const Shape shape = {view.batches, view.queryHeads, view.queryRows, columns};
      if (part.type != type || part.shape != shape)
        call.fail("a state " + std::string(elementName(part.type)) + textOf(part.shape) +
                  "; it should be " + elementName(type) + textOf(shape));
      data[i] = part.data;
    }
    return {storage, data[0], data[1], data[2]};
  }

  static simd::TileState nextState(Call& call, const simd::AttentionView& view,
                                   simd::FloatStorage storage) {
    const ElementType type = storage == simd::FloatStorage::f16 ? f16 : f32;
    const auto result = [&](unsigned index, int64_t columns) {
      return call.output(index, type, {view.batches, view.queryHeads, view.queryRows, columns})
          .data;
    };
    return {storage, result(0, view.valueWidth), result(1, maximumColumns(storage)), result(2, 1)};
  }

  AttentionSettings settings;
};

} // namespace

Offer attentionTile(const NodeDescription& node) {
  AttentionSettings settings;
  std::string reason = readAttributes(node, {}, settings);
  if (reason.empty())
    reason = reasonAgainstTypes(node, TileMask, noOperand);
  // Only these two attributes are defined.
  if (reason.empty() && (settings.causal || settings.window != 0))
    reason = "attribute causal or window";
  const ElementType mask = node.typeOf(TileMask);
  if (reason.empty() && mask != f32)
    reason = std::string("mask of ") + elementName(mask);
  const ElementType rows = node.typeOf(TileKey), state = node.typeOf(StateOutput);
  if (reason.empty() && (!storageOf(rows) || node.typeOf(TileValue) != rows))
    reason = std::string("keys of ") + elementName(rows);
  if (reason.empty() && state != f32 && state != f16)
    reason = std::string("state of ") + elementName(state);
  for (const unsigned part : {StateMaximum, StateSum})
    if (reason.empty() && node.typeOf(part) != state)
      reason = "parts of a state of different types";
  if (!reason.empty())
    return Offer::refused(std::move(reason));
  return {std::make_unique<AttentionTile>(settings), ""};
}

std::vector<OperatorTypes> attentionTileTypes() {
  std::vector<OperatorTypes> all;
  for (const NumberTypes& types : floatTypes)
    for (const ElementType state : {f32, f16})
      all.push_back({{{types.query}, {types.rows}, {types.rows}, {f32}, {state}, {state}, {state}},
                     {{state}, {state}, {state}}});
  return all;
}

} // namespace kvopt::onnxruntime
