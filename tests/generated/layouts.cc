// How caches are laid out at the edge of the model.
#include "tests/generated/spellings.h"

namespace kvopt::generated {
using namespace ir;

/// The layout of keys, and of values, [B,S,G,D] as a layer computes them.
struct CacheLayout {
  CacheAxes axes;
  Shape (*extents)(const DecoderSizes& sizes, const Dim& rows);
  Value& (*pack)(DecoderGraph& g, Value& x);
  Value& (*unpack)(DecoderGraph& g, Value& x); ///< as [B,G,T,D]
};

/// Whether one cache holds keys and values, and how.
struct CachePair {
  /// The axis that it adds or that keys and values follow each other on.
  int64_t (*axis)(const CacheAxes& axes);
  bool isOne;
  bool isStacked; ///< by an axis of its own
};

namespace {

Dim batchDim() { return Dim::symbol("B"); }

Shape headsFirst(const DecoderSizes& s, const Dim& rows) {
  return {batchDim(), Dim::fixed(s.groups), rows, Dim::fixed(s.width)};
}
Shape rowsFirst(const DecoderSizes& s, const Dim& rows) {
  return {batchDim(), rows, Dim::fixed(s.groups), Dim::fixed(s.width)};
}
Shape timeMajor(const DecoderSizes& s, const Dim& rows) {
  return {rows, batchDim(), Dim::fixed(s.groups), Dim::fixed(s.width)};
}
Shape columnsFirst(const DecoderSizes& s, const Dim& rows) {
  return {batchDim(), Dim::fixed(s.groups), Dim::fixed(s.width), rows};
}
Shape headMajor(const DecoderSizes& s, const Dim& rows) {
  return {Dim::fixed(s.groups), batchDim(), rows, Dim::fixed(s.width)};
}
Shape folded(const DecoderSizes& s, const Dim& rows) {
  return {Dim::fixed(s.groups) * batchDim(), rows, Dim::fixed(s.width)};
}
Shape flat(const DecoderSizes& s, const Dim& rows) {
  return {batchDim(), rows, Dim::fixed(s.groups * s.width)};
}

Value& asIs(DecoderGraph&, Value& x) { return x; }
Value& swapMiddle(DecoderGraph& g, Value& x) { return g.transpose(x, {0, 2, 1, 3}); }

Value& foldedRows(DecoderGraph& g, Value& x) {
  return g.reshape(swapMiddle(g, x), {&g.ints({-1}), g.sequence, &g.ints({g.sizes.width})});
}
Value& unfoldedRows(DecoderGraph& g, Value& x) {
  return g.reshape(x, {g.batch, &g.ints({g.sizes.groups, -1, g.sizes.width})});
}
Value& flatRows(DecoderGraph& g, Value& x) {
  return g.reshapeTo(x, {0, 0, g.sizes.groups * g.sizes.width});
}
Value& unflatRows(DecoderGraph& g, Value& x) {
  return swapMiddle(g, g.reshapeTo(x, {0, 0, g.sizes.groups, g.sizes.width}));
}

constexpr CacheLayout layoutHeadsFirst{{}, headsFirst, swapMiddle, asIs};
constexpr CacheLayout layoutRowsFirst{{4, 1, 2, 0}, rowsFirst, asIs, swapMiddle};
constexpr CacheLayout layoutTimeMajor{{4, 0, 2, 1},
                                      timeMajor,
                                      [](DecoderGraph& g, Value& x) -> Value& {
                                        return g.transpose(x, {1, 0, 2, 3});
                                      },
                                      [](DecoderGraph& g, Value& x) -> Value& {
                                        return g.transpose(x, {1, 2, 0, 3});
                                      }};
constexpr CacheLayout layoutColumnsFirst{{4, 3, 1, 0},
                                         columnsFirst,
                                         [](DecoderGraph& g, Value& x) -> Value& {
                                           return g.transpose(x, {0, 2, 3, 1});
                                         },
                                         [](DecoderGraph& g, Value& x) -> Value& {
                                           return g.transpose(x, {0, 1, 3, 2});
                                         }};
constexpr CacheLayout layoutHeadMajor{{4, 2, 0, 1},
                                      headMajor,
                                      [](DecoderGraph& g, Value& x) -> Value& {
                                        return g.transpose(x, {2, 0, 1, 3});
                                      },
                                      [](DecoderGraph& g, Value& x) -> Value& {
                                        return g.transpose(x, {1, 0, 2, 3});
                                      }};
constexpr CacheLayout layoutFolded{{3, 1, -1, -1}, folded, foldedRows, unfoldedRows};
constexpr CacheLayout layoutFlat{{3, 1, -1, 0}, flat, flatRows, unflatRows};

using Layout = const CacheLayout&();

constexpr Spelling<Layout> layouts[] = {
    {"layout/BHSD", []() -> const CacheLayout& { return layoutHeadsFirst; }},
    {"layout/BSHD", []() -> const CacheLayout& { return layoutRowsFirst; }},
    {"layout/SBHD", []() -> const CacheLayout& { return layoutTimeMajor; }},
    {"layout/BHDS", []() -> const CacheLayout& { return layoutColumnsFirst; }},
    {"layout/HBSD", []() -> const CacheLayout& { return layoutHeadMajor; }},
    {"layout/FoldedHeads", []() -> const CacheLayout& { return layoutFolded; }},
    {"layout/FlatRows", []() -> const CacheLayout& { return layoutFlat; }},
};

constexpr CachePair pairApart{nullptr, false, false};
constexpr CachePair pairStacked{[](const CacheAxes&) -> int64_t { return 0; }, true, true};
constexpr CachePair pairBesideColumns{[](const CacheAxes& a) { return a.rank - 1; }, true, false};
constexpr CachePair pairBesideHeads{[](const CacheAxes& a) { return a.heads; }, true, false};

using Pair = const CachePair&();

constexpr Spelling<Pair> pairs[] = {
    {"pair/Apart", []() -> const CachePair& { return pairApart; }},
    {"pair/Stacked", []() -> const CachePair& { return pairStacked; }},
    {"pair/Columns", []() -> const CachePair& { return pairBesideColumns; },
     [](const DecoderGraph& g) { return g.axes.rows != g.axes.rank - 1; }},
    {"pair/Heads", []() -> const CachePair& { return pairBesideHeads; },
     [](const DecoderGraph& g) { return g.axes.heads >= 0; }},
};

CacheAxes stackedAxes(CacheAxes axes) {
  ++axes.rank;
  ++axes.rows;
  axes.heads += axes.heads >= 0 ? 1 : 0;
  axes.batch += axes.batch >= 0 ? 1 : 0;
  return axes;
}

} // namespace

CacheForm::CacheForm(DecoderGraph& g) {
  layout = &g.choose(layouts)();
  g.axes = layout->axes;
  pair = &g.choose(pairs)();
  pairedAxes = pair->isStacked ? stackedAxes(layout->axes) : layout->axes;
}

std::vector<Value*> CacheForm::addPasts(DecoderGraph& g, size_t layer) const {
  const Dim rows = g.sizes.isStatic ? Dim::fixed(cacheCapacity) : Dim::symbol("P");
  Shape extents = layout->extents(g.sizes, rows);
  const auto input = [&](const char* name) {
    const std::string full = "past." + std::to_string(layer) + "." + name;
    return &g.graph().addInput(full, {ElementType::Float, extents});
  };
  if (!pair->isOne)
    return {input("key"), input("value")};
  const auto axis = static_cast<size_t>(pair->axis(layout->axes));
  if (pair->isStacked)
    extents.insert(extents.begin(), Dim::fixed(2));
  else
    extents[axis] = Dim::fixed(2) * extents[axis];
  return {input("both")};
}

JoinedRows CacheForm::updated(DecoderGraph& g, const NewRows& rows, llvm::ArrayRef<Value*> pasts,
                              std::vector<Value*>& presents) const {
  const auto update = [&](Value& past, Value& fresh) -> Value& {
    g.axes = pairedAxes;
    Value& joined = g.sizes.isStatic ? written(g, past, fresh) : appended(g, past, fresh);
    presents.push_back(&g.at(Stage::Present, joined));
    return joined;
  };
  Value& key = layout->pack(g, *rows.key);
  Value& value = layout->pack(g, *rows.value);
  if (!pair->isOne) {
    Value* keys = &layout->unpack(g, update(*pasts[0], key));
    return {keys, &layout->unpack(g, update(*pasts[1], value))};
  }
  const int64_t axis = pair->axis(layout->axes);
  if (pair->isStacked) {
    Value& both = g.concat({&g.unsqueeze(key, {0}), &g.unsqueeze(value, {0})}, 0);
    Value& joined = update(*pasts[0], both);
    const auto half = [&](int64_t index) {
      return &layout->unpack(g, g.op("Gather", {&joined, &g.integer(index)}, {{"axis", 0}}));
    };
    Value* keys = half(0);
    return {keys, half(1)};
  }
  Value& joined = update(*pasts[0], g.concat({&key, &value}, axis));
  const int64_t whole = axis == layout->axes.heads ? g.sizes.groups
                        : layout->axes.heads < 0 && layout->axes.batch == 0
                            ? g.sizes.groups * g.sizes.width
                            : g.sizes.width;
  const auto parts = g.split(joined, axis, {whole, whole});
  Value* keys = &layout->unpack(g, *parts[0]);
  return {keys, &layout->unpack(g, *parts[1])};
}

} // namespace kvopt::generated
