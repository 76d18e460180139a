// Random instances of ONNX's general operators: products, selections, movements, reductions.
'use strict';
const {tensorOf, int, float, flag, string, ints} = require('../random');

const shapeOf = (random, rank) => Array.from({length: rank}, () => random.int(1, 4));

function gather(random) {
  const type = random.pick(['float32', 'float16', 'int64', 'int32']);
  const shape = shapeOf(random, random.int(1, 3)), axis = random.int(-shape.length, shape.length - 1);
  const extent = shape[axis < 0 ? axis + shape.length : axis];
  const data = type.startsWith('float') ? random.floats(type, shape) : random.ints(type, shape, -9, 9);
  return {attributes: axis === 0 && random.chance(0.5) ? {} : {axis: int(axis)}, outputs: [type],
    inputs: [data, random.ints(random.pick(['int32', 'int64']), random.pick([[], [3], [2, 2], [0]]), -extent, extent - 1)]};
}

function gatherElements(random) {
  const shape = shapeOf(random, 2), axis = random.int(-2, 1), extent = shape[axis < 0 ? axis + 2 : axis];
  const index = shape.map((one, d) => d === (axis + 2) % 2 ? random.int(1, 5) : one);
  return {attributes: random.chance(0.3) && axis === 0 ? {} : {axis: int(axis)}, outputs: ['float32'],
    inputs: [random.floats('float32', shape), random.ints('int64', index, -extent, extent - 1)]};
}

function scatterElements(random) {
  const shape = shapeOf(random, 2), axis = random.int(-2, 1), extent = shape[axis < 0 ? axis + 2 : axis];
  const index = shape.map((one, d) => d === (axis + 2) % 2 ? 1 : one);
  return {attributes: {axis: int(axis), ...random.attributes({
    reduction: [undefined, string('none'), string('add'), string('mul'), string('max'), string('min')]})},
  outputs: ['float32'], inputs: [random.floats('float32', shape), random.ints('int64', index, -extent, extent - 1),
    random.floats('float32', index)]};
}

function matMul(random) {
  const type = random.floatType();
  const [rows, inner, columns] = [random.int(1, 5), random.int(1, 6), random.int(1, 5)];
  const [a, b] = random.pick([[[], []], [[2], []], [[], [2]], [[2, 1], [3]], [[3], [3]]]);
  return {attributes: {}, outputs: [type],
    inputs: [random.floats(type, [...a, rows, inner]), random.floats(type, [...b, inner, columns])]};
}

function gemm(random) {
  const type = random.floatType();
  const [rows, inner, columns] = [random.int(1, 5), random.int(1, 6), random.int(1, 5)];
  const attributes = random.attributes({transA: flag(undefined), transB: flag(undefined),
    alpha: [undefined, float(0.5), float(0)], beta: [undefined, float(0.5), float(0), float(-1)]});
  const on = (name) => (attributes[name]?.int ?? 0) !== 0;
  return {attributes, outputs: [type], inputs: [
    random.floats(type, on('transA') ? [inner, rows] : [rows, inner]),
    random.floats(type, on('transB') ? [columns, inner] : [inner, columns]),
    random.maybe(() => random.floats(type, random.pick([[columns], [rows, columns], [1], [rows, 1]])), 0.7)]};
}

function reduction(random) {
  const type = random.floatType();
  const shape = shapeOf(random, 3);
  const axes = random.pick([null, [1], [-1], [0, 2], [-3, 1], []]);
  return {attributes: random.attributes({keepdims: flag(undefined, [0, 1, 0]),
    noop_with_empty_axes: flag(undefined, [0, 1])}), outputs: [type],
  inputs: [random.floats(type, shape, 0.5, 2), axes && {...tensorOf('int64', [axes.length], axes), constant: true}]};
}

function argument(random) {
  // Few different numbers, so that there are ties.
  const shape = shapeOf(random, 3);
  const data = tensorOf('float32', shape, random.ints('int32', shape, 0, 2).data);
  return {attributes: random.attributes({axis: [undefined, int(0), int(1), int(-1), int(-3)],
    keepdims: flag(undefined, [0, 1]), select_last_index: flag(undefined, [0, 1])}), inputs: [data], outputs: ['int64']};
}

function topK(random) {
  const shape = [random.int(1, 3), 6];
  const axis = random.pick([undefined, int(-1), int(1), int(0)]);
  const extent = axis?.int === 0 ? shape[0] : 6;
  return {attributes: {...axis ? {axis} : {}, ...random.attributes({largest: flag(undefined, [0, 1, 0]),
    sorted: [undefined, int(1)]})}, outputs: ['float32', 'int64'],
  inputs: [random.floats('float32', shape), tensorOf('int64', [1], [random.int(1, extent)])]};
}

function cumSum(random) {
  const shape = shapeOf(random, 2);
  return {attributes: random.attributes({exclusive: flag(undefined, [0, 1, 1]), reverse: flag(undefined, [0, 1, 1])}),
    outputs: ['float32'], inputs: [random.floats('float32', shape), tensorOf('int32', [], [random.int(-2, 1)])]};
}

function slice(random) {
  const shape = [5, 4], count = random.int(1, 2);
  const list = (low, high) => ({...random.ints('int64', [count], low, high)});
  const axes = tensorOf('int64', [count], random.pick(count === 1 ? [[0], [-1], [1]] : [[0, 1], [-1, 0]]));
  const steps = tensorOf('int64', [count], Array.from({length: count}, () => random.pick([1, 2, -1, -2])));
  return {attributes: {}, outputs: ['float32'], inputs: [random.floats('float32', shape), list(-7, 7), list(-9, 9),
    axes, random.maybe(() => steps)]};
}

function pad(random) {
  const mode = random.pick([undefined, 'constant', 'reflect', 'edge', 'wrap']);
  const low = mode === undefined || mode === 'constant' ? -1 : 0;
  return {attributes: mode ? {mode: string(mode)} : {}, outputs: ['float32'],
    inputs: [random.floats('float32', [3, 4]), random.ints('int64', [4], low, 2),
      random.maybe(() => random.floats('float32', []))]};
}

function trilu(random) {
  return {attributes: random.attributes({upper: flag(undefined, [0, 1, 0])}), outputs: ['float32'],
    inputs: [random.floats('float32', [2, 4, 5]), random.maybe(() => random.ints('int64', [], -6, 6))]};
}

function oneHot(random) {
  return {attributes: random.attributes({axis: [undefined, int(-1), int(0), int(1), int(-2)]}), outputs: ['float32'],
    inputs: [random.ints('int64', [2, 3], -5, 5), tensorOf('int64', random.pick([[], [1]]), [4]), random.floats('float32', [2])]};
}

function mod(random) {
  const fmod = random.chance(0.5);
  const type = fmod ? 'float32' : random.pick(['int32', 'int64']);
  const divisors = [-3, -2, 2, 3];
  return {attributes: fmod ? {fmod: int(1)} : random.attributes({fmod: [undefined, int(0), int(1)]}), outputs: [type],
    inputs: [fmod ? random.floats(type, [6], -9, 9) : random.ints(type, [6], -9, 9),
      tensorOf(type, [6], Array.from({length: 6}, () => random.pick(divisors)))]};
}

function clip(random) {
  const type = random.floatType();
  const bound = () => random.floats(type, []);
  return {attributes: {}, outputs: [type], inputs: [random.floats(type, [3, 4]), random.maybe(bound), random.maybe(bound)]};
}

function flatten(random) {
  return {attributes: random.attributes({axis: [undefined, int(0), int(3), int(-1), int(-3)]}), outputs: ['float32'],
    inputs: [random.floats('float32', [2, 3, 4])]};
}

function shape(random) {
  return {attributes: random.attributes({start: [undefined, int(0), int(1), int(-2), int(9), int(-9)],
    end: [undefined, int(2), int(-1), int(9), int(-9)]}), outputs: ['int64'], inputs: [random.floats('float32', [2, 3, 4])]};
}

function reshape(random) {
  const target = random.pick([[4, 6], [-1, 6], [0, -1], [2, 12], [24], [0, 0, 4]]);
  return {attributes: random.attributes({allowzero: flag(undefined, [0])}), outputs: ['float32'],
    inputs: [random.floats('float32', [2, 3, 4]), tensorOf('int64', [target.length], target)]};
}

function split(random) {
  const parts = random.int(1, 3);
  const sizes = random.chance(0.5) ? [1, 2, 2].slice(0, parts - 1) : null;
  const rest = sizes && [...sizes, 6 - sizes.reduce((sum, one) => sum + one, 0)];
  return {attributes: {axis: int(random.pick([1, -1])), ...rest ? {} : {num_outputs: int(parts)}},
    outputs: Array.from({length: parts}, () => 'float32'),
    inputs: [random.floats('float32', [2, 6]), rest && tensorOf('int64', [parts], rest)]};
}

function cast(random) {
  const [from, to, code] = random.pick([['float32', 'int32', 6], ['float32', 'bool', 9], ['int64', 'float32', 1],
    ['float16', 'float32', 1], ['float32', 'float16', 10], ['int32', 'uint8', 2], ['bool', 'float16', 10]]);
  const data = from.startsWith('float') ? random.floats(from, [7], -50, 50)
    : random.ints(from, [7], from === 'bool' ? 0 : -9, from === 'bool' ? 1 : 9);
  return {attributes: {to: int(code), ...random.attributes({saturate: [undefined, int(1), int(0)]})},
    inputs: [data], outputs: [to]};
}

function einsum(random) {
  const [equation, a, b] = random.pick([['ij,jk->ik', [2, 3], [3, 4]], ['bhid,bhjd->bhij', [2, 2, 3, 4], [2, 2, 5, 4]],
    ['ij,ij->i', [3, 4], [3, 4]], ['...ij,jk->...ik', [2, 3, 4], [4, 2]], ['ii->i', [3, 3]], ['ij->ji', [2, 3]]]);
  return {attributes: {equation: string(equation)}, outputs: ['float32'],
    inputs: [random.floats('float32', a), ...b ? [random.floats('float32', b)] : []]};
}

const unary = (low, high) => (random) => {
  const type = random.floatType();
  return {attributes: {}, inputs: [random.floats(type, [3, 5], low, high)], outputs: [type]};
};

const reductions = Object.fromEntries(['Sum', 'Mean', 'Max', 'Min', 'Prod', 'L1', 'L2', 'SumSquare'].map((kind) =>
  [`Reduce${kind}`, {make: reduction, share: 0.3}]));
const unaries = Object.fromEntries(Object.entries({Erf: [-3, 3], Tanh: [-4, 4], Sigmoid: [-9, 9], Softplus: [-9, 9],
  Exp: [-5, 5], Sqrt: [0, 9], Round: [-4, 4], Sign: [-1, 1], Sin: [-7, 7], Cos: [-7, 7]}).map(([name, range]) =>
  [name, {make: unary(...range), share: 0.1}]));

module.exports = {domain: '', opset: 21, operators: {
  Gather: {make: gather, share: 0.5}, GatherElements: {make: gatherElements, share: 0.3},
  ScatterElements: {make: scatterElements, share: 0.4}, MatMul: {make: matMul, share: 0.4},
  Gemm: {make: gemm, share: 0.5}, ArgMax: {make: argument, share: 0.3}, ArgMin: {make: argument, share: 0.3},
  TopK: {make: topK, share: 0.3}, CumSum: {make: cumSum, share: 0.3}, Slice: {make: slice, share: 0.5},
  Pad: {make: pad, share: 0.4}, Trilu: {make: trilu, share: 0.3}, OneHot: {make: oneHot, share: 0.3},
  Mod: {make: mod, share: 0.3}, Clip: {make: clip, share: 0.3}, Flatten: {make: flatten, share: 0.2},
  Shape: {make: shape, share: 0.3}, Reshape: {make: reshape, share: 0.2}, Split: {make: split, share: 0.3},
  Cast: {make: cast, share: 0.3}, Einsum: {make: einsum, share: 0.2}, ...reductions, ...unaries,
}};
