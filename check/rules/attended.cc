// Scores, masks and sums of attention; rotation of pairs of columns.
#include "check/rules/attended.h"

#include <algorithm>
#include <cmath>

namespace kvopt::check {

Ref asHeads(const Ref& rows, int64_t heads) {
  if (rows->rank() != 3 || heads <= 0 || rows->shape[2] % heads != 0)
    return nullptr;
  const Extents split{rows->shape[0], rows->shape[1], heads, rows->shape[2] / heads};
  return transposed(reshaped(rows, split), {0, 2, 1, 3});
}

Ref asRows(const Ref& heads) {
  const Ref moved = transposed(heads, {0, 2, 1, 3});
  return reshaped(moved, {moved->shape[0], moved->shape[1], moved->shape[2] * moved->shape[3]});
}

namespace {

/// Each head of keys or values, repeated for the heads of the query that read it.
Ref repeatedHeads(const Ref& heads, int64_t times) {
  if (times == 1)
    return heads;
  Extents shape = heads->shape;
  shape[1] *= times;
  const Extents strides = stridesOf(heads->shape);
  return rearranged(heads, shape, [&](llvm::ArrayRef<int64_t> place) {
    return place[0] * strides[0] + place[1] / times * strides[1] + place[2] * strides[2] + place[3];
  });
}

/// The mask with `keys` columns: further keys are hidden, further columns go.
Ref maskColumns(Call& call, const Ref& mask, const Growths::Number& allKeys) {
  const auto keys = int64_t(allKeys.value);
  if (mask->rank() == 0)
    return nullptr;
  const auto axis = static_cast<unsigned>(mask->rank() - 1);
  const int64_t columns = mask->shape[axis];
  call.noteThreshold(mask->extent(axis), allKeys, /*isExact=*/true);
  if (columns == keys || columns == 1)
    return mask;
  if (columns > keys)
    return rowsOf(mask, axis, 0, keys);
  auto hidden = std::make_shared<Tensor>();
  hidden->kind = mask->isBool() ? Kind::Integer : Kind::Known;
  hidden->type = mask->type;
  hidden->integers = {0};
  hidden->known = {-INFINITY};
  Extents shape = mask->shape;
  shape[axis] = keys - columns;
  return concatenated(call, {mask, broadcastTo(hidden, shape)}, axis);
}

} // namespace

Ref attendedRows(Call& call, const Attended& job) {
  const Field& field = call.field();
  const int64_t batch = job.query->shape[0], heads = job.query->shape[1];
  const int64_t rows = job.query->shape[2], width = job.query->shape[3];
  const int64_t keys = job.key->shape[2];
  const int64_t groups = job.key->shape[1];
  if (groups == 0 || heads % groups != 0 || job.value->shape[1] == 0 || job.value->shape[2] != keys)
    return nullptr;
  const Ref key = repeatedHeads(job.key, heads / job.key->shape[1]);
  const Ref value = repeatedHeads(job.value, heads / job.value->shape[1]);
  Ref scores = matrixProduct(call, job.query, transposed(key, {0, 1, 3, 2}));
  if (!scores)
    return nullptr;
  const double scale = job.scale == 0 ? 1 / std::sqrt(double(width)) : job.scale;
  scores = multiplyReals(call, scores, realScalar(call, scale));
  if (job.softcap != 0) {
    const Ref cap = realScalar(call, job.softcap);
    auto divided = mapReals(call, {scores, cap}, scores->shape,
                            [&](llvm::ArrayRef<Exact> x) { return field.divide(x[0], x[1]); });
    scores = multiplyReals(call, unknownOf(call, "Tanh", divided), cap);
  }
  if (job.mask) {
    Ref mask = maskColumns(call, job.mask, job.key->extent(2));
    if (!mask)
      return nullptr;
    if (mask->isInteger()) {
      auto added = std::make_shared<Tensor>();
      added->kind = Kind::Known;
      added->shape = mask->shape;
      for (int64_t isVisible : mask->integers)
        added->known.push_back(isVisible ? 0 : -INFINITY);
      mask = added;
    }
    scores = addReals(call, scores, mask);
  }
  if (!scores || scores->shape != Extents({batch, heads, rows, keys}))
    return nullptr;
  Extents shape{batch, heads, rows, value->shape[3]};
  if (scores->isHollow || value->isHollow)
    return hollowTensor(shape, true);
  auto seen = std::make_shared<Tensor>(*scores);
  std::vector<bool> seesNone(static_cast<size_t>(batch * heads * rows), true);
  size_t at = 0;
  forEachPlace(seen->shape, [&](llvm::ArrayRef<int64_t> place) {
    Exact& score = seen->reals[at];
    if (job.shows && !job.shows(place[0], place[2], place[3]))
      score = {0, 0, Status::MinusInfinity};
    if (score.status != Status::MinusInfinity)
      seesNone[at / static_cast<size_t>(keys)] = false;
    ++at;
  });
  auto weights = std::make_shared<Tensor>(*softmaxOf(call, seen, 3));
  for (size_t i = 0; i < weights->reals.size(); ++i)
    if (seesNone[i / static_cast<size_t>(keys)])
      weights->reals[i] = {};
  return matrixProduct(call, weights, value);
}

Ref rotated(Call& call, const Ref& x, const Ref& cosine, const Ref& sine, bool isInterleaved,
            int64_t width) {
  const Ref c = call.real(cosine), s = call.real(sine);
  if (x->isHollow || c->isHollow || s->isHollow)
    return hollowTensor(x->shape, x->isSpecial);
  const int64_t half = width / 2, columns = x->shape[3];
  if (c->rank() != 3 || c->shape != s->shape || c->shape[2] < half || c->shape[1] != x->shape[2] ||
      (c->shape[0] != 1 && c->shape[0] != x->shape[0]) || width % 2 != 0 || width > columns)
    return nullptr;
  const Field& field = call.field();
  const Extents strides = stridesOf(x->shape);
  auto result = std::make_shared<Tensor>();
  result->type = x->type;
  result->shape = x->shape;
  size_t next = 0;
  forEachPlace(x->shape, [&](llvm::ArrayRef<int64_t> place) {
    const auto at = next++;
    const int64_t column = place[3];
    if (column >= width) {
      result->reals.push_back(x->reals[at]);
      return;
    }
    const int64_t pair = isInterleaved ? column / 2 : column % half;
    const bool isFirst = isInterleaved ? column % 2 == 0 : column < half;
    const auto row = at - static_cast<size_t>(column);
    const Exact& a = x->reals[row + size_t(isInterleaved ? 2 * pair : pair)];
    const Exact& b = x->reals[row + size_t(isInterleaved ? 2 * pair + 1 : pair + half)];
    const int64_t batch = c->shape[0] == 1 ? 0 : place[0];
    const auto angle = static_cast<size_t>((batch * c->shape[1] + place[2]) * c->shape[2] + pair);
    const Exact& cos = c->reals[angle];
    const Exact& sin = s->reals[angle];
    result->reals.push_back(
        isFirst ? field.add(field.multiply(a, cos), field.negate(field.multiply(b, sin)))
                : field.add(field.multiply(b, cos), field.multiply(a, sin)));
  });
  return result;
}

Ref tableRows(const Call& call, unsigned operand, const Ref& positions) {
  const Ref table = call.in(operand);
  if (table->rank() != 2)
    return nullptr;
  const int64_t width = table->shape[1];
  for (int64_t position : positions->integers)
    if (position < 0 || position >= table->shape[0])
      return nullptr;
  call.noteRead(operand, 0, positions->integers, positions);
  Extents shape = positions->shape;
  shape.push_back(width);
  int64_t next = 0;
  auto rows = std::make_shared<Tensor>(*rearranged(table, shape, [&](llvm::ArrayRef<int64_t>) {
    const int64_t at = next++;
    return positions->integers[static_cast<size_t>(at / width)] * width + at % width;
  }));
  rows->isWeight = false; // entries of a table, which may also be computed
  return rows;
}

} // namespace kvopt::check
