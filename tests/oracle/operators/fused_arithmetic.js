// Random instances of com.microsoft's normalizations, activations and products.
'use strict';
const {tensorOf, int, float, flag} = require('../random');

const epsilons = [undefined, float(1e-5), float(1e-12), float(0.1)];

function skipNormalization(random, centered) {
  const type = random.floatType();
  const shape = random.chance(0.8) ? [random.int(1, 3), random.int(1, 4), random.pick([4, 7, 16])]
    : [random.int(1, 4), random.pick([4, 7, 16])];
  const width = shape[shape.length - 1];
  const vector = () => random.floats(type, [width]);
  const skip = shape.length === 3 ? random.pick([shape, shape, [1, ...shape.slice(1)], shape.slice(1)])
    : shape;
  const inputs = [random.floats(type, shape), random.floats(type, skip), vector()];
  if (centered) inputs.push(random.maybe(vector));
  inputs.push(random.maybe(vector));
  return {attributes: random.attributes({epsilon: epsilons}), inputs,
    outputs: random.pick([[type], [type], [type, null, null, type], [type, 'float32', 'float32', type]])};
}

function embedding(random) {
  const type = random.floatType();
  const batches = random.int(1, 3), rows = random.int(1, 4), width = random.pick([4, 8]);
  const ids = (last) => random.ints('int32', [batches, rows], 0, last);
  const segments = random.chance(0.6);
  const attributes = random.attributes({epsilon: epsilons, mask_index_type: flag(undefined, [0, 1])});
  const vector = () => random.floats(type, [width]);
  return {attributes, inputs: [ids(10), segments ? ids(1) : null, random.floats(type, [11, width]),
    random.floats(type, [6, width]), segments ? random.floats(type, [2, width]) : null, vector(), vector(),
    random.maybe(() => tensorOf('int32', [batches, rows], Array.from({length: batches * rows},
      (_, i) => i % rows < 1 + i / rows ? 1 : 0))),
    random.maybe(() => random.ints('int32', [random.pick([1, batches]), rows], 0, 5), 0.3)],
  outputs: random.pick([[type, 'int32'], [type, 'int32', type], [type]])};
}

function gelu(random, biased) {
  const type = random.floatType();
  const shape = random.pick([[5], [3, 4], [2, 3, 8]]);
  const bias = () => random.floats(type, [shape[shape.length - 1]]);
  const inputs = [random.floats(type, shape, -6, 6)];
  if (biased !== 'never') inputs.push(biased === 'always' ? bias() : random.maybe(bias));
  return {attributes: {}, inputs, outputs: [type]};
}

const quickGelu = (random) => ({...gelu(random, 'never'), attributes: random.attributes({
  alpha: [undefined, float(1.702), float(1), float(0), float(-1)]})});

function fusedMatMul(random) {
  const type = random.floatType();
  const [rows, inner, columns] = [random.int(1, 5), random.int(1, 6), random.int(1, 5)];
  const attributes = random.attributes({transA: flag(undefined), transB: flag(undefined),
    transBatchA: flag(undefined, [0, 0, 1]), transBatchB: flag(undefined, [0, 0, 1]),
    alpha: [undefined, float(1), float(0.5), float(0), float(-1)]});
  const batch = random.pick([[], [], [2], [3, 2]]);
  const on = (name) => (attributes[name]?.int ?? 0) !== 0;
  const matrix = (lead, first, second, trans, transBatch) => {
    const [a, b] = on(trans) ? [second, first] : [first, second];
    return random.floats(type, on(transBatch) && lead.length ? [a, ...lead, b] : [...lead, a, b]);
  };
  return {attributes, outputs: [type], inputs: [matrix(batch, rows, inner, 'transA', 'transBatchA'),
    matrix(random.pick([batch, []]), inner, columns, 'transB', 'transBatchB')]};
}

function matMulNBits(random) {
  const type = random.floatType();
  const bits = random.pick([4, 4, 8, 2]), block = random.pick([16, 32, 64]);
  const inner = random.pick([16, 32, 48, 64, 96]), columns = random.int(1, 9);
  const blocks = Math.ceil(inner / block);
  const attributes = random.attributes({K: [int(inner)], N: [int(columns)], block_size: [int(block)],
    bits: bits === 4 ? [undefined, int(4)] : [int(bits)],
    accuracy_level: [undefined, int(0), int(1), int(4)], weight_prepacked: [undefined, int(0)]});
  const zeros = random.pick(['none', 'none', 'packed', 'packed', 'floats']);
  const constant = (tensor) => ({...tensor, constant: true});
  const inputs = [random.floats(type, [...random.pick([[3], [2, 2], [1]]), inner]),
    constant(random.ints('uint8', [columns, blocks, block * bits / 8], 0, 255)),
    constant(random.floats(type, [columns, blocks], 0.01, 0.1)),
    zeros === 'none' ? null : constant(zeros === 'packed'
      ? random.ints('uint8', [columns, Math.ceil(blocks * bits / 8)], 0, 255)
      : random.floats(type, [columns, blocks], 0, 2 ** bits)),
    random.maybe(() => constant(random.ints('int32', [inner], 0, 0)), 0.02),
    random.maybe(() => constant(random.floats(type, [columns])), 0.3)];
  // ONNX Runtime may compute with activations of 8 bits at that level.
  const coarse = attributes.accuracy_level?.int === 4;
  return {attributes, inputs, outputs: [type],
    atol: (coarse ? 0.01 : 5e-6) * inner * 2 ** bits * 0.1 * (type === 'float16' && !coarse ? 30 : 1)};
}

/** Codes of seven bits: kernels for CPUs without dot products of bytes saturate with more. */
const codes = (random, type, dims) => random.ints(type, dims, type === 'int8' ? -63 : 0, 63);

function products(random, dynamic) {
  const [rows, inner, columns] = [random.int(1, 5), random.int(1, 12), random.int(1, 6)];
  const aType = dynamic ? 'float32' : random.pick(['uint8', 'uint8', 'int8']);
  const bType = random.pick(['uint8', 'int8']);
  const shape = [...random.pick([[], [2], [2, 3]]), rows, inner];
  const perColumn = () => random.pick([[], [1], [columns]]);
  const scales = perColumn();
  const scale = () => random.floats('float32', scales, 0.01, 0.2);
  const zero = () => codes(random, bType, scales.length ? scales : []);
  const bias = random.maybe(() => random.floats('float32', [columns], -5, 5), 0.3);
  const b = codes(random, bType, [inner, columns]);
  const inputs = dynamic ? [random.floats('float32', shape, random.pick([-1, 0, 0.5]), 1), b, scale(),
    random.maybe(zero), bias]
    : [codes(random, aType, shape), b, random.floats('float32', random.pick([[], [1]]), 0.01, 0.2),
      scale(), random.maybe(() => codes(random, aType, random.pick([[], [1]]))), random.maybe(zero), bias];
  return {attributes: {}, inputs, outputs: ['float32'], atol: 1e-4};
}

module.exports = {domain: 'com.microsoft', opset: 1, operators: {
  SkipLayerNormalization: {make: (random) => skipNormalization(random, true), share: 1},
  SkipSimplifiedLayerNormalization: {make: (random) => skipNormalization(random, false), share: 1},
  EmbedLayerNormalization: {make: embedding, share: 0.7},
  Gelu: {make: (random) => gelu(random, 'never'), share: 0.3},
  BiasGelu: {make: (random) => gelu(random, 'always'), share: 0.4},
  FastGelu: {make: (random) => gelu(random, 'maybe'), share: 0.4},
  QuickGelu: {make: quickGelu, share: 0.4},
  FusedMatMul: {make: fusedMatMul, share: 1},
  MatMulNBits: {make: matMulNBits, share: 1.5},
  MatMulIntegerToFloat: {make: (random) => products(random, false), share: 1},
  DynamicQuantizeMatMul: {make: (random) => products(random, true), share: 1},
}};
