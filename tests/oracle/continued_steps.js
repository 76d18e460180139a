// Steps of a decoder with caches, made of what was recorded of one without: there each step is a whole sequence, which
// begins with the sequence of the step before.
'use strict';
const {areEqual, batchOf, isOfTokens, perToken} = require('./recorded_rows');
const {slice} = require('./tensors');

/** Tensors of a step by name, with the columns [first, end) of those that `isCut` finds to have one for each token. */
function columns(tensors, isCut, first, end) {
  return Object.fromEntries(Object.entries(tensors).map(([name, tensor]) =>
    [name, isCut({...tensor, name}) ? {...slice(tensor, 1, first, end - first), name} : tensor]));
}

/** Throws unless what is fed to tokens [0, count) is what was fed in the step before. */
function checkBeginning(step, before, isFed, count) {
  const beginning = columns(step.inputs, isFed, 0, count);
  for (const [name, tensor] of Object.entries(before.inputs))
    if (perToken.has(name) && !areEqual(tensor, beginning[name]))
      throw new Error(`the recorded ${name} do not begin with those of the step before`);
}

/** The same steps, each with the tokens that the step before did not have. A mask stays one of all tokens. */
function continuedSteps(steps) {
  const batch = batchOf(steps);
  if (batch === null) throw new Error('nothing says which axis has the tokens');
  return steps.map((step, i) => {
    const {tokens} = step;
    const past = i === 0 ? 0 : steps[i - 1].tokens;
    if (past >= tokens) throw new Error(`a recorded sequence of ${tokens} tokens follows one of ${past}`);
    const isFed = (tensor) => perToken.has(tensor.name) && isOfTokens(tensor, batch, tokens);
    if (past > 0) checkBeginning(step, steps[i - 1], isFed, past);
    const isGiven = (tensor) => /^float/.test(tensor.type) && isOfTokens(tensor, batch, tokens);
    return {tokens: tokens - past, inputs: columns(step.inputs, isFed, past, tokens),
            outputs: columns(step.outputs, isGiven, past, tokens)};
  });
}

module.exports = {continuedSteps};
