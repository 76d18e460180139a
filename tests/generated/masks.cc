// Which keys a query sees, and how the scores of others are hidden.
#include "tests/generated/spellings.h"

#include <limits>

namespace kvopt::generated {
using namespace ir;

namespace {

/// bool [S,T], or more axes: keys up to the query's own.
using Seen = Value&(DecoderGraph& g);

Value& queryColumn(DecoderGraph& g) { return g.unsqueeze(*g.queryRows, {1}); }
Value& keyLine(DecoderGraph& g) { return g.unsqueeze(*g.keyRows, {0}); }

Value& byLessOrEqual(DecoderGraph& g) {
  return g.op("LessOrEqual", {&keyLine(g), &queryColumn(g)});
}

Value& byGreaterOrEqual(DecoderGraph& g) {
  return g.op("GreaterOrEqual", {&queryColumn(g), g.keyRows});
}

Value& byNotGreater(DecoderGraph& g) {
  return g.op("Not", {&g.op("Greater", {&keyLine(g), &queryColumn(g)})});
}

Value& byLessThanNext(DecoderGraph& g) {
  return g.op("Less", {g.keyRows, &g.add(queryColumn(g), g.integer(1))});
}

Value& byMaximum(DecoderGraph& g) {
  Value& query = queryColumn(g);
  return g.op("Equal", {&g.op("Max", {&query, g.keyRows}), &query});
}

Value& bySignOfDifference(DecoderGraph& g) {
  Value& distance = g.sub(queryColumn(g), *g.keyRows);
  return g.op("Greater", {&g.op("Sign", {&distance}), &g.integer(-1)});
}

Value& ones(DecoderGraph& g) {
  return g.op("Expand", {&g.integer(1), &g.concatLists({g.sequence, g.total})});
}

Value& byLowerTriangle(DecoderGraph& g) {
  Value& triangle = g.op("Trilu", {&ones(g), &g.scalar(*g.first)}, {{"upper", 0}});
  return g.toBool(triangle);
}

Value& byUpperTriangle(DecoderGraph& g) {
  Value& next = g.scalar(g.add(*g.first, g.ints({1})));
  Value& triangle = g.op("Trilu", {&ones(g), &next}, {{"upper", 1}});
  return g.op("Equal", {&triangle, &g.integer(0)});
}

Value& tableOf(DecoderGraph& g, int64_t window) {
  std::vector<bool> seen;
  for (int64_t query = 0; query < positionRows; ++query)
    for (int64_t key = 0; key < positionRows; ++key)
      seen.push_back(window != 0 ? query - key < window : key <= query);
  return g.booleans({positionRows, positionRows}, seen);
}

Value& gatheredTable(DecoderGraph& g, int64_t window) {
  Value& rows = g.op("Gather", {&tableOf(g, window), g.queryRows}, {{"axis", 0}});
  return g.slice(rows, *g.zero, *g.total, 1);
}

Value& slicedTable(DecoderGraph& g, int64_t window) {
  Value& end = g.add(*g.first, *g.sequence);
  return g.slice(g.slice(tableOf(g, window), *g.first, end, 0), *g.zero, *g.total, 1);
}

Value& byGatheredTable(DecoderGraph& g) { return gatheredTable(g, 0); }
Value& bySlicedTable(DecoderGraph& g) { return slicedTable(g, 0); }

Value& byCumSum(DecoderGraph& g) {
  const auto counted = [&](Value& length) {
    Value& each = g.op("Expand", {&g.integer(1), &length});
    return &g.sub(g.op("CumSum", {&each, &g.integer(0)}), g.integer(1));
  };
  Value* queries = &g.unsqueeze(g.add(*counted(*g.sequence), *g.first), {1});
  return g.op("LessOrEqual", {counted(*g.total), queries});
}

Value& byPositionIds(DecoderGraph& g) {
  return g.op("LessOrEqual",
              {&g.unsqueeze(*g.keyRows, {0, 1, 2}), &g.unsqueeze(*g.positionIds, {1, 3})});
}

constexpr Spelling<Seen> seens[] = {
    {"seen/LessOrEqual", byLessOrEqual},
    {"seen/GreaterOrEqual", byGreaterOrEqual},
    {"seen/NotGreater", byNotGreater},
    {"seen/LessThanNext", byLessThanNext},
    {"seen/Maximum", byMaximum},
    {"seen/SignOfDifference", bySignOfDifference},
    {"seen/LowerTriangle", byLowerTriangle},
    {"seen/UpperTriangle", byUpperTriangle},
    {"seen/GatheredTable", byGatheredTable},
    {"seen/SlicedTable", bySlicedTable},
    {"seen/CumSum", byCumSum},
    {"seen/PositionIds", byPositionIds,
     [](const DecoderGraph& g) { return g.positionIds != nullptr; }},
};

/// bool [S,T]: keys that are nearer than the window.
using Near = Value&(DecoderGraph& g, int64_t window);

Value& byFirstKey(DecoderGraph& g, int64_t window) {
  return g.op("Greater", {g.keyRows, &g.sub(queryColumn(g), g.integer(window))});
}

Value& byDistance(DecoderGraph& g, int64_t window) {
  return g.op("Less", {&g.sub(queryColumn(g), *g.keyRows), &g.integer(window)});
}

Value& byNotFarther(DecoderGraph& g, int64_t window) {
  Value& last = g.sub(queryColumn(g), g.integer(window));
  return g.op("Not", {&g.op("LessOrEqual", {&keyLine(g), &last})});
}

Value& byBand(DecoderGraph& g, int64_t window) {
  Value& start = g.scalar(g.add(*g.first, g.ints({1 - window})));
  return g.toBool(g.op("Trilu", {&ones(g), &start}, {{"upper", 1}}));
}

constexpr Spelling<Near> nears[] = {
    {"window/FirstKey", byFirstKey},         {"window/Distance", byDistance},
    {"window/NotFarther", byNotFarther},     {"window/Band", byBand},
    {"window/GatheredTable", gatheredTable}, {"window/SlicedTable", slicedTable},
};

using Both = Value&(DecoderGraph& g, Value& a, Value& b);

Value& byAnd(DecoderGraph& g, Value& a, Value& b) { return g.op("And", {&a, &b}); }

Value& byProduct(DecoderGraph& g, Value& a, Value& b) {
  return g.toBool(g.mul(g.toInt(a), g.toInt(b)));
}

Value& byWhere(DecoderGraph& g, Value& a, Value& b) {
  return g.where(a, b, g.booleans({}, {false}));
}

Value& byNeither(DecoderGraph& g, Value& a, Value& b) {
  return g.op("Not", {&g.op("Or", {&g.op("Not", {&a}), &g.op("Not", {&b})})});
}

constexpr Spelling<Both> boths[] = {
    {"both/And", byAnd},
    {"both/Product", byProduct},
    {"both/Where", byWhere},
    {"both/Neither", byNeither},
};

using Hide = Value&(DecoderGraph& g, Value& scores, Value& seen);

constexpr double lowest = std::numeric_limits<float>::lowest();
constexpr double infinity = std::numeric_limits<double>::infinity();

Value& byChoice(DecoderGraph& g, Value& scores, Value& seen) {
  return g.where(seen, scores, g.single(-infinity));
}

Value& byReversedChoice(DecoderGraph& g, Value& scores, Value& seen) {
  return g.where(g.op("Not", {&seen}), g.single(lowest), scores);
}

Value& byExpandedChoice(DecoderGraph& g, Value& scores, Value& seen) {
  Value& shape = g.concatLists({g.batch, &g.ints({1}), g.sequence, g.total});
  return g.where(g.op("Expand", {&seen, &shape}), scores, g.single(lowest));
}

Value& byInfinity(DecoderGraph& g, Value& scores, Value& seen) {
  return g.add(scores, g.where(seen, g.single(0), g.single(-infinity)));
}

Value& byLowest(DecoderGraph& g, Value& scores, Value& seen) {
  return g.add(g.where(seen, g.single(0), g.single(lowest)), scores);
}

Value& byScaledComplement(DecoderGraph& g, Value& scores, Value& seen) {
  Value& hidden = g.sub(g.single(1), g.asFloat(seen));
  return g.add(scores, g.mul(hidden, g.single(-10000)));
}

Value& byLogarithm(DecoderGraph& g, Value& scores, Value& seen) {
  return g.add(scores, g.op("Log", {&g.asFloat(seen)}));
}

Value& byBlend(DecoderGraph& g, Value& scores, Value& seen) {
  Value& kept = g.asFloat(seen);
  Value& hidden = g.mul(g.sub(g.single(1), kept), g.single(1e9));
  return g.sub(g.mul(scores, kept), hidden);
}

constexpr Spelling<Hide> hides[] = {
    {"hide/Choice", byChoice},
    {"hide/ReversedChoice", byReversedChoice},
    {"hide/ExpandedChoice", byExpandedChoice},
    {"hide/Infinity", byInfinity},
    {"hide/Lowest", byLowest},
    {"hide/ScaledComplement", byScaledComplement},
    {"hide/Logarithm", byLogarithm},
    {"hide/Blend", byBlend},
};

} // namespace

Value& seenKeys(DecoderGraph& g) {
  Value* seen = &g.choose(seens)(g);
  if (const int64_t window = g.sizes.windows[g.layer])
    seen = &g.choose(boths)(g, *seen, g.choose(nears)(g, window));
  if (g.padding)
    seen = &g.choose(boths)(g, *seen, g.unsqueeze(g.toBool(*g.padding), {1, 2}));
  return g.at(Stage::Seen, *seen);
}

Value& masked(DecoderGraph& g, Value& scores, Value& seen) {
  return g.choose(hides)(g, scores, seen);
}

} // namespace kvopt::generated
