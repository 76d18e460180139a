// Replays recorded steps in ONNX Runtime through a model's manifest and compares with what PyTorch
// computed. examples/decode.js drives the model.
//
// Of a cache in one buffer the caller's own array is compared, and rows behind the valid ones must
// be as they were before the step.
'use strict';
const path = require('path');
const ort = require('onnxruntime-node');
const {Decoder, appended, bestToken, hasSpareRows, overwrite} = require('../../examples/decode');
const {continuedSteps} = require('./continued_steps');
const {readSteps, arrayOf} = require('./tensor_file');
const {forEachIndex, poison, reader, slice, strides, toleranceOf} = require('./tensors');

/** Which positions are real tokens, by the recorded attention mask. */
function visiblePositions(step) {
  const mask = step.inputs.attention_mask;
  if (!mask || mask.dims.length !== 2) return {columns: 0, at: () => true};
  const columns = mask.dims[1];
  return {columns, at: (row, position) =>
    position >= columns || Number(mask.data[row * columns + position]) !== 0};
}

/** The largest difference at positions that `isCompared`; both lie within `recorded`'s extents. */
function compare(ours, recorded, isCompared) {
  const [mine, theirs] = [reader(ours), reader(recorded)];
  const [myStrides, theirStrides] = [ours.strides ?? strides(ours.dims), strides(recorded.dims)];
  const offset = (index, steps) => index.reduce((sum, at, axis) => sum + at * steps[axis], 0);
  const result = {maxAbs: 0, compared: 0};
  forEachIndex(recorded.dims, (index) => {
    if (!isCompared(index)) return;
    const a = mine(offset(index, myStrides));
    const b = theirs(offset(index, theirStrides));
    ++result.compared;
    const difference = Object.is(a, b) || a === b ? 0 : Math.abs(a - b);
    result.maxAbs = Math.max(result.maxAbs, Number.isNaN(difference) ? Infinity : difference);
  });
  return result;
}

/** A cache with its axes in the order of the model before it was rewritten, and the sequence's. */
function exported(tensor, {permutation, sequence_axis: axis}) {
  if (!permutation) return {view: tensor, axis};
  const view = {type: tensor.type, data: tensor.data, dims: [], strides: []};
  const own = strides(tensor.dims);
  permutation.forEach((former, i) => {
    view.dims[former] = tensor.dims[i];
    view.strides[former] = own[i];
  });
  return {view, axis: permutation[axis]};
}

/** The axis of a cache, as exported, on which batch rows are; null where heads are on it, too. */
function batchAxisOf({shape, sequence_axis: sequence, permutation}) {
  const found = shape.findIndex((extent, axis) => axis !== sequence && typeof extent === 'string');
  const axis = Math.max(found, 0);
  if (axis === sequence || String(shape[axis]).includes('*')) return null;
  return permutation ? permutation[axis] : axis;
}

/** A cache's whole memory: of one buffer, the array that was given; of blocks, their rows one after
 *  the other. */
function memoryOf(decoder, {past, blocks, sequence_axis: axis}) {
  if (!blocks) return decoder.tensors.get(past);
  const {block_size: size, variants} = decoder.manifest;
  const rowsOf = (name, i) => {
    const block = decoder.tensors.get(name);
    if (!variants) return block;
    return slice(block, axis, 0, Math.max(0, Math.min(size, decoder.length - i * size)));
  };
  return blocks.map(rowsOf).reduce((rows, block) => appended(rows, block, axis, 0, block.dims[axis]));
}

/** Whether every row from `length` on holds what it held before the first step. */
function isUntouched(cache, length, axis) {
  const value = poison[cache.type];
  const steps = strides(cache.dims);
  const rest = cache.dims.slice();
  rest[axis] -= length;
  let untouched = true;
  forEachIndex(rest, (index) => {
    const at = index.reduce((sum, i, a) => sum + (a === axis ? i + length : i) * steps[a], 0);
    untouched &&= cache.data[at] === value;
  });
  return untouched;
}

/** The last `count` rows of a ring in which the row of position p is in slot p mod C, in the order of positions. */
function lastRows(ring, axis, length, count) {
  const slots = ring.dims[axis];
  const first = (length - count) % slots;
  const beforeWrap = Math.min(count, slots - first);
  const afterWrap = count - beforeWrap;
  return appended(slice(ring, axis, first, beforeWrap), slice(ring, axis, 0, afterWrap), axis, 0, afterWrap);
}

/** A chunk as steps of one token each: of inputs that have a place for every new token, or every
 *  token so far, what a single step has of them. */
function singleTokens(inputs, tokens, past) {
  return Array.from({length: tokens}, (_, i) => Object.fromEntries(
    Object.entries(inputs).map(([name, tensor]) => {
      const axis = tensor.dims.length === 1 ? 0 : 1;
      if (tensor.dims[axis] === tokens) return [name, slice(tensor, axis, i, 1)];
      if (tensor.dims[axis] === past + tokens) return [name, slice(tensor, axis, 0, past + i + 1)];
      return [name, tensor];
    })));
}

/** Outputs of single tokens as those of a chunk. */
function joined(results) {
  const whole = {};
  for (const name of Object.keys(results[0])) {
    const parts = results.map((result) => result[name]);
    if (parts[0].dims[1] !== 1) {
      whole[name] = parts[parts.length - 1];
      continue;
    }
    const dims = parts[0].dims.slice();
    dims[1] = parts.length;
    const data = new arrayOf[parts[0].type](dims.reduce((product, extent) => product * extent, 1));
    const inner = strides(dims)[1];
    parts.forEach((part, i) => {
      for (let row = 0; row < dims[0]; ++row)
        data.set(part.data.subarray(row * inner, (row + 1) * inner), (row * dims[1] + i) * inner);
    });
    whole[name] = {type: parts[0].type, dims, data};
  }
  return whole;
}

async function run(decoder, step) {
  const {chunk_batch: rows = Infinity, step_limit: most = Infinity} = decoder.manifest;
  const isRefused = (step.tokens > 1 && decoder.length > 0 && decoder.batch > rows) || step.tokens > most;
  const given = Object.fromEntries(decoder.ordinaryInputs.filter(({name}) => step.inputs[name])
    .map(({name}) => [name, step.inputs[name]]));
  const parts = isRefused ? singleTokens(given, step.tokens, decoder.length) : [given];
  const results = [];
  for (const part of parts) {
    const inputs = Object.fromEntries(Object.entries(part)
      .map(([name, {type, data, dims}]) => [name, new ort.Tensor(type, data, dims)]));
    results.push(await decoder.run(inputs, step.tokens / parts.length));
  }
  return joined(results);
}

/** The number of batch rows that a case has. */
function batchOf([{inputs}]) {
  const tokens = inputs.input_ids ?? inputs.decoder_input_ids ?? inputs.inputs_embeds;
  if (!tokens) throw new Error('neither token ids nor embeddings are recorded');
  return tokens.dims[0];
}

function check(decoder, step, before, outputs, tolerances) {
  let worst = {maxAbs: 0, compared: 0};
  const note = (name, recorded, result) => {
    const tolerance = toleranceOf(tolerances, recorded);
    if (!(result.maxAbs <= tolerance)) throw new Error(`${name} differs by ${result.maxAbs}, more than ${tolerance}`);
    const compared = worst.compared + result.compared;
    if (result.maxAbs >= worst.maxAbs) worst = {...result, name};
    worst.compared = compared;
  };
  const visible = visiblePositions(step);
  for (const cache of decoder.caches) {
    if (cache.rows === 'attended') continue; // the recorded rows are what those are computed from
    let ours = memoryOf(decoder, cache);
    let recorded = step.outputs[cache.present];
    if (hasSpareRows(cache) && !isUntouched(ours, decoder.length, cache.sequence_axis))
      throw new Error(`${cache.past}: rows behind the valid ones were written`);
    if (!recorded) continue;
    let first = 0;
    const sequence = cache.permutation ? cache.permutation[cache.sequence_axis] : cache.sequence_axis;
    const recordedRows = recorded.dims[sequence];
    if (cache.policy === 'ring' && cache.one_buffer && recordedRows !== ours.dims[cache.sequence_axis]) {
      const count = Math.min(ours.dims[cache.sequence_axis], recordedRows, decoder.length);
      ours = lastRows(ours, cache.sequence_axis, decoder.length, count);
      recorded = slice(recorded, sequence, recordedRows - count, count);
      first = decoder.length - count;
    }
    const {view, axis} = exported(ours, cache);
    const isHere = view.dims.length === recorded.dims.length && recorded.dims.every((extent, at) =>
      at === axis ? extent <= view.dims[at] : extent === view.dims[at]);
    if (!isHere) throw new Error(`${cache.past} is [${view.dims}], recorded is [${recorded.dims}]`);
    const batchAxis = batchAxisOf(cache);
    note(cache.present, recorded, compare(view, recorded, (index) =>
      batchAxis === null || cache.policy === 'state' || visible.at(index[batchAxis], first + index[axis])));
  }
  for (const [name, ours] of Object.entries(outputs)) {
    const recorded = step.outputs[name];
    if (!recorded) continue;
    if (String(ours.dims) !== String(recorded.dims))
      throw new Error(`${name} is [${ours.dims}], recorded is [${recorded.dims}]`);
    const {dims} = recorded;
    const perRow = dims[0] === decoder.batch;
    const positions = dims.flatMap((extent, axis) =>
      axis > 0 && visible.columns !== 0 && extent === visible.columns ? [axis] : []);
    let axis = perRow && positions.length === 1 ? positions[0] : null;
    const first = axis === null ? before : 0;
    if (axis === null && perRow && dims[1] === step.tokens) axis = 1;
    note(name, recorded, compare(ours, recorded, (index) => axis === null || visible.at(index[0], first + index[axis])));
  }
  return worst;
}

/** The steps of a case. Those that were recorded of a model without caches become steps of a decoder that has some. */
function stepsFor(decoder, {place, areWhole}) {
  const steps = readSteps(place);
  return areWhole && decoder.caches.length > 0 ? continuedSteps(steps) : steps;
}

/** The number of rows that are recorded before the first step, in a cache of as many rows as there are tokens. */
function recordedPast(decoder, [{inputs}]) {
  const cache = decoder.caches.find(({policy, past}) => !['static', 'ring', 'state'].includes(policy) && inputs[past]);
  return cache ? inputs[cache.past].dims[exported(inputs[cache.past], cache).axis] : 0;
}

/** Gives the caches the rows that are recorded before the first step. */
function startFrom(decoder, steps) {
  const count = recordedPast(decoder, steps);
  if (count === 0) return;
  for (const cache of decoder.caches) {
    const recorded = steps[0].inputs[cache.past];
    if (!recorded || cache.permutation || cache.blocks)
      throw new Error(`'${cache.past}' cannot get the ${count} recorded rows before the first step`);
    const rows = new ort.Tensor(recorded.type, recorded.data, recorded.dims);
    if (hasSpareRows(cache)) overwrite(decoder.tensors.get(cache.past), rows, cache.sequence_axis, 0, count, 0);
    else decoder.tensors.set(cache.past, rows);
  }
  decoder.length = count;
}

/** One recorded case in a decoder that is open. `tolerances` are those of float32 and of float16. */
async function replayCase(decoder, tolerances, recorded) {
  const result = {case: path.basename(recorded.place, '.onnx'), equal: false, steps: 0, maxAbs: 0, compared: 0};
  try {
    const steps = stepsFor(decoder, recorded);
    const total = recordedPast(decoder, steps) + steps.reduce((sum, step) => sum + step.tokens, 0);
    // A cache of static capacity has as many rows as the recorded one; others get some to spare.
    const kept = decoder.caches.find((cache) => cache.policy === 'static');
    const room = steps[0].inputs[kept?.past]?.dims[kept.sequence_axis] ?? total + 3;
    decoder.begin({batch: batchOf(steps), room, fillFor: (type) => poison[type] ?? 0});
    startFrom(decoder, steps);
    for (const step of steps) {
      // Without caches every step is a whole sequence.
      if (decoder.caches.length === 0) decoder.length = 0;
      const before = decoder.length;
      const outputs = await run(decoder, step);
      const worst = check(decoder, step, before, outputs, tolerances);
      result.maxAbs = Math.max(result.maxAbs, worst.maxAbs);
      result.compared += worst.compared;
      ++result.steps;
    }
    result.variants = [...decoder.chosen];
    result.equal = result.compared > 0;
    if (!result.equal) result.error = 'nothing could be compared';
  } catch (error) {
    result.error = `step ${result.steps}: ${error.message}`;
  }
  return result;
}

/** The recorded sequence of a case with one batch row, made anew as a program makes it: from its
 *  tokens, and from what is recorded for inputs that are not made from tokens. After each step the
 *  best token must be PyTorch's, or have a score as good as that within the tolerance. */
async function decodeCase(decoder, tolerances, recorded) {
  const result = {case: path.basename(recorded.place, '.onnx'), equal: false, steps: 0};
  try {
    const steps = stepsFor(decoder, recorded);
    if (batchOf(steps) !== 1 || recordedPast(decoder, steps) > 0) return null;
    decoder.begin({room: steps.reduce((sum, step) => sum + step.tokens, 0)});
    let taken = 0;
    for (const step of steps) {
      const ids = step.inputs.input_ids ?? step.inputs.decoder_input_ids;
      let tokens = ids ? [...ids.data].map(Number) : Array(step.tokens).fill(0);
      // Without caches a recorded step is the whole sequence so far.
      if (decoder.caches.length === 0) tokens = tokens.slice(taken);
      taken += tokens.length;
      const given = Object.fromEntries(Object.entries(step.inputs)
        .map(([name, {type, data, dims}]) => [name, new ort.Tensor(type, data, dims)])
        .filter(([name]) => decoder.ordinaryInputs.some((input) =>
          input.name === name && !decoder.made(input, [tokens], {}))));
      const best = bestToken(await decoder.feed([tokens], given));
      const [logits] = Object.values(step.outputs).filter(({type, dims}) => /^float/.test(type) && dims.length === 3);
      const scores = step.outputs.logits ?? logits;
      const expected = bestToken(scores);
      const scoreOf = (token) => reader(scores)(scores.data.length - scores.dims[2] + token);
      if (!(scoreOf(expected) - scoreOf(best) <= 2 * toleranceOf(tolerances, scores)))
        throw new Error(`the example takes token ${best}, PyTorch ${expected}`);
      ++result.steps;
    }
    result.equal = true;
  } catch (error) {
    result.error = `decoding, step ${result.steps}: ${error.message}`;
  }
  return result;
}

/** A model's recorded cases, and its first one again as a program decodes. `areWhole`: each recorded step is a whole
 *  sequence, of which a decoder with caches gets the new tokens. */
async function replay(model, manifest, tolerances, places, areWhole = false) {
  // One thread: sessions are many and small. Warnings say that a cache was copied.
  const options = {logSeverityLevel: 2, intraOpNumThreads: 1, interOpNumThreads: 1};
  const decoder = await Decoder.open(model, options, manifest);
  const cases = [];
  for (const place of places) cases.push(await replayCase(decoder, tolerances, {place, areWhole}));
  const decoded = await decodeCase(decoder, tolerances, {place: places[0], areWhole});
  await decoder.close();
  return {cases, decoded};
}

module.exports = {replay};
