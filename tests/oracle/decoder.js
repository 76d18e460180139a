// Decoder: drives a model in ONNX Runtime step by step, as its manifest says and by nothing else.
//
// Caches that grow are handed from step to step. A cache whose past and present are one buffer is
// one array of the caller's, given as the input and as the place of the output. One in blocks is fed
// as the manifest lists them, and what the model computes is put behind the tokens of the last. Where
// a manifest has variants the smallest one takes a step that has rows for the tokens before it.
'use strict';
const path = require('path');
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

/** Writes rows [first, first + count) of `added` into `rows` from row `at` on, along `axis`. */
function overwrite(rows, added, axis, first, count, at) {
  const inner = sizeOf(rows.dims.slice(axis + 1));
  for (let outer = 0; outer < sizeOf(rows.dims.slice(0, axis)); ++outer) {
    const from = (outer * added.dims[axis] + first) * inner;
    rows.data.set(added.data.subarray(from, from + count * inner), (outer * rows.dims[axis] + at) * inner);
  }
}

/** The first `count` rows. */
function leading(rows, axis, count) {
  const none = new ort.Tensor(rows.type, new arrayOf[rows.type](0),
                              rows.dims.map((extent, at) => at === axis ? 0 : extent));
  return appended(none, rows, axis, 0, count);
}

class Decoder {
  /** `room` is how many tokens buffers of open capacity get. */
  static async open(model, manifest, {batch, room, options = {}}) {
    if (!['growing', 'shared-buffer', 'blocks'].includes(manifest.contract))
      throw new Error(`the contract '${manifest.contract}' is not one that is driven here`);
    const create = (file) => ort.InferenceSession.create(file, {logSeverityLevel: 2, ...options});
    const decoder = new Decoder(await create(model), manifest, batch, room);
    for (const {file, past_blocks: blocks, past_rows: rows} of manifest.variants ?? [])
      decoder.variants.push({blocks, rows, session: await create(path.join(path.dirname(model), file))});
    return decoder;
  }

  constructor(session, manifest, batch, room) {
    // `chosen`: the numbers of blocks of the variants that took a step.
    Object.assign(this, {session, manifest, batch, length: 0, variants: [], chosen: new Set()});
    this.capacity = manifest.capacity.value ?? room;
    this.caches = manifest.caches.filter((cache) => cache.kind !== 'cross');
    this.tensors = new Map();
    for (const cache of this.caches) {
      const dims = this.extents(cache.shape);
      const rows = cache.shape[cache.sequence_axis];
      const isOpen = typeof rows === 'string';
      if (cache.blocks) {
        cache.blocks.forEach((block, i) => {
          dims[cache.sequence_axis] = manifest.variants ? this.rowsOf(i) : 0;
          const data = new arrayOf[cache.dtype](sizeOf(dims)).fill(poison[cache.dtype] ?? 0);
          this.tensors.set(block, new ort.Tensor(cache.dtype, data, dims.slice()));
        });
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

  /** Rows of a block whose extent is fixed. */
  rowsOf(block) {
    const {block_size: size} = this.manifest;
    return Math.min(size, this.capacity - block * size);
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
      if (this.manifest.variants)
        overwrite(this.tensors.get(name), rows, cache.sequence_axis, done, count, at % size);
      else this.tensors.set(name, appended(this.tensors.get(name), rows, cache.sequence_axis, done, count));
      done += count;
    }
  }

  /** Runs `tokens` new tokens a row; `inputs` by name are {type, dims, data}. */
  async step(inputs, tokens) {
    if (this.length + tokens > this.capacity && this.caches.some((cache) => cache.one_buffer || cache.blocks))
      throw new Error(`${this.length + tokens} tokens do not fit into ${this.capacity} rows`);
    const variant = this.variants.find(({rows}) => rows >= this.length);
    const session = variant?.session ?? this.session;
    if (variant) this.chosen.add(variant.blocks);
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
      for (const name of cache.blocks?.slice(0, variant?.blocks) ?? [cache.past]) feeds[name] = this.tensors.get(name);
      if (cache.one_buffer) fetches[cache.present] = feeds[cache.past];
    }
    const results = await session.run(feeds, fetches);
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
    const {block_size: size, variants} = this.manifest;
    const rowsOf = (name, i) => !variants ? this.tensors.get(name)
      : leading(this.tensors.get(name), axis, Math.max(0, Math.min(size, this.length - i * size)));
    return blocks.map(rowsOf)
      .reduce((rows, block) => appended(rows, block, axis, 0, block.dims[axis]));
  }
}

module.exports = {Decoder, poison};
