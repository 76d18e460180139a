// Decodes with a model that `kvopt rewrite --to ort-gqa` (or another target) wrote, in ONNX Runtime
// for Node.js. What is fed to caches and lengths comes from the manifest beside the model.
//
//   npm install onnxruntime-node && node decode.js model.onnx 1,2,3 8     prompt, tokens to make
'use strict';
const fs = require('fs');
const ort = require('onnxruntime-node');
const arrays = {float32: Float32Array, float16: Uint16Array, int32: Int32Array, int64: BigInt64Array};

async function main([model, prompt, count]) {
  const manifest = JSON.parse(fs.readFileSync(model.replace(/\.onnx$/, '.kv.json')));
  const session = await ort.InferenceSession.create(model);
  let tokens = prompt.split(',').map(Number);
  const capacity = manifest.capacity.value ?? tokens.length + Number(count);
  const tensor = (type, dims, fill) => new ort.Tensor(type, arrays[type].from(
    {length: dims.reduce((a, b) => a * b, 1)}, (_, i) => type === 'int64' ? BigInt(fill(i)) : fill(i)), dims);
  const caches = new Map(manifest.caches.map((cache) => [cache, tensor(cache.dtype, cache.shape.map((extent, axis) =>
    axis === cache.sequence_axis ? (cache.one_buffer ? capacity : 0) : extent === 'batch' || isNaN(extent) ? 1 : extent), () => 0)]));
  const made = [];
  for (let past = 0; made.length < count; past += tokens.length, tokens = made.slice(-1)) {
    const [rows, total] = [tokens.length, past + tokens.length];
    const lengths = {past_length: past, past_length_per_batch: past, total_length: total, total_length_per_batch: total,
                     total_length_minus_one: total - 1, total_length_per_batch_minus_one: total - 1};
    const feeds = {input_ids: tensor('int64', [1, rows], (i) => tokens[i]),
                   attention_mask: tensor('int64', [1, total], () => 1),
                   position_ids: tensor('int64', [1, rows], (i) => past + i)};
    for (const {input, dtype, shape, feed} of manifest.lengths)
      feeds[input] = tensor(dtype, shape.map(() => 1), () => lengths[feed]);
    for (const name of Object.keys(feeds)) if (!session.inputNames.includes(name)) delete feeds[name];
    const fetches = Object.fromEntries(session.outputNames.map((name) => [name, null]));
    for (const [cache, buffer] of caches) {
      feeds[cache.past] = buffer;
      if (cache.one_buffer) fetches[cache.present] = buffer;
    }
    const results = await session.run(feeds, fetches);
    for (const cache of caches.keys()) if (!cache.one_buffer) caches.set(cache, results[cache.present]);
    const scores = results.logits.data.slice(-results.logits.dims[2]);
    made.push(scores.indexOf(Math.max(...scores)));
  }
  console.log(made.join(','));
}

main(process.argv.slice(2));
