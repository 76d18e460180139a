// ONNX Runtime in a process of its own, which is started again where an instance crashes it.
'use strict';
const {fork} = require('child_process');

class Judge {
  start() {
    this.child = fork(__filename, ['--child'], {serialization: 'advanced', stdio: ['ignore', 'ignore', 'ignore', 'ipc']});
    this.child.on('message', (answer) => this.finish?.(answer));
    this.child.on('exit', () => {
      this.child = null;
      this.finish?.({crashed: true});
    });
  }

  /** {outputs}, {error} or {crashed}. */
  run({model, feeds}) {
    if (!this.child) this.start();
    return new Promise((resolve) => {
      this.finish = (answer) => {
        this.finish = null;
        resolve(answer);
      };
      this.child.send({model, feeds: feeds.map(({name, tensor: {type, dims, data}}) => ({name, type, dims, data}))});
    });
  }

  close() {
    this.child?.disconnect();
  }
}

async function judge(ort, {model, feeds}) {
  let session;
  try {
    session = await ort.InferenceSession.create(new Uint8Array(model), {graphOptimizationLevel: 'disabled',
      logSeverityLevel: 4, intraOpNumThreads: 1, interOpNumThreads: 1});
    const inputs = Object.fromEntries(feeds.map(({name, type, dims, data}) =>
      [name, new ort.Tensor(type, data, dims)]));
    const results = await session.run(inputs);
    return {outputs: Object.fromEntries(Object.entries(results).map(([name, {type, dims, data}]) =>
      [name, {type, dims: [...dims], data: type === 'float16' ? new Uint16Array(data.buffer, data.byteOffset, data.length) : data}]))};
  } catch (error) {
    return {error: error.message};
  } finally {
    await session?.release();
  }
}

if (process.argv[2] === '--child') {
  const ort = require('onnxruntime-node');
  process.on('message', async (instance) => process.send(await judge(ort, instance)));
}
module.exports = {Judge};
