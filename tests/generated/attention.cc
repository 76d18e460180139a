// Scores, softmax and the weighted sum of values.
#include "tests/generated/spellings.h"

#include <cmath>

namespace kvopt::generated {
using namespace ir;

namespace {

/// q [B,H,S,D] · kᵀ [B,H,T,D] as [B,H,S,T].
using Product = Value&(DecoderGraph& g, Value& a, Value& b);

Value& scoresByMatMul(DecoderGraph& g, Value& q, Value& k) {
  return g.op("MatMul", {&q, &g.transpose(k, {0, 1, 3, 2})});
}

Value& scoresByTransposed(DecoderGraph& g, Value& q, Value& k) {
  Value& product = g.op("MatMul", {&k, &g.transpose(q, {0, 1, 3, 2})});
  return g.transpose(product, {0, 1, 3, 2});
}

Value& scoresByEinsum(DecoderGraph& g, Value& q, Value& k) {
  return g.op("Einsum", {&q, &k}, {{"equation", std::string("bhsd,bhtd->bhst")}});
}

Value& scoresBySum(DecoderGraph& g, Value& q, Value& k) {
  return g.reduced("ReduceSum", g.mul(g.unsqueeze(q, {3}), g.unsqueeze(k, {2})), -1, false);
}

Value& inOneBatch(DecoderGraph& g, Value& x, Value& rows) {
  return g.reshape(x, {&g.ints({-1}), &rows, &g.ints({g.sizes.width})});
}

Value& scoresInOneBatch(DecoderGraph& g, Value& q, Value& k) {
  Value& keys = g.transpose(inOneBatch(g, k, *g.total), {0, 2, 1});
  Value& product = g.op("MatMul", {&inOneBatch(g, q, *g.sequence), &keys});
  return g.reshape(product, {g.batch, &g.ints({g.sizes.heads}), g.sequence, g.total});
}

constexpr Spelling<Product> scoreProducts[] = {
    {"scores/MatMul", scoresByMatMul},     {"scores/Transposed", scoresByTransposed},
    {"scores/Einsum", scoresByEinsum},     {"scores/Sum", scoresBySum},
    {"scores/OneBatch", scoresInOneBatch},
};

/// p [B,H,S,T] · v [B,H,T,D] as [B,H,S,D].
Value& resultByMatMul(DecoderGraph& g, Value& p, Value& v) { return g.op("MatMul", {&p, &v}); }

Value& resultByTransposed(DecoderGraph& g, Value& p, Value& v) {
  Value& columns = g.transpose(v, {0, 1, 3, 2});
  Value& product = g.op("MatMul", {&columns, &g.transpose(p, {0, 1, 3, 2})});
  return g.transpose(product, {0, 1, 3, 2});
}

Value& resultByEinsum(DecoderGraph& g, Value& p, Value& v) {
  return g.op("Einsum", {&p, &v}, {{"equation", std::string("bhst,bhtd->bhsd")}});
}

Value& resultBySum(DecoderGraph& g, Value& p, Value& v) {
  return g.reduced("ReduceSum", g.mul(g.unsqueeze(p, {4}), g.unsqueeze(v, {2})), 3, false);
}

Value& resultInOneBatch(DecoderGraph& g, Value& p, Value& v) {
  Value& weights = g.reshape(p, {&g.ints({-1}), g.sequence, g.total});
  Value& product = g.op("MatMul", {&weights, &inOneBatch(g, v, *g.total)});
  return g.reshape(product,
                   {g.batch, &g.ints({g.sizes.heads}), g.sequence, &g.ints({g.sizes.width})});
}

constexpr Spelling<Product> resultProducts[] = {
    {"result/MatMul", resultByMatMul},     {"result/Transposed", resultByTransposed},
    {"result/Einsum", resultByEinsum},     {"result/Sum", resultBySum},
    {"result/OneBatch", resultInOneBatch},
};

/// Where 1 / sqrt(D) comes in.
struct Scale {
  Value& (*query)(DecoderGraph& g, Value& x);
  Value& (*key)(DecoderGraph& g, Value& x);
  Value& (*scores)(DecoderGraph& g, Value& x);
};

double root(const DecoderGraph& g) { return std::sqrt(static_cast<double>(g.sizes.width)); }
Value& asIs(DecoderGraph&, Value& x) { return x; }
Value& times(DecoderGraph& g, Value& x) { return g.mul(x, g.single(1 / root(g))); }
Value& over(DecoderGraph& g, Value& x) { return g.op("Div", {&x, &g.single(root(g))}); }
Value& timesRoot(DecoderGraph& g, Value& x) { return g.mul(x, g.single(std::sqrt(1 / root(g)))); }
Value& overComputedRoot(DecoderGraph& g, Value& x) {
  Value& width = g.asFloat(g.extentOf(x, 3));
  return g.op("Div", {&x, &g.op("Sqrt", {&width})});
}

constexpr Scale scaleOfScores{asIs, asIs, times};
constexpr Scale quotientOfScores{asIs, asIs, over};
constexpr Scale scaleOfQueries{times, asIs, asIs};
constexpr Scale quotientOfQueries{over, asIs, asIs};
constexpr Scale computedOfQueries{overComputedRoot, asIs, asIs};
constexpr Scale scaleOfKeys{asIs, times, asIs};
constexpr Scale scaleOfBoth{timesRoot, timesRoot, asIs};

using ScaleOf = const Scale&();

constexpr Spelling<ScaleOf> scales[] = {
    {"scale/Scores", []() -> const Scale& { return scaleOfScores; }},
    {"scale/ScoresDivided", []() -> const Scale& { return quotientOfScores; }},
    {"scale/Queries", []() -> const Scale& { return scaleOfQueries; }},
    {"scale/QueriesDivided", []() -> const Scale& { return quotientOfQueries; }},
    {"scale/ComputedRoot", []() -> const Scale& { return computedOfQueries; }},
    {"scale/Keys", []() -> const Scale& { return scaleOfKeys; }},
    {"scale/Both", []() -> const Scale& { return scaleOfBoth; }},
};

using Softmax = Value&(DecoderGraph& g, Value& x);

Value& bySoftmax(DecoderGraph& g, Value& x) { return g.op("Softmax", {&x}, {{"axis", -1}}); }

Value& byCountedAxis(DecoderGraph& g, Value& x) { return g.op("Softmax", {&x}, {{"axis", 3}}); }

Value& normalized(DecoderGraph& g, Value& exponentials) {
  return g.op("Div", {&exponentials, &g.reduced("ReduceSum", exponentials, -1, true)});
}

Value& byExponentials(DecoderGraph& g, Value& x) { return normalized(g, g.op("Exp", {&x})); }

Value& byShiftedExponentials(DecoderGraph& g, Value& x) {
  Value& shifted = g.sub(x, g.reduced("ReduceMax", x, -1, true));
  return normalized(g, g.op("Exp", {&shifted}));
}

Value& byReciprocal(DecoderGraph& g, Value& x) {
  Value& shifted = g.sub(x, g.reduced("ReduceMax", x, 3, true));
  Value& exponentials = g.op("Exp", {&shifted});
  Value& sum = g.reduced("ReduceSum", exponentials, 3, true);
  return g.mul(exponentials, g.op("Reciprocal", {&sum}));
}

Value& byLogSoftmax(DecoderGraph& g, Value& x) {
  return g.op("Exp", {&g.op("LogSoftmax", {&x}, {{"axis", -1}})});
}

Value& byLogSumExp(DecoderGraph& g, Value& x) {
  Value& sum = g.reduced("ReduceSum", g.op("Exp", {&x}), -1, true);
  return g.op("Exp", {&g.sub(x, g.op("Log", {&sum}))});
}

constexpr Spelling<Softmax> softmaxes[] = {
    {"softmax/Softmax", bySoftmax},
    {"softmax/CountedAxis", byCountedAxis},
    {"softmax/Exponentials", byExponentials},
    {"softmax/ShiftedExponentials", byShiftedExponentials},
    {"softmax/Reciprocal", byReciprocal},
    {"softmax/LogSoftmax", byLogSoftmax},
    {"softmax/LogSumExp", byLogSumExp},
};

/// [B,H,S,T] from scaled scores.
Value& weightsOf(DecoderGraph& g, Value& scores) {
  Value& changed = g.at(Stage::Scores, scores);
  g.maskedScores = &masked(g, changed, seenKeys(g));
  return g.at(Stage::Weights, g.choose(softmaxes)(g, *g.maskedScores));
}

using Attention = Value&(DecoderGraph& g, Value& query, const JoinedRows& rows);

Value& withRepeatedHeads(DecoderGraph& g, Value& query, const JoinedRows& rows) {
  const Scale& scale = g.choose(scales)();
  Value& keys = repeated(g, scale.key(g, *rows.key));
  Value& product = g.choose(scoreProducts)(g, scale.query(g, query), keys);
  Value& weights = weightsOf(g, scale.scores(g, product));
  Value& values = g.at(Stage::RepeatedValues, repeated(g, *rows.value));
  return g.choose(resultProducts)(g, weights, values);
}

/// Queries [B,G,r,S,D] with keys [B,G,1,T,D].
Value& withBroadcastGroups(DecoderGraph& g, Value& query, const JoinedRows& rows) {
  const Scale& scale = g.choose(scales)();
  const auto [groups, repeats] = std::pair(g.sizes.groups, g.sizes.repeats());
  Value& queries = g.reshapeTo(scale.query(g, query), {0, groups, repeats, -1, g.sizes.width});
  Value& keys = g.unsqueeze(scale.key(g, *rows.key), {2});
  Value& product = g.op("MatMul", {&queries, &g.transpose(keys, {0, 1, 2, 4, 3})});
  Value& scores = g.reshape(product, {g.batch, &g.ints({g.sizes.heads}), g.sequence, g.total});
  Value& weights = weightsOf(g, scale.scores(g, scores));
  Value& apart = g.reshape(weights, {g.batch, &g.ints({groups, repeats}), g.sequence, g.total});
  Value& results = g.op("MatMul", {&apart, &g.unsqueeze(*rows.value, {2})});
  return g.reshapeTo(results, {0, g.sizes.heads, -1, g.sizes.width});
}

/// The queries of a group as rows of one head, [B,G,r·S,D].
Value& withFoldedQueries(DecoderGraph& g, Value& query, const JoinedRows& rows) {
  const Scale& scale = g.choose(scales)();
  Value& queries = g.reshapeTo(scale.query(g, query), {0, g.sizes.groups, -1, g.sizes.width});
  Value& keys = scale.key(g, *rows.key);
  Value& product = g.op("MatMul", {&queries, &g.transpose(keys, {0, 1, 3, 2})});
  Value& scores = g.reshape(product, {g.batch, &g.ints({g.sizes.heads}), g.sequence, g.total});
  Value& weights = weightsOf(g, scale.scores(g, scores));
  Value& folded = g.reshape(weights, {g.batch, &g.ints({g.sizes.groups, -1}), g.total});
  Value& results = g.op("MatMul", {&folded, rows.value});
  return g.reshape(results,
                   {g.batch, &g.ints({g.sizes.heads}), g.sequence, &g.ints({g.sizes.width})});
}

bool isGrouped(const DecoderGraph& g) { return g.sizes.repeats() > 1; }

constexpr Spelling<Attention> attentions[] = {
    {"groups/Repeated", withRepeatedHeads},
    {"groups/Broadcast", withBroadcastGroups, isGrouped},
    {"groups/FoldedQueries", withFoldedQueries, isGrouped},
};

} // namespace

Value& attended(DecoderGraph& g, Value& query, const JoinedRows& rows) {
  const JoinedRows read{&g.at(Stage::Keys, *rows.key), &g.at(Stage::Values, *rows.value)};
  return g.choose(attentions)(g, query, read);
}

} // namespace kvopt::generated
