// Reads ONNX TensorProto files: the recorded inputs and outputs of reference folders.
'use strict';
const fs = require('fs');
const path = require('path');

const types = {
  1: ['float32', Float32Array], 2: ['uint8', Uint8Array], 3: ['int8', Int8Array],
  6: ['int32', Int32Array], 7: ['int64', BigInt64Array], 9: ['bool', Uint8Array],
  10: ['float16', globalThis.Float16Array ?? Uint16Array], 11: ['float64', Float64Array],
  16: ['bfloat16', Uint16Array],
};
const arrayOf = Object.fromEntries(Object.values(types));

/** Fields of a message: [number, wire type, value]; a value is a BigInt or the bytes it takes. */
function* fields(bytes) {
  let at = 0;
  const varint = () => {
    let value = 0n;
    for (let shift = 0n;; shift += 7n) {
      if (at >= bytes.length || shift > 63n) throw new Error('the file is damaged');
      const byte = bytes[at++];
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asIntN(64, value);
    }
  };
  while (at < bytes.length) {
    const tag = Number(varint());
    const wire = tag & 7;
    if (wire === 0) {
      yield [tag >> 3, wire, varint()];
      continue;
    }
    const length = wire === 2 ? Number(varint()) : wire === 5 ? 4 : wire === 1 ? 8 : NaN;
    if (!(at + length <= bytes.length)) throw new Error('the file is damaged');
    yield [tag >> 3, wire, bytes.subarray(at, at += length)];
  }
}

/** {name, type, dims, data} of a file that holds one tensor. */
function readTensor(file) {
  const dims = [];
  const listed = [];
  let name = '', type = 0, raw = null;
  const integers = (wire, value) => {
    if (wire === 0) return [value];
    const all = [];
    // A packed list is a run of varints: those of a message with one field each.
    for (let at = 0; at < value.length;) {
      let end = at;
      while (value[end] > 127) ++end;
      all.push([...fields(Buffer.concat([Buffer.from([8]), value.subarray(at, ++end)]))][0][2]);
      at = end;
    }
    return all;
  };
  for (const [number, wire, value] of fields(fs.readFileSync(file))) {
    if (number === 1) dims.push(...integers(wire, value).map(Number));
    else if (number === 2) type = Number(value);
    else if (number === 4) for (let at = 0; at < value.length; at += 4) listed.push(value.readFloatLE(at));
    else if (number === 5) listed.push(...integers(wire, value).map(Number));
    else if (number === 7) listed.push(...integers(wire, value));
    else if (number === 8) name = value.toString();
    else if (number === 9) raw = value;
  }
  if (!types[type]) throw new Error(`${file}: element type ${type} is not known`);
  const [typeName, Array] = types[type];
  const count = dims.reduce((product, extent) => product * extent, 1);
  const data = raw ? new Array(Uint8Array.from(raw).buffer) : Array.from(listed);
  if (data.length !== count) throw new Error(`${file}: ${data.length} elements of ${count}`);
  return {name, type: typeName, dims, data};
}

/** The steps of one case, in order: {tokens, inputs, outputs}, the latter by tensor name. */
function readSteps(folder) {
  const steps = fs.readdirSync(folder).map((name) => /^step(\d+)_q(\d+)$/.exec(name))
    .filter(Boolean).sort((a, b) => a[1] - b[1]);
  if (steps.length === 0) throw new Error(`${folder}: no step<k>_q<n> folders`);
  return steps.map((match) => {
    const step = {tokens: Number(match[2]), inputs: {}, outputs: {}};
    for (const file of fs.readdirSync(path.join(folder, match[0]))) {
      const tensor = /^(input|output)_\d+\.pb$/.exec(file);
      if (!tensor) continue;
      const read = readTensor(path.join(folder, match[0], file));
      step[tensor[1] + 's'][read.name] = read;
    }
    return step;
  });
}

module.exports = {readSteps, readTensor, arrayOf};
