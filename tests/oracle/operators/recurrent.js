// Random instances of com.microsoft's operators with states of fixed extents.
'use strict';
const {int, float, string} = require('../random');

function linearAttention(random) {
  const type = random.floatType();
  const [batches, tokens] = [random.int(1, 2), random.int(1, 5)];
  const [keyWidth, valueWidth] = [random.pick([2, 4, 8]), random.pick([2, 3, 8])];
  const groups = random.int(1, 3), heads = groups * random.int(1, 3);
  const rule = random.pick([undefined, 'linear', 'gated', 'delta', 'gated_delta']);
  const isGated = rule !== 'linear' && rule !== 'delta', isDelta = rule !== 'linear' && rule !== 'gated';
  const attributes = {...random.attributes({scale: [undefined, float(0), float(0.3), float(-1), float(1)],
    chunk_size: [undefined, int(64), int(1), int(0), int(-1)]}),
  ...rule && {update_rule: string(rule)}, q_num_heads: int(heads), kv_num_heads: int(groups)};
  const packed = (width, low, high) => random.floats(type, [batches, tokens, width], low, high);
  return {attributes, outputs: [type, type], inputs: [
    packed(heads * keyWidth), packed(groups * keyWidth), packed(groups * valueWidth),
    random.maybe(() => random.floats(type, [batches, groups, keyWidth, valueWidth])),
    isGated ? packed(random.pick([groups, groups * keyWidth]), -2, 0) : null,
    isDelta ? packed(random.pick([1, groups]), 0, 1) : null]};
}

function causalConvWithState(random) {
  const type = random.floatType();
  const [batches, channels, length, kernel] =
    [random.int(1, 3), random.int(1, 5), random.int(1, 6), random.int(1, 5)];
  const attributes = random.attributes({ndim: [undefined, int(1)], dilation: [undefined, int(1), int(2)],
    channels_last: [undefined, int(0)], state_window: [undefined, int(0)],
    activation: [undefined, string('none'), string('silu'), string('swish')]});
  const reach = (kernel - 1) * (attributes.dilation?.int ?? 1);
  return {attributes, outputs: [type, type], inputs: [random.floats(type, [batches, channels, length]),
    random.floats(type, [channels, 1, kernel]), random.maybe(() => random.floats(type, [channels])),
    random.maybe(() => random.floats(type, [batches, channels, reach]))]};
}

module.exports = {domain: 'com.microsoft', opset: 1, operators: {
  LinearAttention: {make: linearAttention, share: 1},
  CausalConvWithState: {make: causalConvWithState, share: 1},
}};
