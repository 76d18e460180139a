// New rows written into a cache of fixed extents, at positions that count on from the first one.
#include "tests/generated/spellings.h"

#include <limits>

namespace kvopt::generated {
using namespace ir;

namespace {

using Write = Value&(DecoderGraph& g, Value& past, Value& fresh);

Value& byScatteredElements(DecoderGraph& g, Value& past, Value& fresh) {
  Value& rows = g.along(*g.queryRows, g.axes.rows, g.axes.rank);
  Value& index = g.op("Expand", {&rows, &g.shapeOf(fresh)});
  return g.op("ScatterElements", {&past, &index, &fresh}, {{"axis", g.axes.rows}});
}

Value& byScatteredRows(DecoderGraph& g, Value& past, Value& fresh) {
  const auto [rank, rows] = std::pair(g.axes.rank, g.axes.rows);
  Value& there = g.movedAxis(past, rank, rows, 0);
  Value& index = g.unsqueeze(*g.queryRows, {1});
  Value& joined = g.op("ScatterND", {&there, &index, &g.movedAxis(fresh, rank, rows, 0)});
  return g.movedAxis(joined, rank, 0, rows);
}

/// With the full indices of every row.
Value& byScatteredPoints(DecoderGraph& g, Value& past, Value& fresh) {
  const int64_t rank = g.axes.rows + 1;
  Value& shape = g.slice(g.shapeOf(fresh), *g.zero, g.ints({rank}), 0);
  std::vector<Value*> columns;
  for (int64_t axis = 0; axis < rank; ++axis) {
    Value& list = axis == g.axes.rows ? *g.queryRows : g.range(*g.zero, g.extentOf(past, axis));
    Value& column = g.op("Expand", {&g.along(list, axis, rank), &shape});
    columns.push_back(&g.unsqueeze(column, {rank}));
  }
  return g.op("ScatterND", {&past, &g.concat(columns, rank), &fresh});
}

/// All extents before the rows as one.
Value& byFlatRows(DecoderGraph& g, Value& past, Value& fresh) {
  Value& width = g.extentOf(past, g.axes.rank - 1);
  Value& flat = g.reshape(past, {&g.ints({-1}), &width});
  Value& caches = g.op("Div", {&g.extentOf(flat, 0), g.total});
  Value& starts = g.mul(g.unsqueeze(g.range(*g.zero, caches), {1}), *g.total);
  Value& index = g.unsqueeze(g.reshapeTo(g.add(starts, *g.queryRows), {-1}), {1});
  Value& rows = g.reshape(fresh, {&g.ints({-1}), &width});
  return g.op("Reshape", {&g.op("ScatterND", {&flat, &index, &rows}), &g.shapeOf(past)});
}

Value& byTensorScatter(DecoderGraph& g, Value& past, Value& fresh) {
  Value& indices = g.op("Expand", {g.first, g.batch});
  return g.op("TensorScatter", {&past, &fresh, &indices}, {{"axis", g.axes.rows}});
}

Value& isNew(DecoderGraph& g) {
  Value& end = g.add(*g.first, *g.sequence);
  return g.along(g.op("And", {&g.op("GreaterOrEqual", {g.keyRows, g.first}),
                              &g.op("Less", {g.keyRows, &end})}),
                 g.axes.rows, g.axes.rank);
}

/// New rows in their places, by a 0-1 matrix; zeros elsewhere.
Value& placedByProduct(DecoderGraph& g, Value& fresh) {
  Value& isHere = g.op("Equal", {&g.unsqueeze(*g.keyRows, {1}), g.queryRows});
  return g.op("MatMul", {&g.asFloat(isHere), &fresh});
}

Value& byChosenProduct(DecoderGraph& g, Value& past, Value& fresh) {
  return g.where(isNew(g), placedByProduct(g, fresh), past);
}

Value& byBlend(DecoderGraph& g, Value& past, Value& fresh) {
  Value& kept = g.sub(g.single(1), g.asFloat(isNew(g)));
  return g.add(g.mul(past, kept), placedByProduct(g, fresh));
}

Value& bySplice(DecoderGraph& g, Value& past, Value& fresh) {
  Value& end = g.add(*g.first, *g.sequence);
  Value& before = g.slice(past, *g.zero, *g.first, g.axes.rows);
  Value& after = g.slice(past, end, g.ints({std::numeric_limits<int64_t>::max()}), g.axes.rows);
  return g.concat({&before, &fresh, &after}, g.axes.rows);
}

Value& byPaddedChoice(DecoderGraph& g, Value& past, Value& fresh) {
  Value& after = g.sub(g.sub(*g.total, *g.first), *g.sequence);
  return g.where(isNew(g), g.padded(fresh, g.axes.rows, *g.first, after), past);
}

/// Rows of the past and new ones, picked from both joined.
Value& byGatheredRows(DecoderGraph& g, Value& past, Value& fresh) {
  Value& moved = g.add(*g.keyRows, g.sub(*g.total, *g.first));
  Value& isHere = g.reshapeTo(isNew(g), {-1});
  return g.op("Gather",
              {&g.concat({&past, &fresh}, g.axes.rows), &g.where(isHere, moved, *g.keyRows)},
              {{"axis", g.axes.rows}});
}

/// Rotated until the places are the first ones, overwritten there, and rotated back.
Value& byRoll(DecoderGraph& g, Value& past, Value& fresh) {
  const int64_t axis = g.axes.rows;
  Value& end = g.ints({std::numeric_limits<int64_t>::max()});
  Value& next = g.add(*g.first, *g.sequence);
  Value& rest =
      g.concat({&g.slice(past, next, end, axis), &g.slice(past, *g.zero, *g.first, axis)}, axis);
  Value& rolled = g.concat({&fresh, &rest}, axis);
  Value& back = g.sub(*g.total, *g.first);
  return g.concat({&g.slice(rolled, back, end, axis), &g.slice(rolled, *g.zero, back, axis)}, axis);
}

bool hasRowsBeforeColumns(const DecoderGraph& g) { return g.axes.rows == g.axes.rank - 2; }

bool canScatterTensors(const DecoderGraph& g) {
  return g.opset >= 24 && g.axes.batch == 0 && g.axes.rows != 0;
}

constexpr Spelling<Write> writes[] = {
    {"write/ScatteredElements", byScatteredElements},
    {"write/ScatteredRows", byScatteredRows},
    {"write/ScatteredPoints", byScatteredPoints},
    {"write/FlatRows", byFlatRows, hasRowsBeforeColumns},
    {"write/TensorScatter", byTensorScatter, canScatterTensors},
    {"write/ChosenProduct", byChosenProduct, hasRowsBeforeColumns},
    {"write/Blend", byBlend, hasRowsBeforeColumns},
    {"write/Splice", bySplice},
    {"write/PaddedChoice", byPaddedChoice},
    {"write/GatheredRows", byGatheredRows},
    {"write/Roll", byRoll},
};

} // namespace

Value& written(DecoderGraph& g, Value& past, Value& fresh) {
  return g.choose(writes)(g, past, fresh);
}

} // namespace kvopt::generated
