// Tensors as records {type, dims, data}: their elements by index, and parts of them.
'use strict';
const {fromHalfBits} = require('../../examples/decode');
const {arrayOf} = require('./tensor_file');

// What rows that nobody wrote hold. Finite: engines multiply rows that are hidden by 0.
const poison = {float32: 333, float16: 0x5d35, int8: 77, uint8: 77};

const strides = (dims) => dims.map((_, axis) =>
  dims.slice(axis + 1).reduce((product, extent) => product * extent, 1));

const reader = ({type, data}) => type === 'float16' ? (i) => fromHalfBits(data[i])
  : data instanceof BigInt64Array ? (i) => Number(data[i]) : (i) => data[i];

/** Calls `visit` with every index within `dims`. */
function forEachIndex(dims, visit) {
  const count = dims.reduce((product, extent) => product * extent, 1);
  const index = dims.map(() => 0);
  for (let i = 0; i < count; ++i) {
    visit(index);
    for (let axis = dims.length - 1; axis >= 0 && ++index[axis] === dims[axis]; --axis) index[axis] = 0;
  }
}

/** The part of `tensor` with indices [first, first + count) on an axis. */
function slice(tensor, axis, first, count) {
  const dims = tensor.dims.slice();
  dims[axis] = count;
  const steps = strides(tensor.dims);
  const data = new arrayOf[tensor.type](dims.reduce((product, extent) => product * extent, 1));
  let next = 0;
  forEachIndex(dims, (index) => {
    data[next++] = tensor.data[index.reduce((sum, at, a) => sum + (a === axis ? at + first : at) * steps[a], 0)];
  });
  return {type: tensor.type, dims, data};
}

const toleranceOf = (tolerances, {type}) =>
  type === 'float16' ? Math.max(tolerances.float16, tolerances.float32) : tolerances.float32;

module.exports = {forEachIndex, poison, reader, slice, strides, toleranceOf};
