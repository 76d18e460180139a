// Decodes greedily with a model that `kvopt rewrite` wrote, in ONNX Runtime for Node.js. The file works on its own;
// what `--to tiles` writes also needs tiled_decoder.js.
//
//   npm install onnxruntime-node
//   node decode.js MODEL.onnx 1,2,3 8 [--input NAME=FILE …]     prompt, number of tokens to generate
//
// onnxruntime-node copies every output after a run, caches in one buffer included: decode in Python, C or C++ where speed
// counts. An input that an encoder computed is read from a file of its elements, as they are in memory, for a batch of one.
//
// As a module it exports Decoder, which drives a model step by step. Caches and lengths follow the manifest next to the
// model; types and extents of other inputs come from the model. A cache that grows is handed from step to step. A cache in
// one buffer is one array, given as the input and as the place of the output. A cache in blocks is fed as the manifest lists
// its blocks, and new rows are added to the last one. If a manifest has an input that reorders batch rows, caches are
// rearranged before a step. If it has variants, the smallest one with room for the tokens so far takes the step. If it has
// tiles, the model's pieces do. A model without caches gets the whole sequence with every step.
'use strict';
const fs = require('fs');
const path = require('path');
const ort = engine();

/** onnxruntime-node, or one line that says how to get it. */
function engine() {
  try {
    return require('onnxruntime-node');
  } catch (error) {
    if (require.main !== module) throw error;
    console.error(`decode.js: ${error.message.split('\n')[0]}: npm install onnxruntime-node`);
    process.exit(1);
  }
}

/** The arrays that hold each element type. A float16 array holds bits where JavaScript has none. */
const arrays = {
  float32: Float32Array, float64: Float64Array, int8: Int8Array, uint8: Uint8Array, bool: Uint8Array,
  int32: Int32Array, int64: BigInt64Array, float16: globalThis.Float16Array ?? Uint16Array,
};

const sizeOf = (dims) => dims.reduce((product, extent) => product * extent, 1);

/** An array of zeros. `what` is what needs it, for the error. */
function arrayFor(type, count, what) {
  if (!arrays[type]) throw new Error(`${what} is ${type}, which onnxruntime-node has no tensors of`);
  return new arrays[type](count);
}

/** The bits of a number as a float16. */
function halfBits(number) {
  if (number < 0) return 0x8000 | halfBits(-number);
  if (number < 2 ** -14) return Math.round(number * 2 ** 24);
  const exponent = Math.floor(Math.log2(number));
  return Math.min(((exponent + 15) << 10) + Math.round((number / 2 ** exponent - 1) * 1024), 0x7c00);
}

/** The value of a float16's bits. */
function fromHalfBits(bits) {
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  const sign = bits & 0x8000 ? -1 : 1;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
}

/** A tensor with the numbers valueAt(0), valueAt(1), … in the model's element type. */
function tensorOf({name, type}, dims, valueAt) {
  const data = arrayFor(type, sizeOf(dims), `input '${name}'`);
  const stored = data instanceof BigInt64Array ? BigInt : data instanceof Uint16Array ? halfBits : Number;
  for (let i = 0; i < data.length; ++i) {
    const value = valueAt(i);
    data[i] = stored(value);
    if (data instanceof Int32Array && data[i] !== value) throw new Refusal(`${value} does not fit in int32, the type of '${name}'`);
  }
  return new ort.Tensor(type, data, dims);
}

/** The token with the largest score after the last token of a batch row. */
function bestToken(scores, row = 0) {
  const [, tokens, width] = scores.dims;
  const first = ((row + 1) * tokens - 1) * width;
  const numberAt = scores.data instanceof Uint16Array ? (i) => fromHalfBits(scores.data[i]) : (i) => scores.data[i];
  let best = 0;
  for (let token = 0; token < width; ++token) {
    const score = numberAt(first + token);
    if (Number.isNaN(score)) throw new Error(`the score of token ${token} is not a number`);
    if (score > numberAt(first + best)) best = token;
  }
  return best;
}

/** `rows` with rows [first, first + count) of `added` behind them, along `axis`. */
function appended(rows, added, axis, first, count) {
  const dims = rows.dims.slice();
  dims[axis] += count;
  const inner = sizeOf(dims.slice(axis + 1));
  const data = new arrays[rows.type](sizeOf(dims));
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

/** The manifest that `kvopt rewrite` writes beside a model. */
function readManifest(model) {
  const file = model.replace(/(\.onnx)?$/, '.kv.json');
  if (!fs.existsSync(file)) throw new Error(`${file} does not exist: kvopt rewrite writes it beside the model`);
  const manifest = JSON.parse(fs.readFileSync(file));
  if (manifest.schema !== 'kvopt/manifest/1') throw new Error(`${file} has the schema '${manifest.schema}'`);
  if (!['growing', 'shared-buffer', 'blocks'].includes(manifest.contract))
    throw new Error(`${file}: models of the contract '${manifest.contract}' run in kvopt's runtime only`);
  return manifest;
}

/** Whether a cache is one buffer with room for more rows than there are tokens. Caches that are static or rings are
 *  of their own extents and read whole, whether past and present are one buffer or not. */
const hasSpareRows = (cache) => cache.one_buffer && !['static', 'ring'].includes(cache.policy);

/** What a manifest says that a model does not take. */
class Refusal extends Error {}

/** Whether padding of a mask [batch, columns] is where a manifest has it: nowhere (`none`), before the tokens (`left`), or
 *  after the tokens of a prompt, which is one step from empty caches (`right`). `count` columns end at `end` and are new; `hidden` is the value of a
 *  position that is padding. */
function isPaddedOn(side, {dims: [batch, columns], data}, end, count, hidden) {
  const isVisible = (row, column) => Number(data[row * columns + column]) !== hidden;
  for (let row = 0; row < batch; ++row) {
    for (let column = side === 'right' ? end - count : 0; column < end; ++column) {
      if (isVisible(row, column)) continue;
      if (side === 'left' && (column === 0 || !isVisible(row, column - 1))) continue;
      if (side !== 'right' || end > count || column === 0) return false;
      if (column + 1 < end && isVisible(row, column + 1)) return false;
    }
  }
  return true;
}

class Decoder {
  /** Opens a model. `options` are those of an inference session. */
  static async open(model, options = {}, manifest = readManifest(model)) {
    const create = (file) => ort.InferenceSession.create(file, options);
    const decoder = new Decoder();
    const session = manifest.tiles ? await require('./tiled_decoder').TiledDecoder.open(model, options, manifest)
      : await create(model);
    Object.assign(decoder, {manifest, session, variants: []});
    // What is computed once for an encoded sequence is a model of its own.
    if (manifest.first_step) decoder.first = await create(path.join(path.dirname(model), manifest.first_step));
    for (const {file, past_blocks: blocks, past_rows: rows} of manifest.tiles ? [] : manifest.variants ?? [])
      decoder.variants.push({blocks, rows, session: await create(path.join(path.dirname(model), file))});
    decoder.caches = manifest.caches.filter((cache) => cache.kind !== 'cross');
    const own = new Set([...decoder.caches.flatMap((cache) => cache.blocks ?? [cache.past]),
                         ...manifest.lengths.map((length) => length.input)]);
    decoder.ordinaryInputs = decoder.session.inputMetadata.filter(({name}) => !own.has(name));
    decoder.described = new Map((manifest.inputs ?? []).map((input) => [input.input, input]));
    decoder.begin({});
    return decoder;
  }

  /**
   * Starts a new sequence: empties all caches. `room` is how many tokens buffers of open capacity get.
   * `fillFor(type)` gives what rows hold that no token wrote; any finite number will do.
   */
  begin({batch = 1, room = 0, fillFor = () => 0}) {
    // `chosen`: the numbers of blocks of the variants that took a step.
    Object.assign(this, {batch, length: 0, history: [], chosen: new Set(), tensors: new Map(), encoded: null});
    this.capacity = this.manifest.capacity.value ?? room;
    for (const cache of this.caches) {
      const make = (name, rows) => {
        const dims = this.extents(cache.shape);
        if (rows !== null) dims[cache.sequence_axis] = rows;
        const data = arrayFor(cache.dtype, sizeOf(dims), `cache '${cache.past}'`);
        // Other pasts are read as they are.
        if (cache.blocks || hasSpareRows(cache)) data.fill(fillFor(cache.dtype));
        const stored = data instanceof BigInt64Array ? BigInt : Number;
        if (cache.initial) data.forEach((_, i) => { data[i] = stored(cache.initial[i % cache.initial.length]); });
        this.tensors.set(name, new ort.Tensor(cache.dtype, data, dims));
      };
      const isOpen = typeof cache.shape[cache.sequence_axis] === 'string';
      if (cache.blocks) cache.blocks.forEach((block, i) => make(block, this.manifest.variants ? this.rowsOf(i) : 0));
      else if (hasSpareRows(cache)) make(cache.past, this.capacity);
      else if (cache.policy === 'state' || !isOpen) make(cache.past, null);
      else make(cache.past, cache.policy === 'static' ? room : 0);
    }
  }

  /** Rows of a block whose extent is fixed. */
  rowsOf(block) {
    const {block_size: size} = this.manifest;
    return Math.min(size, this.capacity - block * size);
  }

  /** Symbols other than those of rows stand for the batch, alone or with a factor: `2*batch_size`. */
  extents(shape) {
    return shape.map((extent) => typeof extent === 'number' ? extent
      : extent.split('*').reduce((product, factor) =>
        product * (/^\s*\d+\s*$/.test(factor) ? Number(factor) : this.batch), 1));
  }

  lengthTensor({input, dtype, shape, feed}, tokens) {
    const past = this.length;
    const value = {
      past_length: past, past_length_per_batch: past,
      total_length: past + tokens, total_length_per_batch: past + tokens,
      total_length_minus_one: past + tokens - 1, total_length_per_batch_minus_one: past + tokens - 1,
      past_length_minus_one: past - 1, past_length_per_batch_minus_one: past - 1,
      new_length: tokens, has_past: Number(past > 0), no_past: Number(past === 0),
    }[feed];
    if (value === undefined) throw new Error(`the manifest feeds '${feed}' to '${input}', which is not known here`);
    return tensorOf({name: input, type: dtype}, this.extents(shape), () => value);
  }

  /** Extents of encoder tokens, from whatever the caller gives that has them. */
  encoderTokens(given) {
    if (given.encoder_hidden_states) return given.encoder_hidden_states.dims[1];
    const cross = this.manifest.caches.find((cache) => cache.kind === 'cross' && given[cache.past]);
    return cross && given[cross.past].dims[cross.sequence_axis];
  }

  /** A value for an input whose contents the manifest describes; undefined for others. */
  describedTensor(input, tokens) {
    const entry = this.described.get(input.name);
    const lowest = {float32: -3.4028234663852886e38, float64: -3.4028234663852886e38}[input.type];
    if (!entry || (entry.feed.startsWith('additive_mask') && !lowest)) return undefined;
    const count = tokens[0].length;
    const total = this.length + count;
    const words = {batch: this.batch, new: count, past: this.length, total};
    const dims = entry.shape.map((extent) => words[extent] ?? extent);
    const columns = dims.at(-1) ?? 1;
    const first = entry.feed.endsWith('_at_end') ? total - columns : entry.shape.at(-1) === 'new' ? this.length : 0;
    const hasQueries = dims.length >= 3 && dims.at(-2) === count;
    const sees = (i) => {
      const key = first + i % columns;
      const last = hasQueries ? this.length + Math.floor(i / columns) % count : total - 1;
      return key >= 0 && key <= last;
    };
    const fixed = this.caches.filter(({policy}) => policy === 'static' || policy === 'ring');
    const rows = Math.min(...fixed.map((cache) => this.tensors.get(cache.past).dims[cache.sequence_axis]));
    const numberAt = {
      token_ids: (i) => tokens[Math.floor(i / count) % this.batch][i % count],
      position_ids: (i) => entry.shape.at(-1) === 'total' ? i % columns : this.length + i % count,
      segment_ids: () => 0, // a text is one segment
      constant: (i) => entry.numbers[i % entry.numbers.length],
      slot_ids: (i) => (this.length + i % count) % rows,
      key_positions: (i) => {
        const row = i % columns;
        return row < total ? row + Math.floor((total - 1 - row) / columns) * columns : -1;
      },
      batch_rows: (i) => i,
      visible_keys: (i) => Number(sees(i)),
      hidden_keys: (i) => Number(!sees(i)),
      additive_mask: (i) => (sees(i) ? 0 : lowest),
    }[entry.feed.replace('_at_end', '')];
    return numberAt && tensorOf(input, dims, numberAt);
  }

  /**
   * A value for an ordinary input that the manifest describes, or that exporters commonly give decoders; undefined for
   * others. `tokens` are the new ones of each batch row; none of the sequence is padding.
   */
  made(input, tokens, given) {
    const own = this.describedTensor(input, tokens);
    if (own) return own;
    const {name, shape} = input;
    const count = tokens[0].length;
    const total = this.length + count;
    const described = this.described.get(name);
    if (described) return this.fed(input, described, tokens);
    switch (name) {
      case 'input_ids':
      case 'decoder_input_ids':
        return this.fed(input, {feed: 'token_ids', shape: ['batch', 'new']}, tokens);
      case 'attention_mask':
        if (shape.length !== 2) return undefined;
        return this.fed(input, {feed: 'visible_keys',
                                shape: ['batch', typeof shape[1] === 'number' ? shape[1] : 'total']}, tokens);
      case 'position_ids':
      case 'cache_position':
        return this.fed(input, {feed: 'position_ids', shape: shape.length === 1 ? ['new'] : ['batch', 'new']}, tokens);
      case 'encoder_attention_mask': {
        const columns = this.encoderTokens(given);
        return columns && tensorOf(input, [this.batch, columns], () => 1);
      }
      default:
        return undefined;
    }
  }

  /** A value for an input that the manifest, or its name, describes; undefined if this does not suffice. No row of the
   *  sequence is padding. */
  fed(input, {feed, shape}, tokens) {
    const count = tokens[0].length;
    const total = this.length + count;
    const known = {batch: this.batch, new: count, past: this.length, total};
    const dims = shape.map((extent) => typeof extent === 'number' ? extent : known[extent]);
    if (dims.includes(undefined)) return undefined;
    const rank = dims.length;
    const columns = dims[rank - 1];
    const first = shape[rank - 1] === 'new' ? this.length : 0;
    // Query i of a mask with an axis of queries sees keys up to its own position.
    const hasQueries = rank >= 2 && (shape[rank - 2] === 'new' || (rank >= 3 && dims[rank - 2] === count));
    const sees = (i) => {
      const key = first + i % columns;
      return key < total && (!hasQueries || key <= this.length + Math.floor(i / columns) % dims[rank - 2]);
    };
    const lowest = input.type === 'float16' ? -65504 : -3.4028234663852886e38;
    const batchRow = (i) => shape[0] === 'batch' ? Math.floor(i * this.batch / sizeOf(dims)) : 0;
    const value = {
      token_ids: (i) => tokens[batchRow(i)][i % count],
      position_ids: (i) => this.length + i % count,
      visible_keys: (i) => Number(sees(i)),
      hidden_keys: (i) => Number(!sees(i)),
      additive_mask: (i) => sees(i) ? 0 : lowest,
      batch_rows: (i) => i % columns,
    }[feed];
    if (!value || (/_ids$/.test(feed) && shape[rank - 1] !== 'new' && columns !== count)) return undefined;
    return tensorOf(input, dims, value);
  }

  /** Adds the rows of `count` new tokens to the blocks of a cache. */
  append(cache, rows, count) {
    const {block_size: size} = this.manifest;
    for (let done = 0; done < count;) {
      const at = this.length + done;
      const name = cache.blocks[Math.floor(at / size)];
      const part = Math.min(size - at % size, count - done);
      if (this.manifest.variants)
        overwrite(this.tensors.get(name), rows, cache.sequence_axis, done, part, at % size);
      else this.tensors.set(name, appended(this.tensors.get(name), rows, cache.sequence_axis, done, part));
      done += part;
    }
  }

  checkRoom(count) {
    for (const cache of this.caches) {
      const rows = hasSpareRows(cache) || cache.blocks ? this.capacity
        : cache.policy === 'static' ? this.tensors.get(cache.past).dims[cache.sequence_axis] : Infinity;
      if (this.length + count > rows)
        throw new Error(`${this.length + count} tokens do not fit into the ${rows} rows of cache '${cache.past}'`);
    }
  }

  /** Throws a Refusal if the manifest says that the model does not take a step of `count` tokens with these inputs. */
  checkStep(inputs, count) {
    const {chunk_batch: rows = Infinity, step_limit: most = Infinity, padding, unpadded = []} = this.manifest;
    if (count > 1 && this.length > 0 && this.batch > rows)
      throw new Refusal(`a batch of more than ${rows} takes one token a step after a past`);
    if (count > most) throw new Refusal(`a step takes at most ${most} tokens, not ${count}`);
    const total = this.length + count;
    for (const {name, shape} of this.ordinaryInputs) {
      const feed = this.described.get(name)?.feed ?? (name === 'attention_mask' ? 'visible_keys' : undefined);
      const isMask = shape.length === 2 && inputs[name] && (unpadded.includes(name) || /_keys$/.test(feed));
      const side = unpadded.includes(name) ? 'none' : padding;
      if (isMask && side && !isPaddedOn(side, inputs[name], total, count, feed === 'hidden_keys' ? 1 : 0))
        throw new Refusal(side === 'none' ? `no row may be padded, as '${name}' says that one is`
          : `a prompt may be padded on the ${side} only${side === 'right' ? ', in one step' : ''}, and '${name}' has padding elsewhere`);
    }
  }

  /** Gives each batch row of all caches what another one has: `order` holds the numbers of those. */
  rearrange({data: order}) {
    const rows = Array.from(order, (row) => Number(row) < 0 ? Number(row) + this.batch : Number(row));
    if (this.length === 0 || rows.every((row, i) => row === i)) return;
    for (const cache of this.caches) {
      const axis = cache.shape.findIndex((extent, at) => typeof extent === 'string' && at !== cache.sequence_axis);
      if (axis < 0) throw new Error(`nothing says along which axis cache '${cache.past}' has its batch rows`);
      for (const name of cache.blocks ?? [cache.past]) {
        const {data, dims} = this.tensors.get(name);
        const before = data.slice();
        const size = sizeOf(dims.slice(axis)) / this.batch; // of a row, heads that share its axis included
        for (let i = 0; i < sizeOf(dims.slice(0, axis)) * this.batch; ++i) {
          const from = i - i % this.batch + rows[i % this.batch];
          data.set(before.subarray(from * size, (from + 1) * size), i * size);
        }
      }
    }
  }

  /** Runs a step of `count` new tokens in each batch row, with tensors for all ordinary inputs.
   *  Returns the outputs that are not caches. */
  async run(inputs, count) {
    this.checkRoom(count);
    this.checkStep(inputs, count);
    if (this.manifest.reorder) this.rearrange(inputs[this.manifest.reorder]);
    const variant = this.variants.find(({rows}) => rows >= this.length);
    if (variant) this.chosen.add(variant.blocks);
    const feeds = {};
    for (const {name, type, shape} of this.ordinaryInputs) {
      if (!inputs[name]) throw new Error(`input '${name}' (${type} [${shape}]) must be given`);
      feeds[name] = inputs[name];
    }
    for (const length of this.manifest.lengths) feeds[length.input] = this.lengthTensor(length, count);
    const fetches = Object.fromEntries(this.session.outputNames.map((name) => [name, null]));
    for (const cache of this.caches) {
      for (const name of cache.blocks?.slice(0, variant?.blocks) ?? [cache.past]) feeds[name] = this.tensors.get(name);
      if (cache.one_buffer) fetches[cache.present] = feeds[cache.past];
    }
    const results = this.manifest.tiles ? await this.session.run(feeds, this.length)
      : await (variant?.session ?? this.session).run(feeds, fetches);
    for (const cache of this.caches) {
      // A static cache need not come back out.
      if (cache.blocks) this.append(cache, results[cache.present], count);
      else if (!cache.one_buffer && results[cache.present]) this.tensors.set(cache.past, results[cache.present]);
      delete results[cache.present];
    }
    this.length += count;
    return results;
  }

  /** How many tokens a step can have: all, or as many as the model's type or a limit says. */
  stepTokens(wanted) {
    const ids = this.ordinaryInputs.find(({name}) => /^(decoder_)?input_ids$/.test(name));
    const fixed = ids?.shape[1];
    if (typeof fixed !== 'number') {
      const {chunk_batch: rows = Infinity, step_limit: most = Infinity} = this.manifest;
      return this.length > 0 && this.batch > rows ? 1 : Math.min(wanted, most);
    }
    if (wanted % fixed !== 0) throw new Error(`the model takes ${fixed} tokens a step, not ${wanted}`);
    return fixed;
  }

  /** The inputs that a caller may have to give: of the model, and of its first step. */
  get givenInputs() {
    return [...this.ordinaryInputs, ...this.first?.inputMetadata ?? []];
  }

  /** What the first step computes, once for a sequence, of the tensors that are given. */
  async encode(given) {
    if (!this.first || this.encoded) return this.encoded ?? {};
    const feeds = {};
    for (const {name, type, shape} of this.first.inputMetadata) {
      if (!given[name]) throw new Error(`input '${name}' (${type} [${shape}]) must be given`);
      feeds[name] = given[name];
    }
    return this.encoded = await this.first.run(feeds);
  }

  /**
   * Takes the next tokens, [batch][tokens], in as many steps as needed; tensors for inputs that are
   * not made here come from the caller. Returns the scores of the last step, [batch, tokens, scores].
   */
  async feed(tokens, caller = {}) {
    for (const token of tokens.flat())
      if (!Number.isInteger(token) || token < 0) throw new Refusal(`there is no token ${token}`);
    const given = {...await this.encode(caller), ...caller};
    let rows = tokens;
    if (this.caches.length === 0) {
      rows = this.history = tokens.map((row, i) => [...(this.history[i] ?? []), ...row]);
      this.length = 0;
    }
    let results;
    for (let done = 0; done < rows[0].length;) {
      const count = this.stepTokens(rows[0].length - done);
      const part = rows.map((row) => row.slice(done, done + count));
      const inputs = {};
      for (const input of this.ordinaryInputs) {
        const tensor = given[input.name];
        inputs[input.name] = !tensor ? this.made(input, part, given)
          : count < rows[0].length ? this.partOf(input, tensor, done, count) : tensor;
      }
      results = await this.run(inputs, count);
      done += count;
    }
    return results[this.scoresName(results)];
  }

  /** The columns of a mask or of positions, [batch, columns] for all tokens that are fed, that a step of some of them takes. */
  partOf({name, type, shape}, tensor, done, count) {
    const [batch, columns] = tensor.dims;
    if (shape.length !== 2 || typeof shape[1] === 'number' || this.caches.length === 0) return tensor;
    const feed = this.described.get(name)?.feed ?? {attention_mask: 'visible_keys', position_ids: 'position_ids'}[name];
    const [first, end] = /_keys$|_mask$/.test(feed) ? [0, this.length + count]
      : feed === 'position_ids' ? [done, done + count] : [0, columns];
    return tensorOf({name, type}, [batch, end - first], (i) =>
      Number(tensor.data[Math.floor(i / (end - first)) * columns + first + i % (end - first)]));
  }

  /** `logits`, or else the first output of three axes of floats. */
  scoresName(results) {
    const isScores = (name) => /^float/.test(results[name].type) && results[name].dims.length === 3;
    const found = results.logits ? 'logits' : this.session.outputNames.find((name) => results[name] && isScores(name));
    if (!found || !isScores(found)) throw new Error('the model has no output of shape [batch, tokens, scores]');
    return found;
  }

  async close() {
    for (const session of [this.session, this.first, ...this.variants.map((variant) => variant.session)])
      await session?.release();
  }
}

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

if (require.main === module) {
  // One line for every error.
  process.on('uncaughtException', ({message}) => {
    console.error(`decode.js: ${message.split('\n')[0]}`);
    process.exit(1);
  });
  main(process.argv.slice(2));
}

module.exports = {Decoder, Refusal, arrays, appended, bestToken, fromHalfBits, hasSpareRows, overwrite, readManifest, sizeOf, tensorOf};
