// Random mask sub-graphs in the manner of real exporters, and mutations of them that mean something
// else.
#pragma once

#include "support/format.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace kvopt {

/// A model that computes one mask, `mask`, of an attention of S = sequence rows, T = past +
/// sequence keys. Inputs: attention_mask [batch, total] and, of use for its shape only,
/// past [batch, 2, past, 8], ids [batch, sequence], cache_position [sequence],
/// position_ids [batch, sequence].
struct MaskGraph {
  std::string text;
  bool isMutated = false;
  /// Of an unmutated graph.
  int64_t window = 0;
  bool isCausal = true; ///< false where rows come from an input
  bool hasPadding = false;
  std::string description;
};

class MaskGraphWriter {
public:
  explicit MaskGraphWriter(unsigned seed) : random(seed) {}

  MaskGraph write() {
    mutation = chance(3) ? pick(mutations) : 0;
    graph.isMutated = mutation != 0;
    note(formatted("mutation {}", mutation));
    prologue();
    bool isAdditiveParts = chance(3);
    std::string mask = isAdditiveParts ? sumOfParts() : oneBoolean();
    std::string type = isBoolean ? "bool" : "float";
    graph.text =
        formatted("<ir_version: 10, opset_import: [\"\" : 18]>\n"
                  "masks (int64[batch, sequence] ids, int64[batch, {}] attention_mask, "
                  "float[batch, 2, past, 8] past_key, int64[sequence] cache_position, "
                  "int64[batch, sequence] position_ids) => ({} mask)\n{{\n{}  mask = Identity "
                  "({})\n}}\n",
                  total, type, body, mask);
    return graph;
  }

  static constexpr int64_t tableSize = 24;

private:
  static constexpr int mutations = 9;
  std::mt19937 random;
  MaskGraph graph;
  std::string body;
  std::string total = "total";
  unsigned names = 0;
  int mutation = 0; ///< 0 for none
  bool isBoolean = false;
  std::string past, rows, keys, batch; ///< scalars

  unsigned pick(unsigned count) { return random() % count + 1; } // 1..count
  bool chance(unsigned oneIn) { return random() % oneIn == 0; }
  void note(const std::string& what) { graph.description += what + "; "; }

  std::string node(const std::string& op, const std::string& operands,
                   const std::string& attributes = "") {
    std::string name = formatted("v{}", names++);
    body += formatted("  {} = {} {}({})\n", name, op,
                      attributes.empty() ? "" : "<" + attributes + "> ", operands);
    return name;
  }
  std::string list(const std::string& op, std::initializer_list<std::string> operands,
                   const std::string& attributes = "") {
    std::string all;
    for (const std::string& operand : operands)
      all += (all.empty() ? "" : ", ") + operand;
    return node(op, all, attributes);
  }
  std::string scalar(int64_t value) {
    return node("Constant", "", formatted("value = int64 {{{}}}", value));
  }
  std::string vector(const std::string& values, size_t count) {
    return node("Constant", "", formatted("value = int64[{}] {{{}}}", count, values));
  }
  std::string number(const std::string& value) {
    return node("Constant", "", formatted("value = float {{{}}}", value));
  }
  std::string at(const std::string& tensor, const std::string& axes, size_t count) {
    return list("Unsqueeze", {tensor, vector(axes, count)});
  }
  std::string extent(const std::string& tensor, int axis) {
    if (chance(2))
      return list("Gather", {node("Shape", tensor), scalar(axis)}, "axis = 0");
    std::string one = node("Shape", tensor, formatted("start = {}, end = {}", axis, axis + 1));
    return node("Squeeze", one);
  }

  void prologue() {
    past = extent("past_key", 2);
    rows = extent("ids", 1);
    batch = extent("ids", 0);
    keys = list("Add", {past, rows});
    if (chance(3))
      total = "\"past + sequence\"";
  }

  std::string rangeTo(const std::string& limit, const std::string& start = "") {
    std::string first = start.empty() ? scalar(0) : start;
    return list("Range", {first, limit, scalar(1)});
  }

  /// The rows' positions, [S].
  std::string rowPositions() {
    if (mutation == 1) {
      note("top-left");
      return rangeTo(rows);
    }
    if (mutation == 2) {
      note("rows from the end");
      return list("Add", {rangeTo(rows), keys});
    }
    if (mutation == 3) {
      note("rows of an input");
      graph.isCausal = false;
      return "cache_position";
    }
    std::string one = scalar(1);
    switch (pick(5)) {
    case 1:
      return list("Add", {rangeTo(rows), past});
    case 2:
      return rangeTo(keys, past);
    case 3: {
      std::string all = rangeTo(keys);
      return list("Slice", {all, at(past, "0", 1), at(keys, "0", 1)});
    }
    case 4: {
      std::string ones = list("ConstantOfShape", {at(rows, "0", 1)}, "value = int64[1] {1}");
      std::string counted = list("CumSum", {ones, scalar(0)});
      return list("Add", {list("Sub", {counted, one}), past});
    }
    default: {
      std::string values;
      for (int64_t k = 0; k < 2 * tableSize; ++k)
        values += formatted("{}{}", k ? ", " : "", k);
      std::string table = vector(values, 2 * tableSize);
      return list("Gather", {table, list("Add", {rangeTo(rows), past})});
    }
    }
  }

  std::string keyPositions() { return rangeTo(keys); }

  /// j <= i + P in some spelling, from positions [1,1,S,1] and [1,1,1,T].
  std::string causalFromPositions(const std::string& row, const std::string& key) {
    std::string one = scalar(1);
    if (mutation == 4) {
      note("less for less or equal");
      return list("Less", {key, row});
    }
    if (mutation == 5) {
      note("swapped");
      return list("LessOrEqual", {row, key});
    }
    switch (pick(8)) {
    case 1:
      return list("LessOrEqual", {key, row});
    case 2:
      return list("GreaterOrEqual", {row, key});
    case 3:
      return node("Not", list("Greater", {key, row}));
    case 4:
      return list("Less", {key, list("Add", {row, one})});
    case 5:
      return list("LessOrEqual", {list("Sub", {key, row}), scalar(0)});
    case 6: {
      std::string less = list("Less", {key, row});
      return list("Or", {less, list("Equal", {key, row})});
    }
    case 7: {
      std::string a = list("CastLike", {key, number("0.0")});
      return list("LessOrEqual", {a, list("CastLike", {row, a})});
    }
    default: {
      std::string a = node("Cast", key, "to = 1");
      return list("LessOrEqual", {a, node("Cast", row, "to = 1")});
    }
    }
  }

  std::string windowFromPositions(const std::string& row, const std::string& key) {
    int64_t window = pick(6);
    graph.window = window;
    note(formatted("window {}", window));
    if (mutation == 6)
      return list("GreaterOrEqual", {key, list("Sub", {row, scalar(window)})});
    switch (pick(4)) {
    case 1:
      return list("Greater", {key, list("Sub", {row, scalar(window)})});
    case 2:
      return list("Less", {list("Sub", {row, key}), scalar(window)});
    case 3:
      return node("Not", list("LessOrEqual", {list("Add", {key, scalar(window)}), row}));
    default: {
      std::string distance = list("Sub", {row, key});
      std::string clipped = list("Max", {distance, scalar(0)});
      return list("LessOrEqual", {clipped, scalar(window - 1)});
    }
    }
  }

  /// A boolean constant triangle, perhaps with a band, sliced to [1,1,S,T].
  std::string causalFromTable() {
    note("table");
    int64_t window = chance(2) ? static_cast<int64_t>(pick(5)) : 0;
    graph.window = window;
    int64_t shift = mutation == 4 ? -1 : 0;
    std::string values;
    for (int64_t r = 0; r < tableSize; ++r)
      for (int64_t c = 0; c < tableSize; ++c) {
        bool seen = c <= r + shift && (window == 0 || r - c < window);
        if (mutation == 5)
          seen = r <= c;
        values += formatted("{}{}", values.empty() ? "" : ", ", seen ? 1 : 0);
      }
    std::string table =
        node("Constant", "",
             formatted("value = bool[1, 1, {}, {}] {{{}}}", tableSize, tableSize, values));
    std::string first = at(past, "0", 1);
    std::string last = at(keys, "0", 1);
    if (mutation == 1) {
      first = vector("0", 1);
      last = at(rows, "0", 1);
    }
    std::string one = vector("1", 1);
    std::string byRows = list("Slice", {table, first, last, vector("2", 1), one});
    return list("Slice", {byRows, vector("0", 1), at(keys, "0", 1), vector("3", 1), one});
  }

  /// Ones below the diagonal of [S,T], by Trilu or by a square and a block of the past.
  std::string causalFromTriangle() {
    note("triangle");
    std::string s = at(rows, "0", 1);
    std::string t = at(keys, "0", 1);
    if (chance(2)) {
      std::string shape = list("Concat", {s, t}, "axis = 0");
      std::string ones = list("ConstantOfShape", {shape}, "value = float[1] {1.0}");
      std::string diagonal = past;
      if (mutation == 1)
        diagonal = scalar(0);
      if (mutation == 4)
        diagonal = list("Sub", {past, scalar(1)});
      bool isUpper = chance(2);
      if (isUpper)
        diagonal = list("Add", {diagonal, scalar(1)});
      std::string kept = list("Trilu", {ones, diagonal}, formatted("upper = {}", isUpper ? 1 : 0));
      std::string seen = node("Cast", kept, "to = 9");
      return at(isUpper ? node("Not", seen) : seen, "0, 1", 2);
    }
    std::string index = rangeTo(rows);
    std::string row = at(index, "1", 1);
    std::string square = list(mutation == 4 ? "Less" : "LessOrEqual", {at(index, "0", 1), row});
    std::string blockShape = list("Concat", {s, at(past, "0", 1)}, "axis = 0");
    std::string block = list("ConstantOfShape", {blockShape}, "value = bool[1] {1}");
    std::string order = mutation == 1 ? square + ", " + block : block + ", " + square;
    return at(node("Concat", order, "axis = -1"), "0, 1", 2);
  }

  std::string causal() {
    unsigned way = pick(5);
    if (way == 4 && mutation != 2 && mutation != 3 && mutation != 6)
      return causalFromTable();
    if (way == 5 && mutation != 2 && mutation != 3 && mutation != 5 && mutation != 6)
      return causalFromTriangle();
    std::string row = at(rowPositions(), "0, 1, 3", 3);
    std::string key = at(keyPositions(), "0, 1, 2", 3);
    if (mutation != 6 && chance(2))
      return causalFromPositions(row, key);
    std::string window = windowFromPositions(row, key);
    return list("And", {causalFromPositions(row, key), window});
  }

  /// [B,1,1,T], true where the key is no padding.
  std::string padding() {
    graph.hasPadding = true;
    std::string seen = node("Cast", "attention_mask", "to = 9");
    std::string key = at(keyPositions(), "0, 1, 2", 3);
    std::string row = at(rangeTo(batch), "1, 2, 3", 3);
    switch (pick(4)) {
    case 1: {
      note("flat padding");
      std::string flat = list("Reshape", {seen, vector("-1", 1)});
      std::string width = extent("attention_mask", 1);
      return list("Gather", {flat, list("Add", {list("Mul", {row, width}), key})}, "axis = 0");
    }
    case 2: {
      note("padding by GatherND");
      std::string shape = node("Shape", list("Add", {row, key}));
      std::string b = at(list("Expand", {row, shape}), "-1", 1);
      std::string j = at(list("Expand", {key, shape}), "-1", 1);
      std::string position = list("Concat", {b, j}, "axis = -1");
      return list("GatherND", {seen, position});
    }
    case 3:
      note("padding by Gather");
      return at(list("Gather", {seen, rangeTo(keys)}, "axis = 1"), "1, 2", 2);
    default:
      note("padding by comparison");
      return node("Not", list("Equal", {at("attention_mask", "1, 2", 2), scalar(0)}));
    }
  }

  std::string combined(const std::string& a, const std::string& b) {
    if (mutation == 7) {
      note("or");
      return list("Or", {a, b});
    }
    if (mutation == 8) {
      note("xor");
      return node("Not", list("Equal", {a, b}));
    }
    switch (pick(4)) {
    case 1:
      return list("And", {a, b});
    case 2:
      return node("Not", list("Or", {node("Not", a), node("Not", b)}));
    case 3: {
      std::string no = node("Constant", "", "value = bool {0}");
      return list("Where", {a, b, no});
    }
    default: {
      std::string x = node("Cast", a, "to = 1");
      std::string product = list("Mul", {x, node("Cast", b, "to = 1")});
      return node("Cast", product, "to = 9");
    }
    }
  }

  std::string hiding() {
    static const char* values[] = {"-inf", "-3.4028235e+38", "-65504.0", "-10000.0", "-1e9"};
    return values[pick(5) - 1];
  }

  std::string additive(const std::string& seen, const std::string& low) {
    if (mutation == 9) {
      note("shown and hidden swapped");
      return list("Where", {seen, number(low), number("0.0")});
    }
    switch (low == "-inf" ? pick(2) : pick(4)) {
    case 1:
      return list("Where", {seen, number("0.0"), number(low)});
    case 2:
      return list("Where", {node("Not", seen), number(low), number("0.0")});
    case 3: {
      std::string hidden = list("Sub", {number("1.0"), node("Cast", seen, "to = 1")});
      return list("Mul", {hidden, number(low)});
    }
    default: {
      std::string hidden = list("Sub", {number("1.0"), node("Cast", seen, "to = 1")});
      return list("Where", {node("Cast", hidden, "to = 9"), number(low), hidden});
    }
    }
  }

  std::string oneBoolean() {
    std::string seen = causal();
    if (chance(2))
      seen = chance(2) ? combined(seen, padding()) : combined(padding(), seen);
    if (chance(3)) {
      isBoolean = true;
      return mutation == 9 ? node("Not", seen) : seen;
    }
    std::string mask = additive(seen, hiding());
    if (chance(4))
      return list("Max", {mask, number("-3.4028235e+38")});
    return mask;
  }

  /// `mask[..., first:] = laid[..., first:]`: rows of the transposed masks are scattered.
  std::string assigned(const std::string& mask, const std::string& laid) {
    bool isWhole = !graph.isMutated || chance(2);
    note(isWhole ? "assigned" : "assigned but for the first");
    std::string one = vector("1", 1);
    std::string last = at(keys, "0", 1);
    std::string shape =
        list("Concat", {at(batch, "0", 1), one, at(rows, "0", 1), last}, "axis = 0");
    std::string wide = list("Expand", {mask, shape});
    std::string first = vector(isWhole ? "0" : "1", 1);
    std::string entries = list("Slice", {rangeTo(keys), first, last, vector("0", 1), one});
    std::string part = list("Slice", {laid, first, last, vector("3", 1), one});
    const char* swapped = "perm = [3, 1, 2, 0]";
    std::string scattered =
        list("ScatterND", {node("Transpose", wide, swapped), at(entries, "-1", 1),
                           node("Transpose", part, swapped)});
    return node("Transpose", scattered, swapped);
  }

  std::string sumOfParts() {
    note("sum");
    std::string a = additive(causal(), hiding());
    std::string b = additive(padding(), hiding());
    if (chance(3)) { // a row of padding laid over the triangle where nothing is hidden yet
      std::string sum = list("Add", {a, node("Cast", at("attention_mask", "1, 2", 2), "to = 1")});
      std::string isPadding = list("Equal", {sum, number("0.0")});
      note("laid over");
      std::string laid = list("Where", {isPadding, number("-3.4028235e+38"), a});
      return chance(2) ? laid : assigned(a, laid);
    }
    return chance(2) ? list("Add", {a, b}) : list("Min", {a, b});
  }
};

} // namespace kvopt
