// The matrix model × target: what `kvopt rewrite` writes, run in ONNX Runtime and in kvopt's own
// runtime over the recorded steps of every model that has any.
//
//   node matrix.js KVOPT FOLDER… [--targets a,b] [--models substring]
//
// A FOLDER holds models as <model>/model.onnx with recorded steps in <model>/ref/<case>. A cell is
// `equal`, `refused` with the reason, or `FAILED`; failures are explained below the table. Exits
// with 1 if anything failed or nothing was equal.
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const {spawnSync} = require('child_process');

function parse(given) {
  const options = {targets: null, models: '', positional: []};
  for (let i = 0; i < given.length; ++i) {
    if (given[i] === '--targets') options.targets = given[++i].split(',');
    else if (given[i] === '--models') options.models = given[++i];
    else options.positional.push(given[i]);
  }
  return options;
}

const jsonOf = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
};

/** What is known of a model apart from its file. */
function factsOf(folder) {
  const file = path.join(folder, 'model.json');
  return (fs.existsSync(file) && jsonOf(fs.readFileSync(file))) || {};
}

/** 1e-4; 2e-2 for each side of the comparison that rounds to 16 bits. */
function toleranceOf(facts) {
  return /16/.test(facts.dtype ?? '') ? 2e-2 * (facts.roundings ?? 1) : 1e-4;
}

/** Recorded outputs are another computation's where the status says so. */
function isComparable(facts) {
  return !/structure only|in kind/.test(facts.status ?? '');
}

function casesOf(folder) {
  const cases = path.join(folder, 'ref');
  return fs.existsSync(cases) ? fs.readdirSync(cases).sort().map((name) => path.join(cases, name)) : [];
}

/** How many tokens there are before each step of a case, and in the end. */
function lengthsOf(folder) {
  const steps = fs.readdirSync(folder).map((name) => /^step(\d+)_q(\d+)$/.exec(name)).filter(Boolean)
    .sort((a, b) => a[1] - b[1]);
  return steps.reduce((lengths, step) => [...lengths, lengths.at(-1) + Number(step[2])], [0]);
}

/** How many tokens the longest case has. */
const tokensOf = (cases) => Math.max(...cases.map((folder) => lengthsOf(folder).at(-1)));

/** The smallest blocks of which every number that `capacity` needs holds the tokens before a step. */
function blocksForEveryStep(cases, capacity) {
  const pasts = cases.flatMap((folder) => lengthsOf(folder).slice(0, -1));
  for (let size = 1; size < capacity; ++size)
    if (new Set(pasts.map((past) => Math.ceil(past / size))).size === Math.ceil(capacity / size) + 1) return size;
  return capacity;
}

/** What stands after --to: blocks need a capacity, and small ones to need several. */
function targetOptions(target, cases) {
  const tokens = tokensOf(cases);
  if (target === 'pyramid')
    return [`${target}:${blocksForEveryStep(cases, tokens)}`, '--capacity', String(tokens)];
  return target.startsWith('blocks') ? [`${target}:5`, '--capacity', String(tokens + 3)] : [target];
}

function rewrite(kvopt, model, target, cases, output) {
  const run = spawnSync(kvopt, ['rewrite', model, '-o', output, '--verify', 'off', '--format', 'json',
                                '--to', ...targetOptions(target, cases)], {encoding: 'utf8'});
  const report = jsonOf(run.stdout);
  if (run.status === 1 && report && report.output === null)
    return {verdict: 'refused', reason: report.refused?.[0]?.code ?? 'nothing-to-rewrite'};
  if (run.status !== 0)
    return {verdict: 'FAILED', reason: `rewrite exits with ${run.status}: ${run.stderr.trim()}`};
  return null;
}

/** ONNX Runtime's warnings that a cache was copied, in what it logged. */
const copyWarnings = (log) => log.split('\n').filter((line) => /in-place optimization not activated/.test(line));

/** The numbers of blocks of a model's variants. */
const variantsIn = (manifest) =>
  (jsonOf(fs.readFileSync(manifest))?.variants ?? []).map((variant) => variant.past_blocks);

function replay(model, tolerance, cases) {
  const manifest = model.replace(/\.onnx$/, '.kv.json');
  const run = spawnSync(process.execPath,
    [path.join(__dirname, 'replay.js'), model, manifest, String(tolerance), ...cases], {encoding: 'utf8'});
  const results = run.stdout.split('\n').filter(Boolean).map((line) => jsonOf(line));
  const wrong = results.find((result) => !result?.equal);
  if (run.status !== 0 || results.length !== cases.length)
    return {verdict: 'FAILED', reason: `ends with ${run.status ?? run.signal}: ${run.stderr.trim()}`};
  if (wrong) return {verdict: 'FAILED', reason: `${wrong.case}: ${wrong.error}`};
  const warnings = copyWarnings(run.stderr);
  if (warnings.length) return {verdict: 'FAILED', reason: `a cache was copied: ${warnings[0]}`};
  const unused = variantsIn(manifest).filter((blocks) => !results.some(({variants}) => variants.includes(blocks)));
  if (unused.length) return {verdict: 'FAILED', reason: `no step took the variant of ${unused} blocks`};
  return {verdict: 'equal', cases: results.length, maxAbs: Math.max(...results.map((result) => result.maxAbs))};
}

/** The same steps in kvopt's runtime: null where it agrees. */
function replayInKvopt(kvopt, model, cases) {
  for (const folder of cases) {
    const run = spawnSync(kvopt, ['verify', model, '--reference', folder], {encoding: 'utf8'});
    if (run.status !== 0)
      return {verdict: 'FAILED', reason: `kvopt, ${path.basename(folder)}: ${(run.stderr || run.stdout).trim()}`};
  }
  return null;
}

/** The targets that keep every number: int8 rounds what it caches. */
function targetsOf(kvopt) {
  const listed = jsonOf(spawnSync(kvopt, ['list', 'targets', '--format', 'json'], {encoding: 'utf8'}).stdout);
  return (listed?.targets ?? []).map((entry) => entry.name).filter((name) => name !== 'int8');
}

function print(rows, targets) {
  const text = (cell) => cell.verdict === 'refused' ? `refused (${cell.reason})`
    : cell.verdict === 'equal' ? `equal ${cell.cases} (${cell.maxAbs.toExponential(0)})` : cell.verdict;
  const table = [['model', ...targets], ...rows.map((row) => [row.model, ...row.cells.map(text)])];
  const widths = table[0].map((_, column) => Math.max(...table.map((row) => row[column].length)));
  for (const row of table)
    console.log(row.map((cell, column) => cell.padEnd(widths[column])).join('  ').trimEnd());
}

function main() {
  const options = parse(process.argv.slice(2));
  const [kvopt, ...folders] = options.positional;
  const targets = options.targets ?? targetsOf(kvopt);
  const work = fs.mkdtempSync(path.join(os.tmpdir(), 'kvopt-oracle-'));
  const rows = [];
  const sources = folders.flatMap((folder) =>
    fs.readdirSync(folder).sort().map((name) => path.join(folder, name)));
  for (const source of sources) {
    const name = path.basename(source);
    const facts = factsOf(source);
    if (rows.some((row) => row.model === name)) continue;
    const cases = casesOf(source);
    if (!name.includes(options.models) || cases.length === 0 || !isComparable(facts)) continue;
    const cells = targets.map((target) => {
      const output = path.join(work, `${name}.${target.replace(/\W/g, '_')}.onnx`);
      return rewrite(kvopt, path.join(source, 'model.onnx'), target, cases, output) ??
        replayInKvopt(kvopt, output, cases) ?? replay(output, toleranceOf(facts), cases);
    });
    rows.push({model: name, cells});
  }
  fs.rmSync(work, {recursive: true});
  print(rows, targets);
  const all = rows.flatMap((row) => row.cells.map((cell, i) => ({...cell, model: row.model, target: targets[i]})));
  for (const cell of all.filter((each) => each.verdict === 'FAILED'))
    console.log(`FAILED  ${cell.model} --to ${cell.target}: ${cell.reason}`);
  const count = (verdict) => all.filter((cell) => cell.verdict === verdict).length;
  console.log(`${count('equal')} equal, ${count('refused')} refused, ${count('FAILED')} failed`);
  process.exitCode = count('FAILED') === 0 && count('equal') > 0 ? 0 : 1;
}

main();
