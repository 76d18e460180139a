// Decodes with a model that `kvopt rewrite` wrote for any target, in ONNX Runtime for Node.js: takes
// the token with the largest score, over and over. onnx_decoder.js drives the model.
//
//   npm install onnxruntime-node
//   node decode.js MODEL.onnx 1,2,3 8 [--input NAME=FILE …]     prompt, number of tokens to make
//
// An input that is neither of tokens nor of positions nor a mask of padding (what an encoder computed,
// for example) is read from a file of its elements, as they are in memory, for a batch of one.
'use strict';
// One line for every error, a missing onnxruntime-node included.
process.on('uncaughtException', ({message}) => {
  console.error(`decode.js: ${message.split('\n')[0]}`);
  process.exit(1);
});
const fs = require('fs');
const ort = require('onnxruntime-node');
const {Decoder, arrays, bestToken, sizeOf} = require('./onnx_decoder');

const usage = 'usage: node decode.js MODEL.onnx TOKEN,TOKEN,… COUNT [--input NAME=FILE …]';

function parse(given) {
  const files = [];
  const positional = [];
  for (let i = 0; i < given.length; ++i) {
    if (given[i] !== '--input') positional.push(given[i]);
    else if (/.=./.test(given[i + 1] ?? '')) files.push(given[++i].split(/=(.*)/s));
    else throw new Error(usage);
  }
  const [model, prompt = '', count = ''] = positional;
  if (positional.length !== 3 || !/^\d+(,\d+)*$/.test(prompt) || !/^\d+$/.test(count)) throw new Error(usage);
  return {model, prompt: prompt.split(',').map(Number), count: Number(count), files};
}

/** The tensor in a file. The model says its type and all extents but the batch's, 1, and one more. */
function readInput(decoder, name, file) {
  const input = decoder.givenInputs.find((each) => each.name === name);
  if (!input) throw new Error(`the model has no input '${name}' to be given`);
  if (!arrays[input.type]) throw new Error(`input '${name}' is ${input.type}, which onnxruntime-node has no tensors of`);
  const data = new arrays[input.type](Uint8Array.from(fs.readFileSync(file)).buffer);
  const dims = input.shape.map((extent, axis) => typeof extent === 'number' ? extent : axis === 0 ? 1 : null);
  const rest = data.length / sizeOf(dims.filter((extent) => extent !== null));
  const open = dims.indexOf(null);
  if (open >= 0) dims[open] = rest;
  if (dims.includes(null) || !dims.every(Number.isInteger) || sizeOf(dims) !== data.length)
    throw new Error(`${file} holds ${data.length} elements, which input '${name}' [${input.shape}] cannot have`);
  return new ort.Tensor(input.type, data, dims);
}

async function main(args) {
  const {model, prompt, count, files} = parse(args);
  const decoder = await Decoder.open(model, {logSeverityLevel: 4});
  const given = Object.fromEntries(files.map(([name, file]) => [name, readInput(decoder, name, file)]));
  decoder.begin({room: prompt.length + count});
  const made = [];
  for (let next = prompt; made.length < count; next = made.slice(-1))
    made.push(bestToken(await decoder.feed([next], given)));
  console.log(made.join(','));
}

main(process.argv.slice(2));
