// Index maps of chains of data movements, against the same movements carried out on elements.
#include "passes/analysis/movement/index_map.h"

#include "ir/shapes/shape_inference.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <random>

namespace kvopt {
using namespace analysis;
using namespace ir;

namespace {

using testing::ElementsAre;

/// A tensor of numbers that say where each element was at first.
struct Numbered {
  std::vector<int64_t> shape;
  std::vector<int64_t> elements;

  static Numbered of(std::vector<int64_t> shape) {
    Numbered tensor{std::move(shape), {}};
    tensor.elements.resize(tensor.count());
    std::iota(tensor.elements.begin(), tensor.elements.end(), 0);
    return tensor;
  }
  size_t count() const {
    int64_t product = 1;
    for (int64_t extent : shape)
      product *= extent;
    return static_cast<size_t>(product);
  }
  int64_t at(llvm::ArrayRef<int64_t> index) const {
    int64_t position = 0;
    for (size_t axis = 0; axis < shape.size(); ++axis)
      position = position * shape[axis] + index[axis];
    return elements.at(static_cast<size_t>(position));
  }
  /// The tensor of that shape whose element at an index is this one's at `from(index)`.
  template <class From> Numbered moved(std::vector<int64_t> newShape, From from) const {
    Numbered result{std::move(newShape), {}};
    result.forEachIndex([&](llvm::ArrayRef<int64_t> index) {
      result.elements.push_back(at(from(std::vector<int64_t>(index.begin(), index.end()))));
    });
    return result;
  }
  template <class Visit> void forEachIndex(Visit visit) const {
    std::vector<int64_t> index(shape.size(), 0);
    for (size_t n = count(); n > 0; --n) {
      visit(index);
      for (size_t axis = shape.size(); axis-- > 0;) {
        if (++index[axis] < shape[axis])
          break;
        index[axis] = 0;
      }
    }
  }
};

using Sizes = std::map<std::string, int64_t, std::less<>>;

class IndexMapTest : public testing::Test {
protected:
  IndexMapTest() { registerAll(ops); }

  static Shape dims(llvm::ArrayRef<const char*> texts) {
    Shape shape;
    for (const char* text : texts)
      shape.push_back(Dim::parse(text).value());
    return shape;
  }
  Value& input(llvm::ArrayRef<const char*> shape) {
    return graph.addInput(graph.freshName("in"), TensorType(ElementType::Float, dims(shape)));
  }
  Value& ints(llvm::ArrayRef<int64_t> values) {
    return graph.addConstant("ints", int64Tensor(values));
  }
  /// An operand that is known to hold these extents.
  Value& extents(llvm::ArrayRef<Dim> list) {
    auto count = static_cast<int64_t>(list.size());
    Value& value = graph.addInput(graph.freshName("shape"),
                                  TensorType(ElementType::Int64, Shape{Dim::fixed(count)}));
    value.setKnownIntegers(llvm::SmallVector<Dim, 4>(list.begin(), list.end()));
    return value;
  }
  Value& apply(OpName op, llvm::ArrayRef<Value*> operands,
               std::vector<NamedAttribute> attributes = {}, unsigned results = 1,
               unsigned result = 0) {
    Node& node = graph.createFresh(op, operands, results);
    for (NamedAttribute& attribute : attributes)
      node.setAttribute(attribute.name, std::move(attribute.value));
    EXPECT_FALSE(static_cast<bool>(inferNode(node)));
    return node.result(result);
  }
  static std::vector<NamedAttribute> with(const char* name, int64_t value) {
    std::vector<NamedAttribute> list;
    list.push_back({name, Attribute::ofInt(value)});
    return list;
  }
  static std::vector<NamedAttribute> perm(std::vector<int64_t> axes) {
    std::vector<NamedAttribute> list;
    list.push_back({"perm", Attribute::ofInts(std::move(axes))});
    return list;
  }
  /// The map from `end` to the furthest value of its chain.
  static MovementStop furthest(Value& end) { return movementChain(end).back(); }

  OpRegistry ops;
  GraphContext context{ops};
  OpsetImports opsets{{"", 18}};
  Graph graph{context, opsets};
};

TEST_F(IndexMapTest, IdentityAndPermutations) {
  Value& x = input({"B", "S", "4", "16"});
  EXPECT_TRUE(furthest(x).map.isIdentity());
  Value& y = apply("Transpose", {&x}, perm({0, 2, 1, 3}));
  Value& z = apply("Transpose", {&y}, perm({0, 1, 3, 2}));
  MovementStop stop = furthest(z);
  EXPECT_EQ(stop.value, &x);
  EXPECT_FALSE(stop.map.isIdentity());
  EXPECT_FALSE(stop.map.isReshape());
  EXPECT_THAT(*stop.map.transposition(), ElementsAre(0, 2, 3, 1));
  Value& back = apply("Transpose", {&z}, perm({0, 3, 1, 2}));
  EXPECT_TRUE(furthest(back).map.isIdentity());
}

TEST_F(IndexMapTest, ReshapesRegroupSymbolicExtents) {
  Value& x = input({"B", "4", "P + S", "D"});
  Value& flat = apply("Reshape", {&x, &extents(dims({"4*B", "P + S", "D"}))});
  EXPECT_TRUE(furthest(flat).map.isReshape());
  EXPECT_FALSE(furthest(flat).map.transposition().has_value());
  Value& turned = apply("Transpose", {&flat}, perm({0, 2, 1}));
  Value& heads = apply("Reshape", {&turned, &extents(dims({"B", "4", "D", "P + S"}))});
  EXPECT_THAT(*furthest(heads).map.transposition(), ElementsAre(0, 1, 3, 2));
  // The heads cannot be told apart where X is not known to be a multiple of them.
  Value& other = apply("Reshape", {&turned, &extents(dims({"2", "X", "D", "P + S"}))});
  EXPECT_EQ(furthest(other).value, &flat);
}

TEST_F(IndexMapTest, UnknownExtentsProveNothingButWholeAxes) {
  Value& x = input({"?", "S", "?", "16"});
  Value& y = apply("Transpose", {&x}, perm({0, 2, 1, 3}));
  Value& z = apply("Transpose", {&y}, perm({0, 2, 1, 3}));
  EXPECT_TRUE(furthest(z).map.isIdentity());
  Value& flat = apply("Reshape", {&y, &extents(dims({"?", "16"}))});
  EXPECT_EQ(movementChain(flat).size(), 1u);
  // Only the outermost extent is unknown: no division by it is needed, but the shapes may differ.
  Value& w = input({"?", "4", "16"});
  Value& joined = apply("Reshape", {&w, &extents(dims({"?", "64"}))});
  Value& apart = apply("Reshape", {&joined, &extents(dims({"?", "4", "16"}))});
  EXPECT_EQ(furthest(apart).value, &w);
  EXPECT_FALSE(furthest(apart).map.isIdentity());
}

TEST_F(IndexMapTest, HeadsRepeatedInEitherOrder) {
  Value& k = input({"B", "2", "T", "16"});
  Value& each = apply("Unsqueeze", {&k, &ints({2})});
  Value& eachWide = apply("Expand", {&each, &ints({1, 1, 3, 1, 1})});
  Value& eachHead = apply("Reshape", {&eachWide, &ints({0, 6, -1, 16})});
  auto found = furthest(eachHead).map.repetition(1, IndexMap::Repeat::Entries);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->shape[1].value(), 2);
  EXPECT_THAT(*found->perm, ElementsAre(0, 1, 2, 3));
  EXPECT_FALSE(furthest(eachHead).map.repetition(1, IndexMap::Repeat::Whole));
  EXPECT_FALSE(furthest(eachHead).map.repetition(2, IndexMap::Repeat::Entries));

  Value& whole = apply("Tile", {&k, &ints({1, 3, 1, 1})});
  EXPECT_FALSE(furthest(whole).map.repetition(1, IndexMap::Repeat::Entries));
  auto tiled = furthest(whole).map.repetition(1, IndexMap::Repeat::Whole);
  ASSERT_TRUE(tiled);
  EXPECT_EQ(tiled->shape[1].value(), 2);

  // A flattened source: B and the groups are one axis.
  Value& flat = input({"2*B", "T", "16"});
  Value& five = apply("Reshape", {&flat, &extents(dims({"B", "2", "1", "T", "16"}))});
  Value& wide = apply("Expand", {&five, &ints({1, 1, 3, 1, 1})});
  Value& heads = apply("Reshape", {&wide, &ints({0, 6, -1, 16})});
  auto reshaped = furthest(heads).map.repetition(1, IndexMap::Repeat::Entries);
  ASSERT_TRUE(reshaped);
  EXPECT_FALSE(reshaped->perm);
  EXPECT_TRUE(reshaped->byReshape);
}

TEST_F(IndexMapTest, WhatIsNoFixedMovementEndsTheChain) {
  Value& x = input({"B", "4"});
  Value& y = input({"B", "4"});
  EXPECT_EQ(movementChain(apply("Concat", {&x, &y}, with("axis", 1))).size(), 1u);
  Value& indices = graph.addInput("indices", TensorType(ElementType::Int64, Shape{Dim::fixed(2)}));
  EXPECT_EQ(movementChain(apply("Gather", {&x, &indices}, with("axis", 1))).size(), 1u);
  EXPECT_EQ(movementChain(apply("Gather", {&x, &ints({0, 2, 1})}, with("axis", 1))).size(), 1u);
  // B may be 1 or not: whether rows are repeated is not known.
  EXPECT_EQ(movementChain(apply("Expand", {&x, &extents(dims({"C", "4"}))})).size(), 1u);
  // A start before the beginning is moved to it: where that is, only a fixed extent tells.
  Value& tail = apply("Slice", {&x, &ints({-3}), &ints({1000}), &ints({1})});
  EXPECT_EQ(movementChain(tail).size(), 2u);
  Value& rows = input({"N", "4"});
  Value& clamped = apply("Slice", {&rows, &ints({-9}), &ints({3}), &ints({1})});
  EXPECT_EQ(movementChain(clamped).size(), 2u);
  Value& far = apply("Slice", {&rows, &ints({-9}), &ints({-7}), &ints({0})});
  EXPECT_EQ(movementChain(far).size(), 1u);
}

/// Random chains: every map says of every element where it came from.
class RandomChains : public IndexMapTest {
protected:
  struct State {
    Value* value;
    std::vector<Numbered> tensors; // one for each choice of sizes
  };

  const std::vector<Sizes> choices = {{{"B", 2}, {"G", 3}, {"T", 5}},
                                      {{"B", 1}, {"G", 2}, {"T", 1}},
                                      {{"B", 3}, {"G", 1}, {"T", 4}}};

  int64_t pick(int64_t below) {
    return std::uniform_int_distribution<int64_t>(0, below - 1)(random);
  }
  std::vector<int64_t> sizesOf(llvm::ArrayRef<Dim> shape, size_t choice) const {
    std::vector<int64_t> sizes;
    for (const Dim& extent : shape)
      sizes.push_back(extent.evaluate(lookup(choice)).value());
    return sizes;
  }
  std::function<std::optional<int64_t>(llvm::StringRef)> lookup(size_t choice) const {
    return [this, choice](llvm::StringRef name) {
      return std::optional<int64_t>(choices[choice].find(name.str())->second);
    };
  }
  /// The next state, whose elements come from `from(index, choice)`.
  template <class From> State next(const State& state, Value& value, From from) {
    State after{&value, {}};
    for (size_t choice = 0; choice < choices.size(); ++choice)
      after.tensors.push_back(state.tensors[choice].moved(
          sizesOf(value.type().shape(), choice),
          [&](std::vector<int64_t> index) { return from(std::move(index), choice); }));
    return after;
  }

  State reshaped(const State& state, Shape shape) {
    Value& value = apply("Reshape", {state.value, &extents(shape)});
    State after{&value, state.tensors};
    for (size_t choice = 0; choice < choices.size(); ++choice)
      after.tensors[choice].shape = sizesOf(shape, choice);
    return after;
  }

  std::optional<State> step(const State& state) {
    llvm::ArrayRef<Dim> shape = state.value->type().shape();
    auto rank = static_cast<int64_t>(shape.size());
    int64_t axis = pick(rank);
    Shape wanted(shape.begin(), shape.end());
    switch (pick(10)) {
    case 0: { // Transpose
      std::vector<int64_t> order(shape.size());
      std::iota(order.begin(), order.end(), 0);
      std::shuffle(order.begin(), order.end(), random);
      return next(state, apply("Transpose", {state.value}, perm(order)),
                  [order](const std::vector<int64_t>& index, size_t) {
                    std::vector<int64_t> from(index.size());
                    for (size_t i = 0; i < index.size(); ++i)
                      from[static_cast<size_t>(order[i])] = index[i];
                    return from;
                  });
    }
    case 1: // two axes become one
      if (axis + 1 == rank)
        return std::nullopt;
      wanted[axis] = wanted[axis] * wanted[axis + 1];
      wanted.erase(wanted.begin() + axis + 1);
      return reshaped(state, wanted);
    case 2: // one axis becomes two
      for (const char* inner : {"G", "T", "2", "B"})
        if (auto outer = shape[axis].dividedBy(*Dim::parse(inner));
            outer && wanted.size() < 6 && pick(2)) {
          wanted[axis] = *outer;
          wanted.insert(wanted.begin() + axis + 1, *Dim::parse(inner));
          return reshaped(state, wanted);
        }
      return std::nullopt;
    case 3: // Unsqueeze
      if (rank == 6)
        return std::nullopt;
      return next(state, apply("Unsqueeze", {state.value, &ints({axis})}),
                  [axis](std::vector<int64_t> index, size_t) {
                    index.erase(index.begin() + axis);
                    return index;
                  });
    case 4: // Expand
      if (shape[axis].value() != 1)
        return std::nullopt;
      wanted[axis] = *Dim::parse(pick(2) ? "G" : "2");
      return next(state, apply("Expand", {state.value, &extents(wanted)}),
                  [axis](std::vector<int64_t> index, size_t) {
                    index[axis] = 0;
                    return index;
                  });
    case 5: { // Tile
      if ((shape[axis] * Dim::fixed(2)).isUnknown())
        return std::nullopt;
      std::vector<int64_t> repeats(shape.size(), 1);
      repeats[axis] = 2;
      return next(state, apply("Tile", {state.value, &ints(repeats)}),
                  [axis, &state](std::vector<int64_t> index, size_t choice) {
                    index[axis] %= state.tensors[choice].shape[axis];
                    return index;
                  });
    }
    case 6: { // Slice with a step
      int64_t start = pick(2), step = 1 + pick(2);
      if (!shape[axis].value() || *shape[axis].value() <= start)
        return std::nullopt;
      return next(state,
                  apply("Slice",
                        {state.value, &ints({start}), &ints({1000}), &ints({axis}), &ints({step})}),
                  [=](std::vector<int64_t> index, size_t) {
                    index[axis] = start + step * index[axis];
                    return index;
                  });
    }
    case 7: { // Gather: each entry twice, all twice over, or one
      if (!shape[axis].value() || *shape[axis].value() > 8)
        return std::nullopt;
      std::vector<int64_t> table;
      bool isEach = pick(2) != 0;
      for (int64_t i = 0; i < 2 * *shape[axis].value(); ++i)
        table.push_back(isEach ? i / 2 : i % *shape[axis].value());
      return next(state, apply("Gather", {state.value, &ints(table)}, with("axis", axis)),
                  [=](std::vector<int64_t> index, size_t) {
                    index[axis] = table[static_cast<size_t>(index[axis])];
                    return index;
                  });
    }
    case 8: // Concat with itself
      return next(state, apply("Concat", {state.value, state.value}, with("axis", axis)),
                  [axis, &state](std::vector<int64_t> index, size_t choice) {
                    index[axis] %= state.tensors[choice].shape[axis];
                    return index;
                  });
    default: { // the second part of a Split
      if (!shape[axis].value() || *shape[axis].value() < 2)
        return std::nullopt;
      int64_t first = 1, second = *shape[axis].value() - 1;
      Value& sizes = ints({first, second});
      return next(state, apply("Split", {state.value, &sizes}, with("axis", axis), 2, 1),
                  [=](std::vector<int64_t> index, size_t) {
                    index[axis] += first;
                    return index;
                  });
    }
    }
  }

  std::mt19937_64 random{20};
};

TEST_F(RandomChains, MapsAgreeWithTheElements) {
  unsigned proved = 0, longChains = 0, tried = 0;
  for (unsigned chain = 0; chain < 600; ++chain) {
    State state{&input({"B", "G", "T", "4"}), {}};
    for (size_t choice = 0; choice < choices.size(); ++choice)
      state.tensors.push_back(Numbered::of(sizesOf(state.value->type().shape(), choice)));
    std::map<const Value*, State> states;
    states.emplace(state.value, state);
    for (unsigned length = 0; length < 7;) {
      if (state.tensors[0].count() > 4000 || pick(20) == 0)
        break;
      std::optional<State> after = step(state);
      if (!after)
        continue;
      state = std::move(*after);
      states.emplace(state.value, state);
      ++length;
    }
    std::vector<MovementStop> stops = movementChain(*state.value);
    ++tried;
    longChains += stops.size() > 5 ? 1 : 0;
    for (const MovementStop& stop : stops) {
      proved += stop.nodes ? 1 : 0;
      const State& origin = states.at(stop.value);
      for (size_t choice = 0; choice < choices.size(); ++choice) {
        const Numbered& end = state.tensors[choice];
        end.forEachIndex([&](llvm::ArrayRef<int64_t> index) {
          auto from = stop.map.evaluate(index, lookup(choice));
          ASSERT_TRUE(from);
          for (size_t axis = 0; axis < from->size(); ++axis)
            ASSERT_LT((*from)[axis], origin.tensors[choice].shape[axis]);
          ASSERT_EQ(origin.tensors[choice].at(*from), end.at(index)) << "chain " << chain;
        });
        if (stop.map.isIdentity()) {
          EXPECT_EQ(origin.tensors[choice].elements, end.elements);
          EXPECT_EQ(origin.tensors[choice].shape, end.shape);
        }
        if (stop.map.isReshape()) {
          EXPECT_EQ(origin.tensors[choice].elements, end.elements);
        }
      }
    }
  }
  // The chains are of some length, and most of them are understood.
  EXPECT_GT(proved, 1000u);
  EXPECT_GT(longChains, 150u);
  EXPECT_EQ(tried, 600u);
}

} // namespace
} // namespace kvopt
