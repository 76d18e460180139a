// kvopt's runtime as a process that answers requests (operator_runner.cc).
'use strict';
const {spawn} = require('child_process');
const {arrays, elementTypes} = require('./model_file');

const typeNames = Object.fromEntries(Object.entries(elementTypes).map(([name, type]) => [type, name]));
const bytesOf = ({data}) => Buffer.from(data.buffer, data.byteOffset, data.byteLength);

class Subject {
  constructor(runner) {
    this.process = spawn(runner, {stdio: ['pipe', 'pipe', 'inherit'], env: {...process.env, OPENBLAS_NUM_THREADS: '1'}});
    this.chunks = [];
    this.waiting = null;
    this.process.stdout.on('data', (chunk) => {
      this.chunks.push(chunk);
      this.waiting?.();
    });
    this.process.on('exit', (code) => {
      this.ended = `the runner ended with ${code}`;
      this.waiting?.();
    });
  }

  async read(count) {
    while (this.chunks.reduce((sum, chunk) => sum + chunk.length, 0) < count) {
      if (this.ended) throw new Error(this.ended);
      await new Promise((resolve) => { this.waiting = resolve; });
      this.waiting = null;
    }
    const all = Buffer.concat(this.chunks);
    this.chunks = [all.subarray(count)];
    return all.subarray(0, count);
  }

  /** {plain, raised}, each {error} or {outputs: {name: {type, dims, data}}}; raised may be null. */
  async run({model, feeds}) {
    const inputs = feeds.map(({name, tensor}) => ({name, type: elementTypes[tensor.type], dims: tensor.dims,
      bytes: tensor.data.byteLength}));
    const header = Buffer.from(JSON.stringify({model: model.length, inputs}));
    const length = Buffer.alloc(4);
    length.writeUInt32LE(header.length);
    this.process.stdin.write(Buffer.concat([length, header, model, ...feeds.map(({tensor}) => bytesOf(tensor))]));
    const answer = JSON.parse(await this.read((await this.read(4)).readUInt32LE()));
    for (const result of [answer.plain, answer.raised]) {
      if (!result?.outputs) continue;
      const outputs = {};
      for (const {name, type, dims, bytes} of result.outputs) {
        const data = Uint8Array.from(await this.read(bytes));
        outputs[name] = {type: typeNames[type], dims, data: new arrays[typeNames[type]](data.buffer)};
      }
      result.outputs = outputs;
    }
    return answer;
  }

  close() {
    this.process.stdin.end();
  }
}

module.exports = {Subject};
