// Arrangements: where the tokens of batch rows are in the steps of a run, and where padding is.
'use strict';

/** Marks a column of a row that is padding. */
const padding = -1;

// The first columns of each row, x for a token and . for padding; all later columns are tokens. `steps` are the numbers
// of new columns, and 1 for all that are left.
const decoding = [7, 1, 1, 1, 1, 1, 3];
const layouts = {
  plain: {rows: ['x'], steps: decoding},
  chunks: {rows: ['x'], steps: [3, 4, 1, 2, 5]},
  left: {rows: ['..x'], steps: decoding},
  right: {rows: ['xxxxx..'], steps: decoding},
  holes: {rows: ['xx.x..x'], steps: decoding},
  batch: {rows: ['x', 'x', 'x'], steps: [7]},
  batch_chunks: {rows: ['x', 'x', 'x'], steps: [3, 4, 1, 2, 5]},
  unequal_left: {rows: ['x', '..x', '.....x'], steps: decoding},
  unequal_right: {rows: ['x', 'xxxxx..', 'xx.....'], steps: [7]},
  mixed: {rows: ['..x', 'xxxxx..', 'x.xx..x'], steps: decoding},
  left_chunks: {rows: ['x', '..x', '....x'], steps: [3, 4, 1, 2, 5]},
  right_chunks: {rows: ['x', 'xxxxx..', 'xx.....'], steps: [3, 4, 1, 2, 5]},
  hole_chunks: {rows: ['xx.x..x', 'xxx.x.x', '.xx.xx.'], steps: [3, 4, 1, 2, 5]},
  // Rows that end, and one that continues after steps of padding.
  ended: {rows: ['x', 'xxxxxxxx.......', '..xxxxx...x'], steps: decoding},
};

/** Column numbers of steps; those of a model that takes `fixed` columns in every step. */
function stepsOf(steps, columns, fixed) {
  const counts = [];
  for (let first = 0, i = 0; first < columns; first += counts.at(-1), ++i)
    counts.push(Math.min(fixed ?? steps[i] ?? 1, columns - first));
  if (fixed && counts.at(-1) !== fixed) counts.pop();
  return counts;
}

/** One row's columns: numbers of its tokens in order, and padding. No more than it has tokens for. */
function columnsOf(pattern, tokens, columns) {
  const row = [];
  for (let next = 0; row.length < columns;) {
    if (pattern[row.length] === '.') row.push(padding);
    else if (next < tokens) row.push(next++);
    else break;
  }
  return row;
}

/** {rows: [[token number or padding]], steps} of a layout. `tokens` are the numbers of tokens of the recorded rows, of
 *  which the layout's rows are taken in turn; nothing is longer than the first. */
function planOf(name, tokens, fixed) {
  const {rows, steps} = layouts[name];
  const columns = rows.map((pattern, i) => columnsOf(pattern, tokens[i % tokens.length], tokens[0]));
  const counts = stepsOf(steps, Math.min(...columns.map((row) => row.length)), fixed);
  const length = counts.reduce((sum, count) => sum + count, 0);
  return {rows: columns.map((row) => row.slice(0, length)), steps: counts};
}

const isPadded = (name) => layouts[name].rows.some((pattern) => pattern.includes('.'));

module.exports = {isPadded, layouts: Object.keys(layouts), padding, planOf};
