// Decoder: drives a model in ONNX Runtime step by step, as its manifest says and by nothing else.
//
// Caches that grow are handed from step to step. A cache whose past and present are one buffer is
// one array of the caller's, given as the input and as the place of the output. One in blocks is fed
// as the manifest lists them, and what the model computes is put behind the tokens of the last.
'use strict';
const ort = require('onnxruntime-node');
const {arrayOf} = require('./tensor_file');

// What rows that nobody wrote hold. Finite: engines multiply rows that are hidden by 0.
const poison = {float32: 333, float16: 0x5d35, int8: 77, uint8: 77};

const sizeOf = (dims) => dims.reduce((product, extent) => product * extent, 1);

/** Rows [first, first + count) of `added` behind those of `rows`, along `axis`. */
function appended(rows, added, axis, first, count) {
  const dims = rows.dims.slice();
  dims[axis] += count;
  const inner = sizeOf(dims.slice(axis + 1));
  const data = new arrayOf[rows.type](sizeOf(dims));
  for (let outer = 0; outer < sizeOf(dims.slice(0, axis)); ++outer) {
    const part = (tensor, from, end) =>
      tensor.data.subarray((outer * tensor.dims[axis] + from) * inner, (outer * tensor.dims[axis] + end) * inner);
    data.set(part(rows, 0, rows.dims[axis]), outer * dims[axis] * inner);
    data.set(part(added, first, first + count), (outer * dims[axis] + rows.dims[axis]) * inner);
  }
  return new ort.Tensor(rows.type, data, dims);
}

class Decoder {
  /** `room` is how many tokens buffers of open capacity get. */
  static async open(model, manifest, {batch, room, options = {}}) {
    if (!['growing', 'shared-buffer', 'blocks'].includes(manifest.contract))
      throw new Error(`the contract '${manifest.contract}' is not one that is driven here`);
    const session = await ort.InferenceSession.create(model, {logSeverityLevel: 2, ...options});
    return new Decoder(session, manifest, batch, room);
  }

  constructor(session, manifest, batch, room) {
    Object.assign(this, {session, manifest, batch, length: 0});
    this.capacity = manifest.capacity.value ?? room;
    this.caches = manifest.caches.filter((cache) => cache.kind !== 'cross');
    this.tensors = new Map();
    for (const cache of this.caches) {
      const dims = this.extents(cache.shape);
      const rows = cache.shape[cache.sequence_axis];
      const isOpen = typeof rows === 'string';
      if (cache.blocks) {
        dims[cache.sequence_axis] = 0;
        for (const block of cache.blocks)
          this.tensors.set(block, new ort.Tensor(cache.dtype, new arrayOf[cache.dtype](0), dims));
        continue;
      }
      if (cache.one_buffer) dims[cache.sequence_axis] = this.capacity;
      else if (isOpen) dims[cache.sequence_axis] = cache.policy === 'static' ? room : 0;
      else if (cache.policy === 'fixed') dims[cache.sequence_axis] = 0;
      const data = new arrayOf[cache.dtype](sizeOf(dims));
      if (cache.one_buffer) data.fill(poison[cache.dtype] ?? 0);
      this.tensors.set(cache.past, new ort.Tensor(cache.dtype, data, dims));
    }
  }

  /** Symbols other than those of rows stand for the batch, alone or with a factor. */
  extents(shape) {
    return shape.map((extent) => {
      if (typeof extent === 'number') return extent;
      const factors = extent.split('*').map((factor) => factor.trim());
      return factors.reduce((product, factor) =>
        product * (/^\d+$/.test(factor) ? Number(factor) : this.batch), 1);
    });
  }

  /** Inputs that the caller gives. */
  get callerInputs() {
    const own = new Set([...this.caches.flatMap((cache) => cache.blocks ?? [cache.past]),
                         ...this.manifest.lengths.map((length) => length.input)]);
    return this.session.inputNames.filter((name) => !own.has(name));
  }

  lengthTensor(length, tokens) {
    const past = this.length;
    const value = {
      past_length: past, past_length_per_batch: past,
      total_length: past + tokens, total_length_per_batch: past + tokens,
      total_length_minus_one: past + tokens - 1,
      total_length_per_batch_minus_one: past + tokens - 1,
      has_past: Number(past > 0), no_past: Number(past === 0),
    }[length.feed];
    if (value === undefined) throw new Error(`'${length.feed}' is not known`);
    const dims = this.extents(length.shape);
    const data = new arrayOf[length.dtype](sizeOf(dims));
    data.fill(data instanceof BigInt64Array ? BigInt(value) : value);
    return new ort.Tensor(length.dtype, data, dims);
  }

  /** Puts the rows of `tokens` new tokens into the blocks of a cache. */
  append(cache, rows, tokens) {
    const {block_size: size} = this.manifest;
    for (let done = 0; done < tokens;) {
      const at = this.length + done;
      const name = cache.blocks[Math.floor(at / size)];
      const count = Math.min(size - at % size, tokens - done);
      this.tensors.set(name, appended(this.tensors.get(name), rows, cache.sequence_axis, done, count));
      done += count;
    }
  }

  /** Runs `tokens` new tokens a row; `inputs` by name are {type, dims, data}. */
  async step(inputs, tokens) {
    if (this.length + tokens > this.capacity && this.caches.some((cache) => cache.one_buffer || cache.blocks))
      throw new Error(`${this.length + tokens} tokens do not fit into ${this.capacity} rows`);
    const feeds = {};
    for (const name of this.callerInputs) {
      const given = inputs[name];
      if (!given) throw new Error(`nothing is recorded for input '${name}'`);
      feeds[name] = new ort.Tensor(given.type, given.data, given.dims);
    }
    for (const length of this.manifest.lengths)
      feeds[length.input] = this.lengthTensor(length, tokens);
    const fetches = Object.fromEntries(this.session.outputNames.map((name) => [name, null]));
    for (const cache of this.caches) {
      for (const name of cache.blocks ?? [cache.past]) feeds[name] = this.tensors.get(name);
      if (cache.one_buffer) fetches[cache.present] = feeds[cache.past];
    }
    const results = await this.session.run(feeds, fetches);
    for (const cache of this.caches) {
      if (cache.blocks) this.append(cache, results[cache.present], tokens);
      else if (!cache.one_buffer) this.tensors.set(cache.past, results[cache.present]);
      delete results[cache.present];
    }
    this.length += tokens;
    return results;
  }

  /** {type, dims, data} of a cache's whole memory: of one buffer, the array that was given; of
   *  blocks, their rows one after the other. */
  cache(past) {
    const {blocks, sequence_axis: axis} = this.caches.find((cache) => cache.past === past);
    if (!blocks) return this.tensors.get(past);
    return blocks.map((name) => this.tensors.get(name))
      .reduce((rows, block) => appended(rows, block, axis, 0, block.dims[axis]));
  }
}

module.exports = {Decoder, poison};
