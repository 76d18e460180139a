// What `kvopt add-cache` and `kvopt make-dynamic` write takes other inputs than the export. Runs it in ONNX Runtime, driven
// by its manifest alone, against what PyTorch computed.
//
//   node changed_inputs.js KVOPT FOLDER… [--models substring] [--targets a,b]
//
// FOLDERs are those of matrix.js. A model without caches (`kind` in its model.json) gets some, and then takes what was
// recorded of whole sequences step by step: a prompt, then the tokens that follow. A model of fixed extents (with
// <model>/ref_dynamic) takes the batches, new tokens and earlier rows that were recorded there and in ref_from_past. In the
// form of the first target every model must be written; other targets may refuse one. A model that must be refused
// (`trap` in its model.json) must be, in every form. Exits with 1 if anything failed or a command's models were not equal.
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const {Engine} = require('./engine');
const {casesOf, sourcesIn, targetOptions, tolerancesOf, write} = require('./models');

const commands = [
  {name: 'add-cache', recordings: ['ref'], areWhole: true, isFor: ({facts}) => /^nocache/.test(facts.kind ?? '')},
  {name: 'make-dynamic', recordings: ['ref_dynamic', 'ref_from_past'], areWhole: false,
   isFor: ({source}) => fs.existsSync(path.join(source, 'ref_dynamic'))},
];

function parse(given) {
  const options = {models: '', targets: ['primitive', 'ort-gqa', 'onnx24', 'kvopt'], positional: []};
  for (let i = 0; i < given.length; ++i) {
    if (given[i] === '--models') options.models = given[++i];
    else if (given[i] === '--targets') options.targets = given[++i].split(',');
    else options.positional.push(given[i]);
  }
  return options;
}

/** What ONNX Runtime makes of a model that was written: {verdict, cases} or why it failed. */
async function replayed(engine, job) {
  const results = await engine.replay(job);
  const failed = (reason) => ({verdict: 'FAILED', reason});
  if (results.error) return failed(`${results.error} ${results.log}`);
  const wrong = [...results.cases, results.decoded].find((result) => result && !result.equal);
  if (wrong) return failed(`${wrong.case}: ${wrong.error}`);
  return {verdict: 'equal', cases: results.cases};
}

/** The verdict over one model in the form of a target. */
async function cellOf(kvopt, engine, command, {source, facts}, target, work) {
  const cases = casesOf(source, command.recordings);
  const model = path.join(work, 'model.onnx');
  const refused = await write(kvopt, command.name, path.join(source, 'model.onnx'), targetOptions(target, cases), model);
  if (facts.trap)
    return refused?.verdict === 'refused' ? {...refused, verdict: 'as-it-must'}
      : {verdict: 'FAILED', reason: refused?.reason ?? `is written, though: ${facts.trap}`};
  if (refused) return refused;
  const manifest = path.join(work, 'model.kv.json');
  return replayed(engine, {model, manifest, cases, areWhole: command.areWhole, tolerances: tolerancesOf(facts)});
}

/** The largest difference of every case. */
const differences = (cases) => cases.map(({case: name, maxAbs}) => `${name} ${maxAbs.toExponential(1)}`).join(', ');

function print({name}, {source, facts}, target, cell) {
  const limit = tolerancesOf(facts).float32.toExponential(0);
  const text = {
    'equal': () => `equal: ${differences(cell.cases)}, at most ${limit}`,
    'refused': () => `refused (${cell.reason})`,
    'as-it-must': () => `refused (${cell.reason}), as it must be`,
    'FAILED': () => `FAILED: ${cell.reason}`,
  }[cell.verdict]();
  console.log(`${path.basename(source)} ${name} --to ${target}: ${text}`);
}

/** All models of a command; whether none failed and some were equal. */
async function runCommand(kvopt, engine, command, folders, {models, targets}) {
  const cells = [];
  for (const model of sourcesIn(folders, models, command.recordings).filter(command.isFor)) {
    for (const [i, target] of targets.entries()) {
      const work = fs.mkdtempSync(path.join(os.tmpdir(), 'kvopt-changed-inputs-'));
      let cell = await cellOf(kvopt, engine, command, model, target, work);
      fs.rmSync(work, {recursive: true});
      if (i === 0 && cell.verdict === 'refused') cell = {verdict: 'FAILED', reason: `refused, ${cell.reason}`};
      print(command, model, target, cell);
      cells.push(cell);
    }
  }
  const count = (verdict) => cells.filter((cell) => cell.verdict === verdict).length;
  console.log(`${command.name}: ${count('equal')} equal, ${count('refused')} refused, ${count('as-it-must')} refused as they ` +
              `must be, ${count('FAILED')} failed`);
  return count('FAILED') === 0 && count('equal') > 0;
}

async function main() {
  const options = parse(process.argv.slice(2));
  const [kvopt, ...folders] = options.positional;
  const engine = new Engine();
  for (const command of commands)
    if (!await runCommand(kvopt, engine, command, folders, options)) process.exitCode = 1;
  engine.stop();
}

main();
