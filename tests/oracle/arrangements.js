// Padding, holes, unequal rows, chunks: what `kvopt rewrite` writes, run in ONNX Runtime in arrangements of tokens that
// nobody recorded (layouts.js), driven by its manifest alone. What a visible token gives does not depend on the padding
// beside it, so that what PyTorch computed of single rows says what every arrangement has to give.
//
//   node arrangements.js KVOPT FOLDER… [--forms a,b] [--models substring] [--one-of N] [--part K]
//        [--strict] [--report FILE]
//
// FOLDERs are those of matrix.js. Each arrangement first runs in the exported model, which kvopt has no part in. Where that
// gives the recorded numbers, a rewritten model must give them too (FAILED if not). Where padding changes what the export
// gives, a rewritten model should give what the export gives (DEPARTS if not, an error with --strict only). In both cases
// the manifest may say that the model does not take the arrangement; then the host has to refuse it. Forms that round what
// they cache are compared with what they give without padding. --one-of takes one of N pairs of model and form, the same
// for the same K. --report writes all verdicts as JSON. Exits with 1 if anything failed or nothing was compared.
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const {Engine} = require('./engine');
const {layouts} = require('./layouts');
const {casesOf, isRounding, isSampled, rewrite, sourcesIn, targetNames, targetOptions, tokensOf, tolerancesOf} = require('./models');

function parse(given) {
  const options = {forms: null, models: '', oneOf: 1, part: 0, isStrict: false, report: null, positional: []};
  for (let i = 0; i < given.length; ++i) {
    if (given[i] === '--forms') options.forms = given[++i].split(',');
    else if (given[i] === '--models') options.models = given[++i];
    else if (given[i] === '--one-of') options.oneOf = Number(given[++i]);
    else if (given[i] === '--part') options.part = Number(given[++i]);
    else if (given[i] === '--strict') options.isStrict = true;
    else if (given[i] === '--report') options.report = given[++i];
    else options.positional.push(given[i]);
  }
  return options;
}

/** What follows --to in forms other than a target's usual one. */
const variations = {
  'kvopt-fixed': (tokens) => ['kvopt', '--capacity', String(tokens + 1)],
  'kvopt-hidden-rows': () => ['kvopt', '--hidden-rows', 'undefined'],
  'kvopt-first-layer': () => ['kvopt', '--layers', '0'],
  'onnx24-fixed': (tokens) => ['onnx24', '--capacity', String(tokens + 1)],
  'ort-gqa-unpadded': () => ['ort-gqa', '--padding', 'none'],
  'primitive-float16': () => ['primitive', '--cache-dtype', 'float16'],
};

function optionsOf(form, cases) {
  if (variations[form]) return variations[form](tokensOf(cases));
  if (form === 'pyramid') return ['pyramid:4', '--capacity', String(tokensOf(cases) + 1)];
  if (form === 'int8-blocks') return ['int8-blocks:5', '--capacity', String(tokensOf(cases) + 3)];
  return targetOptions(form, cases);
}

const isRounded = (form) => isRounding(form) || form === 'primitive-float16';

/** Whether an arrangement applies to a model, by the verdict of the export. */
const isApplying = ({verdict}) => ['equal', 'own'].includes(verdict);

/** One form of one model: {form, refused} or {form, verdicts} of the layouts that apply. */
async function cellOf(kvopt, engine, original, form, work) {
  const model = path.join(work, 'model.onnx');
  const refused = await rewrite(kvopt, original.model, optionsOf(form, original.cases), model);
  if (refused) return {form, refused};
  const {verdicts, error} = await engine.replay({arranged: {
    original, model, manifest: path.join(work, 'model.kv.json'), isRounded: isRounded(form)}});
  return verdicts ? {form, verdicts} : {form, error};
}

/** All forms of one model, if the export gives what is recorded in any arrangement. */
async function rowOf(kvopt, engine, {source, facts}, forms, work) {
  const original = {model: path.join(source, 'model.onnx'), cases: casesOf(source), pairs: facts.state_pairs ?? {},
                    tolerances: tolerancesOf(facts)};
  const row = {model: path.basename(source), forms: []};
  const {verdicts, error} = await engine.replay({arranged: {original}});
  if (!verdicts) return {...row, error};
  row.original = verdicts;
  for (const form of Object.values(verdicts).some(isApplying) ? forms : []) {
    const folder = fs.mkdtempSync(path.join(work, 'form-'));
    row.forms.push(await cellOf(kvopt, engine, original, form, folder));
    fs.rmSync(folder, {recursive: true});
  }
  return row;
}

/** Whether a verdict is neither the right numbers nor a refusal. */
const isWrong = (verdict) => verdict !== undefined && !['equal', 'refused'].includes(verdict);

/** One line for each layout: of how many models it gives what is recorded, or something else that must be kept, and how
 *  many forms of them give the same. */
function print(rows) {
  const line = (name, ...cells) => console.log(`${name.padEnd(16)}${cells.map((cell) => String(cell).padStart(14)).join('')}`);
  line('arrangement', 'as recorded', 'as exported', 'equal', 'host refuses', 'DEPARTS', 'FAILED');
  for (const layout of layouts) {
    const cells = rows.flatMap(({original, forms}) => forms.map(({verdicts}) =>
      ({verdict: verdicts?.[layout]?.verdict, isOwn: original?.[layout]?.verdict === 'own'})));
    const count = (isCounted) => cells.filter(isCounted).length;
    const models = (verdict) => `${rows.filter(({original}) => original?.[layout]?.verdict === verdict).length} models`;
    line(layout, models('equal'), models('own'), count(({verdict}) => verdict === 'equal'),
         count(({verdict}) => verdict === 'refused'), count(({verdict, isOwn}) => isWrong(verdict) && isOwn),
         count(({verdict, isOwn}) => isWrong(verdict) && !isOwn));
  }
}

/** Lines for all that went wrong, {line, departs}: what departs from an export that padding changes, and what failed. */
function failuresOf({model, original, forms}) {
  const failed = (line) => [{line: `${model} --to ${line}`, departs: false}];
  return forms.flatMap(({form, refused, verdicts, error}) => {
    if (refused) return refused.verdict === 'FAILED' ? failed(`${form}: ${refused.reason}`) : [];
    if (!verdicts) return isOfOthers(error) ? [] : failed(`${form}: ${error}`);
    return Object.entries(verdicts).filter(([, {verdict}]) => isWrong(verdict)).map(([layout, {verdict, reason}]) =>
      ({line: `${model} --to ${form}, ${layout}: ${reason ?? verdict}`, departs: original[layout].verdict === 'own'}));
  });
}

/** Complaints about operators that ONNX Runtime computes on GPUs only. */
const isOfOthers = (error) => /PagedAttention/.test(error);

/** Forms that few models can have. */
const rare = ['ring', 'onnx24-ring:8'];

/** Forms of a model that are taken: rare ones of each model that is taken. */
function sampledForms(source, all, {oneOf, part}) {
  const models = Math.min(oneOf, 6);
  const isTaken = (form) => rare.includes(form) || isSampled(source, form, Math.ceil(oneOf / models), Math.floor(part / models));
  return isSampled(source, '', models, part % models) ? all.filter(isTaken) : [];
}

async function main() {
  const options = parse(process.argv.slice(2));
  const [built, ...folders] = options.positional;
  const work = fs.mkdtempSync(path.join(os.tmpdir(), 'kvopt-arrangements-'));
  const kvopt = path.join(work, 'kvopt');
  fs.copyFileSync(built, kvopt);
  const all = options.forms ?? [...(await targetNames(kvopt)).filter((name) => name !== 'paged'), ...Object.keys(variations)];
  const engine = new Engine();
  const rows = [];
  for (const source of sourcesIn(folders, options.models)) {
    const forms = sampledForms(source.source, all, options);
    if (forms.length) rows.push(await rowOf(kvopt, engine, source, forms, work));
  }
  engine.stop();
  fs.rmSync(work, {recursive: true});
  if (options.report) fs.writeFileSync(options.report, JSON.stringify(rows, null, 1));
  print(rows);
  const failures = rows.flatMap(failuresOf);
  for (const {line, departs} of failures) console.log(`${departs ? 'DEPARTS' : 'FAILED'}  ${line}`);
  const failed = failures.filter(({departs}) => options.isStrict || !departs).length;
  const verdicts = rows.flatMap(({forms}) => forms).flatMap((cell) => Object.values(cell.verdicts ?? {}));
  const equal = verdicts.filter(({verdict}) => verdict === 'equal').length;
  const unused = rows.filter(({original}) => !Object.values(original ?? {}).some(isApplying));
  if (unused.length) console.log(`in no arrangement: ${unused.map(({model, error}) => error ? `${model} (${error})` : model).join(', ')}`);
  console.log(`${rows.length} models, ${equal} arrangements equal, ${failures.filter(({departs}) => departs).length} depart from the export, ` +
              `${failures.filter(({departs}) => !departs).length} failed`);
  process.exitCode = failed === 0 && equal > 0 ? 0 : 1;
}

main();
