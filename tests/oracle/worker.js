// Replays models in ONNX Runtime, one after the other, for a process that may end if a model makes
// the engine crash.
//
//   node worker.js      a job a line of stdin, as JSON: {model, manifest, tolerances, cases, areWhole},
//                       {model} to load a model only, or {arranged} (arranged_job.js); its results a line of stdout
//
// A line `end` goes to stderr behind what the engine logged of a job.
'use strict';
const fs = require('fs');
const readline = require('readline');
const ort = require('onnxruntime-node');
const {arrangedJob} = require('./arranged_job');
const {replay} = require('./replay');

async function main() {
  for await (const line of readline.createInterface({input: process.stdin})) {
    const {model, manifest, tolerances, cases, areWhole, arranged} = JSON.parse(line);
    let results;
    try {
      if (arranged) results = await arrangedJob(arranged);
      else if (manifest) results = await replay(model, JSON.parse(fs.readFileSync(manifest)), tolerances, cases, areWhole);
      else results = {};
      if (!manifest && !arranged) await (await ort.InferenceSession.create(model, {logSeverityLevel: 4})).release();
    } catch (error) {
      results = {error: error.message};
    }
    fs.writeSync(2, '\nend\n');
    fs.writeSync(1, `${JSON.stringify(results)}\n`);
  }
}

main();
