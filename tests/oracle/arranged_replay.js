// Runs recorded tokens in new arrangements: padded on the left or right, with holes, in batches of unequal rows, in
// chunks. What a visible token gives must be what was recorded of it.
'use strict';
const ort = require('onnxruntime-node');
const {Decoder, Refusal, sizeOf, tensorOf} = require('../../examples/decode');
const {arrayOf} = require('./tensor_file');
const {isPadded, padding, planOf} = require('./layouts');
const {poison, reader, toleranceOf} = require('./tensors');

/** Makes the inputs of steps. `rows` are the recorded rows that the plan's rows are made of. */
class Feed {
  constructor(plan, rows) {
    this.plan = plan;
    this.rows = rows;
    this.batch = plan.rows.length;
  }

  isVisible(row, column) {
    return this.plan.rows[row][column] !== padding;
  }

  /** A row's tokens before a column. */
  tokensBefore(row, column) {
    return this.plan.rows[row].slice(0, column).filter((token) => token !== padding).length;
  }

  /** What a column is fed: of padding, what its row's first token is, at the position of the token before. */
  token(row, column, name) {
    const token = this.plan.rows[row][column];
    const {tokens} = this.rows[row];
    if (token !== padding) return tokens[token].inputs[name];
    return tokens[/position/.test(name) ? Math.max(this.tokensBefore(row, column) - 1, 0) : 0].inputs[name];
  }

  ofTokens({name}, first, end) {
    const parts = this.plan.rows.flatMap((_, row) =>
      Array.from({length: end - first}, (__, i) => this.token(row, first + i, name)));
    const [{type, dims}] = parts;
    const data = new arrayOf[type](parts.length * sizeOf(dims));
    parts.forEach((part, i) => data.set(part.data, i * sizeOf(dims)));
    return new ort.Tensor(type, data, [this.batch, end - first, ...dims]);
  }

  constant(name) {
    const parts = this.rows.map(({constants}) => constants.find((each) => each.name === name));
    const [{type, dims, data, isShared}] = parts;
    if (isShared) return new ort.Tensor(type, data, dims);
    const all = new arrayOf[type](parts.length * data.length);
    parts.forEach((part, i) => all.set(part.data, i * data.length));
    return new ort.Tensor(type, all, [parts.length, ...dims.slice(1)]);
  }

  /** The tensor of an input in the step of columns [first, end), in which the model gets those from `from` on. */
  tensor(input, first, end, isWhole) {
    const {name, shape} = input;
    if (this.rows[0].tokens[0].inputs[name]) return this.ofTokens(input, isWhole ? 0 : first, end);
    if (this.rows[0].constants.some((each) => each.name === name)) return this.constant(name);
    if (name === 'attention_mask' && shape.length === 2) {
      const columns = typeof shape[1] === 'number' ? shape[1] : end;
      return tensorOf(input, [this.batch, columns], (i) =>
        Number(i % columns < end && this.isVisible(Math.floor(i / columns), i % columns)));
    }
    const length = this.rows[0].lengths[name];
    if (length) return tensorOf(input, shape.map(Number), () => length === 'past' ? first : end);
    if (name === 'cache_position') return tensorOf(input, [end - first], (i) => first + i);
    if (name === 'beam_idx') return tensorOf(input, [this.batch], (i) => i);
    if (name === 'use_cache_branch') return tensorOf(input, [1], () => Number(first > 0));
    throw new Error(`nothing says what input '${name}' is fed in an arrangement`);
  }
}

/** Compares the outputs of columns [first, end) at visible tokens; the largest difference, and how many numbers. */
function compare(outputs, feed, first, end, offset, tolerances) {
  let maxAbs = 0;
  let compared = 0;
  feed.plan.rows.forEach((row, r) => row.slice(first, end).forEach((token, i) => {
    if (token === padding) return;
    for (const [name, expected] of Object.entries(feed.rows[r].tokens[token].outputs)) {
      const ours = outputs[name];
      if (!ours) throw new Error(`output '${name}' is missing`);
      const width = expected.data.length;
      const at = (r * ours.dims[1] + offset + i) * width;
      if (ours.dims[0] !== feed.batch || sizeOf(ours.dims) / ours.dims[0] / ours.dims[1] !== width)
        throw new Error(`${name} is [${ours.dims}]`);
      const [mine, theirs] = [reader(ours), reader(expected)];
      for (let k = 0; k < width; ++k, ++compared) {
        const difference = Math.abs(mine(at + k) - theirs(k));
        if (!(difference <= toleranceOf(tolerances, expected)))
          throw Object.assign(new Error(`${name} of row ${r}, column ${first + i} differs by ${difference}`), {difference});
        maxAbs = Math.max(maxAbs, difference);
      }
    }
  }));
  return {maxAbs, compared};
}

/** Runs a plan; `observe(outputs, first, end, offset)` gets what each step computes. */
async function runPlan(decoder, feed, observe) {
  const {steps, rows: [{length}]} = feed.plan;
  decoder.begin({batch: feed.batch, room: length + 1, fillFor: (type) => poison[type] ?? 0});
  const isWhole = decoder.caches.length === 0;
  let first = 0;
  for (const count of steps) {
    for (let done = 0; done < count;) {
      const part = decoder.stepTokens(count - done);
      const end = first + part;
      if (isWhole) decoder.length = 0;
      const inputs = Object.fromEntries(decoder.ordinaryInputs.map((input) =>
        [input.name, feed.tensor(input, first, end, isWhole)]));
      observe(await decoder.run(inputs, isWhole ? end : part), first, end, isWhole ? first : 0);
      first = end;
      done += part;
    }
  }
}

/** How many tokens the model takes in every step, if it says so. */
function fixedStep(decoder) {
  const ids = decoder.ordinaryInputs.find(({name}) => /^((decoder_)?input_ids|inputs_embeds)$/.test(name));
  return typeof ids?.shape[1] === 'number' ? ids.shape[1] : undefined;
}

const hasMask = (decoder) => decoder.ordinaryInputs.some(({name, shape}) => name === 'attention_mask' && shape.length === 2);

/** {verdict} of one layout: `equal`, `refused` where the host does not run it by the manifest, `no-mask`, or `differs`. */
async function arranged(decoder, layout, rows, tolerances) {
  if (isPadded(layout) && !hasMask(decoder)) return {verdict: 'no-mask'};
  const plan = planOf(layout, rows.map(({tokens}) => tokens.length), fixedStep(decoder));
  const feed = new Feed(plan, plan.rows.map((_, row) => rows[row % rows.length]));
  let maxAbs = 0;
  let compared = 0;
  try {
    await runPlan(decoder, feed, (outputs, first, end, offset) => {
      const result = compare(outputs, feed, first, end, offset, tolerances);
      maxAbs = Math.max(maxAbs, result.maxAbs);
      compared += result.compared;
    });
  } catch (error) {
    if (error instanceof Refusal) return {verdict: 'refused', reason: error.message};
    return {verdict: 'differs', reason: error.message, difference: error.difference};
  }
  return compared ? {verdict: 'equal', maxAbs} : {verdict: 'differs', reason: 'nothing could be compared'};
}

/** The rows of a layout with what the model itself gives in it, in the place of what is recorded. */
async function ownRows(decoder, layout, rows) {
  const plan = planOf(layout, rows.map(({tokens}) => tokens.length), fixedStep(decoder));
  const own = plan.rows.map((_, r) => ({...rows[r % rows.length]}));
  const names = Object.keys(rows[0].tokens[0].outputs);
  for (const row of own) row.tokens = row.tokens.map(({inputs}) => ({inputs, outputs: {}}));
  await runPlan(decoder, new Feed(plan, own), (outputs, first, end, offset) => own.forEach(({tokens}, r) => {
    for (const name of names) {
      const {type, dims, data} = outputs[name];
      const width = sizeOf(dims.slice(2));
      for (let column = first; column < end; ++column) {
        const token = plan.rows[r][column];
        const at = (r * dims[1] + offset + column - first) * width;
        if (token !== padding) tokens[token].outputs[name] = {type, dims: [width], data: data.slice(at, at + width)};
      }
    }
  }));
  return own;
}

const isFinite = (rows) => rows.every(({tokens}) => tokens.every(({outputs}) => Object.values(outputs).every((output) => {
  const number = reader(output);
  return output.data.every((_, i) => Number.isFinite(number(i)));
})));

const options = {logSeverityLevel: 4, intraOpNumThreads: 1, interOpNumThreads: 1};

/** Calls `use` with a decoder of the model, which is closed then. */
async function withDecoder(model, manifest, use) {
  const decoder = await Decoder.open(model, options, manifest);
  try {
    return await use(decoder);
  } finally {
    await decoder.close();
  }
}

/** Verdicts by layout of a model that is driven by a manifest. `truths` are the rows that each layout must give. */
function replayArranged(model, manifest, truths, tolerances) {
  return withDecoder(model, manifest, async (decoder) => {
    const verdicts = {};
    for (const [layout, rows] of Object.entries(truths)) verdicts[layout] = await arranged(decoder, layout, rows, tolerances);
    return verdicts;
  });
}

/** What the model itself gives in the layouts in which it runs and gives finite numbers: rows by layout. */
function ownTruths(model, manifest, layouts, rows) {
  return withDecoder(model, manifest, async (decoder) => {
    const truths = {};
    for (const layout of layouts) {
      const own = await ownRows(decoder, layout, rows).catch(() => null);
      if (own && isFinite(own)) truths[layout] = own;
    }
    return truths;
  });
}

/** Verdicts by layout of a model that rounds what it caches. What it gives without padding is compared with; it may be
 *  as far from that as it is from what is recorded, or as 16 bits are. */
function replayRounded(model, manifest, layouts, rows, tolerances) {
  return withDecoder(model, manifest, async (decoder) => {
    const own = [];
    for (const row of rows) own.push(...await ownRows(decoder, 'plain', [row]));
    const {maxAbs} = await arranged(decoder, 'plain', rows, {float32: Infinity, float16: Infinity});
    const wide = {float32: Math.max(tolerances.float16, maxAbs), float16: Math.max(tolerances.float16, maxAbs)};
    const verdicts = {};
    for (const layout of layouts) verdicts[layout] = await arranged(decoder, layout, own, wide);
    return verdicts;
  });
}

module.exports = {Feed, ownTruths, replayArranged, replayRounded};
