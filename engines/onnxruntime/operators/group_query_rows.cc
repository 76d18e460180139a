// Reading of new rows, lengths and positions, and norms of rows.
#include "engines/onnxruntime/operators/group_query_rows.h"

#include "runtime/simd/normalize_row.h"

namespace kvopt::onnxruntime {
using namespace simd;
using namespace gqa;

namespace {

constexpr ElementType numberType = ONNX_TENSOR_ELEMENT_DATA_TYPE_FLOAT;

const float* normWeight(Call& call, unsigned operand, const HeadRows& rows) {
  const Tensor weight = call.input(operand);
  call.require(weight.shape == Shape{rows.width} && weight.type == rows.type,
               "a norm weight must be [D] of the query's element type");
  return call.floats(weight);
}

void normalizeInto(const HeadRows& from, const HeadRows& to, int64_t batch, int64_t head,
                   int64_t row, const float* weight, float epsilon, float* numbers) {
  const FloatStorage storage = *storageOf(from.type);
  loadNumbers(from.row(batch, head, row), storage, from.width, numbers);
  normalizeRow(numbers, numbers, from.width, static_cast<double>(epsilon), false, weight, nullptr);
  storeNumbers(numbers, storage, from.width, to.row(batch, head, row));
}

} // namespace

GqaRows gqaRows(Call& call, const GqaSettings& settings, const Tensor& query) {
  call.require(query.rank() == 3, "the query must be [B,S,width]");
  const auto split = [&](const Tensor& tensor, int64_t heads) {
    if (tensor.rank() != 3 || tensor.shape[2] % heads != 0 || tensor.shape[2] == 0)
      call.fail("an operand of shape " + textOf(tensor.shape) + " does not split into " +
                std::to_string(heads) + " heads");
  };
  call.require(call.has(Key) == call.has(Value), "a key without a value, or the reverse");
  const int64_t heads = settings.heads, groups = settings.groups;
  if (!call.has(Key)) {
    const int64_t all = heads + 2 * groups;
    split(query, all);
    return {rowsOfHeads(query, all, 0, heads), rowsOfHeads(query, all, heads, groups),
            rowsOfHeads(query, all, heads + groups, groups)};
  }
  const Tensor key = call.input(Key), value = call.input(Value);
  split(query, heads);
  split(key, groups);
  split(value, groups);
  const GqaRows fresh{rowsOfHeads(query, heads, 0, heads), rowsOfHeads(key, groups, 0, groups),
                      rowsOfHeads(value, groups, 0, groups)};
  // Without new rows of keys, the past contains all rows.
  const int64_t rows = key.shape[1] == 0 && call.has(PastKey) ? 0 : fresh.query.rows;
  for (const HeadRows* part : {&fresh.key, &fresh.value})
    call.require(part->batches == fresh.query.batches && part->rows == rows &&
                     part->width == fresh.query.width && part->type == query.type,
                 "query, key and value differ in batch size, length, width or element type");
  return fresh;
}

GqaLengths gqaLengths(Call& call, const GqaRows& fresh) {
  GqaLengths lengths;
  const std::vector<int64_t> given = call.integers(SequenceLengths);
  const int64_t rows = fresh.query.rows;
  lengths.longest = call.integer(TotalLength);
  if (static_cast<int64_t>(given.size()) != fresh.query.batches)
    call.fail("seqlens_k has " + std::to_string(given.size()) + " numbers for " +
              std::to_string(fresh.query.batches) + " batch rows");
  if (lengths.longest < rows)
    call.fail("total_sequence_length " + std::to_string(lengths.longest) + " is less than " +
              std::to_string(rows) + " new rows");
  lengths.isPrompt = lengths.longest == rows;
  for (const int64_t lessOne : given) {
    if (lessOne < 0 || lessOne >= lengths.longest)
      call.fail("seqlens_k " + std::to_string(lessOne) + " does not fit total_sequence_length " +
                std::to_string(lengths.longest));
    const int64_t total = lengths.isPrompt ? rows : lessOne + 1;
    if (total < rows)
      call.fail("seqlens_k " + std::to_string(lessOne) + " with " + std::to_string(rows) +
                " new rows leaves no past");
    lengths.total.push_back(total);
    lengths.valid.push_back(lessOne + 1);
    lengths.past.push_back(total - rows);
  }
  lengths.held = fresh.key.rows == 0 ? lengths.total : lengths.past;
  return lengths;
}

GqaAngles gqaAngles(Call& call, const GqaRows& fresh, const GqaLengths& lengths) {
  const Tensor cosines = call.input(CosineCache), sines = call.input(SineCache);
  const auto storage = storageOf(cosines.type);
  call.require(cosines.shape == sines.shape && cosines.rank() == 2 && storage &&
                   cosines.type == sines.type,
               "cos_cache and sin_cache differ, or are not [positions,half]");
  GqaAngles angles;
  angles.half = cosines.shape[1];
  if (2 * angles.half > fresh.query.width)
    call.fail("cos_cache rotates " + std::to_string(angles.half) + " pairs of heads " +
              std::to_string(fresh.query.width) + " wide");
  const int64_t batches = fresh.query.batches, rows = fresh.query.rows;
  std::vector<int64_t> positions;
  if (call.has(PositionIds)) {
    positions = call.integers(PositionIds);
    call.require(static_cast<int64_t>(positions.size()) == batches * rows,
                 "position_ids must be [B,S]");
    // Positions of a prompt count from the first of position_ids.
    if (lengths.isPrompt && !positions.empty()) {
      const int64_t first = positions.front();
      call.require(first <= cosines.shape[0], "a number of position_ids is too large");
      for (size_t i = 0; i < positions.size(); ++i)
        positions[i] = first + static_cast<int64_t>(i) % rows;
    }
  } else {
    for (const int64_t held : lengths.past)
      for (int64_t row = 0; row < rows; ++row)
        positions.push_back(held + row);
  }
  const Shape shape{static_cast<int64_t>(positions.size()), angles.half};
  auto* cosine = call.scratchTensor(numberType, shape).as<float>();
  auto* sine = call.scratchTensor(numberType, shape).as<float>();
  angles.cosines = cosine;
  angles.sines = sine;
  const auto half = static_cast<size_t>(angles.half);
  const auto load = [&](const Tensor& table, int64_t position, float* to) {
    loadNumbers(table.data + position * angles.half * elementBytes(table.type), *storage,
                angles.half, to);
  };
  for (const int64_t position : positions) {
    if (half == 0)
      break;
    if (position < 0 || position >= cosines.shape[0])
      call.fail("position " + std::to_string(position) + " is outside of cos_cache's " +
                std::to_string(cosines.shape[0]) + " rows");
    load(cosines, position, cosine);
    load(sines, position, sine);
    cosine += half;
    sine += half;
  }
  return angles;
}

HeadRows normalized(Call& call, const HeadRows& from, unsigned operand, float epsilon) {
  const float* weight = normWeight(call, operand, from);
  const HeadRows to =
      rowsOf(call.scratchTensor(from.type, {from.batches, from.heads, from.rows, from.width}));
  auto* numbers =
      call.scratchTensor(numberType, {from.batches * from.heads, from.width}).as<float>();
  call.forEach(from.batches * from.heads, from.count(), [&](int64_t unit) {
    for (int64_t row = 0; row < from.rows; ++row)
      normalizeInto(from, to, unit / from.heads, unit % from.heads, row, weight, epsilon,
                    numbers + unit * from.width);
  });
  return to;
}

} // namespace kvopt::onnxruntime
