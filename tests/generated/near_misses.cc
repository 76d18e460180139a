// Near misses: whatever is found in a decoder with one of them must compute the same.
#include "tests/generated/near_misses.h"

#include <limits>

namespace kvopt::generated {
using namespace ir;

namespace {

Value& queryColumn(DecoderGraph& g) { return g.unsqueeze(*g.queryRows, {1}); }
Value& rowsEnd(DecoderGraph& g) { return g.ints({std::numeric_limits<int64_t>::max()}); }

// Presents.

Value& lastRowDropped(DecoderGraph& g, Value& x) {
  return g.slice(x, *g.zero, g.ints({-1}), g.axes.rows);
}

Value& rowsReversed(DecoderGraph& g, Value& x) { return g.reversed(x, g.axes.rows); }

Value& firstRowMovedLast(DecoderGraph& g, Value& x) {
  Value& head = g.slice(x, *g.zero, g.ints({1}), g.axes.rows);
  return g.concat({&g.slice(x, g.ints({1}), rowsEnd(g), g.axes.rows), &head}, g.axes.rows);
}

Value& newRowsScaled(DecoderGraph& g, Value& x) {
  Value& isOld = g.op("Less", {g.keyRows, g.first});
  Value& factors = g.where(isOld, g.single(1), g.single(1.5));
  return g.mul(x, g.along(factors, g.axes.rows, g.axes.rank));
}

Value& allRowsScaled(DecoderGraph& g, Value& x) { return g.mul(x, g.single(0.5)); }

Value& batchReversed(DecoderGraph& g, Value& x) { return g.reversed(x, 0); }

Value& headsReversed(DecoderGraph& g, Value& x) { return g.reversed(x, g.axes.heads); }

// Keys and values [B,G,T,D].

Value& firstRowAdded(DecoderGraph& g, Value& x) {
  return g.add(x, g.slice(x, *g.zero, g.ints({1}), 2));
}

Value& firstRowRepeated(DecoderGraph& g, Value& x) {
  Value& firstRow = g.slice(x, *g.zero, g.ints({1}), 2);
  return g.op("Expand", {&firstRow, &g.shapeOf(x)});
}

Value& pastReversed(DecoderGraph& g, Value& x) {
  Value& past = g.slice(x, *g.zero, *g.first, 2);
  return g.concat({&g.reversed(past, 2), &g.slice(x, *g.first, rowsEnd(g), 2)}, 2);
}

Value& rowsShifted(DecoderGraph& g, Value& x) {
  Value& head = g.slice(x, *g.zero, g.ints({1}), 2);
  return g.concat({&g.slice(x, g.ints({1}), rowsEnd(g), 2), &head}, 2);
}

Value& newestRowZero(DecoderGraph& g, Value& x) {
  Value& isNewest = g.op("Equal", {g.keyRows, &g.sub(*g.total, g.ints({1}))});
  return g.mul(x, g.along(g.where(isNewest, g.single(0), g.single(1)), 2, 4));
}

Value& newRowsNegated(DecoderGraph& g, Value& x) {
  Value& isOld = g.op("Less", {g.keyRows, g.first});
  return g.mul(x, g.along(g.where(isOld, g.single(1), g.single(-1)), 2, 4));
}

Value& runningSum(DecoderGraph& g, Value& x) { return g.op("CumSum", {&x, &g.integer(2)}); }

/// 0, 0, 1, 1 becomes 0, 1, 0, 1.
Value& headsTiled(DecoderGraph& g, Value& x) {
  std::vector<int64_t> order;
  for (int64_t repeat = 0; repeat < g.sizes.repeats(); ++repeat)
    for (int64_t group = 0; group < g.sizes.groups; ++group)
      order.push_back(group * g.sizes.repeats() + repeat);
  return g.op("Gather", {&x, &g.constant(int64Tensor(order))}, {{"axis", 1}});
}

// Scores.

Value& scaledByLength(DecoderGraph& g, Value& x) {
  return g.mul(x, g.mul(g.asFloat(*g.total), g.single(0.2)));
}

Value& scaledByToken(DecoderGraph& g, Value& x) {
  Value& factors = g.mul(g.asFloat(*g.tokens), g.single(0.1));
  return g.mul(x, g.unsqueeze(factors, {1, 3}));
}

Value& cappedElsewhere(DecoderGraph& g, Value& x) {
  return g.mul(g.op("Tanh", {&g.op("Div", {&x, &g.single(2)})}), g.single(3));
}

Value& squared(DecoderGraph& g, Value& x) { return g.mul(x, x); }

Value& positivePart(DecoderGraph& g, Value& x) { return g.op("Relu", {&x}); }

// Seen keys.

Value& nextKeyToo(DecoderGraph& g, Value& x) {
  Value& next = g.add(queryColumn(g), g.integer(1));
  return g.op("Or", {&x, &g.op("Equal", {g.keyRows, &next})});
}

Value& oneKeyHidden(DecoderGraph& g, Value& x) {
  return g.op("And", {&x, &g.op("Not", {&g.op("Equal", {g.keyRows, &g.integer(1)})})});
}

Value& firstKeysToo(DecoderGraph& g, Value& x) {
  return g.op("Or", {&x, &g.op("Less", {g.keyRows, &g.integer(2)})});
}

Value& hiddenByToken(DecoderGraph& g, Value& x) {
  Value& isShown = g.unsqueeze(g.op("Less", {g.tokens, &g.integer(vocabularySize / 2)}), {1, 3});
  Value& isOwn = g.op("Equal", {g.keyRows, &queryColumn(g)});
  return g.op("And", {&x, &g.op("Or", {&isShown, &isOwn})});
}

Value& everySecond(DecoderGraph& g, Value& x) {
  Value& distance = g.op("Abs", {&g.sub(queryColumn(g), *g.keyRows)});
  Value& rest = g.op("Mod", {&distance, &g.integer(2)});
  return g.op("And", {&x, &g.op("Equal", {&rest, &g.integer(0)})});
}

Value& inChunks(DecoderGraph& g, Value& x) {
  const auto chunk = [&](Value& rows) { return &g.op("Div", {&rows, &g.integer(4)}); };
  Value* queries = chunk(queryColumn(g));
  return g.op("And", {&x, &g.op("Equal", {chunk(*g.keyRows), queries})});
}

Value& allPastsOnly(DecoderGraph& g, Value& x) {
  Value& isOwn = g.op("Equal", {g.keyRows, &queryColumn(g)});
  Value& isPast = g.op("Less", {g.keyRows, g.first});
  return g.op("And", {&x, &g.op("Or", {&isOwn, &isPast})});
}

// Weights.

Value& oneMoreInTheSum(DecoderGraph& g, Value&) {
  Value& exponentials = g.op("Exp", {g.maskedScores});
  Value& sum = g.reduced("ReduceSum", exponentials, -1, true);
  return g.op("Div", {&exponentials, &g.add(g.single(1), sum)});
}

Value& overQueries(DecoderGraph& g, Value&) {
  return g.op("Softmax", {g.maskedScores}, {{"axis", -2}});
}

Value& notNormalized(DecoderGraph& g, Value&) {
  Value& largest = g.reduced("ReduceMax", *g.maskedScores, -1, true);
  return g.op("Exp", {&g.sub(*g.maskedScores, largest)});
}

Value& weightsSquared(DecoderGraph& g, Value& x) { return g.mul(x, x); }

Value& smallOnesDropped(DecoderGraph& g, Value& x) {
  return g.where(g.op("Less", {&x, &g.single(0.1)}), g.single(0), x);
}

Value& weightsShared(DecoderGraph& g, Value& x) {
  Value& mean = g.reduced("ReduceMean", x, 1, true);
  return g.add(g.mul(x, g.single(0.5)), g.mul(mean, g.single(0.5)));
}

bool grows(const DecoderGraph& g) { return !g.sizes.isStatic; }
/// No input has an extent that the caches have to fit.
bool growsUnmasked(const DecoderGraph& g) { return grows(g) && !g.padding; }
bool hasBatchFirst(const DecoderGraph& g) { return g.axes.batch == 0; }
bool hasHeadAxis(const DecoderGraph& g) { return g.axes.heads >= 0 && g.sizes.groups > 1; }
bool hasSomeGroups(const DecoderGraph& g) {
  return g.sizes.groups > 1 && g.sizes.repeats() > 1 && g.used.count("groups/Repeated") != 0;
}
bool hasWindow(const DecoderGraph& g) { return g.sizes.windows[g.layer] != 0; }
/// Each column of scores has a query that sees it.
bool seesEveryKey(const DecoderGraph& g) { return grows(g) && !hasWindow(g) && !g.padding; }

constexpr NearMiss misses[] = {
    {"LastRowDropped", Stage::Present, lastRowDropped, growsUnmasked},
    {"PresentReversed", Stage::Present, rowsReversed},
    {"PresentRotated", Stage::Present, firstRowMovedLast},
    {"NewRowsScaled", Stage::Present, newRowsScaled},
    {"PresentScaled", Stage::Present, allRowsScaled},
    {"BatchReversed", Stage::Present, batchReversed, hasBatchFirst},
    {"PresentHeadsReversed", Stage::Present, headsReversed, hasHeadAxis},
    {"FirstRowAddedToKeys", Stage::Keys, firstRowAdded},
    {"FirstRowAddedToValues", Stage::Values, firstRowAdded},
    {"FirstKeyRepeated", Stage::Keys, firstRowRepeated},
    {"FirstValueRepeated", Stage::Values, firstRowRepeated},
    {"PastKeysReversed", Stage::Keys, pastReversed, grows},
    {"PastValuesReversed", Stage::Values, pastReversed, grows},
    {"KeysShifted", Stage::Keys, rowsShifted},
    {"ValuesShifted", Stage::Values, rowsShifted},
    {"KeysOfAnotherBatchRow", Stage::Keys, batchReversed},
    {"NewestValueZero", Stage::Values, newestRowZero, grows},
    {"NewKeysNegated", Stage::Keys, newRowsNegated},
    {"RunningSumOfValues", Stage::Values, runningSum, grows},
    {"ValueHeadsTiled", Stage::RepeatedValues, headsTiled, hasSomeGroups},
    {"ScaledByLength", Stage::Scores, scaledByLength, grows},
    {"ScaledByToken", Stage::Scores, scaledByToken},
    {"CappedElsewhere", Stage::Scores, cappedElsewhere},
    {"ScoresSquared", Stage::Scores, squared},
    {"PositiveScores", Stage::Scores, positivePart},
    {"NextKeyToo", Stage::Seen, nextKeyToo},
    {"OneKeyHidden", Stage::Seen, oneKeyHidden, grows},
    {"FirstKeysToo", Stage::Seen, firstKeysToo},
    {"HiddenByToken", Stage::Seen, hiddenByToken},
    {"EverySecondKey", Stage::Seen, everySecond},
    {"InChunks", Stage::Seen, inChunks},
    {"PastsAndItself", Stage::Seen, allPastsOnly},
    {"OneMoreInTheSum", Stage::Weights, oneMoreInTheSum},
    {"OverQueries", Stage::Weights, overQueries, seesEveryKey},
    {"NotNormalized", Stage::Weights, notNormalized},
    {"WeightsSquared", Stage::Weights, weightsSquared},
    {"SmallWeightsDropped", Stage::Weights, smallOnesDropped},
    {"WeightsShared", Stage::Weights, weightsShared},
};

} // namespace

llvm::ArrayRef<NearMiss> nearMisses() { return misses; }

} // namespace kvopt::generated
