// Small random graphs over the inputs of a decoder with one growing cache.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/text/reader.h"
#include "tests/equivalence/pairs/graph_pen.h"

#include <memory>

namespace kvopt::pairs {

/// The inputs, the cache, and how values of theirs begin.
inline constexpr const char* decoderInputs = R"(<ir_version: 8, opset_import: ["" : 18]>
g (float[B, S, 4] inputs_embeds, float[B, 2, P, 2] past_key, int64[B, "P + S"] attention_mask,
   int64[B, S] position_ids)
  => (float[B, 2, "P + S", 2] present_key)
<int64[4] split = {0, 0, 2, 2}>
{
  heads = Reshape (inputs_embeds, split)
  rows = Transpose <perm = [0, 2, 1, 3]> (heads)
  present_key = Concat <axis = 2> (past_key, rows)
}
)";

/// The manifest of such a graph.
inline ir::Manifest decoderManifest() {
  ir::Manifest manifest;
  ir::ManifestCache cache;
  cache.role = ir::CacheRole::Key;
  cache.past = "past_key";
  cache.present = "present_key";
  cache.shape = {std::string("B"), int64_t(2), std::string("P"), int64_t(2)};
  manifest.caches.push_back(cache);
  return manifest;
}

/// Adds random nodes to a graph. Operands are values that fit, mostly recent ones.
class RandomGraph {
public:
  RandomGraph(ir::Graph& written, Dice& choices) : graph(written), dice(choices), pen(written) {
    for (const auto& input : graph.inputs())
      values.push_back(input.get());
    for (ir::Node& node : graph.nodes())
      values.push_back(&node.result());
    visible = pen.op("Cast", {graph.findValue("attention_mask")},
                     {{"to", int64_t(int64_t(ir::ElementType::Bool))}});
    values.push_back(visible);
  }

  /// Adds a few nodes, and outputs for some of those that no other node reads.
  void write() {
    const size_t wanted = 3 + dice.below(9);
    size_t added = 0;
    for (size_t tries = 0; added < wanted && tries < 200; ++tries)
      if (ir::Value* made = add()) {
        values.push_back(made);
        recent = std::min<size_t>(recent + 1, 6);
        ++added;
      }
    size_t outputs = 0;
    for (ir::Value* value : llvm::reverse(values))
      if (!value->hasUses() && value->producer() && !value->isGraphOutput() && outputs < 2) {
        // Another node than the output's own can be replaced under its name.
        ir::Node& output =
            graph.create(ir::OpName("Identity"), {value}, {outputs == 0 ? "first" : "second"});
        llvm::consumeError(ir::inferNode(output));
        graph.addOutput(output.result());
        ++outputs;
      }
    graph.eraseDeadNodes();
  }

private:
  using Type = ir::ElementType;

  ir::Value* any(Type type, unsigned leastRank = 0) {
    for (int tries = 0; tries < 12; ++tries) {
      const bool isRecent = recent > 0 && dice.below(3) != 0;
      ir::Value* value = isRecent ? values[values.size() - 1 - dice.below(recent)]
                                  : values[dice.below(values.size())];
      if (value->type().elementType() == type && value->type().rank() >= leastRank)
        return value;
    }
    return nullptr;
  }
  ir::Value* real(unsigned leastRank = 0) { return any(Type::Float, leastRank); }
  ir::Value* whole(unsigned leastRank = 0) { return any(Type::Int64, leastRank); }
  ir::Value* anyOfTypes(unsigned leastRank = 0) {
    return any(dice.anyOf({Type::Float, Type::Float, Type::Float, Type::Int64, Type::Bool}),
               leastRank);
  }
  ir::Value* constant() {
    return &pen.number(dice.anyOf({0.5, 2.0, 3.0, -1.0, 0.25, 1.5, 0.1, -0.75, 1.0}));
  }
  ir::Value* smallInteger() { return &pen.integer(dice.anyOf({0, 1, 2, 3, 5, -1, 7, 12, 300})); }
  int64_t axisOf(const ir::Value* value) {
    const auto rank = static_cast<int64_t>(value ? value->type().rank() : 1);
    const auto axis =
        static_cast<int64_t>(dice.below(static_cast<size_t>(std::max<int64_t>(rank, 1))));
    return dice.oneIn(2) ? axis : axis - rank;
  }
  static int64_t to(Type type) { return static_cast<int64_t>(type); }

  ir::Value* add() {
    switch (dice.below(24)) {
    case 0:
    case 1:
      return function();
    case 2:
    case 3:
    case 4:
      return arithmetic();
    case 5:
      return pen.op("MatMul", {real(1), real(1)});
    case 6:
      return transposedProduct();
    case 7:
    case 8:
      return reduction();
    case 9:
      return softmax();
    case 10:
      return transpose();
    case 11:
      return axes();
    case 12:
      return reshape();
    case 13:
      return concat();
    case 14:
      return slice();
    case 15:
      return gather();
    case 16:
      return repeat();
    case 17:
      return where();
    case 18:
      return comparison();
    case 19:
      return integerArithmetic();
    case 20:
      return sizes();
    case 21:
      return conversion();
    case 22:
      return indexed();
    default:
      return others();
    }
  }

  ir::Value* function() {
    return pen.op(dice.anyOf({"Neg", "Exp", "Tanh", "Sigmoid", "Relu", "Abs", "Reciprocal", "Erf",
                              "Sin", "Cos", "Softplus", "Elu", "LeakyRelu"}),
                  {real()});
  }

  ir::Value* arithmetic() {
    ir::Value* a = real();
    ir::Value* b = dice.oneIn(3) ? constant() : real();
    if (dice.oneIn(12))
      return pen.op("Pow", {a, &pen.number(dice.anyOf({2.0, 3.0, -1.0}))});
    if (dice.oneIn(2))
      std::swap(a, b);
    return pen.op(dice.anyOf({"Add", "Sub", "Mul", "Mul", "Div", "Max", "Min", "Add"}), {a, b});
  }

  ir::Value* transposedProduct() {
    ir::Value* a = real(2);
    ir::Value* b = real(2);
    return b ? pen.op("MatMul", {a, lastTwoExchanged(*b)}) : nullptr;
  }

  ir::Value* lastTwoExchanged(ir::Value& value) {
    std::vector<int64_t> order;
    for (unsigned i = 0; i < value.type().rank(); ++i)
      order.push_back(i);
    std::swap(order[order.size() - 1], order[order.size() - 2]);
    return pen.op("Transpose", {&value}, {{"perm", order}});
  }

  ir::Value* reduction() {
    ir::Value* value = dice.oneIn(6) ? whole(1) : real(1);
    if (!value)
      return nullptr;
    const char* name = dice.anyOf(
        {"ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceSumSquare", "ReduceSum"});
    return pen.op(name, {value, &pen.integers({axisOf(value)})},
                  {{"keepdims", int64_t(dice.oneIn(2))}});
  }

  ir::Value* softmax() {
    ir::Value* scores = real(1);
    if (scores && dice.oneIn(2)) {
      ir::Value* hidden = &pen.number(-std::numeric_limits<double>::infinity());
      ir::Value* bias = pen.op("Where", {any(Type::Bool, 1), &pen.number(0), hidden});
      if (ir::Value* masked = bias ? pen.op("Add", {scores, bias}) : nullptr)
        scores = masked;
    }
    return scores ? pen.op("Softmax", {scores}, {axisIs(axisOf(scores))}) : nullptr;
  }

  ir::Value* transpose() {
    ir::Value* value = anyOfTypes(2);
    if (!value)
      return nullptr;
    std::vector<int64_t> order;
    for (unsigned i = 0; i < value->type().rank(); ++i)
      order.insert(order.begin() + static_cast<std::ptrdiff_t>(dice.below(i + 1)), i);
    return pen.op("Transpose", {value}, {{"perm", order}});
  }

  ir::Value* axes() {
    ir::Value* value = anyOfTypes();
    if (!value)
      return nullptr;
    if (dice.oneIn(3)) {
      for (unsigned axis = 0; axis < value->type().rank(); ++axis)
        if (value->type().dim(axis).value() == 1)
          return pen.op("Squeeze", {value, &pen.integers({axis})});
      return pen.op("Flatten", {value}, {axisIs(axisOf(value))});
    }
    return pen.op("Unsqueeze", {value, &pen.integers({axisOf(value)})});
  }

  ir::Value* reshape() {
    ir::Value* value = anyOfTypes(1);
    switch (dice.below(4)) {
    case 0:
      return pen.op("Reshape", {value, &pen.integers({-1})});
    case 1:
      return pen.op("Reshape", {value, &pen.integers({0, -1})});
    case 2:
      return pen.op("Reshape", {value, &pen.integers({0, 0, -1})});
    default:
      return pen.op("Reshape", {value, &pen.integers({0, -1, 2})});
    }
  }

  ir::Value* concat() {
    ir::Value* a = anyOfTypes(1);
    if (!a)
      return nullptr;
    ir::Value* b = any(a->type().elementType(), 1);
    if (!b || b->type().rank() != a->type().rank())
      b = a;
    return pen.op("Concat", {a, b}, {axisIs(axisOf(a))});
  }

  ir::Value* slice() {
    ir::Value* value = anyOfTypes(1);
    if (!value)
      return nullptr;
    ir::Value* start = &pen.integers({dice.anyOf<int64_t>({0, 1, -1, -2, 2})});
    ir::Value* end = &pen.integers({dice.anyOf<int64_t>({1, 2, -1, 3, INT64_MAX, INT64_MAX})});
    if (dice.oneIn(5))
      end = pen.op("Shape", {anyOfTypes(1)}, {{"start", int64_t(0)}, {"end", int64_t(1)}});
    return pen.op("Slice", {value, start, end, &pen.integers({axisOf(value)}),
                            &pen.integers({dice.oneIn(6) ? 2 : 1})});
  }

  ir::Value* gather() {
    ir::Value* value = anyOfTypes(1);
    ir::Value* index = dice.oneIn(2) ? &pen.integers({0, dice.anyOf<int64_t>({0, 1, -1})})
                                     : &pen.integer(dice.anyOf({0, -1}));
    return value ? pen.op("Gather", {value, index}, {axisIs(axisOf(value))}) : nullptr;
  }

  ir::Value* repeat() {
    ir::Value* value = anyOfTypes(1);
    ir::Value* other = anyOfTypes(1);
    if (!value || !other)
      return nullptr;
    if (dice.oneIn(2))
      return pen.op("Expand", {value, pen.op("Shape", {other})});
    std::vector<int64_t> times(value->type().rank(), 1);
    times[dice.below(times.size())] = 2;
    return pen.op("Tile", {value, &pen.integers(times)});
  }

  ir::Value* where() {
    return dice.oneIn(4)
               ? pen.op("Where", {any(Type::Bool), whole(), smallInteger()})
               : pen.op("Where", {any(Type::Bool), real(), dice.oneIn(2) ? constant() : real()});
  }

  ir::Value* comparison() {
    if (dice.oneIn(3))
      return dice.oneIn(2)
                 ? pen.op("Not", {any(Type::Bool)})
                 : pen.op(dice.anyOf({"And", "Or", "Xor"}), {any(Type::Bool), any(Type::Bool)});
    ir::Value* a = dice.oneIn(5) ? real() : whole();
    ir::Value* b = nullptr;
    if (a)
      b = dice.oneIn(2)                            ? any(a->type().elementType())
          : a->type().elementType() == Type::Float ? constant()
                                                   : smallInteger();
    return pen.op(dice.anyOf({"Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal"}),
                  {a, b});
  }

  ir::Value* integerArithmetic() {
    return pen.op(dice.anyOf({"Add", "Sub", "Mul", "Div", "Mod", "Max", "Min"}),
                  {whole(), dice.oneIn(2) ? smallInteger() : whole()});
  }

  ir::Value* sizes() {
    ir::Value* value = anyOfTypes(1);
    if (!value)
      return nullptr;
    const auto axis = static_cast<int64_t>(dice.below(value->type().rank()));
    ir::Value* list =
        pen.op("Shape", {value}, {{"start", int64_t(axis)}, {"end", int64_t(axis + 1)}});
    if (!list || dice.oneIn(3))
      return list;
    ir::Value* count = pen.op("Squeeze", {list, &pen.integers({0})});
    return dice.oneIn(3) ? count : pen.op("Range", {&pen.integer(0), count, &pen.integer(1)});
  }

  ir::Value* conversion() {
    switch (dice.below(5)) {
    case 0:
      return pen.op("Cast", {any(Type::Bool)}, {{"to", to(Type::Float)}});
    case 1:
      return pen.op("Cast", {any(Type::Bool)}, {{"to", to(Type::Int64)}});
    case 2:
      return pen.op("Cast", {whole()}, {{"to", to(Type::Bool)}});
    case 3: {
      const Type narrow = dice.anyOf({Type::Int32, Type::UInt8, Type::Int8});
      return pen.op("Cast", {pen.op("Cast", {whole()}, {{"to", to(narrow)}})},
                    {{"to", to(Type::Int64)}});
    }
    default:
      return pen.op("Cast", {whole()}, {{"to", to(Type::Float)}});
    }
  }

  ir::Value* indexed() {
    ir::Value* value = real(1);
    ir::Value* index = whole(1);
    if (!value || !index)
      return nullptr;
    switch (dice.below(4)) {
    case 0:
      return pen.op("CumSum", {index, &pen.integer(axisOf(index))},
                    {{"exclusive", int64_t(dice.oneIn(2))}});
    case 1: {
      ir::Value* zeros = pen.op("Mul", {index, &pen.integer(0)});
      return pen.op("GatherElements", {value, zeros}, {axisIs(axisOf(value))});
    }
    case 2:
      return pen.op("Gather", {value, pen.op("Mod", {index, &pen.integer(2)})},
                    {axisIs(axisOf(value))});
    default: {
      ir::Value* row =
          pen.op("Slice", {value, &pen.integers({0}), &pen.integers({1}), &pen.integers({-1})});
      ir::Value* zeros = row ? pen.op("Expand", {&pen.integers({dice.anyOf<int64_t>({0, -1})}),
                                                 pen.op("Shape", {row})})
                             : nullptr;
      return pen.op("ScatterElements", {value, zeros, row}, {axisIs(-1)});
    }
    }
  }

  ir::Value* others() {
    ir::Value* value = real(1);
    if (!value)
      return nullptr;
    switch (dice.below(5)) {
    case 0:
      return pen.op("Trilu", {real(2), &pen.integer(dice.anyOf({0, 1, -1}))},
                    {{"upper", int64_t(dice.oneIn(2))}});
    case 1: {
      std::vector<int64_t> pads(2 * value->type().rank(), 0);
      pads[dice.below(pads.size())] = 1;
      return pen.op("Pad", {value, &pen.integers(pads)});
    }
    case 2:
      return pen.op("Clip", {value, &pen.number(-0.5), &pen.number(0.5)});
    case 3: {
      ir::Value* isNan = pen.op("IsNaN", {value});
      return pen.op("Where", {isNan, constant(), value});
    }
    default: {
      const auto width = value->type().dim(-1).value();
      if (!width || *width < 1)
        return nullptr;
      const std::vector<float> ones(static_cast<size_t>(*width), 1.5F);
      return pen.op("LayerNormalization", {value, &graph.addConstant("w", ir::floatTensor(ones))},
                    {axisIs(-1)});
    }
    }
  }

  ir::Graph& graph;
  Dice& dice;
  GraphPen pen;
  std::vector<ir::Value*> values;
  ir::Value* visible = nullptr;
  size_t recent = 0; ///< number of random values, as far as they count as recent
};

/// The graph of these choices.
inline std::unique_ptr<ir::Model> randomModel(uint64_t seed, const ir::OpRegistry& ops) {
  auto model = llvm::cantFail(ir::readText(decoderInputs, ops));
  llvm::cantFail(ir::inferShapes(model->graph()));
  Dice dice(seed);
  RandomGraph(model->graph(), dice).write();
  return model;
}

} // namespace kvopt::pairs
