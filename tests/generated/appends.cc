// New rows after those of a past that grows.
#include "tests/generated/spellings.h"

#include <limits>

namespace kvopt::generated {
using namespace ir;

namespace {

using Append = Value&(DecoderGraph& g, Value& past, Value& fresh);

Value& byConcat(DecoderGraph& g, Value& past, Value& fresh) {
  return g.concat({&past, &fresh}, g.axes.rows);
}

Value& byConcatFromTheEnd(DecoderGraph& g, Value& past, Value& fresh) {
  return g.concat({&past, &fresh}, g.axes.rows - g.axes.rank);
}

Value& byWholeSlice(DecoderGraph& g, Value& past, Value& fresh) {
  return g.slice(byConcat(g, past, fresh), *g.zero, *g.total, g.axes.rows);
}

Value& byLastSlice(DecoderGraph& g, Value& past, Value& fresh) {
  Value& firstRow = g.slice(fresh, *g.zero, g.ints({1}), g.axes.rows);
  Value& joined = g.concat({&firstRow, &past, &fresh}, g.axes.rows);
  return g.slice(joined, g.ints({1}), g.ints({std::numeric_limits<int64_t>::max()}), g.axes.rows);
}

Value& paddedPast(DecoderGraph& g, Value& past) {
  return g.padded(past, g.axes.rows, *g.zero, *g.sequence);
}

Value& paddedRows(DecoderGraph& g, Value& fresh) {
  return g.padded(fresh, g.axes.rows, *g.first, *g.zero);
}

Value& byPaddedSum(DecoderGraph& g, Value& past, Value& fresh) {
  return g.add(paddedPast(g, past), paddedRows(g, fresh));
}

Value& byPaddedChoice(DecoderGraph& g, Value& past, Value& fresh) {
  Value& isOld = g.op("Less", {g.keyRows, g.first});
  return g.where(g.along(isOld, g.axes.rows, g.axes.rank), paddedPast(g, past),
                 paddedRows(g, fresh));
}

Value& byScatteredElements(DecoderGraph& g, Value& past, Value& fresh) {
  Value& rows = g.along(*g.queryRows, g.axes.rows, g.axes.rank);
  Value& index = g.op("Expand", {&rows, &g.shapeOf(fresh)});
  return g.op("ScatterElements", {&paddedPast(g, past), &index, &fresh}, {{"axis", g.axes.rows}});
}

Value& byScatteredRows(DecoderGraph& g, Value& past, Value& fresh) {
  const auto [rank, rows] = std::pair(g.axes.rank, g.axes.rows);
  Value& there = g.movedAxis(paddedPast(g, past), rank, rows, 0);
  Value& index = g.unsqueeze(*g.queryRows, {1});
  Value& joined = g.op("ScatterND", {&there, &index, &g.movedAxis(fresh, rank, rows, 0)});
  return g.movedAxis(joined, rank, 0, rows);
}

Value& byGatheredRows(DecoderGraph& g, Value& past, Value& fresh) {
  Value& order = g.op("Mod", {&g.add(*g.keyRows, *g.sequence), g.total});
  return g.op("Gather", {&g.concat({&fresh, &past}, g.axes.rows), &order}, {{"axis", g.axes.rows}});
}

Value& bySequence(DecoderGraph& g, Value& past, Value& fresh) {
  Value& sequence = g.op("SequenceConstruct", {&past, &fresh});
  return g.op("ConcatFromSequence", {&sequence}, {{"axis", g.axes.rows}});
}

Value& byHead(DecoderGraph& g, Value& past, Value& fresh) {
  const std::vector<int64_t> ones(static_cast<size_t>(g.sizes.groups), 1);
  const std::vector<Value*> old = g.split(past, g.axes.heads, ones);
  const std::vector<Value*> rows = g.split(fresh, g.axes.heads, ones);
  std::vector<Value*> joined;
  for (size_t head = 0; head < ones.size(); ++head)
    joined.push_back(&byConcat(g, *old[head], *rows[head]));
  return g.concat(joined, g.axes.heads);
}

/// 0-1 matrices that put each row in its place.
Value& byProducts(DecoderGraph& g, Value& past, Value& fresh) {
  Value& keys = g.unsqueeze(*g.keyRows, {1});
  Value& old = g.range(*g.zero, *g.first);
  const auto placed = [&](Value& rows, Value& x) {
    Value& isHere = g.op("Equal", {&keys, &rows});
    return &g.op("MatMul", {&g.asFloat(isHere), &x});
  };
  Value* earlier = placed(old, past);
  return g.add(*earlier, *placed(*g.queryRows, fresh));
}

bool hasHeads(const DecoderGraph& g) {
  const bool isPairOfHeads = g.used.count("pair/Heads") != 0;
  return g.axes.heads >= 0 && g.sizes.groups > 1 && !isPairOfHeads;
}

bool hasRowsBeforeColumns(const DecoderGraph& g) { return g.axes.rows == g.axes.rank - 2; }

constexpr Spelling<Append> appends[] = {
    {"append/Concat", byConcat},
    {"append/ConcatFromTheEnd", byConcatFromTheEnd},
    {"append/WholeSlice", byWholeSlice},
    {"append/LastSlice", byLastSlice},
    {"append/PaddedSum", byPaddedSum},
    {"append/PaddedChoice", byPaddedChoice},
    {"append/ScatteredElements", byScatteredElements},
    {"append/ScatteredRows", byScatteredRows},
    {"append/GatheredRows", byGatheredRows},
    {"append/Sequence", bySequence},
    {"append/ByHead", byHead, hasHeads},
    {"append/Products", byProducts, hasRowsBeforeColumns},
};

} // namespace

Value& appended(DecoderGraph& g, Value& past, Value& fresh) {
  return g.choose(appends)(g, past, fresh);
}

} // namespace kvopt::generated
