// Reads recorded steps: an ONNX file whose initializers they are, or a folder of TensorProto files.
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

/** {name, type, dims, data} of a TensorProto; `place` is for errors. */
function parseTensor(bytes, place) {
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
  for (const [number, wire, value] of fields(bytes)) {
    if (number === 1) dims.push(...integers(wire, value).map(Number));
    else if (number === 2) type = Number(value);
    else if (number === 4) for (let at = 0; at < value.length; at += 4) listed.push(value.readFloatLE(at));
    else if (number === 5) listed.push(...integers(wire, value).map(Number));
    else if (number === 7) listed.push(...integers(wire, value));
    else if (number === 8) name = value.toString();
    else if (number === 9) raw = value;
  }
  if (!types[type]) throw new Error(`${place}: element type ${type} is not known`);
  const [typeName, Array] = types[type];
  const count = dims.reduce((product, extent) => product * extent, 1);
  const data = raw ? new Array(Uint8Array.from(raw).buffer) : Array.from(listed);
  if (data.length !== count) throw new Error(`${place}: ${data.length} elements of ${count}`);
  return {name, type: typeName, dims, data};
}

/** Name and bytes of every initializer in the bytes of an ONNX file. */
function initializersIn(bytes) {
  const member = (message, wanted) => [...fields(message)].filter(([number]) => number === wanted).map(([, , value]) => value);
  return member(bytes, 7).flatMap((graph) => member(graph, 5))
    .map((tensor) => ({name: member(tensor, 8).join(), bytes: tensor}));
}

/** Every tensor of a case, {step, kind, read}. */
function recordsOf(place) {
  if (!fs.statSync(place).isDirectory())
    return initializersIn(fs.readFileSync(place)).map(({name, bytes}) => {
      const found = /^(step\d+_q\d+)\/(input|output)\/(.+)$/s.exec(name);
      if (!found) throw new Error(`${place}: ${name} is not the name of a recorded tensor`);
      const [, step, kind, own] = found;
      return {step, kind, read: () => ({...parseTensor(bytes, place), name: own})};
    });
  return fs.readdirSync(place).filter((step) => /^step\d+_q\d+$/.test(step)).flatMap((step) =>
    fs.readdirSync(path.join(place, step)).filter((file) => /^(input|output)_\d+\.pb$/.test(file)).map((file) => {
      const whole = path.join(place, step, file);
      return {step, kind: file.split('_')[0], read: () => parseTensor(fs.readFileSync(whole), whole)};
    }));
}

/** The steps of a case, in order: {tokens, records}. */
function stepsOf(place) {
  const steps = {};
  for (const record of recordsOf(place)) {
    const [, index, tokens] = /^step(\d+)_q(\d+)$/.exec(record.step);
    (steps[Number(index)] ??= {tokens: Number(tokens), records: []}).records.push(record);
  }
  // Keys that are integers come in their order.
  const all = Object.values(steps);
  if (all.length === 0) throw new Error(`${place}: no recorded steps`);
  return all;
}

/** The number of tokens of each step of a case. */
const tokensOfSteps = (place) => stepsOf(place).map(({tokens}) => tokens);

/** The steps of a case, in order: {tokens, inputs, outputs}, the latter by tensor name. */
function readSteps(place) {
  return stepsOf(place).map(({tokens, records}) => {
    const step = {tokens, inputs: {}, outputs: {}};
    for (const {kind, read} of records) {
      const tensor = read();
      step[`${kind}s`][tensor.name] = tensor;
    }
    return step;
  });
}

module.exports = {readSteps, tokensOfSteps, initializersIn, fields, arrayOf};
