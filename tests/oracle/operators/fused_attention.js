// Random instances of com.microsoft's attention operators.
'use strict';
const {fromHalfBits: fromHalf} = require('../../../examples/decode');
const {tensorOf, int, float, string, ints, flag} = require('../random');

const scales = [undefined, float(0), float(0.3), float(-0.2)];
const lowest = -3.4028234663852886e38;

/** The rows of heads divided by their root mean square, times the weights: what norm weights do. */
function normalized(tensor, width, weights, epsilon) {
  const read = tensor.type === 'float16' ? fromHalf : (value) => value;
  const values = Array.from(tensor.data, read);
  const factors = Array.from(weights.data, read);
  for (let row = 0; row < values.length; row += width) {
    let squares = 0;
    for (let i = 0; i < width; ++i) squares += values[row + i] ** 2;
    const root = Math.sqrt(squares / width + epsilon);
    for (let i = 0; i < width; ++i) values[row + i] = values[row + i] / root * factors[i];
  }
  return tensorOf(tensor.type, tensor.dims, values);
}

/** Scales that make codes of numbers around 1, and some that lie off the usual. */
function cacheScales(random, bits, dims) {
  const scales = random.floats('float32', dims, 0.5, 1.5);
  for (let i = 0; i < scales.data.length; ++i)
    scales.data[i] *= (random.chance(0.05) ? 0 : random.chance(0.05) ? -1 : 1) / (bits === 8 ? 127 : 7);
  return scales;
}

function quantization(random, bits, isPerChannel) {
  const type = string(isPerChannel ? 'PER_CHANNEL' : 'PER_TENSOR');
  return {k_quant_type: type, v_quant_type: type, kv_cache_bit_width: int(bits)};
}

function groupQueryAttention(random) {
  const type = random.floatType();
  const [heads, groups] = random.pick([[1, 1], [2, 1], [4, 2], [3, 3], [4, 1]]);
  const mode = random.pick(['prompt', 'prompt', 'token', 'token', 'chunk']);
  const batches = mode === 'chunk' ? 1 : random.int(1, 3);
  const rows = mode === 'token' ? 1 : random.int(mode === 'chunk' ? 2 : 1, 5);
  const width = random.pick([16, 16, 32, 8]);
  const past = Array.from({length: batches}, () => mode === 'prompt' ? 0 : random.int(1, 6));
  const total = rows + Math.max(...past);
  const lengths = past.map((length) => length + rows);
  if (mode === 'prompt' && random.chance(0.3))
    lengths.forEach((length, b) => { lengths[b] = random.int(1, length); });
  // With rows that all have a past, or shorter ones, the longest is a prompt's only if it is whole.
  const capacity = random.pick([Math.max(...past), total, total + 3]);
  const hasPast = mode !== 'prompt' || random.chance(0.4);
  const attributes = random.attributes({
    num_heads: [int(heads)], kv_num_heads: [int(groups)], scale: scales,
    softcap: [undefined, float(0), float(-1), float(-50), float(0.5), float(5)],
    local_window_size: [undefined, int(-1), int(1), int(2), int(3), int(100), int(0), int(-2)],
    do_rotary: flag(1), rotary_interleaved: flag(undefined), smooth_softmax: flag(undefined),
    causal: [undefined, int(1), int(0), int(0), int(2)],
    qk_output: [undefined, int(0)], kv_cache_bit_width: [undefined, int(0)],
    k_quant_type: [undefined, string('NONE')], v_quant_type: [undefined, string('NONE')],
    sliding_window_cache: [undefined, undefined, undefined, int(0), int(1)],
    qk_norm_epsilon: [undefined, float(1e-6), float(0.01)],
  });
  if (attributes.causal?.int === 0 && random.chance(0.8)) delete attributes.local_window_size;
  const packed = random.chance(0.3);
  const rowsOf = (count) => random.floats(type, [batches, rows, count * width]);
  const cache = () => bits === 0 ? random.floats(type, [batches, groups, capacity, width])
    : bits === 8 ? random.ints('int8', [batches, groups, capacity, width], -128, 127)
      : random.ints('uint8', [batches, groups, capacity, width / 2], 0, 255);
  const half = width === 8 ? 4 : random.pick([width / 2, width / 2, 8]);
  // Quantized caches always have a past operand: it says what they hold.
  const bits = hasPast && random.chance(0.35) ? random.pick([8, 4]) : 0;
  const isPerChannel = random.chance(0.5);
  if (bits) Object.assign(attributes, quantization(random, bits, isPerChannel));
  const table = () => random.floats(type, [random.pick([24, 16]), half]);
  const inputs = packed ? [rowsOf(heads + 2 * groups), null, null]
    : [rowsOf(heads), rowsOf(groups), rowsOf(groups)];
  inputs.push(hasPast ? cache() : null, hasPast ? cache() : null,
    tensorOf('int32', [batches], lengths.map((length) => length - 1)),
    tensorOf('int32', random.pick([[], [1]]), [total]));
  const rotates = attributes.do_rotary !== undefined;
  const cosines = rotates ? table() : null;
  inputs.push(cosines, cosines && random.floats(type, cosines.dims));
  inputs.push(random.maybe(() => random.ints('int64', [batches, rows], 0, 15), 0.2),
    random.maybe(() => random.floats(type,
      [random.pick([1, batches]), random.pick([1, heads]), rows, total]), 0.25),
    random.maybe(() => random.floats(type, [heads]), 0.2),
    ...[0, 1].map(() => bits ? cacheScales(random, bits, isPerChannel ? [groups, width] : []) : null));
  let judge;
  if (!packed && !bits && random.chance(0.15)) {
    const weights = [random.floats(type, [width]), random.floats(type, [width])];
    const epsilon = attributes.qk_norm_epsilon?.float ?? 1e-6;
    judge = inputs.slice();
    [0, 1].forEach((part) => { judge[part] = normalized(inputs[part], width, weights[part], epsilon); });
    inputs.push(...weights);
  }
  const held = Math.max(hasPast ? capacity : 0, total);
  const code = bits === 8 ? 'int8' : bits === 4 ? 'uint8' : type;
  const columns = bits === 4 ? width / 2 : width;
  const isPadding = (b, s) => s >= lengths[b] - past[b];
  const grows = attributes.sliding_window_cache?.int === 1 && hasPast && total > capacity;
  return {attributes, inputs, judge, outputs: [type, code, code], tags: grows ? ['window-cache-grows'] : [],
    // The rule takes the past to be as long as the longest batch row's.
    unraised: hasPast && capacity !== Math.max(...past),
    // Rows of padding may hold anything, and so may those after the tokens of a cache of a window.
    ignore: (output, index) => output === 0
      ? mode === 'prompt' &&
        isPadding(Math.floor(index / (rows * heads * width)), Math.floor(index / (heads * width)) % rows)
      : attributes.sliding_window_cache?.int === 1 && hasPast &&
        Math.floor(index / columns) % held >= lengths[Math.floor(index / (groups * held * columns))]};
}

/** The masks that MultiHeadAttention and Attention take. */
function paddingMask(random, batches, rows, keys, forms) {
  const spread = (dims) => random.ints('int32', dims, 0, 3);
  switch (random.pick(forms)) {
    case 'lengths': return random.ints('int32', [batches], 1, keys + 1);
    case 'ranges': return tensorOf('int32', [2 * batches], Array.from({length: 2 * batches}, (_, i) =>
      i < batches ? random.int(2, keys + 1) : random.int(0, 1)));
    case 'packed': return tensorOf('int32', [3 * batches + 2], Array.from({length: 3 * batches + 2},
      (_, i) => i < batches ? random.int(1, keys) : i));
    case 'keys': return spread([batches, keys]);
    case 'pairs': return spread([batches, rows, keys]);
    case 'square': return spread([batches, 1, rows, rows]);
    default: return null;
  }
}

const filters = [undefined, float(-10000), float(-100), float(lowest)];
/** Whether rows that see nothing but hidden keys come out differently where rules make the mask in
 *  float16: its unit at 10000 is 8, which a bias gets lost in, and the lowest float is infinite there. */
const losesDigits = (type, attributes, mask, bias) => type === 'float16' && mask !== null &&
  (attributes.mask_filter_value?.float === lowest || (bias !== null && filterTolerance(attributes, mask) !== 0));
/** What scores near the value of hidden keys lose of their digits. */
const filterTolerance = (attributes, mask) =>
  mask && (attributes.mask_filter_value?.float ?? -10000) === -10000 ? 3e-3 : 0;

/** In some biases, the lowest number hides keys, if no mask does: both together would be infinite. */
function hideByBias(bias, mask) {
  if (bias === null || mask !== null || bias.type !== 'float32' || bias.data[0] < 0) return;
  bias.data.forEach((value, i) => { if (value > 0) bias.data[i] = lowest; });
}

function multiHeadAttention(random) {
  const type = random.floatType();
  const batches = random.int(1, 3), heads = random.int(1, 4), rows = random.int(1, 5);
  const layout = random.pick(['rows', 'rows', 'rows', 'packed', 'pairs', 'cross']);
  const width = random.pick([4, 8, 16]);
  const valueWidth = layout === 'rows' || layout === 'cross' ? random.pick([width, width, 8]) : width;
  const fresh = layout === 'packed' || random.chance(0.6) ? rows : random.int(1, 7);
  const past = layout === 'rows' && random.chance(0.35) ? random.int(0, 4) : null;
  const keys = fresh + (past ?? 0);
  const attributes = random.attributes({num_heads: [int(heads)], scale: scales,
    unidirectional: flag(undefined, [0, 1, 1, 1, -1, 2]), mask_filter_value: filters});
  const x = (dims) => random.floats(type, dims);
  const inputs = {
    rows: () => [x([batches, rows, heads * width]), x([batches, fresh, heads * width]),
      x([batches, fresh, heads * valueWidth])],
    packed: () => [x([batches, rows, heads, 3, width]), null, null],
    pairs: () => [x([batches, rows, heads * width]), x([batches, fresh, heads, 2, width]), null],
    cross: () => [x([batches, rows, heads * width]), x([batches, heads, fresh, width]),
      x([batches, heads, fresh, valueWidth])],
  }[layout]();
  const mask = paddingMask(random, batches, rows, keys,
    ['none', 'none', 'lengths', 'packed', 'keys', 'pairs', 'ranges']);
  inputs.push(random.maybe(() => x([heads * (2 * width + valueWidth)]), 0.3), mask,
    random.maybe(() => x([random.pick([1, batches]), random.pick([1, heads]), rows, keys]), 0.3),
    past === null ? null : x([batches, heads, past, width]),
    past === null ? null : x([batches, heads, past, valueWidth]),
    random.maybe(() => tensorOf('int32', [1], [0]), 0.02));
  hideByBias(inputs[5], mask);
  const presents = past !== null || random.chance(0.3);
  return {attributes, inputs, atol: filterTolerance(attributes, mask),
    unraised: losesDigits(type, attributes, mask, inputs[5]),
    outputs: presents ? [type, type, type, ...random.chance(0.05) ? [type] : []] : [type]};
}

function decoderMaskedMultiHeadAttention(random) {
  // ONNX Runtime's CPU kernel takes float32 alone.
  const type = random.chance(0.9) ? 'float32' : 'float16';
  const mode = random.pick(['cross', 'cross', 'buffer', 'buffer', 'buffer', 'beams', 'grows']);
  const beams = mode === 'beams' ? random.int(2, 3) : 1;
  const batches = beams * random.int(1, 2), heads = random.int(1, 4), width = random.pick([4, 8, 16]);
  // It takes a past of 0 rows in a shared buffer for a full one.
  const past = random.int(1, 6), capacity = mode === 'grows' ? past : past + random.int(1, 3);
  const keys = mode === 'cross' ? random.int(1, 7) : past + 1;
  const x = (dims) => random.floats(type, dims);
  const attributes = random.attributes({num_heads: [int(heads)], scale: scales, mask_filter_value: filters,
    output_qk: [undefined, undefined, int(0), int(1)],
    past_present_share_buffer: [int(mode === 'cross' || mode === 'grows' ? 0 : 1)]});
  const rows = () => x([batches, 1, heads * width]);
  const cache = () => x([batches, heads, mode === 'cross' ? keys : capacity, width]);
  const mask = random.maybe(() => random.ints('int32', [batches, keys], 0, 2), 0.4);
  const bias = mode === 'cross' ? null
    : random.maybe(() => x([random.pick([1, batches]), random.pick([1, heads]), 1, keys]), 0.4);
  const inputs = mode === 'cross' ? [rows(), cache(), cache(), mask, bias, null, null, null]
    : [rows(), rows(), rows(), mask, bias, cache(), cache(), tensorOf('int32', [1], [past])];
  inputs.push(mode === 'beams' ? tensorOf('int32', [1], [beams]) : random.maybe(() => tensorOf('int32', [1], [1]), 0.3),
    mode === 'beams' ? random.ints('int32', [batches / beams, beams, capacity], 0, beams - 1) : null,
    random.maybe(() => x([3 * heads * width]), 0.4));
  const outputs = mode === 'cross' ? [type] : [type, type, type];
  const hasScores = attributes.output_qk?.int === 1;
  if (hasScores) outputs.push(...mode === 'cross' ? [null, null, 'float32'] : ['float32']);
  return {attributes, inputs, outputs, atol: filterTolerance(attributes, mask),
    tags: mode === 'beams' && bias && bias.dims[0] !== 1 ? ['bias-of-beams'] : [],
    unraised: losesDigits(type, attributes, mask, bias)};
}

function attention(random) {
  const type = random.floatType();
  const batches = random.int(1, 3), heads = random.int(1, 3), rows = random.int(1, 5);
  const width = random.pick([4, 8]), inner = random.int(3, 9);
  const hasPast = random.chance(0.4);
  const past = hasPast ? random.int(0, 4) : 0;
  const valueWidth = hasPast ? width : random.pick([width, width, 2 * width]);
  const sizes = [heads * width, heads * width, heads * valueWidth];
  const attributes = random.attributes({num_heads: [int(heads)], scale: scales,
    unidirectional: flag(undefined, [0, 1, 1, 1, -1, 2]), mask_filter_value: filters,
    do_rotary: [undefined, int(0), int(-1), int(1)], rotary_embedding_dim: [undefined, int(0)],
    past_present_share_buffer: [undefined, int(0), int(0), int(1)]});
  if (valueWidth !== width || random.chance(0.3)) attributes.qkv_hidden_sizes = ints(sizes);
  const columns = sizes[0] + sizes[1] + sizes[2];
  const bias = random.maybe(() => random.floats(type,
    [random.pick([1, batches]), random.pick([1, heads]), rows, past + rows]), 0.3);
  const mask = paddingMask(random, batches, rows, past + rows,
    ['none', 'none', 'lengths', 'ranges', 'ranges', 'packed', 'keys', 'pairs', 'square']);
  hideByBias(bias, mask);
  return {attributes, atol: filterTolerance(attributes, mask), unraised: losesDigits(type, attributes, mask, bias),
    inputs: [random.floats(type, [batches, rows, inner]), random.floats(type, [inner, columns]),
      // ONNX Runtime reads the bias without looking whether there is one.
      random.maybe(() => random.floats(type, [columns]), 0.99), mask,
      hasPast ? random.floats(type, [2, batches, heads, past, width]) : null, bias],
    outputs: hasPast || (valueWidth === width && random.chance(0.4)) ? [type, type] : [type]};
}

function rotaryEmbedding(random) {
  const type = random.floatType();
  const batches = random.int(1, 3), heads = random.int(1, 3), rows = random.int(1, 5);
  const width = random.pick([4, 8, 16]), partial = random.chance(0.3);
  const half = partial ? width / 4 : width / 2;
  const attributes = random.attributes({interleaved: flag(undefined),
    num_heads: partial ? [int(heads)] : [undefined, int(0), int(heads)],
    rotary_embedding_dim: partial ? [int(2 * half)] : [undefined, int(0)],
    is_packed_batching: flag(undefined, [0, 1]), scale: [undefined, float(1), float(0.5)]});
  const table = random.pick([12, 20]);
  return {attributes, outputs: [type], inputs: [
    random.floats(type, random.chance(0.5) ? [batches, rows, heads * width]
      : [batches, heads, rows, width]),
    random.chance(0.5) ? random.ints('int64', [1], 0, 6) : random.ints('int64', [batches, rows], 0, 11),
    random.floats(type, [table, half]), random.floats(type, [table, half])]};
}

module.exports = {domain: 'com.microsoft', opset: 1, attention: true, operators: {
  GroupQueryAttention: {make: groupQueryAttention, share: 4},
  MultiHeadAttention: {make: multiHeadAttention, share: 3},
  Attention: {make: attention, share: 3},
  DecoderMaskedMultiHeadAttention: {make: decoderMaskedMultiHeadAttention, share: 3},
  RotaryEmbedding: {make: rotaryEmbedding, share: 1.5},
}};
