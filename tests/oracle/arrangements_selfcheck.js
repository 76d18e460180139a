// The runs of arrangements must notice what is fed wrongly: a length that is off by one, a mask with padding on the other
// side, tokens of other columns; and the host must refuse what a manifest says that the model does not take.
//
//   node arrangements_selfcheck.js EXPORTED.onnx CASE MODEL.onnx MANIFEST.json      exits with 1 if one is not noticed
'use strict';
const fs = require('fs');
const {exportedFacts} = require('./arranged_job');
const {Feed, replayArranged} = require('./arranged_replay');
const {Decoder} = require('../../examples/decode');

const tolerances = {float32: 1e-4, float16: 2e-2};

/** Replaces a method while `use` runs. `make(method)` gives the other one. */
async function replaced(owner, name, make, use) {
  const method = owner[name];
  owner[name] = make(method);
  try {
    return await use();
  } finally {
    owner[name] = method;
  }
}

const mirrored = (visible) => function(row, column) {
  const prompt = 7;
  return column < prompt ? visible.call(this, row, prompt - 1 - column) : visible.call(this, row, column);
};

const shortened = (lengthTensor) => function(length, tokens) {
  const tensor = lengthTensor.call(this, length, tokens);
  if (this.length > 0) tensor.data[0] -= 1n;
  return tensor;
};

const delayed = (token) => function(row, column, name) {
  return token.call(this, row, Math.max(column - 1, 0), name);
};

async function main([exported, place, model, manifestFile]) {
  const {rows} = await exportedFacts({model: exported, cases: [place], pairs: {}, tolerances});
  const manifest = JSON.parse(fs.readFileSync(manifestFile));
  const run = async (layout, driven = manifest) => (await replayArranged(model, driven, {[layout]: rows}, tolerances))[layout];
  const unpadded = {...manifest, unpadded: ['attention_mask']};
  const side = (padding) => ({...manifest, padding});
  const runs = [
    ['padding on the left', 'equal', await run('unequal_left')],
    ['padding on the right', 'equal', await run('unequal_right')],
    ['a length off by one', 'differs', await replaced(Decoder.prototype, 'lengthTensor', shortened, () => run('batch'))],
    ['a mask with padding on the other side', 'differs', await replaced(Feed.prototype, 'isVisible', mirrored, () => run('left'))],
    ['tokens of the column before', 'differs', await replaced(Feed.prototype, 'token', delayed, () => run('left'))],
    ['padding where there must be none', 'refused', await run('left', unpadded)],
    ['no padding where there must be none', 'equal', await run('batch', unpadded)],
    ['padding on the left where it must be on the right', 'refused', await run('unequal_left', side('right'))],
    ['padding on the right where it may be', 'equal', await run('unequal_right', side('right'))],
    ['padding on the right where it must be on the left', 'refused', await run('right', side('left'))],
    ['padding on the left where it may be', 'equal', await run('unequal_left', side('left'))],
    ['holes where padding must be on the left', 'refused', await run('holes', side('left'))],
  ];
  for (const [what, expected, {verdict, reason}] of runs) {
    const isRight = verdict === expected;
    console.log(`${isRight ? 'ok' : 'WRONG'}  ${what}: ${verdict}${reason ? `, ${reason}` : ''}`);
    if (!isRight) process.exitCode = 1;
  }
}

main(process.argv.slice(2));
