// Writes what ONNX Runtime's graph optimizer makes of models.
//
//   node optimize.js OUT MODEL…     writes OUT/<level>/<name of the model's folder>.onnx for every level; a
//                                   model that ONNX Runtime does not load is left out, with its message
//                                   on stderr
'use strict';
const fs = require('fs');
const path = require('path');
const ort = require('onnxruntime-node');

const levels = ['basic', 'extended', 'all'];

async function main() {
  const [out, ...models] = process.argv.slice(2);
  for (const level of levels) fs.mkdirSync(path.join(out, level), {recursive: true});
  for (const model of models) {
    for (const level of levels) {
      const written = path.join(out, level, `${path.basename(path.dirname(model))}.onnx`);
      try {
        const session = await ort.InferenceSession.create(model, {
          graphOptimizationLevel: level,
          optimizedModelFilePath: written,
          intraOpNumThreads: 1,
          logSeverityLevel: 4,
        });
        await session.release();
      } catch (error) {
        console.error(`not optimized: ${path.basename(path.dirname(model))}: ${error.message.split('\n')[0]}`);
        fs.rmSync(written, {force: true});
        break;
      }
    }
  }
}

main();
