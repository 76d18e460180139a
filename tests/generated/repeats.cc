// Key and value heads, each repeated for the query heads that read it.
#include "tests/generated/spellings.h"

namespace kvopt::generated {
using namespace ir;

namespace {

using Repeat = Value&(DecoderGraph& g, Value& x);

/// [B,G,r,T,D] as [B,H,T,D].
Value& joinedHeads(DecoderGraph& g, Value& x) {
  return g.reshapeTo(x, {0, g.sizes.heads, -1, g.sizes.width});
}

Value& byExpand(DecoderGraph& g, Value& x) {
  Value& shape = g.ints({1, 1, g.sizes.repeats(), 1, 1});
  return joinedHeads(g, g.op("Expand", {&g.unsqueeze(x, {2}), &shape}));
}

Value& byComputedExpand(DecoderGraph& g, Value& x) {
  Value& rows = g.extentOf(x, 2);
  Value& heads = g.ints({g.sizes.groups, g.sizes.repeats()});
  Value& width = g.ints({g.sizes.width});
  Value& shape = g.concatLists({g.batch, &heads, &rows, &width});
  Value& wide = g.op("Expand", {&g.unsqueeze(x, {2}), &shape});
  return g.reshape(wide, {g.batch, &g.ints({g.sizes.heads}), &rows, &width});
}

Value& byOpenReshape(DecoderGraph& g, Value& x) {
  Value& shape = g.ints({1, 1, g.sizes.repeats(), 1, 1});
  Value& wide = g.op("Expand", {&g.unsqueeze(x, {2}), &shape});
  return g.reshape(wide, {g.batch, &g.ints({-1}), &g.extentOf(x, 2), &g.ints({g.sizes.width})});
}

Value& byTile(DecoderGraph& g, Value& x) {
  Value& times = g.ints({1, 1, g.sizes.repeats(), 1, 1});
  return joinedHeads(g, g.op("Tile", {&g.unsqueeze(x, {2}), &times}));
}

Value& byTiledColumns(DecoderGraph& g, Value& x) {
  Value& flat = g.op(
      "Tile", {&g.reshapeTo(x, {0, g.sizes.groups, 1, -1}), &g.ints({1, 1, g.sizes.repeats(), 1})});
  return g.reshapeTo(flat, {0, g.sizes.heads, -1, g.sizes.width});
}

Value& byConcat(DecoderGraph& g, Value& x) {
  Value& one = g.unsqueeze(x, {2});
  const std::vector<Value*> copies(static_cast<size_t>(g.sizes.repeats()), &one);
  return joinedHeads(g, g.concat(copies, 2));
}

Value& byGather(DecoderGraph& g, Value& x) {
  std::vector<int64_t> table;
  for (int64_t head = 0; head < g.sizes.heads; ++head)
    table.push_back(head / g.sizes.repeats());
  return g.op("Gather", {&x, &g.constant(int64Tensor(table))}, {{"axis", 1}});
}

/// table [H,G] · x [B,G,T·D].
Value& byTable(DecoderGraph& g, Value& x, Value& table) {
  Value& flat = g.reshapeTo(x, {0, g.sizes.groups, -1});
  return joinedHeads(g, g.op("MatMul", {&table, &flat}));
}

Value& headTable(DecoderGraph& g) {
  std::vector<float> table;
  for (int64_t head = 0; head < g.sizes.heads; ++head)
    for (int64_t group = 0; group < g.sizes.groups; ++group)
      table.push_back(head / g.sizes.repeats() == group ? 1.0F : 0.0F);
  return g.floats({g.sizes.heads, g.sizes.groups}, table);
}

Value& byMatrix(DecoderGraph& g, Value& x) { return byTable(g, x, headTable(g)); }

Value& byOneHot(DecoderGraph& g, Value& x) {
  Value& heads = g.op("Range", {&g.integer(0), &g.integer(g.sizes.heads), &g.integer(1)});
  Value& groups = g.op("Div", {&heads, &g.integer(g.sizes.repeats())});
  Value& table = g.op("OneHot", {&groups, &g.ints({g.sizes.groups}), &g.floats({2}, {0, 1})});
  return byTable(g, x, table);
}

Value& byEinsum(DecoderGraph& g, Value& x) {
  return g.op("Einsum", {&headTable(g), &x}, {{"equation", std::string("hg,bgtd->bhtd")}});
}

Value& byOuterProduct(DecoderGraph& g, Value& x) {
  const std::vector<float> ones(static_cast<size_t>(g.sizes.repeats()), 1);
  Value& wide = g.op("Einsum", {&x, &g.floats({g.sizes.repeats()}, ones)},
                     {{"equation", std::string("bgtd,r->bgrtd")}});
  return joinedHeads(g, wide);
}

Value& byOnes(DecoderGraph& g, Value& x) {
  const std::vector<float> ones(static_cast<size_t>(g.sizes.repeats()), 1);
  Value& wide = g.mul(g.unsqueeze(x, {2}), g.floats({1, 1, g.sizes.repeats(), 1, 1}, ones));
  return joinedHeads(g, wide);
}

Value& byZeros(DecoderGraph& g, Value& x) {
  const std::vector<float> zeros(static_cast<size_t>(g.sizes.repeats()));
  Value& wide = g.add(g.unsqueeze(x, {2}), g.floats({g.sizes.repeats(), 1, 1}, zeros));
  return joinedHeads(g, wide);
}

Value& bySplitHeads(DecoderGraph& g, Value& x) {
  const std::vector<int64_t> ones(static_cast<size_t>(g.sizes.groups), 1);
  std::vector<Value*> copies;
  for (Value* head : g.split(x, 1, ones))
    copies.insert(copies.end(), static_cast<size_t>(g.sizes.repeats()), head);
  return g.concat(copies, 1);
}

Value& notAtAll(DecoderGraph&, Value& x) { return x; }

bool hasGroups(const DecoderGraph& g) { return g.sizes.groups > 1; }

constexpr Spelling<Repeat> noRepeats[] = {{"repeat/None", notAtAll}};

constexpr Spelling<Repeat> repeats[] = {
    {"repeat/Expand", byExpand},
    {"repeat/ComputedExpand", byComputedExpand},
    {"repeat/OpenReshape", byOpenReshape},
    {"repeat/Tile", byTile},
    {"repeat/TiledColumns", byTiledColumns},
    {"repeat/Concat", byConcat},
    {"repeat/Gather", byGather},
    {"repeat/Matrix", byMatrix},
    {"repeat/OneHot", byOneHot},
    {"repeat/Einsum", byEinsum},
    {"repeat/OuterProduct", byOuterProduct},
    {"repeat/Ones", byOnes},
    {"repeat/Zeros", byZeros},
    {"repeat/SplitHeads", bySplitHeads, hasGroups},
};

} // namespace

Value& repeated(DecoderGraph& g, Value& x) {
  return g.sizes.repeats() == 1 ? g.choose(noRepeats)(g, x) : g.choose(repeats)(g, x);
}

} // namespace kvopt::generated
