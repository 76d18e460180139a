// TiledDecoder: runs a model that `kvopt rewrite --to tiles` cut into pieces, in ONNX Runtime for Node.js:
// one part after another, and between them a loop over the blocks of caches that hold tokens. It has what
// decode.js asks of an inference session.
'use strict';
const path = require('path');
const ort = require('onnxruntime-node');

/** Columns [first, end) of a tensor's last axis. */
function columns(tensor, first, end) {
  const width = tensor.dims[tensor.dims.length - 1];
  const rows = tensor.data.length / width;
  const data = new tensor.data.constructor(rows * (end - first));
  for (let row = 0; row < rows; ++row)
    data.set(tensor.data.subarray(row * width + first, row * width + end), row * (end - first));
  return new ort.Tensor(tensor.type, data, [...tensor.dims.slice(0, -1), end - first]);
}

/** What a session takes of tensors by name. */
const takenBy = (session, tensors) =>
  Object.fromEntries(session.inputNames.filter((name) => tensors[name]).map((name) => [name, tensors[name]]));

class TiledDecoder {
  static async open(model, options, manifest) {
    const create = (file) => ort.InferenceSession.create(path.join(path.dirname(model), file), options);
    const decoder = new TiledDecoder();
    decoder.manifest = manifest;
    decoder.parts = await Promise.all(manifest.tiles.parts.map(create));
    decoder.tiles = await Promise.all(manifest.tiles.tiles.map(create));
    decoder.caches = new Map(manifest.caches.map((cache) => [cache.past, cache]));
    return decoder;
  }

  get outputNames() {
    return this.manifest.tiles.outputs;
  }

  /** Of the inputs that no piece gives. */
  get inputMetadata() {
    const {attentions} = this.manifest.tiles;
    const given = new Set([...this.parts.flatMap((part) => part.outputNames), ...attentions.map(({result}) => result)]);
    const inputs = new Map();
    for (const part of this.parts)
      for (const input of part.inputMetadata)
        if (!given.has(input.name)) inputs.set(input.name, input);
    return [...inputs.values()];
  }

  /** The result of one attention over `past` tokens in blocks and the new ones. */
  async attend(attention, values, past) {
    const {block_size: size, capacity: {value: capacity}} = this.manifest;
    const mask = values[attention.mask];
    const run = async (tile, key, value, first, end, state) => {
      const session = this.tiles[tile];
      const inputs = {...state, query: values[attention.query], key, value, mask: columns(mask, first, end)};
      const {next_output: output, next_maximum: maximum, next_sum: sum} = await session.run(takenBy(session, inputs));
      return {output, maximum, sum};
    };
    let state = {output: values[attention.output], maximum: values[attention.maximum], sum: values[attention.sum]};
    for (let first = 0; first < past; first += size) {
      const block = (cache) => values[this.caches.get(cache).blocks[first / size]];
      const end = Math.min(first + size, capacity);
      const tile = end - first < size ? attention.tail_tile : attention.block_tile;
      state = await run(tile, block(attention.key_cache), block(attention.value_cache), first, end, state);
    }
    state = await run(attention.last_tile, values[attention.key], values[attention.value], capacity,
                      mask.dims[mask.dims.length - 1], state);
    return state.output;
  }

  /** Runs a step on all inputs of the model, the blocks of its caches included, after `past` tokens. */
  async run(inputs, past) {
    const values = {...inputs};
    for (const [index, part] of this.parts.entries()) {
      Object.assign(values, await part.run(takenBy(part, values)));
      for (const attention of this.manifest.tiles.attentions)
        if (attention.after_part === index) values[attention.result] = await this.attend(attention, values, past);
    }
    return Object.fromEntries(this.outputNames.map((name) => [name, values[name]]));
  }

  async release() {
    for (const session of [...this.parts, ...this.tiles]) await session.release();
  }
}

module.exports = {TiledDecoder};
