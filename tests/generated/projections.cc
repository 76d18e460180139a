// Projections of a layer, split into heads, and what joins heads again.
#include "tests/generated/spellings.h"

namespace kvopt::generated {
using namespace ir;

namespace {

/// The deviation of scores is then about 1.
constexpr double deviation = 0.6;

std::string weightName(const DecoderGraph& g, const char* name) {
  return "layers." + std::to_string(g.layer) + "." + name;
}

/// x [B,S,hidden] · W [hidden,columns].
using Product = Value&(DecoderGraph& g, Value& x, const char* name, int64_t columns);

Value& byMatMul(DecoderGraph& g, Value& x, const char* name, int64_t columns) {
  return g.op("MatMul", {&x, &g.weight(weightName(g, name), {hiddenSize, columns}, deviation)});
}

Value& byTransposedWeight(DecoderGraph& g, Value& x, const char* name, int64_t columns) {
  Value& weight = g.weight(weightName(g, name), {columns, hiddenSize}, deviation);
  return g.op("MatMul", {&x, &g.transpose(weight, {1, 0})});
}

Value& byGemm(DecoderGraph& g, Value& x, const char* name, int64_t columns) {
  Value& rows = g.reshapeTo(x, {-1, hiddenSize});
  Value& weight = g.weight(weightName(g, name), {columns, hiddenSize}, deviation);
  Value& product = g.op("Gemm", {&rows, &weight}, {{"transB", 1}});
  return g.reshape(product, {g.batch, g.sequence, &g.ints({columns})});
}

Value& byEinsum(DecoderGraph& g, Value& x, const char* name, int64_t columns) {
  Value& weight = g.weight(weightName(g, name), {hiddenSize, columns}, deviation);
  return g.op("Einsum", {&x, &weight}, {{"equation", std::string("bsi,io->bso")}});
}

Value& byMatMulWithBias(DecoderGraph& g, Value& x, const char* name, int64_t columns) {
  Value& bias = g.weight(weightName(g, name) + ".bias", {columns}, 0.1);
  return g.add(byMatMul(g, x, name, columns), bias);
}

constexpr Spelling<Product> products[] = {
    {"product/MatMul", byMatMul},
    {"product/TransposedWeight", byTransposedWeight},
    {"product/Gemm", byGemm},
    {"product/Einsum", byEinsum},
    {"product/WithBias", byMatMulWithBias},
};

Value& product(DecoderGraph& g, Value& x, const char* name, int64_t columns) {
  return g.choose(products)(g, x, name, columns);
}

/// [B,S,heads·D] as [B,S,heads,D].
using HeadSplit = Value&(DecoderGraph& g, Value& x, int64_t heads);

Value& byConstantShape(DecoderGraph& g, Value& x, int64_t heads) {
  return g.reshapeTo(x, {0, 0, heads, g.sizes.width});
}

Value& byOpenExtent(DecoderGraph& g, Value& x, int64_t heads) {
  return g.reshape(x, {g.batch, &g.ints({-1, heads, g.sizes.width})});
}

Value& byComputedShape(DecoderGraph& g, Value& x, int64_t heads) {
  return g.reshape(x, {&g.extentOf(x, 0), &g.extentOf(x, 1), &g.ints({heads, g.sizes.width})});
}

Value& byOpenBatch(DecoderGraph& g, Value& x, int64_t heads) {
  return g.reshape(x, {&g.ints({-1}), g.sequence, &g.ints({heads, g.sizes.width})});
}

Value& byStackedColumns(DecoderGraph& g, Value& x, int64_t heads) {
  const std::vector<int64_t> extents(static_cast<size_t>(heads), g.sizes.width);
  std::vector<Value*> parts = g.split(x, 2, extents);
  for (Value*& part : parts)
    part = &g.unsqueeze(*part, {2});
  return g.concat(parts, 2);
}

constexpr Spelling<HeadSplit> headSplits[] = {
    {"heads/ConstantShape", byConstantShape},
    {"heads/OpenExtent", byOpenExtent},
    {"heads/ComputedShape", byComputedShape},
    {"heads/OpenBatch", byOpenBatch},
    {"heads/StackedColumns", byStackedColumns,
     [](const DecoderGraph& g) { return g.sizes.groups > 1; }},
};

Value& headsOf(DecoderGraph& g, Value& x, int64_t heads) {
  return g.choose(headSplits)(g, x, heads);
}

using Projections = NewRows(DecoderGraph& g, Value& x);

NewRows apart(DecoderGraph& g, Value& x) {
  const auto part = [&](const char* name, int64_t heads) {
    return &headsOf(g, product(g, x, name, heads * g.sizes.width), heads);
  };
  Value* query = part("query", g.sizes.heads);
  Value* key = part("key", g.sizes.groups);
  return {query, key, part("value", g.sizes.groups)};
}

NewRows packedAndSplit(DecoderGraph& g, Value& x) {
  const auto [heads, groups, width] = std::tuple(g.sizes.heads, g.sizes.groups, g.sizes.width);
  Value& packed = product(g, x, "packed", (heads + 2 * groups) * width);
  const auto parts = g.split(packed, 2, {heads * width, groups * width, groups * width});
  Value* query = &headsOf(g, *parts[0], heads);
  Value* key = &headsOf(g, *parts[1], groups);
  return {query, key, &headsOf(g, *parts[2], groups)};
}

NewRows packedAndSliced(DecoderGraph& g, Value& x) {
  const auto [heads, groups, width] = std::tuple(g.sizes.heads, g.sizes.groups, g.sizes.width);
  Value& packed = product(g, x, "packed", (heads + 2 * groups) * width);
  const auto columns = [&](int64_t begin, int64_t count) -> Value& {
    return g.slice(packed, g.ints({begin}), g.ints({begin + count}), 2);
  };
  Value* query = &headsOf(g, columns(0, heads * width), heads);
  Value* key = &headsOf(g, columns(heads * width, groups * width), groups);
  return {query, key, &headsOf(g, columns((heads + groups) * width, groups * width), groups)};
}

NewRows packedHeads(DecoderGraph& g, Value& x) {
  const auto [heads, groups, width] = std::tuple(g.sizes.heads, g.sizes.groups, g.sizes.width);
  const int64_t all = heads + 2 * groups;
  Value& packed = g.reshapeTo(product(g, x, "packed", all * width), {0, 0, all, width});
  const auto parts = g.split(packed, 2, {heads, groups, groups});
  return {parts[0], parts[1], parts[2]};
}

NewRows headsByEinsum(DecoderGraph& g, Value& x) {
  const auto part = [&](const char* name, int64_t heads) {
    Value& weight = g.weight(weightName(g, name), {hiddenSize, heads, g.sizes.width}, deviation);
    return &g.op("Einsum", {&x, &weight}, {{"equation", std::string("bsi,ihd->bshd")}});
  };
  Value* query = part("query", g.sizes.heads);
  Value* key = part("key", g.sizes.groups);
  return {query, key, part("value", g.sizes.groups)};
}

constexpr Spelling<Projections> projections[] = {
    {"projections/Apart", apart},
    {"projections/PackedAndSplit", packedAndSplit},
    {"projections/PackedAndSliced", packedAndSliced},
    {"projections/PackedHeads", packedHeads},
    {"projections/HeadsByEinsum", headsByEinsum},
};

using Merge = Value&(DecoderGraph& g, Value& x);

Value& mergedByReshape(DecoderGraph& g, Value& x) {
  const int64_t columns = g.sizes.heads * g.sizes.width;
  Value& rows = g.reshapeTo(g.transpose(x, {0, 2, 1, 3}), {0, 0, columns});
  return g.op("MatMul", {&rows, &g.weight(weightName(g, "output"), {columns, hiddenSize}, 0.4)});
}

Value& mergedByEinsum(DecoderGraph& g, Value& x) {
  Value& weight =
      g.weight(weightName(g, "output"), {g.sizes.heads, g.sizes.width, hiddenSize}, 0.4);
  return g.op("Einsum", {&x, &weight}, {{"equation", std::string("bhsd,hdo->bso")}});
}

Value& mergedByConcat(DecoderGraph& g, Value& x) {
  const std::vector<int64_t> ones(static_cast<size_t>(g.sizes.heads), 1);
  std::vector<Value*> heads = g.split(x, 1, ones);
  for (Value*& head : heads)
    head = &g.op("Squeeze", {head, &g.ints({1})});
  const int64_t columns = g.sizes.heads * g.sizes.width;
  return g.op("MatMul", {&g.concat(heads, 2),
                         &g.weight(weightName(g, "output"), {columns, hiddenSize}, 0.4)});
}

constexpr Spelling<Merge> merges[] = {
    {"merge/Reshape", mergedByReshape},
    {"merge/Einsum", mergedByEinsum},
    {"merge/Concat", mergedByConcat},
};

} // namespace

NewRows projected(DecoderGraph& g, Value& x) { return g.choose(projections)(g, x); }

Value& mergedHeads(DecoderGraph& g, Value& x) { return g.choose(merges)(g, x); }

} // namespace kvopt::generated
