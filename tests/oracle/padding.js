// examples/decode.js with batches of prompts that differ in length: padding.js MODEL.onnx…
//
// The models count the tokens of a batch row by its mask. Each prompt gives the tokens that it gives alone if padding is on
// the right of one step; other padding is refused.
'use strict';
const assert = require('assert');
const {Decoder, Refusal, tensorOf} = require('../../examples/decode');

const prompts = [[5, 9, 3, 7, 11], [4, 8], [6, 2, 10]];
const steps = 5;

/** The token with the largest score `behind` positions before the last one. */
function best({dims: [, count, width], data}, row, behind) {
  const first = (row * count + count - 1 - behind) * width;
  const scores = Array.from(data.subarray(first, first + width));
  return scores.indexOf(Math.max(...scores));
}

/** Tokens of a batch, whose rows `mask` shows, in steps of `chunk` tokens. */
async function generated(decoder, rows, mask, chunk) {
  decoder.begin({batch: rows.length, room: 16});
  const input = decoder.ordinaryInputs.find(({name}) => name === 'attention_mask');
  const seen = rows.map(() => []);
  const feed = (tokens, visible) => {
    seen.forEach((row, i) => row.push(...visible[i]));
    const columns = seen[0].length;
    const attention_mask = tensorOf(input, [rows.length, columns], (i) => seen[Math.floor(i / columns)][i % columns]);
    return decoder.feed(tokens, {attention_mask});
  };
  const part = (list, first) => list.map((row) => row.slice(first, first + chunk));
  let scores;
  for (let first = 0; first < rows[0].length; first += chunk) scores = await feed(part(rows, first), part(mask, first));
  let next = rows.map((row, i) => best(scores, i, mask[i].slice().reverse().indexOf(1)));
  const made = next.map((token) => [token]);
  while (made[0].length < steps) {
    scores = await feed(next.map((token) => [token]), next.map(() => [1]));
    next = next.map((token, i) => best(scores, i, 0));
    next.forEach((token, i) => made[i].push(token));
  }
  return made;
}

const repeated = (value, count) => new Array(count).fill(value);

async function check(model) {
  const decoder = await Decoder.open(model, {logSeverityLevel: 4});
  const alone = [];
  for (const prompt of prompts)
    alone.push(...await generated(decoder, [prompt], [repeated(1, prompt.length)], prompt.length));
  const most = Math.max(...prompts.map((prompt) => prompt.length));
  for (const side of ['left', 'right'])
    for (const chunk of [1, 2, most]) {
      const join = (row, pad) => side === 'left' ? [...pad, ...row] : [...row, ...pad];
      const rows = prompts.map((prompt) => join(prompt, repeated(0, most - prompt.length)));
      const mask = prompts.map(({length}) => join(repeated(1, length), repeated(0, most - length)));
      const made = generated(decoder, rows, mask, chunk);
      if (side === 'right' && chunk === most) assert.deepStrictEqual(await made, alone, model);
      else await assert.rejects(made, Refusal, `${model}: padding on the ${side}, ${chunk} tokens a step`);
    }
  decoder.begin({room: 16});
  await assert.rejects(decoder.feed([[1, -1]]), Refusal);
  await decoder.close();
  console.log(`ok  examples/decode.js, padding: ${alone.join(' ')}`);
}

(async () => {
  for (const model of process.argv.slice(2)) await check(model);
})();
