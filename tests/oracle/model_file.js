// Writes ONNX files of one node: what the operator oracle feeds both engines.
'use strict';

const elementTypes = {
  float32: 1, uint8: 2, int8: 3, uint16: 4, int16: 5, int32: 6, int64: 7, bool: 9, float16: 10,
  float64: 11, uint32: 12, uint64: 13, bfloat16: 16,
};
const arrays = {
  float32: Float32Array, uint8: Uint8Array, int8: Int8Array, uint16: Uint16Array,
  int16: Int16Array, int32: Int32Array, int64: BigInt64Array, bool: Uint8Array,
  float16: Uint16Array, float64: Float64Array, uint32: Uint32Array, uint64: BigUint64Array,
  bfloat16: Uint16Array,
};

function varint(value) {
  const bytes = [];
  let rest = BigInt.asUintN(64, BigInt(value));
  do {
    const byte = Number(rest & 127n);
    rest >>= 7n;
    bytes.push(rest ? byte | 128 : byte);
  } while (rest);
  return Buffer.from(bytes);
}
const integer = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) => {
  const data = Buffer.isBuffer(value) ? value : Buffer.from(value);
  return Buffer.concat([varint(field << 3 | 2), varint(data.length), data]);
};
const float = (field, value) => {
  const data = Buffer.alloc(4);
  data.writeFloatLE(value);
  return Buffer.concat([varint(field << 3 | 5), data]);
};

/** A TensorProto of {type, dims, data}. */
function tensorBytes(name, {type, dims, data}) {
  const raw = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  return Buffer.concat([...dims.map((extent) => integer(1, extent)),
    integer(2, elementTypes[type]), bytes(8, name), bytes(9, raw)]);
}

/** Attribute values: {int}, {float}, {string}, {ints}. */
function attributeBytes(name, value) {
  const parts = [bytes(1, name)];
  if ('float' in value) parts.push(float(2, value.float), integer(20, 1));
  else if ('int' in value) parts.push(integer(3, value.int), integer(20, 2));
  else if ('string' in value) parts.push(bytes(4, value.string), integer(20, 3));
  else if ('ints' in value) parts.push(...value.ints.map((one) => integer(8, one)), integer(20, 7));
  else throw new Error(`attribute ${name}: ${JSON.stringify(value)}`);
  return Buffer.concat(parts);
}

/** A ValueInfoProto; without `dims` the rank is unknown, null is an extent that is not known. */
function valueBytes(name, {type, dims}) {
  const shape = dims && bytes(2, Buffer.concat(dims.map((extent, axis) =>
    bytes(1, extent === null ? bytes(2, `${name}_${axis}`) : integer(1, extent)))));
  const tensor = Buffer.concat([integer(1, elementTypes[type]), ...shape ? [shape] : []]);
  return Buffer.concat([bytes(1, name), bytes(2, bytes(1, tensor))]);
}

/** A ModelProto with one node:
 *    {domain, op, opsets: {domain: version}, attributes: {name: value},
 *     inputs: [{name, tensor, constant} or null], outputs: [{name, type} or null]}
 *  Operands with `constant` are initializers, the others graph inputs of known extents. */
function modelBytes({domain, op, opsets, attributes, inputs, outputs}) {
  const named = (all) => all.map((one) => one ? one.name : '');
  const node = Buffer.concat([...named(inputs).map((name) => bytes(1, name)),
    ...named(outputs).map((name) => bytes(2, name)), bytes(3, 'node'), bytes(4, op),
    ...Object.entries(attributes).map(([name, value]) => bytes(5, attributeBytes(name, value))),
    ...domain ? [bytes(7, domain)] : []]);
  const present = inputs.filter(Boolean);
  const graph = Buffer.concat([bytes(1, node), bytes(2, 'graph'),
    ...present.filter(({constant}) => constant)
      .map(({name, tensor}) => bytes(5, tensorBytes(name, tensor))),
    ...present.filter(({constant}) => !constant)
      .map(({name, tensor}) => bytes(11, valueBytes(name, tensor))),
    ...outputs.filter(Boolean).map(({name, type}) => bytes(12, valueBytes(name, {type})))]);
  return Buffer.concat([integer(1, 10), bytes(7, graph),
    ...Object.entries(opsets).map(([name, version]) =>
      bytes(8, Buffer.concat([bytes(1, name), integer(2, version)])))]);
}

module.exports = {modelBytes, tensorBytes, arrays, elementTypes};
