// kvopt's table of documented operators against the schemas of the ONNX Runtime that is installed.
'use strict';
const {modelBytes} = require('./model_file');

const values = {int: {int: 1}, float: {float: 1}, string: {string: 'NONE'}, ints: {ints: [1]}};
const one = {type: 'float32', dims: [1], data: Float32Array.of(1)};

/** What ONNX Runtime says of a node with so many operands and results and these attributes. */
async function complaint(judge, domain, op, attributes, count, results) {
  const inputs = Array.from({length: count}, (_, i) => ({name: `x${i}`, tensor: one}));
  const model = modelBytes({domain, op, opsets: {'': 21, [domain]: 1}, attributes, inputs,
    outputs: Array.from({length: results}, (_, i) => ({name: `y${i}`, type: 'float32'}))});
  const {crashed, error} = await judge.run({model, feeds: inputs});
  if (crashed) throw new Error(`ONNX Runtime crashes on ${op} with ${count} operands`);
  return error ?? '';
}

/** What the table says and the engine does not: a list of sentences. */
async function disagreements(judge, {domain, operators}) {
  const found = [];
  for (const [op, {inputs, outputs, attributes}] of Object.entries(operators)) {
    const least = inputs.reduce((last, name, i) => name.endsWith('?') ? last : i + 1, 0);
    const range = `[min=${least}, max=${inputs.length}]`;
    const results = outputs.filter((name) => !name.endsWith('?')).length;
    const tooMany = await complaint(judge, domain, op, {}, inputs.length + 1, results);
    if (!tooMany.includes(range)) found.push(`${op} takes ${range} operands: ${tooMany}`);
    for (const name of [...Object.keys(attributes), 'no_such_attribute']) {
      const said = await complaint(judge, domain, op, {[name]: values[attributes[name]?.type ?? 'int']}, least,
        results);
      if (said.includes(`Unrecognized attribute: ${name}`) === name in attributes)
        found.push(`${op}, attribute ${name}: ${said}`);
      if (said.includes('Mismatched attribute type')) found.push(`${op}, attribute ${name}: ${said}`);
    }
  }
  return found;
}

module.exports = {disagreements};
