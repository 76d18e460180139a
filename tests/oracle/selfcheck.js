// The oracle must notice what is wrong: a length fed wrongly, a recorded number that is another.
//
//   node selfcheck.js MODEL.onnx MANIFEST.json REF/CASE.onnx       exits with 1 if it does not
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const {replay} = require('./replay');
const {initializersIn, fields} = require('./tensor_file');

/** A copy of the case in which the last of the logits is larger by one, in the last step. */
function damaged(file, work) {
  const bytes = fs.readFileSync(file);
  const logits = initializersIn(bytes).filter(({name}) => name.endsWith('/output/logits')).pop();
  const [, , numbers] = [...fields(logits.bytes)].find(([number]) => number === 9);
  const last = numbers.length - 4;
  // These are the bytes of the file, not a copy.
  numbers.writeFloatLE(numbers.readFloatLE(last) + 1, last);
  const copy = path.join(work, 'damaged.onnx');
  fs.writeFileSync(copy, bytes);
  return copy;
}

async function main([model, manifestFile, file]) {
  const manifest = JSON.parse(fs.readFileSync(manifestFile));
  const work = fs.mkdtempSync(path.join(os.tmpdir(), 'kvopt-selfcheck-'));
  const run = async (driven, steps) => {
    const {cases, decoded} = await replay(model, driven, {float32: 1e-4, float16: 2e-2}, [steps]);
    return cases[0].equal && decoded.equal ? cases[0] : {equal: false, error: cases[0].error ?? decoded.error};
  };
  const lengths = manifest.lengths.map((length) => ({...length, feed: 'total_length'}));
  const runs = {
    'as it is': [true, await run(manifest, file)],
    'a length fed wrongly': [false, await run({...manifest, lengths}, file)],
    'another number recorded': [false, await run(manifest, damaged(file, work))],
  };
  fs.rmSync(work, {recursive: true});
  for (const [what, [expected, result]] of Object.entries(runs)) {
    const isRight = result.equal === expected;
    console.log(`${isRight ? 'ok' : 'WRONG'}  ${what}: ${result.equal ? 'equal' : result.error}`);
    if (!isRight) process.exitCode = 1;
  }
}

main(process.argv.slice(2));
