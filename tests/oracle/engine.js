// Commands, and ONNX Runtime in a process of its own.
'use strict';
const path = require('path');
const {spawn} = require('child_process');

const jsonOf = (text) => {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
};

/** A command's exit code, signal and output. */
function run(command, args) {
  return new Promise((resolve) => {
    const child = spawn(command, args, {stdio: ['ignore', 'pipe', 'pipe']});
    const output = {stdout: '', stderr: ''};
    for (const name of ['stdout', 'stderr']) child[name].on('data', (data) => (output[name] += data));
    child.on('error', (error) => resolve({...output, status: null, stderr: error.message}));
    child.on('close', (status, signal) => resolve({...output, status, signal}));
  });
}

/** ONNX Runtime in a process of its own, for one model after the other. */
class Engine {
  start() {
    this.child = spawn(process.execPath, [path.join(__dirname, 'worker.js')], {stdio: ['pipe', 'pipe', 'pipe']});
    this.output = {stdout: '', stderr: ''};
    for (const name of ['stdout', 'stderr'])
      this.child[name].on('data', (data) => { this.output[name] += data; this.look(); });
    // A process that ended is told of by `close`.
    this.child.stdin.on('error', () => {});
    this.child.on('close', (status, signal) => this.end({error: `ONNX Runtime ends with ${status ?? signal}`}));
  }

  look() {
    const log = this.output.stderr.split('\nend\n');
    const line = this.output.stdout.indexOf('\n');
    if (log.length > 1 && line >= 0) this.end({...jsonOf(this.output.stdout.slice(0, line)), log: log[0]});
  }

  end(results) {
    const {resolve} = this;
    if (results.log === undefined) {
      results.log = this.output.stderr;
      this.child = null;
    }
    this.output = {stdout: '', stderr: ''};
    this.resolve = null;
    resolve?.(results);
  }

  replay(job) {
    if (!this.child) this.start();
    return new Promise((resolve) => {
      this.resolve = resolve;
      this.child.stdin.write(`${JSON.stringify(job)}\n`);
    });
  }

  stop() {
    this.child?.stdin.end();
  }
}

module.exports = {Engine, jsonOf, run};
