// The matrix model × target: what `kvopt rewrite` writes, run in ONNX Runtime and in kvopt's own
// runtime over the recorded steps of every model that has any.
//
//   node matrix.js KVOPT FOLDER… [--targets a,b] [--models substring] [--one-of N]
//
// A FOLDER holds models as <model>/model.onnx with recorded steps in <model>/ref/<case>.onnx or
// the folder <model>/ref/<case>. A cell is
// `equal`, `refused` with the reason, or `FAILED`; failures are explained below the table.
// `kvopt-only` is what ONNX Runtime does not load before the rewrite either, or has an operator that its CPU
// provider does not compute, `not-run` a model that is
// said not to run at all, and does not before the rewrite either, and `as-export` one that is equal in
// ONNX Runtime, and in kvopt's runtime no farther from PyTorch than the export, whose roundings alone
// take it beyond the tolerance. The first case is also decoded by the example. --one-of takes one of N
// cells, always the same ones, and leaves the others empty. Exits with 1 if anything failed or nothing was equal.
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const {Engine, jsonOf, run} = require('./engine');
const {casesOf, isRounding, isSampled, rewrite, sourcesIn, targetNames, targetOptions, tolerancesOf} = require('./models');

function parse(given) {
  const options = {targets: null, models: '', oneOf: 1, positional: []};
  for (let i = 0; i < given.length; ++i) {
    if (given[i] === '--targets') options.targets = given[++i].split(',');
    else if (given[i] === '--models') options.models = given[++i];
    else if (given[i] === '--one-of') options.oneOf = Number(given[++i]);
    else options.positional.push(given[i]);
  }
  return options;
}

/** ONNX Runtime's warnings that a cache was copied, in what it logged. */
const copyWarnings = (log) => log.split('\n').filter((line) => /in-place optimization not activated/.test(line));

/** The numbers of blocks of a model's variants; of none where its pieces are run. */
function variantsIn(file) {
  const manifest = jsonOf(fs.readFileSync(file));
  return manifest?.tiles ? [] : (manifest?.variants ?? []).map((variant) => variant.past_blocks);
}

/** Complaints about operators that ONNX Runtime computes on GPUs only, of float16 and bfloat16 only. */
const isOfGpuOperator = (text) => /operator \(PagedAttention\)|PagedAttention execution is not implemented/.test(text);

/** The verdict over a model in ONNX Runtime: the recorded steps, and the example that decodes. */
async function replay(engine, model, source, facts, cases) {
  const manifest = model.replace(/\.onnx$/, '.kv.json');
  const results = await engine.replay({model, manifest, cases, tolerances: tolerancesOf(facts)});
  const failed = (reason) => ({verdict: 'FAILED', reason});
  if (results.error) {
    if (isOfGpuOperator(results.error)) return {verdict: 'kvopt-only', reason: 'GPU operator'};
    const before = await engine.replay({model: path.join(source, 'model.onnx')});
    return before.error ? {verdict: 'kvopt-only', reason: facts.dtype ?? 'no kernels'} : failed(`${results.error} ${results.log}`);
  }
  const all = [...results.cases, ...(results.decoded ? [results.decoded] : [])];
  const wrong = all.find((result) => !result.equal);
  if (wrong) return failed(`${wrong.case}: ${wrong.error}`);
  const [warning] = copyWarnings(results.log);
  if (warning) return failed(`a cache was copied: ${warning}`);
  const unused = variantsIn(manifest).filter((blocks) => !results.cases.some(({variants}) => variants.includes(blocks)));
  if (unused.length) return failed(`no step took the variant of ${unused} blocks`);
  return {verdict: 'equal', cases: results.cases.length, decoded: Boolean(results.decoded),
          maxAbs: Math.max(...results.cases.map((result) => result.maxAbs))};
}

/** The same steps in kvopt's runtime, of all models that were written: verdicts by folder, of those
 *  that differ. */
async function replayInKvopt(kvopt, folders) {
  const models = folders.map((folder) => path.join(folder, 'model.onnx'));
  const options = ['--references', '--forms', 'exported', '--format', 'json', '-t', '1'];
  const {status, signal, stdout, stderr} = await run(kvopt, ['verify', ...models, ...options]);
  const table = jsonOf(stdout);
  // One table of several models, or nothing if one of them ends the program: then one by one.
  if (!table && folders.length > 1)
    return Object.assign({}, ...await Promise.all(folders.map((folder) => replayInKvopt(kvopt, [folder]))));
  if (!table) return {[folders[0]]: {verdict: 'FAILED', reason: `kvopt ends with ${status ?? signal}: ${stderr.trim()}`}};
  const wrong = {};
  for (const {model, case: name, forms: {exported}} of table.cases) {
    const folder = folders.find((each) => folders.length === 1 || path.basename(each) === model);
    if (exported.verdict !== 'equal')
      wrong[folder] ??= {verdict: 'FAILED', ends: exported.verdict === 'failed', maxAbs: exported.max_abs,
                         reason: `kvopt, ${name}: ${exported.verdict} by ${exported.max_abs}: ${exported.reason ?? ''}`};
  }
  return wrong;
}

function print(rows, targets) {
  const text = (cell) => cell.verdict === 'equal' ? `equal ${cell.cases} (${cell.maxAbs.toExponential(0)})`
    : cell.verdict === 'FAILED' ? cell.verdict : `${cell.verdict} (${cell.reason})`;
  const cellsOf = (row) => targets.map((target) => row.targets.includes(target) ? text(row.cells[row.targets.indexOf(target)]) : '');
  const table = [['model', ...targets], ...rows.map((row) => [row.model, ...cellsOf(row)])];
  const widths = table[0].map((_, column) => Math.max(...table.map((row) => row[column].length)));
  for (const row of table)
    console.log(row.map((cell, column) => cell.padEnd(widths[column])).join('  ').trimEnd());
}

/** The folder of a model that a rewrite writes, with what `verify --references` looks for. */
function folderFor(work, source, target) {
  const folder = path.join(work, path.basename(source), target.replace(/\W/g, '_'));
  fs.mkdirSync(folder, {recursive: true});
  fs.symlinkSync(path.resolve(source, 'ref'), path.join(folder, 'ref'));
  const facts = path.join(source, 'model.json');
  if (fs.existsSync(facts)) fs.copyFileSync(facts, path.join(folder, 'model.json'));
  return folder;
}

/** The cells of one model, for some targets. */
async function rowOf(kvopt, engine, source, facts, targets, work) {
  const cases = casesOf(source);
  const folders = targets.map((target) => folderFor(work, source, target));
  const cells = [];
  for (const [i, target] of targets.entries())
    cells.push(await rewrite(kvopt, path.join(source, 'model.onnx'), targetOptions(target, cases), path.join(folders[i], 'model.onnx')));
  const written = folders.filter((_, i) => !cells[i]);
  const wrong = written.length ? await replayInKvopt(kvopt, written) : {};
  // What the export does in kvopt's runtime explains what a rewritten model does.
  const [before] = Object.keys(wrong).length ? Object.values(await replayInKvopt(kvopt, [source])) : [];
  for (const [i, folder] of folders.entries()) {
    const differs = wrong[folder];
    if (differs?.ends && before?.ends && /does not run/.test(facts.status ?? ''))
      cells[i] = {verdict: 'not-run', reason: 'nor does the export'};
    const isExplained = differs && before && !differs.ends && !before.ends && differs.maxAbs <= before.maxAbs;
    if (differs && !isExplained) cells[i] ??= differs;
    cells[i] ??= await replay(engine, path.join(folder, 'model.onnx'), source, facts, cases);
    if (isExplained && cells[i].verdict === 'equal')
      cells[i] = {...cells[i], verdict: 'as-export', reason: `off by ${before.maxAbs.toExponential(1)}`};
  }
  fs.rmSync(path.join(work, path.basename(source)), {recursive: true, force: true});
  return {model: path.basename(source), targets, cells};
}

async function main() {
  const options = parse(process.argv.slice(2));
  const [built, ...folders] = options.positional;
  const work = fs.mkdtempSync(path.join(os.tmpdir(), 'kvopt-oracle-'));
  // The same program for all cells, whatever is built in the meantime.
  const kvopt = path.join(work, 'kvopt');
  fs.copyFileSync(built, kvopt);
  const targets = options.targets ?? (await targetNames(kvopt)).filter((name) => !isRounding(name));
  const sources = sourcesIn(folders, options.models);
  const rows = [];
  let next = 0;
  // One lane per CPU: a model is rewritten and run while another one is.
  await Promise.all(os.cpus().map(async () => {
    const engine = new Engine();
    for (let i = next++; i < sources.length; i = next++) {
      const {source, facts} = sources[i];
      const taken = targets.filter((target) => isSampled(source, target, options.oneOf));
      rows[i] = await rowOf(kvopt, engine, source, facts, taken, work);
    }
    engine.stop();
  }));
  fs.rmSync(work, {recursive: true});
  print(rows, targets);
  const all = rows.flatMap((row) => row.cells.map((cell, i) => ({...cell, model: row.model, target: row.targets[i]})));
  for (const cell of all.filter((each) => each.verdict === 'FAILED'))
    console.log(`FAILED  ${cell.model} --to ${cell.target}: ${cell.reason}`);
  const count = (verdict) => all.filter((cell) => cell.verdict === verdict).length;
  const decoded = all.filter((cell) => cell.decoded).length;
  console.log(`${count('equal')} equal, ${count('as-export')} as the export, ${count('refused')} refused, ` +
              `${count('kvopt-only')} in kvopt only, ` +
              `${count('not-run')} that do not run, ${count('FAILED')} failed; the example decodes ${decoded}`);
  process.exitCode = count('FAILED') === 0 && count('equal') > 0 ? 0 : 1;
}

main();
