// All layouts (layouts.js) of one exported model, and then of what was written of it.
'use strict';
const fs = require('fs');
const {exportedManifest} = require('./exported_manifest');
const {ownTruths, replayArranged, replayRounded} = require('./arranged_replay');
const {isPadded, layouts} = require('./layouts');
const {batchOf, differentRows, rowsOfCase} = require('./recorded_rows');
const {readSteps} = require('./tensor_file');

/** Whether scales are computed of all numbers of a step, so that what is beside a token changes what it gives. */
const quantizesSteps = (model) => fs.readFileSync(model).includes('DynamicQuantizeLinear');

const truthsOf = (names, rows) => Object.fromEntries(names.map((name) => [name, rows]));

/** The rows of an exported model, by what is recorded. Rows with padding are taken only if the model gives the same for
 *  them without padding. */
async function usableRows({model, tolerances}, manifest, recorded) {
  const caches = new Set(manifest.caches.flatMap(({past, present}) => [past, present]));
  const usable = [];
  for (const row of differentRows(recorded.flatMap((steps) => rowsOfCase(steps, caches, caches.size > 0)))) {
    const {plain} = row.isPadded ? await replayArranged(model, manifest, {plain: [row]}, tolerances) : {};
    if (!plain || plain.verdict === 'equal') usable.push(row);
  }
  return usable;
}

/**
 * What an exported model does: {rows, verdicts, truths}. `truths` has, for each layout that applies, the rows that what
 * is written must give: those recorded where the verdict is `equal`; where it is `own`, the padding or the grouping of
 * tokens changes what the model gives, and what is written must give the same.
 */
async function exportedFacts(original) {
  const {model, cases, pairs, tolerances} = original;
  const recorded = cases.map(readSteps);
  const manifest = await exportedManifest(model, recorded.find((steps) => batchOf(steps) === 1) ?? recorded[0], pairs);
  const rows = await usableRows(original, manifest, recorded);
  if (rows.length === 0) throw new Error('no batch rows are recorded');
  const names = quantizesSteps(model) ? ['plain'] : layouts;
  const verdicts = await replayArranged(model, manifest, truthsOf(names, rows), tolerances);
  const equal = names.filter((name) => verdicts[name].verdict === 'equal');
  // A model that does not give what is recorded in the arrangement that was recorded was not driven as it has to be.
  const others = equal.includes('plain') ? names.filter((name) => verdicts[name].verdict === 'differs') : [];
  const own = others.length ? await ownTruths(model, manifest, others, rows) : {};
  for (const name of Object.keys(own)) verdicts[name] = {...verdicts[name], verdict: 'own'};
  return {rows, verdicts, truths: {...truthsOf(equal, rows), ...own}};
}

// The exported model is the same for all that is written of it.
let last = {};

/**
 * {verdicts} by layout. `original` is {model, cases, pairs, tolerances}; `model` with its `manifest` file is what was
 * written of it, and none to run the original itself. `isRounded`: it rounds what it caches.
 */
async function arrangedJob({original, model, manifest, isRounded}) {
  if (last.model !== original.model) last = {model: original.model, ...await exportedFacts(original)};
  const {rows, verdicts, truths} = last;
  if (!model) return {verdicts};
  const driven = JSON.parse(fs.readFileSync(manifest));
  if (!isRounded) return {verdicts: await replayArranged(model, driven, truths, original.tolerances)};
  // Where positions are columns, padding rotates keys otherwise, which then have other codes.
  const keepsPositions = (name) => !isPadded(name) || rows[0].tokens[0].inputs.position_ids;
  const equal = Object.keys(truths).filter((name) => verdicts[name].verdict === 'equal' && keepsPositions(name));
  return {verdicts: await replayRounded(model, driven, equal, rows, original.tolerances)};
}

module.exports = {arrangedJob, exportedFacts};
