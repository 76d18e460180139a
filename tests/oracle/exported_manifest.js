// How to drive a model as it was exported, in the words of a manifest: what its recorded steps say of its caches. kvopt
// has no part in it.
'use strict';
const ort = require('onnxruntime-node');
const {areEqual, batchOf} = require('./recorded_rows');

/** The output whose numbers an input gets in the next step, of those that have the input's rank and type. */
function presentOf(past, steps, pairs) {
  const outputs = Object.values(steps[0].outputs);
  const listed = Object.keys(pairs).find((present) => pairs[present] === past.name);
  if (listed) return steps[0].outputs[listed];
  const next = steps[1]?.inputs[past.name];
  const same = next && outputs.find((output) => areEqual(output, next));
  return same ?? steps[0].outputs[past.name.replace(/^past(_key_values)?/, 'present')];
}

/** Extents as a manifest has them: a name for those that come with the batch or with rows. */
function shapeOf(past, declared, axis, batch) {
  return past.dims.map((extent, i) => {
    if (i === axis) return 'past';
    if (typeof declared[i] === 'number') return declared[i];
    return batch > 0 && extent > 0 && extent % batch === 0 && i === declared.findIndex((each, at) => at !== axis && typeof each !== 'number')
      ? `${extent / batch}*batch` : extent;
  });
}

/** The manifest of an exported model, of the steps of one case. `pairs` are states by the names of their outputs. */
async function exportedManifest(model, steps, pairs) {
  const session = await ort.InferenceSession.create(model, {logSeverityLevel: 4});
  const declared = Object.fromEntries(session.inputMetadata.map(({name, shape}) => [name, shape]));
  await session.release();
  const caches = [];
  for (const past of Object.values(steps[0].inputs)) {
    if (!declared[past.name] || /mask|_ids$|position|inputs_embeds|beam_idx|use_cache_branch/.test(past.name)) continue;
    const present = presentOf(past, steps, pairs);
    if (!present || present.dims.length !== past.dims.length) continue;
    const axis = past.dims.findIndex((extent, i) => extent !== present.dims[i]);
    const grows = axis >= 0;
    caches.push({kind: 'self', past: past.name, present: present.name, one_buffer: false, dtype: past.type, window: 0,
                 policy: grows ? 'fixed' : 'state', sequence_axis: grows ? axis : 0,
                 shape: shapeOf(past, declared[past.name], axis, batchOf(steps) ?? 1)});
  }
  return {schema: 'kvopt/manifest/1', target: 'exported', contract: 'growing', capacity: {value: null}, caches, lengths: []};
}

module.exports = {exportedManifest};
