// What is recorded of single batch rows: their visible tokens in order, with what each is fed and what it gives. New
// arrangements are made of the same tokens (layouts.js), and must give the same.
'use strict';
const {strides} = require('./tensors');

const perToken = new Set(['input_ids', 'decoder_input_ids', 'inputs_embeds', 'position_ids']);
const madeForSteps = new Set(['attention_mask', 'cache_position', 'beam_idx', 'use_cache_branch']);

const isOfTokens = ({dims}, batch, tokens) => dims.length > 1 && dims[0] === batch && dims[1] === tokens;

/** The numbers of one token of one row in a tensor [batch, tokens, …]. */
function numbersAt({dims, data}, row, column) {
  const inner = strides(dims)[1];
  const first = (row * dims[1] + column) * inner;
  return data.slice(first, first + inner);
}

const areEqual = (a, b) => a.type === b.type && String(a.dims) === String(b.dims) &&
  Buffer.compare(Buffer.from(a.data.buffer), Buffer.from(b.data.buffer)) === 0;

/** The number of batch rows of a case; null where the first axis of its tokens may be another one. */
function batchOf([{tokens, inputs}]) {
  const ids = inputs.input_ids ?? inputs.decoder_input_ids ?? inputs.inputs_embeds;
  return ids && ids.dims[1] === tokens ? ids.dims[0] : null;
}

/** Inputs of one number, the tokens before each step or those and the step's: {name: 'past' or 'total'}. */
function lengthInputs(steps) {
  const feeds = {};
  for (const {name, type, data} of Object.values(steps[0].inputs)) {
    if (!/^int/.test(type) || data.length !== 1 || perToken.has(name) || madeForSteps.has(name)) continue;
    let past = 0;
    const follows = {past: true, total: true};
    for (const {tokens, inputs} of steps) {
      const value = Number(inputs[name]?.data[0]);
      follows.past &&= value === past;
      follows.total &&= value === (past += tokens);
    }
    const found = Object.keys(follows).find((feed) => follows[feed]);
    if (found) feeds[name] = found;
  }
  return feeds;
}

/** Inputs that are the same in every step: what an encoder computed. `caches` holds names of caches. */
function constantInputs(steps, caches) {
  return Object.values(steps[0].inputs).filter(({name, dims}) =>
    !perToken.has(name) && !madeForSteps.has(name) && !caches.has(name) && !dims.includes(0) &&
    steps.every(({inputs}) => !inputs[name] || areEqual(inputs[name], steps[0].inputs[name])));
}

/** The part of a constant that belongs to one batch row. */
function partOfRow(tensor, row, batch) {
  if (tensor.dims[0] !== batch) return {...tensor, isShared: true};
  const size = strides(tensor.dims)[0];
  return {...tensor, dims: [1, ...tensor.dims.slice(1)], data: tensor.data.slice(row * size, (row + 1) * size)};
}

/** The columns of a step's new tokens that are visible in a row. `earlier` tokens come before the step. */
function visibleColumns({inputs, tokens}, row, earlier) {
  const mask = inputs.attention_mask;
  const all = Array.from({length: tokens}, (_, column) => column);
  if (mask?.dims.length !== 2) return all;
  return all.filter((column) => Number(mask.data[row * mask.dims[1] + earlier + column]) !== 0);
}

/**
 * The rows of a case: {tokens: [{inputs, outputs}], lengths, constants, isPadded}. `caches` holds the names of all caches,
 * `hasCaches` whether a step continues the one before; otherwise each is a whole sequence, and the longest is taken.
 */
function rowsOfCase(steps, caches, hasCaches) {
  const batch = batchOf(steps);
  if (batch === null) return [];
  const constants = constantInputs(steps, caches);
  const lengths = lengthInputs(steps);
  const taken = hasCaches ? steps : steps.slice(-1);
  return Array.from({length: batch}, (_, row) => {
    const tokens = [];
    let earlier = 0;
    for (const step of taken) {
      const pick = (tensors, isWanted) => (column) => Object.fromEntries(Object.values(tensors)
        .filter((tensor) => isWanted(tensor) && isOfTokens(tensor, batch, step.tokens))
        .map((tensor) => [tensor.name, {type: tensor.type, dims: tensor.dims.slice(2), data: numbersAt(tensor, row, column)}]));
      const inputs = pick(step.inputs, ({name}) => perToken.has(name));
      const outputs = pick(step.outputs, ({name, type}) => !caches.has(name) && /^float/.test(type));
      for (const column of visibleColumns(step, row, earlier)) tokens.push({inputs: inputs(column), outputs: outputs(column)});
      earlier += step.tokens;
    }
    const isPadded = tokens.length < earlier;
    return {tokens, isPadded, lengths, constants: constants.map((tensor) => partOfRow(tensor, row, batch))};
  });
}

const idsOf = ({tokens}) => JSON.stringify(tokens.map(({inputs}) =>
  Array.from(Object.values(inputs).find(({type}) => /^int/.test(type))?.data ?? Object.values(inputs)[0].data, String)));

/** At most three different rows of cases, those without padding first. */
function differentRows(rows) {
  const ordered = [...rows.filter(({isPadded}) => !isPadded), ...rows.filter(({isPadded}) => isPadded)];
  const seen = new Set();
  return ordered.filter((row) => !seen.has(idsOf(row)) && seen.add(idsOf(row))).slice(0, 3);
}

module.exports = {areEqual, batchOf, differentRows, isOfTokens, perToken, rowsOfCase};
