// Random numbers, tensors and attributes, the same for the same seed.
'use strict';
const {arrays} = require('./model_file');

/** The float16 nearest to a number, as bits. */
function toHalf(value) {
  const float = new Float32Array([value]);
  const bits = new Uint32Array(float.buffer)[0];
  const sign = bits >>> 16 & 0x8000;
  const magnitude = Math.abs(float[0]);
  if (Number.isNaN(magnitude)) return 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  const exponent = Math.max(Math.floor(Math.log2(magnitude || 1e-30)), -14);
  const unit = 2 ** (exponent - 10);
  let steps = magnitude / unit;
  const rest = steps - Math.floor(steps);
  steps = Math.floor(steps) + (rest > 0.5 || (rest === 0.5 && Math.floor(steps) % 2 === 1) ? 1 : 0);
  return steps < 1024 ? sign | steps : sign | (exponent + 15 << 10) + steps - 1024;
}

const count = (dims) => dims.reduce((product, extent) => product * extent, 1);

class Random {
  constructor(seed) {
    this.state = seed >>> 0;
  }
  /** In [0, 1). */
  next() {
    this.state = this.state + 0x6d2b79f5 >>> 0;
    let mixed = this.state;
    mixed = Math.imul(mixed ^ mixed >>> 15, mixed | 1);
    mixed ^= mixed + Math.imul(mixed ^ mixed >>> 7, mixed | 61);
    return ((mixed ^ mixed >>> 14) >>> 0) / 4294967296;
  }
  /** In [low, high]. */
  int(low, high) {
    return low + Math.floor(this.next() * (high - low + 1));
  }
  pick(list) {
    return list[this.int(0, list.length - 1)];
  }
  chance(probability) {
    return this.next() < probability;
  }
  floatType() {
    return this.pick(['float32', 'float32', 'float16']);
  }
  /** Numbers of a floating-point type in [low, high). */
  floats(type, dims, low = -1, high = 1) {
    const data = new arrays[type](count(dims));
    for (let i = 0; i < data.length; ++i) {
      const value = low + this.next() * (high - low);
      data[i] = type === 'float16' ? toHalf(value) : value;
    }
    return {type, dims, data};
  }
  /** Integers in [low, high]. */
  ints(type, dims, low, high) {
    const wide = type.endsWith('int64');
    const data = new arrays[type](count(dims));
    for (let i = 0; i < data.length; ++i) {
      const value = this.int(low, high);
      data[i] = wide ? BigInt(value) : value;
    }
    return {type, dims, data};
  }
  /** A tensor or nothing. */
  maybe(tensor, probability = 0.5) {
    return this.chance(probability) ? tensor() : null;
  }
  /** Of every attribute one of the listed values, `undefined` for "absent"; the first of them twice
   *  as often as all the others together. */
  attributes(choices) {
    const chosen = {};
    for (const [name, values] of Object.entries(choices)) {
      const value = values.length === 1 || this.chance(0.65) ? values[0] : this.pick(values.slice(1));
      if (value !== undefined) chosen[name] = value;
    }
    return chosen;
  }
}

/** A tensor of the given numbers. */
function tensorOf(type, dims, values) {
  const wide = type.endsWith('int64');
  return {type, dims, data: arrays[type].from(values, (value) =>
    wide ? BigInt(value) : type === 'float16' ? toHalf(value) : value)};
}

const int = (value) => ({int: value});
const float = (value) => ({float: value});
const string = (value) => ({string: value});
const ints = (values) => ({ints: values});
/** The values of a flag that is on at 1, `usual` first; others are to be read as ONNX Runtime does. */
const flag = (usual, others = [0, 1, -1, 2]) =>
  [usual === undefined ? undefined : int(usual), undefined, ...others.map(int)];

module.exports = {Random, tensorOf, toHalf, int, float, string, ints, flag};
