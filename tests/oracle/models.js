// The models that the oracle is run over: what is recorded of them, and what `kvopt rewrite` writes of them.
'use strict';
const fs = require('fs');
const path = require('path');
const {jsonOf, run} = require('./engine');
const {tokensOfSteps} = require('./tensor_file');

const hashOf = (text) => [...text].reduce((hash, letter) => Math.imul(hash ^ letter.charCodeAt(0), 0x01000193) >>> 0, 0x811c9dc5);

/** Whether a model's form is in part `part` of `oneOf` parts of equal size, the same in every run. */
const isSampled = (source, form, oneOf, part = 0) => hashOf(`${path.basename(source)} ${form}`) % oneOf === part;

/** What is known of a model apart from its file. */
function factsOf(folder) {
  const file = path.join(folder, 'model.json');
  return (fs.existsSync(file) && jsonOf(fs.readFileSync(file))) || {};
}

/** 1e-4, and 2e-2 for each side of the comparison that rounds to 16 bits, or what the model says. */
function tolerancesOf(facts) {
  const half = 2e-2 * (facts.roundings ?? 1);
  return {float32: facts.tolerance ?? (/16/.test(facts.dtype ?? '') ? half : 1e-4), float16: half};
}

/** Recorded outputs are another computation's where the status says so. */
function isComparable(facts) {
  return !/structure only|in kind/.test(facts.status ?? '');
}

/** The recorded cases of a model, in the order of the folders that hold them. */
function casesOf(folder, recordings = ['ref']) {
  return recordings.map((name) => path.join(folder, name)).filter((cases) => fs.existsSync(cases))
    .flatMap((cases) => fs.readdirSync(cases).sort().map((name) => path.join(cases, name)));
}

/** How many tokens there are before each step of a case, and in the end. */
function lengthsOf(place) {
  return tokensOfSteps(place).reduce((lengths, tokens) => [...lengths, lengths.at(-1) + tokens], [0]);
}

/** How many tokens the longest case has. */
const tokensOf = (cases) => Math.max(...cases.map((place) => lengthsOf(place).at(-1)));

/** The smallest blocks of which every number that `capacity` needs holds the tokens before a step. */
function blocksForEveryStep(cases, capacity) {
  const pasts = cases.flatMap((place) => lengthsOf(place).slice(0, -1));
  for (let size = 1; size < capacity; ++size)
    if (new Set(pasts.map((past) => Math.ceil(past / size))).size === Math.ceil(capacity / size) + 1) return size;
  return capacity;
}

/** What stands after --to: blocks need a capacity, and small ones to need several. */
function targetOptions(target, cases) {
  const tokens = tokensOf(cases);
  if (target === 'pyramid')
    return [`${target}:${blocksForEveryStep(cases, tokens)}`, '--capacity', String(tokens)];
  return target.startsWith('blocks') || target === 'tiles' ? [`${target}:5`, '--capacity', String(tokens + 3)] : [target];
}

/** Writes `output` by a command in the form that `options`, what follows --to, ask for; null, or the verdict of what could
 *  not be written. */
async function write(kvopt, command, model, options, output) {
  const {status, stdout, stderr} = await run(kvopt, [command, model, '-o', output, '--verify', 'off', '--format', 'json',
                                                     '--to', ...options]);
  const report = jsonOf(stdout);
  if (status === 1 && report && report.output === null)
    return {verdict: 'refused', reason: report.refused?.[0]?.code ?? 'nothing-to-rewrite'};
  if (status !== 0) return {verdict: 'FAILED', reason: `${command} exits with ${status}: ${stderr.trim()}`};
  return null;
}

const rewrite = (kvopt, model, options, output) => write(kvopt, 'rewrite', model, options, output);

/** The names of all targets. Recorded steps come round in rings with little to spare. */
async function targetNames(kvopt) {
  const listed = jsonOf((await run(kvopt, ['list', 'targets', '--format', 'json'])).stdout);
  return (listed?.targets ?? []).map(({name}) => name === 'onnx24-ring' ? `${name}:8` : name);
}

/** Whether a target rounds what it caches. */
const isRounding = (target) => ['int8', 'int4', 'int8-ring', 'int4-ring', 'int8-blocks'].includes(target);

/** The models in folders, each name once, with what is known of them: those with recorded steps whose names contain
 *  `part`. `recordings` are the folders of recorded cases. */
function sourcesIn(folders, part, recordings) {
  const names = new Set();
  const sources = [];
  for (const source of folders.flatMap((folder) => fs.readdirSync(folder).sort().map((name) => path.join(folder, name)))) {
    const facts = factsOf(source);
    const name = path.basename(source);
    if (names.has(name) || !name.includes(part) || !isComparable(facts) || !casesOf(source, recordings).length) continue;
    names.add(name);
    sources.push({source, facts});
  }
  return sources;
}

module.exports = {casesOf, isRounding, isSampled, rewrite, sourcesIn, targetNames, targetOptions, tokensOf, tolerancesOf, write};
