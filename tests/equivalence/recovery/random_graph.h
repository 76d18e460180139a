// Random graphs of small tensors: index arithmetic, and floats that are moved, chosen and combined
// by it. Every value is an output.
#pragma once

#include "support/format.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <random>
#include <string>
#include <vector>

namespace kvopt {

/// A value of a random graph.
struct RandomValue {
  std::string name;
  char type = 'i'; ///< 'i' int64, 'b' bool, 'n' floats that are numbers, 'f' floats of an input
  std::vector<int64_t> shape;
  double bound = 1; ///< no element is larger
  bool isInput = false;

  int64_t count() const {
    return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
  }
  auto rank() const { return static_cast<int64_t>(shape.size()); }
};

/// The values of a random graph, and what makers of nodes share.
class RandomValues {
public:
  explicit RandomValues(unsigned seed) : random(seed) {
    for (int i = 0; i < 3; ++i)
      addInput('i', randomShape(3));
    addInput('f', randomShape(3));
    addInput('f', randomShape(4));
  }

  std::string text() const {
    std::string inputs, outputs;
    for (const RandomValue& value : pool)
      (value.isInput ? inputs : outputs) +=
          formatted("{}{} {}", (value.isInput ? inputs : outputs).empty() ? "" : ", ",
                    typeOf(value), value.name);
    return formatted("<ir_version: 8, opset_import: [\"\" : 18]>\nrandom ({}) => ({}) {{\n{}}}",
                     inputs, outputs, nodesText);
  }

  const std::vector<RandomValue>& values() const { return pool; }
  const std::vector<std::string>& operatorsUsed() const { return operators; }

protected:
  using Shape = std::vector<int64_t>;

  size_t below(size_t limit) { return random() % limit; }
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(below(static_cast<size_t>(high - low + 1)));
  }
  Shape randomShape(size_t mostRank) {
    Shape shape(below(mostRank) + 1);
    for (int64_t& extent : shape)
      extent = between(1, 4);
    return shape;
  }

  static std::string list(const Shape& numbers) {
    std::string text;
    for (int64_t number : numbers)
      text += (text.empty() ? "" : ", ") + std::to_string(number);
    return text;
  }
  static std::string typeOf(const RandomValue& value) {
    const char* element = value.type == 'i' ? "int64" : value.type == 'b' ? "bool" : "float";
    return value.shape.empty() ? element : formatted("{}[{}]", element, list(value.shape));
  }

  void addInput(char type, Shape shape) {
    pool.push_back({formatted("in{}", pool.size()), type, std::move(shape), 5, true});
  }
  std::string ints(const Shape& numbers) {
    std::string name = formatted("list{}", ++names);
    nodesText += formatted("  {} = Constant <value_ints = [{}]> ()\n", name, list(numbers));
    return name;
  }
  std::string intTensor(const Shape& numbers, const Shape& shape) {
    const std::string flat = ints(numbers), extents = ints(shape);
    std::string name = formatted("table{}", ++names);
    nodesText += formatted("  {} = Reshape ({}, {})\n", name, flat, extents);
    return name;
  }
  std::string integer(int64_t number) {
    std::string name = formatted("number{}", ++names);
    nodesText += formatted("  {} = Constant <value_int = {}> ()\n", name, number);
    return name;
  }

  /// Notes a node; larger tensors and numbers are not made.
  bool add(char type, Shape shape, double bound, const std::string& call) {
    RandomValue value{formatted("v{}", pool.size()), type, std::move(shape), bound};
    if (value.count() > 96 || value.rank() > 5 || bound > 1e12)
      return false;
    nodesText += formatted("  {} = {}\n", value.name, call);
    pool.push_back(std::move(value));
    return true;
  }
  bool addLike(const RandomValue& value, Shape shape, const std::string& call) {
    return add(value.type, std::move(shape), value.bound, call);
  }

  RandomValue any() { return pool[below(pool.size())]; }
  /// One of the types; later ones are likelier.
  bool pick(const char* types, RandomValue& value) {
    for (int i = 0; i < 20; ++i) {
      value = pool[std::max(below(pool.size()), below(pool.size()))];
      if (std::string(types).find(value.type) != std::string::npos)
        return true;
    }
    return false;
  }
  static bool broadcast(const Shape& a, const Shape& b, Shape& result) {
    result.assign(std::max(a.size(), b.size()), 1);
    for (size_t i = 0; i < result.size(); ++i) {
      const int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1;
      const int64_t y = i < b.size() ? b[b.size() - 1 - i] : 1;
      if (x != y && x != 1 && y != 1)
        return false;
      result[result.size() - 1 - i] = x == 1 ? y : x;
    }
    return true;
  }
  bool pair(const char* types, RandomValue& a, RandomValue& b, Shape& shape) {
    for (int i = 0; i < 30; ++i)
      if (pick(types, a) && pick(types, b) && isSameType(a, b) &&
          broadcast(a.shape, b.shape, shape))
        return true;
    return false;
  }
  static bool isSameType(const RandomValue& a, const RandomValue& b) {
    auto isFloat = [](char type) { return type == 'n' || type == 'f'; };
    return a.type == b.type || (isFloat(a.type) && isFloat(b.type));
  }
  static char joined(const RandomValue& a, const RandomValue& b) {
    return a.type == 'f' || b.type == 'f' ? 'f' : a.type;
  }

  std::mt19937 random;
  std::vector<RandomValue> pool;
  std::vector<std::string> operators;
  std::string nodesText;
  unsigned names = 0;
};

/// A random graph of as many nodes.
class RandomGraph : public RandomValues {
public:
  RandomGraph(unsigned seed, unsigned nodes) : RandomValues(seed) {
    for (unsigned made = 0, tried = 0; made < nodes && tried < 50 * nodes; ++tried) {
      const Maker& maker = makers[below(std::size(makers))];
      const size_t before = nodesText.size();
      if ((this->*maker.make)()) {
        ++made;
        operators.emplace_back(maker.name);
      } else {
        nodesText.resize(before);
      }
    }
  }

private:
  // Numbers, element by element.
  bool unary() {
    RandomValue x;
    if (!pick("in", x))
      return false;
    const char* names3[] = {"Neg", "Abs", "Sign"};
    return add(x.type, x.shape, x.bound, formatted("{} ({})", names3[below(3)], x.name));
  }
  bool rounding() {
    RandomValue x;
    if (!pick("n", x))
      return false;
    const char* names3[] = {"Floor", "Ceil", "Round"};
    return addLike(x, x.shape, formatted("{} ({})", names3[below(3)], x.name));
  }
  bool sum() {
    RandomValue a, b;
    Shape shape;
    if (!pair("inf", a, b, shape))
      return false;
    return add(joined(a, b), shape, a.bound + b.bound,
               formatted("{} ({}, {})", below(2) ? "Add" : "Sub", a.name, b.name));
  }
  bool product() {
    RandomValue a, b;
    Shape shape;
    if (!pair("inf", a, b, shape))
      return false;
    return add(joined(a, b), shape, a.bound * b.bound + 1,
               formatted("Mul ({}, {})", a.name, b.name));
  }
  bool quotient() {
    RandomValue x;
    if (!pick("i", x))
      return false;
    int64_t by = between(1, 4) * (below(2) ? 1 : -1);
    const std::string divisor = integer(by);
    return below(2) ? addLike(x, x.shape, formatted("Div ({}, {})", x.name, divisor))
                    : add('i', x.shape, 4, formatted("Mod ({}, {})", x.name, divisor));
  }
  bool truncatedModulo() {
    RandomValue x;
    if (!pick("i", x))
      return false;
    const std::string divisor = integer(between(1, 4) * (below(2) ? 1 : -1));
    return add('i', x.shape, 4, formatted("Mod <fmod = 1> ({}, {})", x.name, divisor));
  }
  bool extreme() {
    RandomValue a, b;
    Shape shape;
    if (!pair("in", a, b, shape))
      return false;
    return add(a.type, shape, std::max(a.bound, b.bound),
               formatted("{} ({}, {})", below(2) ? "Min" : "Max", a.name, b.name));
  }
  bool compare() {
    RandomValue a, b;
    Shape shape;
    if (!pair("in", a, b, shape))
      return false;
    const char* names5[] = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"};
    return add('b', shape, 1, formatted("{} ({}, {})", names5[below(5)], a.name, b.name));
  }
  bool logic() {
    RandomValue a, b;
    Shape shape;
    if (!pair("b", a, b, shape))
      return false;
    const char* names3[] = {"And", "Or", "Not"};
    const size_t which = below(3);
    return which == 2 ? add('b', a.shape, 1, formatted("Not ({})", a.name))
                      : add('b', shape, 1, formatted("{} ({}, {})", names3[which], a.name, b.name));
  }
  bool toFloat() {
    RandomValue x;
    if (!pick("ib", x) || x.bound > 1e6)
      return false;
    return add('n', x.shape, x.bound, formatted("Cast <to = 1> ({})", x.name));
  }
  bool toInteger() {
    RandomValue x;
    if (!pick("nb", x))
      return false;
    return add('i', x.shape, x.bound, formatted("Cast <to = 7> ({})", x.name));
  }
  bool toBool() {
    RandomValue x;
    if (!pick("in", x))
      return false;
    return add('b', x.shape, 1, formatted("Cast <to = 9> ({})", x.name));
  }
  bool scaled() {
    RandomValue x;
    if (!pick("nf", x))
      return false;
    const std::string factor = formatted("factor{}", ++names);
    nodesText += formatted("  {} = Constant <value_float = {}.5> ()\n", factor, between(1, 3));
    return addLike(x, x.shape, formatted("{} ({}, {})", below(2) ? "Mul" : "Div", x.name, factor));
  }

  // Numbers along axes.
  bool reduction() {
    RandomValue x;
    if (!pick("inf", x) || x.rank() == 0)
      return false;
    const int64_t axis = between(-x.rank(), x.rank() - 1);
    const bool keeps = below(2) != 0;
    const auto along = static_cast<size_t>(axis < 0 ? axis + x.rank() : axis);
    const auto extent = static_cast<double>(x.shape[along]);
    const char* names4[] = {"ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"};
    const size_t which = x.type == 'f' ? 0 : below(x.bound < 8 ? 4 : 3);
    Shape shape = x.shape;
    if (keeps)
      shape[along] = 1;
    else
      shape.erase(shape.begin() + static_cast<int64_t>(along));
    const double bound = which == 0   ? x.bound * extent
                         : which == 3 ? std::pow(x.bound, extent) + 1
                                      : x.bound;
    const std::string axes = ints({axis});
    return add(
        x.type, shape, bound,
        formatted("{} <keepdims = {}> ({}, {})", names4[which], keeps ? 1 : 0, x.name, axes));
  }
  bool cumulated() {
    RandomValue x;
    if (!pick("in", x) || x.rank() == 0)
      return false;
    const std::string axis = integer(between(-x.rank(), x.rank() - 1));
    return add(x.type, x.shape, x.bound * 5,
               formatted("CumSum <exclusive = {}, reverse = {}> ({}, {})", below(2), below(2),
                         x.name, axis));
  }
  bool argument() {
    RandomValue x;
    if (!pick("in", x) || x.rank() == 0)
      return false;
    const int64_t axis = between(-x.rank(), x.rank() - 1);
    Shape shape = x.shape;
    shape[static_cast<size_t>(axis < 0 ? axis + x.rank() : axis)] = 1;
    return add('i', shape, 4,
               formatted("{} <axis = {}, keepdims = 1, select_last_index = 0> ({})",
                         below(2) ? "ArgMax" : "ArgMin", axis, x.name));
  }
  bool oneHot() {
    RandomValue x;
    if (!pick("i", x) || x.rank() > 3)
      return false;
    const int64_t depth = between(2, 4);
    const int64_t axis = between(-x.rank() - 1, x.rank());
    const std::string size = integer(depth), values = ints({between(-1, 1), between(2, 3)});
    Shape shape = x.shape;
    shape.insert(shape.begin() + (axis < 0 ? axis + x.rank() + 1 : axis), depth);
    return add('i', shape, 3,
               formatted("OneHot <axis = {}> ({}, {}, {})", axis, x.name, size, values));
  }
  bool rangeOf() {
    const int64_t start = between(-3, 3), count = between(1, 6);
    const int64_t step = between(1, 3) * (below(2) ? 1 : -1);
    // The limit is anywhere after the last number and not after the next one.
    const int64_t last = start + (count - 1) * step;
    const int64_t limit = last + (step > 0 ? between(1, step) : -between(1, -step));
    const std::string a = integer(start), b = integer(limit), c = integer(step);
    return add('i', {count}, 24, formatted("Range ({}, {}, {})", a, b, c));
  }
  bool shapeOf() {
    const RandomValue x = any();
    const int64_t start = between(-x.rank(), x.rank());
    const int64_t from = std::clamp<int64_t>(start < 0 ? start + x.rank() : start, 0, x.rank());
    if (below(3) == 0)
      return add('i', {}, 96, formatted("Size ({})", x.name));
    return x.rank() > 0 && from < x.rank() &&
           add('i', {x.rank() - from}, 6, formatted("Shape <start = {}> ({})", start, x.name));
  }
  bool filled() {
    RandomValue x;
    if (!pick("inf", x) || x.rank() == 0)
      return false;
    const std::string shape = formatted("shape{}", ++names);
    nodesText += formatted("  {} = Shape ({})\n", shape, x.name);
    return add('i', x.shape, 3, formatted("ConstantOfShape <value = int64[1] {{3}}> ({})", shape));
  }
  bool clipped() {
    RandomValue x;
    if (!pick("i", x))
      return false;
    const std::string low = integer(-2), high = integer(2);
    return add('i', x.shape, 2, formatted("Clip ({}, {}, {})", x.name, low, high));
  }

  // Elements of any type, moved.
  bool reshaped() {
    const RandomValue x = any();
    Shape shape;
    for (int64_t extent : x.shape)
      if (!shape.empty() && below(2))
        shape.back() *= extent;
      else
        shape.push_back(extent);
    if (shape.empty())
      shape = {1};
    if (shape.front() % 2 == 0 && below(2)) {
      shape.front() /= 2;
      shape.insert(shape.begin() + 1, 2);
    }
    Shape written = shape;
    if (below(2))
      written[below(written.size())] = -1;
    const std::string target = ints(written);
    return addLike(x, shape, formatted("Reshape ({}, {})", x.name, target));
  }
  bool transposed() {
    const RandomValue x = any();
    if (x.rank() < 2)
      return false;
    Shape order(x.shape.size());
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    Shape shape;
    for (int64_t axis : order)
      shape.push_back(x.shape[static_cast<size_t>(axis)]);
    return addLike(x, shape, formatted("Transpose <perm = [{}]> ({})", list(order), x.name));
  }
  bool insertedAxis() {
    const RandomValue x = any();
    const int64_t axis = between(-x.rank() - 1, x.rank());
    Shape shape = x.shape;
    shape.insert(shape.begin() + (axis < 0 ? axis + x.rank() + 1 : axis), 1);
    const std::string axes = ints({axis});
    return addLike(x, shape, formatted("Unsqueeze ({}, {})", x.name, axes));
  }
  bool removedAxis() {
    const RandomValue x = any();
    for (int64_t axis = 0; axis < x.rank(); ++axis) {
      if (x.shape[static_cast<size_t>(axis)] != 1)
        continue;
      Shape shape = x.shape;
      shape.erase(shape.begin() + axis);
      const std::string axes = ints({below(2) ? axis : axis - x.rank()});
      return addLike(x, shape, formatted("Squeeze ({}, {})", x.name, axes));
    }
    return false;
  }
  bool sliced() {
    const RandomValue x = any();
    if (x.rank() == 0)
      return false;
    const auto axis = below(x.shape.size());
    const int64_t extent = x.shape[axis];
    const int64_t step = between(1, 2) * (below(2) ? 1 : -1);
    const int64_t first = between(0, extent - 1);
    const int64_t count = step > 0 ? (extent - first + step - 1) / step : first / -step + 1;
    const int64_t start = below(2) ? first : first - extent;
    const int64_t end = step > 0 ? (below(2) ? INT64_MAX : extent) : -extent - 1 - between(0, 5);
    Shape shape = x.shape;
    shape[axis] = count;
    const std::string a = ints({start}), b = ints({end}), c = ints({static_cast<int64_t>(axis)}),
                      d = ints({step});
    return addLike(x, shape, formatted("Slice ({}, {}, {}, {}, {})", x.name, a, b, c, d));
  }
  bool gathered() {
    const RandomValue x = any();
    if (x.rank() == 0)
      return false;
    const auto axis = below(x.shape.size());
    const Shape shape = below(3) ? Shape{between(1, 3)} : Shape{2, between(1, 2)};
    const int64_t count =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    Shape indices;
    for (int64_t i = 0; i < count; ++i)
      indices.push_back(between(-x.shape[axis], x.shape[axis] - 1));
    Shape after = x.shape;
    after.erase(after.begin() + static_cast<int64_t>(axis));
    after.insert(after.begin() + static_cast<int64_t>(axis), shape.begin(), shape.end());
    const std::string rows = intTensor(indices, shape);
    return addLike(x, after, formatted("Gather <axis = {}> ({}, {})", axis, x.name, rows));
  }
  /// By rows that are computed.
  bool gatheredByNumbers() {
    RandomValue rows;
    const RandomValue x = any();
    if (!pick("i", rows) || x.rank() == 0 || rows.rank() + x.rank() > 5)
      return false;
    const auto axis = below(x.shape.size());
    const std::string extent = integer(x.shape[axis]);
    nodesText += formatted("  rows{} = Mod ({}, {})\n", ++names, rows.name, extent);
    Shape after = x.shape;
    after.erase(after.begin() + static_cast<int64_t>(axis));
    after.insert(after.begin() + static_cast<int64_t>(axis), rows.shape.begin(), rows.shape.end());
    return addLike(x, after, formatted("Gather <axis = {}> ({}, rows{})", axis, x.name, names));
  }
  bool gatheredElements() {
    const RandomValue x = any();
    if (x.rank() == 0)
      return false;
    const auto axis = below(x.shape.size());
    Shape shape = x.shape;
    shape[axis] = between(1, 3);
    Shape indices;
    const int64_t count =
        std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
    for (int64_t i = 0; i < count; ++i)
      indices.push_back(between(-x.shape[axis], x.shape[axis] - 1));
    const std::string rows = intTensor(indices, shape);
    return addLike(x, shape, formatted("GatherElements <axis = {}> ({}, {})", axis, x.name, rows));
  }
  bool gatheredPoints() {
    const RandomValue x = any();
    if (x.rank() < 2)
      return false;
    const int64_t width = between(1, x.rank()), count = between(1, 3);
    Shape points;
    for (int64_t i = 0; i < count; ++i)
      for (int64_t axis = 0; axis < width; ++axis) {
        const int64_t extent = x.shape[static_cast<size_t>(axis)];
        points.push_back(between(-extent, extent - 1));
      }
    Shape after{count};
    after.insert(after.end(), x.shape.begin() + width, x.shape.end());
    const std::string rows = intTensor(points, {count, width});
    return addLike(x, after, formatted("GatherND ({}, {})", x.name, rows));
  }
  bool scatteredElements() {
    RandomValue x;
    if (!pick("inf", x) || x.rank() == 0)
      return false;
    const auto axis = below(x.shape.size());
    Shape order(static_cast<size_t>(x.shape[axis]));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    order.resize(below(order.size()) + 1);
    // Rows of one update are the same all over, of the first rows of the data.
    Shape column(x.shape.size(), 1), updates = x.shape;
    updates[axis] = column[axis] = static_cast<int64_t>(order.size());
    const std::string from = ints({0}), to = ints({updates[axis]}),
                      along = ints({static_cast<int64_t>(axis)});
    const std::string table = intTensor(order, column), extents = ints(updates);
    nodesText += formatted("  rows{0} = Expand ({1}, {2})\n  part{0} = Slice ({3}, {4}, {5}, {6})\n"
                           "  most{0} = Neg (part{0})\n",
                           ++names, table, extents, x.name, from, to, along);
    return addLike(
        x, x.shape,
        formatted("ScatterElements <axis = {0}> ({1}, rows{2}, most{2})", axis, x.name, names));
  }
  bool scatteredPoints() {
    RandomValue x;
    if (!pick("inf", x) || x.rank() == 0)
      return false;
    const int64_t extent = x.shape[0];
    const std::string row = intTensor({between(-extent, extent - 1)}, {1, 1});
    const std::string zero = ints({between(0, extent - 1)});
    nodesText += formatted("  part{0} = Gather ({1}, {2})\n  most{0} = Neg (part{0})\n", ++names,
                           x.name, zero);
    return addLike(x, x.shape, formatted("ScatterND ({}, {}, most{})", x.name, row, names));
  }
  bool concatenated() {
    RandomValue a, b;
    for (int i = 0; i < 20; ++i) {
      a = any();
      b = any();
      if (!isSameType(a, b) || a.rank() != b.rank() || a.rank() == 0)
        continue;
      const auto axis = below(a.shape.size());
      Shape shape = a.shape;
      shape[axis] += b.shape[axis];
      Shape rest = b.shape;
      rest[axis] = a.shape[axis];
      if (rest != a.shape)
        continue;
      return add(joined(a, b), shape, std::max(a.bound, b.bound),
                 formatted("Concat <axis = {}> ({}, {})", axis, a.name, b.name));
    }
    return false;
  }
  bool split() {
    const RandomValue x = any();
    if (x.rank() == 0)
      return false;
    const auto axis = below(x.shape.size());
    if (x.shape[axis] < 2)
      return false;
    const int64_t first = between(1, x.shape[axis] - 1);
    const std::string sizes = ints({first, x.shape[axis] - first});
    Shape left = x.shape, right = x.shape;
    left[axis] = first;
    right[axis] -= first;
    RandomValue one{formatted("v{}", pool.size()), x.type, left, x.bound};
    RandomValue other{formatted("v{}", pool.size() + 1), x.type, right, x.bound};
    nodesText += formatted("  {}, {} = Split <axis = {}> ({}, {})\n", one.name, other.name, axis,
                           x.name, sizes);
    pool.push_back(std::move(one));
    pool.push_back(std::move(other));
    return true;
  }
  bool expanded() {
    const RandomValue x = any();
    Shape wanted;
    for (int64_t extent : x.shape)
      wanted.push_back(extent == 1 ? between(1, 3) : below(2) ? extent : 1);
    if (below(2))
      wanted.insert(wanted.begin(), between(1, 2));
    Shape shape;
    if (wanted.empty() || !broadcast(x.shape, wanted, shape))
      return false;
    const std::string target = ints(wanted);
    return addLike(x, shape, formatted("Expand ({}, {})", x.name, target));
  }
  bool tiled() {
    const RandomValue x = any();
    if (x.rank() == 0)
      return false;
    Shape counts, shape = x.shape;
    for (int64_t& extent : shape) {
      counts.push_back(between(1, 2));
      extent *= counts.back();
    }
    const std::string times = ints(counts);
    return addLike(x, shape, formatted("Tile ({}, {})", x.name, times));
  }
  bool padded() {
    RandomValue x;
    if (!pick("inf", x) || x.rank() == 0)
      return false;
    Shape pads(2 * x.shape.size(), 0), shape = x.shape;
    const auto axis = below(x.shape.size());
    pads[axis] = between(-static_cast<int64_t>(x.shape[axis] > 1), 2);
    pads[axis + x.shape.size()] = between(0, 1);
    shape[axis] += pads[axis] + pads[axis + x.shape.size()];
    const std::string list2 = ints(pads);
    return addLike(x, shape, formatted("Pad ({}, {})", x.name, list2));
  }
  bool triangle() {
    RandomValue x;
    if (!pick("inf", x) || x.rank() < 2)
      return false;
    const std::string k = integer(between(-2, 2));
    return addLike(x, x.shape, formatted("Trilu <upper = {}> ({}, {})", below(2), x.name, k));
  }
  bool chosen() {
    RandomValue condition, a, b;
    Shape shape, all;
    if (!pick("b", condition) || !pair("inf", a, b, shape) ||
        !broadcast(condition.shape, shape, all))
      return false;
    return add(joined(a, b), all, std::max(a.bound, b.bound),
               formatted("Where ({}, {}, {})", condition.name, a.name, b.name));
  }
  /// Rows by a table of ones and zeros.
  bool selectedRows() {
    RandomValue x, rows;
    if (!pick("f", x) || x.rank() < 2 || !pick("i", rows) || rows.rank() != 1)
      return false;
    const int64_t depth = x.shape[x.shape.size() - 2];
    const std::string size = integer(depth);
    nodesText += formatted("  zero_one{0} = Constant <value_floats = [0.0, 1.0]> ()\n"
                           "  table{0} = OneHot ({1}, {2}, zero_one{0})\n",
                           ++names, rows.name, size);
    Shape shape = x.shape;
    shape[shape.size() - 2] = rows.shape[0];
    return addLike(x, shape, formatted("MatMul (table{}, {})", names, x.name));
  }
  /// The same along another axis, as an equation.
  bool selectedColumns() {
    RandomValue x, rows;
    if (!pick("f", x) || x.rank() != 3 || !pick("i", rows) || rows.rank() != 1)
      return false;
    const std::string size = integer(x.shape[0]);
    nodesText += formatted("  zero_one{0} = Constant <value_floats = [0.0, 1.0]> ()\n"
                           "  table{0} = OneHot ({1}, {2}, zero_one{0})\n",
                           ++names, rows.name, size);
    return addLike(
        x, {x.shape[1], rows.shape[0], x.shape[2]},
        formatted("Einsum <equation = \"abc, da -> bdc\"> ({}, table{})", x.name, names));
  }
  /// Nothing that is linear.
  bool opaque() {
    RandomValue x;
    if (!pick("f", x) || below(3) != 0)
      return false;
    return add('f', x.shape, 1, formatted("Tanh ({})", x.name));
  }

  struct Maker {
    const char* name;
    bool (RandomGraph::*make)();
  };
  static constexpr Maker makers[] = {
      {"unary", &RandomGraph::unary},
      {"rounding", &RandomGraph::rounding},
      {"sum", &RandomGraph::sum},
      {"product", &RandomGraph::product},
      {"quotient", &RandomGraph::quotient},
      {"truncatedModulo", &RandomGraph::truncatedModulo},
      {"extreme", &RandomGraph::extreme},
      {"compare", &RandomGraph::compare},
      {"logic", &RandomGraph::logic},
      {"toFloat", &RandomGraph::toFloat},
      {"toInteger", &RandomGraph::toInteger},
      {"toBool", &RandomGraph::toBool},
      {"scaled", &RandomGraph::scaled},
      {"reduction", &RandomGraph::reduction},
      {"cumulated", &RandomGraph::cumulated},
      {"argument", &RandomGraph::argument},
      {"oneHot", &RandomGraph::oneHot},
      {"rangeOf", &RandomGraph::rangeOf},
      {"shapeOf", &RandomGraph::shapeOf},
      {"filled", &RandomGraph::filled},
      {"clipped", &RandomGraph::clipped},
      {"reshaped", &RandomGraph::reshaped},
      {"transposed", &RandomGraph::transposed},
      {"insertedAxis", &RandomGraph::insertedAxis},
      {"removedAxis", &RandomGraph::removedAxis},
      {"sliced", &RandomGraph::sliced},
      {"gathered", &RandomGraph::gathered},
      {"gatheredByNumbers", &RandomGraph::gatheredByNumbers},
      {"gatheredElements", &RandomGraph::gatheredElements},
      {"gatheredPoints", &RandomGraph::gatheredPoints},
      {"scatteredElements", &RandomGraph::scatteredElements},
      {"scatteredPoints", &RandomGraph::scatteredPoints},
      {"concatenated", &RandomGraph::concatenated},
      {"split", &RandomGraph::split},
      {"expanded", &RandomGraph::expanded},
      {"tiled", &RandomGraph::tiled},
      {"padded", &RandomGraph::padded},
      {"triangle", &RandomGraph::triangle},
      {"chosen", &RandomGraph::chosen},
      {"selectedRows", &RandomGraph::selectedRows},
      {"selectedColumns", &RandomGraph::selectedColumns},
      {"opaque", &RandomGraph::opaque},
  };
};

} // namespace kvopt
