// Random instances of ONNX's attention, rotation, normalization and quantization operators.
'use strict';
const {tensorOf, int, float, ints, flag, string} = require('../random');

function attention(random) {
  const type = random.floatType();
  const [heads, groups] = random.pick([[1, 1], [2, 1], [4, 2], [3, 3]]);
  const batches = random.int(1, 3), rows = random.int(1, 5), width = random.pick([4, 8]);
  const valueWidth = random.pick([width, width, 2 * width]);
  const past = random.chance(0.4) ? random.int(1, 4) : 0;
  const fresh = random.chance(0.7) ? rows : random.int(1, 6);
  const keys = past + fresh;
  const folded = random.chance(0.4);
  const attributes = random.attributes({is_causal: flag(undefined, [0, 1, 1]),
    scale: [undefined, float(0.3), float(1)], softcap: [undefined, float(0), float(2)],
    qk_matmul_output_mode: [undefined, int(0)], softmax_precision: [undefined, int(1)]});
  if (folded) Object.assign(attributes, {q_num_heads: int(heads), kv_num_heads: int(groups)});
  const x = (count, length, wide) => random.floats(type, folded ? [batches, length, count * wide]
    : [batches, count, length, wide]);
  const maskShape = random.pick([[rows, keys], [1, 1, rows, keys], [batches, heads, rows, keys],
    [batches, 1, rows, keys], [heads, rows, keys]]);
  const mask = random.maybe(() => random.chance(0.4) ? random.ints('bool', maskShape, 0, 1)
    : random.floats(type, maskShape), 0.4);
  const lengths = past ? null : random.maybe(() => random.ints('int64', [batches], 0, keys), 0.3);
  const tags = attributes.is_causal?.int === 1 && rows === 1 && past && fresh > 1 ? ['causal-single-row'] : [];
  return {attributes, tags, outputs: past ? [type, type, type] : [type],
    inputs: [x(heads, rows, width), x(groups, fresh, width), x(groups, fresh, valueWidth), mask,
      past ? random.floats(type, [batches, groups, past, width]) : null,
      past ? random.floats(type, [batches, groups, past, valueWidth]) : null, lengths]};
}

function rotary(random) {
  const type = random.floatType();
  const batches = random.int(1, 3), heads = random.int(1, 3), rows = random.int(1, 4);
  const width = random.pick([4, 8]), partial = random.chance(0.3), folded = random.chance(0.5);
  const half = partial ? width / 4 : width / 2;
  const attributes = random.attributes({interleaved: flag(undefined, [0, 1]),
    num_heads: folded ? [int(heads)] : [undefined],
    rotary_embedding_dim: partial ? [int(2 * half)] : [undefined, int(0)]});
  const withPositions = random.chance(0.6);
  const table = withPositions ? [9, half] : [batches, rows, half];
  return {attributes, outputs: [type], inputs: [
    random.floats(type, folded ? [batches, rows, heads * width] : [batches, heads, rows, width]),
    random.floats(type, table), random.floats(type, table),
    withPositions ? random.ints('int64', [batches, rows], 0, 8) : null]};
}

function normalization(random, biased, statistics) {
  const type = random.floatType();
  const shape = random.pick([[6], [3, 4], [2, 3, 5]]);
  const axis = random.int(-shape.length, shape.length - 1);
  const attributes = random.attributes({epsilon: [undefined, float(1e-5), float(0.1)],
    stash_type: [undefined, int(1)]});
  if (axis !== -1 || random.chance(0.5)) attributes.axis = int(axis);
  const inner = shape.slice(axis < 0 ? axis + shape.length : axis);
  const inputs = [random.floats(type, shape), random.floats(type, inner)];
  if (biased) inputs.push(random.maybe(() => random.floats(type, inner)));
  return {attributes, inputs, outputs: [type, ...random.chance(0.2) ? statistics : []]};
}

function softmax(random) {
  const type = random.floatType();
  const shape = random.pick([[5], [3, 4], [2, 3, 5]]);
  const low = random.pick([-1, -30, -3e4]);
  return {attributes: random.attributes({axis: [undefined, int(-1), int(0), int(-shape.length)]}),
    inputs: [random.floats(type, shape, low, -low)], outputs: [type]};
}

const gelu = (random) => {
  const type = random.floatType();
  return {attributes: random.attributes({approximate: [undefined, string('none'), string('tanh')]}),
    inputs: [random.floats(type, [3, 5], -5, 5)], outputs: [type]};
};

function quantization(random, dequantize) {
  const code = random.pick(['uint8', 'int8', 'int8', 'uint8', 'int16', 'uint16']);
  const shape = [random.int(2, 4), random.int(1, 4), 8], perAxis = random.chance(0.5);
  const axis = random.int(-3, 2), extent = shape[(axis + 3) % 3];
  const blocked = perAxis && random.chance(0.3) ? 2 : 0;
  const along = axis < 0 ? axis + 3 : axis;
  const scales = !perAxis ? random.pick([[], [1]]) : !blocked ? [extent]
    : shape.map((one, d) => d === along ? Math.ceil(one / blocked) : one);
  const attributes = perAxis ? {axis: int(axis)} : {};
  if (blocked) attributes.block_size = int(blocked);
  else if (random.chance(0.2)) attributes.block_size = int(0);
  const span = {uint8: [0, 255], int8: [-128, 127], int16: [-32768, 32767], uint16: [0, 65535]}[code];
  const zero = dequantize ? random.maybe(() => random.ints(code, scales, span[0] / 2, span[1] / 2))
    : code === 'uint8' && random.chance(0.3) ? null : random.ints(code, scales, span[0] / 2, span[1] / 2);
  const scale = random.floats('float32', scales, 0.02, 0.3);
  return dequantize ? {attributes, inputs: [random.ints(code, shape, ...span), scale, zero], outputs: ['float32']}
    : {attributes, inputs: [random.floats('float32', shape, -40, 40), scale, zero], outputs: [code]};
}

function matMulInteger(random) {
  const [rows, inner, columns] = [random.int(1, 5), random.int(1, 12), random.int(1, 6)];
  const aType = random.pick(['uint8', 'uint8', 'int8']), bType = random.pick(['uint8', 'int8']);
  const codes = (type, dims) => random.ints(type, dims, type === 'int8' ? -63 : 0, 63);
  return {attributes: {}, outputs: ['int32'], inputs: [
    codes(aType, [...random.pick([[], [2]]), rows, inner]), codes(bType, [inner, columns]),
    random.maybe(() => codes(aType, [])), random.maybe(() => codes(bType, random.pick([[], [columns]])))]};
}

function qLinearMatMul(random) {
  const [rows, inner, columns] = [random.int(1, 5), random.int(1, 12), random.int(1, 6)];
  const aType = random.pick(['uint8', 'uint8', 'int8']), yType = aType;
  const bType = aType === 'int8' ? 'int8' : random.pick(['uint8', 'int8']);
  const codes = (type, dims) => random.ints(type, dims, type === 'int8' ? -63 : 0, 63);
  const scale = (low, high, dims = []) => random.floats('float32', dims, low, high);
  const perColumn = random.chance(0.3) ? [columns] : [];
  return {attributes: {}, outputs: [yType], inputs: [
    codes(aType, [...random.pick([[], [2]]), rows, inner]), scale(0.01, 0.1), codes(aType, []),
    codes(bType, [inner, columns]), scale(0.01, 0.1, perColumn), codes(bType, perColumn),
    scale(0.05, 0.5), codes(yType, [])]};
}

function tensorScatter(random) {
  const type = random.floatType();
  const batches = random.int(1, 3), capacity = random.int(4, 7), rows = random.int(1, 3);
  const shape = [batches, 2, capacity, 4];
  const circular = random.chance(0.3);
  const attributes = random.attributes({axis: [undefined, int(-2), int(2)],
    mode: circular ? [string('circular')] : [undefined, string('linear')]});
  return {attributes, outputs: [type], inputs: [random.floats(type, shape),
    random.floats(type, [batches, 2, rows, 4]),
    random.maybe(() => random.ints('int64', [batches], 0, circular ? capacity - 1 : capacity - rows), 0.8)]};
}

module.exports = {domain: '', opset: 24, operators: {
  Attention: {make: attention, share: 2.5, attention: true},
  RotaryEmbedding: {make: rotary, share: 1},
  LayerNormalization: {make: (random) => normalization(random, true, ['float32', 'float32']), share: 0.7},
  RMSNormalization: {make: (random) => normalization(random, false, []), share: 0.7},
  SimplifiedLayerNormalization: {make: (random) => normalization(random, false, ['float32']), share: 0.7},
  Softmax: {make: softmax, share: 0.5},
  LogSoftmax: {make: softmax, share: 0.4},
  Gelu: {make: gelu, share: 0.3},
  DequantizeLinear: {make: (random) => quantization(random, true), share: 0.7},
  QuantizeLinear: {make: (random) => quantization(random, false), share: 0.7},
  DynamicQuantizeLinear: {share: 0.3, make: (random) => ({attributes: {}, outputs: ['uint8', 'float32', 'uint8'],
    inputs: [random.floats('float32', [3, 5], random.pick([-1, 0, 0.5]), 1)]})},
  MatMulInteger: {make: matMulInteger, share: 0.5}, QLinearMatMul: {make: qLinearMatMul, share: 0.5},
  TensorScatter: {make: tensorScatter, share: 0.5},
}};
