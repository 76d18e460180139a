// The oracle must notice what is wrong: a length fed wrongly, a recorded number that is another.
//
//   node selfcheck.js MODEL.onnx MANIFEST.json REF/CASE       exits with 1 if it does not
'use strict';
const fs = require('fs');
const os = require('os');
const path = require('path');
const {replay} = require('./replay');

/** A copy of the case in which the first of an output's numbers is larger by one, in the last step. */
function damaged(folder, work) {
  const copy = path.join(work, 'damaged');
  fs.cpSync(folder, copy, {recursive: true});
  const last = fs.readdirSync(copy).sort((a, b) => parseInt(a.slice(4)) - parseInt(b.slice(4))).pop();
  const file = path.join(copy, last, 'output_0.pb');
  const bytes = fs.readFileSync(file);
  // The numbers are the end of the file.
  bytes.writeFloatLE(bytes.readFloatLE(bytes.length - 4) + 1, bytes.length - 4);
  fs.writeFileSync(file, bytes);
  return copy;
}

async function main([model, manifestFile, folder]) {
  const manifest = JSON.parse(fs.readFileSync(manifestFile));
  const work = fs.mkdtempSync(path.join(os.tmpdir(), 'kvopt-selfcheck-'));
  const run = async (driven, steps) => {
    const {cases, decoded} = await replay(model, driven, {float32: 1e-4, float16: 2e-2}, [steps]);
    return cases[0].equal && decoded.equal ? cases[0] : {equal: false, error: cases[0].error ?? decoded.error};
  };
  const lengths = manifest.lengths.map((length) => ({...length, feed: 'total_length'}));
  const runs = {
    'as it is': [true, await run(manifest, folder)],
    'a length fed wrongly': [false, await run({...manifest, lengths}, folder)],
    'another number recorded': [false, await run(manifest, damaged(folder, work))],
  };
  fs.rmSync(work, {recursive: true});
  for (const [what, [expected, result]] of Object.entries(runs)) {
    const isRight = result.equal === expected;
    console.log(`${isRight ? 'ok' : 'WRONG'}  ${what}: ${result.equal ? 'equal' : result.error}`);
    if (!isRight) process.exitCode = 1;
  }
}

main(process.argv.slice(2));
