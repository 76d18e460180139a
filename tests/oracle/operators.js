// The operator oracle: random instances of every operator that attention models consist of, each
// attribute over its documented values and over sentinels, computed by kvopt's runtime (as it is, and
// after the rules that raise fused attention) and by ONNX Runtime.
//
//   node operators.js RUNNER [--instances N] [--seed N] [--only OPERATOR] [--show N]
//
// OPERATOR is a name in every domain, or one with its domain: Attention, ai.onnx::Attention.
// Prints one line per operator and a total. Exits with 1 where numbers differ, and where kvopt refuses
// an instance without naming an attribute or an operand.
'use strict';
const fs = require('fs');
const path = require('path');
const {Random} = require('./random');
const {modelBytes} = require('./model_file');
const {fromHalfBits: fromHalf} = require('../../examples/decode');
const {Judge} = require('./judge');
const {disagreements} = require('./schemas');
const {Subject} = require('./subject');

const families = ['fused_attention', 'fused_arithmetic', 'onnx_attention', 'onnx_tensors', 'recurrent'];
const table = JSON.parse(fs.readFileSync(path.join(__dirname, 'contrib_operators.json')));
const documented = table.operators;
const exceptions = JSON.parse(fs.readFileSync(path.join(__dirname, 'operator_exceptions.json')));

function optionsOf(words) {
  const options = {instances: 60, seed: 1, only: '', show: 3};
  for (let i = 0; i < words.length; i += 2) {
    const name = words[i].replace(/^--/, '');
    if (!(name in options)) throw new Error(`unknown option ${words[i]}`);
    options[name] = name === 'only' ? words[i + 1] : Number(words[i + 1]);
  }
  return options;
}

/** The instance with its model and the tensors that are fed. */
function prepared(instance, domain, op, opset) {
  const build = (tensors) => {
    const inputs = tensors.map((tensor, i) => tensor && {name: `x${i}`, tensor, constant: tensor.constant});
    const outputs = instance.outputs.map((type, i) => type && {name: `y${i}`, type});
    const opsets = {'': domain === '' ? opset : 21, ...domain ? {[domain]: opset} : {}};
    return {model: modelBytes({domain, op, opsets, attributes: instance.attributes, inputs, outputs}),
      feeds: inputs.filter((input) => input && !input.constant)};
  };
  return {...instance, op, domain, ...build(instance.inputs), judge: instance.judge && build(instance.judge)};
}

const reader = ({type, data}) => type === 'float16' ? (i) => fromHalf(data[i]) : (i) => Number(data[i]);

/** How one output differs, or ''. */
function difference(mine, theirs, number, instance) {
  if (mine.type !== theirs.type || String(mine.dims) !== String(theirs.dims))
    return `y${number} is ${mine.type} [${mine.dims}], not ${theirs.type} [${theirs.dims}]`;
  const isExact = !/^(float|bfloat)/.test(mine.type);
  const half = mine.type === 'float16' || instance.inputs.some((tensor) => tensor?.type === 'float16');
  const relative = isExact ? 0 : half ? 4e-3 : 2e-5;
  const absolute = isExact ? instance.codes ?? 0 : Math.max(instance.atol ?? 0, half ? 4e-3 : 2e-5);
  const [a, b] = [reader(mine), reader(theirs)];
  for (let i = 0; i < mine.data.length; ++i) {
    const [x, y] = [a(i), b(i)];
    const isClose = Object.is(x, y) || x === y || Math.abs(x - y) <= absolute + relative * Math.abs(y);
    if (!isClose && !instance.ignore?.(number, i)) return `y${number}[${i}] is ${x}, not ${y}`;
  }
  return '';
}

function compared(result, judged, instance) {
  for (let i = 0; i < instance.outputs.length; ++i) {
    if (!instance.outputs[i]) continue;
    const [mine, theirs] = [result.outputs[`y${i}`], judged.outputs[`y${i}`]];
    const problem = mine && theirs ? difference(mine, theirs, i, instance) : `y${i} is missing`;
    if (problem) return problem;
  }
  return '';
}

/** Whether a refusal says which attribute, operand or result it is about. */
function isNamed(message, {op, domain, attributes}) {
  const known = domain ? documented[op] : undefined;
  const names = [...Object.keys(attributes), ...known ? Object.keys(known.attributes) : [],
    ...known ? [...known.inputs, ...known.outputs].map((name) => name.replace(/[?*]$/, '')) : []];
  const words = message.toLowerCase();
  return names.some((name) => words.includes(name.toLowerCase())) || /operand|mask|result|past/.test(words);
}

/** Whether the file of exceptions explains that numbers differ: by a tag of the instance's. */
const isException = ({op, domain, tags}) => exceptions.some(({operator, tag}) =>
  operator === (domain ? `${domain}::${op}` : op) && tags?.includes(tag));

function describe(instance) {
  const attributes = Object.entries(instance.attributes)
    .map(([name, value]) => `${name}=${JSON.stringify(Object.values(value)[0])}`).join(' ');
  const operands = instance.inputs.map((tensor) => tensor ? `${tensor.type}[${tensor.dims}]` : '-');
  return `<${attributes}> (${operands.join(', ')}) -> ${instance.outputs.length}`;
}

async function main([runner, ...words]) {
  const options = optionsOf(words);
  const subject = new Subject(runner);
  const judge = new Judge();
  const total = {instances: 0, equal: 0, raised: 0, refused: 0, judgeRefused: 0, crashed: 0, explained: 0,
    different: 0};
  const unknown = options.only ? [] : await disagreements(judge, table);
  unknown.forEach((sentence) => console.log(`    the table of operators: ${sentence}`));
  let isWrong = unknown.length > 0;
  for (const family of families.map((name) => require(`./operators/${name}`)))
    for (const [op, {make, share, opset}] of Object.entries(family.operators)) {
      if (options.only && ![op, `${family.domain || 'ai.onnx'}::${op}`].includes(options.only)) continue;
      const random = new Random(options.seed * 7919 + [...op].reduce((sum, c) => (sum * 31 + c.charCodeAt(0)) % 65521, 7));
      const counts = Object.fromEntries(Object.keys(total).map((name) => [name, 0]));
      let shown = 0;
      const report = (text, instance) => {
        isWrong = true;
        if (shown++ < options.show) console.log(`    ${text}\n      ${describe(instance)}`);
      };
      for (let i = 0; i < Math.ceil(options.instances * share); ++i) {
        const instance = prepared(make(random), family.domain, op, opset ?? family.opset);
        const [mine, theirs] = await Promise.all([subject.run(instance),
          judge.run(instance.judge ?? instance, instance.outputs)]);
        ++counts.instances;
        if (theirs.crashed) ++counts.crashed;
        else if (theirs.error) ++counts.judgeRefused;
        if (mine.plain.error) {
          ++counts.refused;
          if (!theirs.error && !theirs.crashed && !isNamed(mine.plain.error, instance))
            report(`refused without a name: ${mine.plain.error}`, instance);
          if (process.env.KVOPT_SHOW_REFUSALS && !theirs.error && !theirs.crashed) console.log(`    refused: ${mine.plain.error}`);
          continue;
        }
        if (theirs.error || theirs.crashed) continue;
        const problem = compared(mine.plain, theirs, instance);
        // A rule may rest on a contract of caches that the instance does not keep.
        const isRaised = mine.raised && !instance.unraised;
        const raised = !isRaised ? '' : mine.raised.error ?? compared(mine.raised, theirs, instance);
        if (isRaised && !raised) ++counts.raised;
        if (!problem && !raised) {
          ++counts.equal;
        } else if (isException(instance)) {
          ++counts.explained;
        } else {
          ++counts.different;
          report(problem || `raised: ${raised}`, instance);
        }
      }
      for (const name of Object.keys(total)) total[name] += counts[name];
      console.log(line(family.domain ? `${family.domain}::${op}` : op, counts));
    }
  console.log(line('total', total));
  subject.close();
  judge.close();
  process.exitCode = isWrong || total.different ? 1 : 0;
}

function line(name, counts) {
  const {instances, equal, raised, refused, judgeRefused, crashed, explained, different} = counts;
  return `${name.padEnd(48)} ${String(instances).padStart(5)} instances: ${equal} equal (${raised} raised), ` +
    `${refused} refused by kvopt, ${judgeRefused} by ONNX Runtime, ${crashed} crash it, ` +
    `${explained} explained, ${different} different`;
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
