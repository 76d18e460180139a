// Random changes of a graph: some compute the same, others may not.
#pragma once

#include "tests/equivalence/pairs/graph_pen.h"

namespace kvopt::pairs {

/// Replaces nodes and operands of a graph at random. All nodes have inferred types.
class RandomRewrite {
public:
  RandomRewrite(ir::Graph& written, Dice& choices) : graph(written), dice(choices) {}

  /// Replaces one node, or one operand, by nodes that compute the same real numbers. False if the
  /// node that was chosen has no such replacement.
  bool respell() {
    ir::Node* node = anyNode();
    if (!node)
      return false;
    if (dice.oneIn(3))
      return wrapOperand(*node);
    ir::Value* replacement = replacementOf(*node);
    if (!replacement)
      return false;
    node->result().replaceAllUsesWith(*replacement);
    return true;
  }

  /// Another operator in place of one node; a number of tokens, rows or keys from which on a value
  /// is doubled; or another value in place of an operand. False if the chosen place has none.
  bool change() {
    ir::Node* node = anyNode();
    if (!node)
      return false;
    switch (dice.below(3)) {
    case 0:
      return changeOperator(*node);
    case 1:
      return doubleFrom(*node);
    default:
      return changeOperand(*node);
    }
  }

private:
  /// A node with one result that is not an output.
  ir::Node* anyNode() {
    std::vector<ir::Node*> nodes;
    for (ir::Node& node : graph.nodes())
      if (node.results().size() == 1 && !node.result().isGraphOutput())
        nodes.push_back(&node);
    return nodes.empty() ? nullptr : nodes[dice.below(nodes.size())];
  }

  static bool isReal(const ir::Value* value) {
    return value && value->type().elementType() == ir::ElementType::Float;
  }

  static std::vector<int64_t> permutation(unsigned rank) {
    std::vector<int64_t> order;
    for (unsigned i = 0; i < rank; ++i)
      order.push_back(i);
    if (rank > 1)
      std::swap(order[rank - 1], order[rank - 2]);
    return order;
  }

  /// Nodes before `node` that compute an operand in another way.
  bool wrapOperand(ir::Node& node) {
    const auto index =
        static_cast<unsigned>(dice.below(std::max<size_t>(node.operands().size(), 1)));
    ir::Value* value = node.operand(index);
    if (!value || value->constant())
      return false;
    GraphPen pen(graph, &node);
    ir::Value* wrapped = nullptr;
    const unsigned rank = value->type().rank();
    switch (dice.below(7)) {
    case 0:
      wrapped = pen.op("Identity", {value});
      break;
    case 1:
      if (isReal(value))
        wrapped = pen.op("Neg", {pen.op("Neg", {value})});
      break;
    case 2:
      wrapped = pen.op("Transpose", {pen.op("Transpose", {value}, {{"perm", permutation(rank)}})},
                       {{"perm", permutation(rank)}});
      break;
    case 3:
      wrapped = pen.op("Reshape",
                       {pen.op("Unsqueeze", {value, &pen.integers({0})}), pen.op("Shape", {value})},
                       {{"allowzero", int64_t(1)}});
      break;
    case 4:
      if (rank > 0) {
        ir::Value& axis = pen.integers({-1});
        ir::Value& place = pen.integers({1});
        ir::Value* head = pen.op("Slice", {value, &pen.integers({0}), &place, &axis});
        ir::Value* tail = pen.op("Slice", {value, &place, &pen.integers({INT64_MAX}), &axis});
        wrapped = pen.op("Concat", {head, tail}, {axisIs(-1)});
      }
      break;
    case 5:
      if (isReal(value))
        wrapped = pen.op("Div", {pen.op("Mul", {value, &pen.number(3)}), &pen.number(3)});
      break;
    default:
      if (isReal(value))
        wrapped = pen.op("Mul", {pen.op("Add", {value, value}), &pen.number(0.5)});
    }
    if (!wrapped || wrapped->type() != value->type())
      return false;
    node.setOperand(index, wrapped);
    return true;
  }

  /// A value that equals the node's result; null if there is no spelling for it.
  ir::Value* replacementOf(ir::Node& node) {
    GraphPen pen(graph, &node);
    ir::Value* a = node.operand(0);
    ir::Value* b = node.operand(1);
    const bool isRealNode = isReal(&node.result());
    if ((node.is("Add") || node.is("Mul") || node.is("Max") || node.is("Min")) && dice.oneIn(2))
      return pen.op(node.op().type().str().c_str(), {b, a});
    if (node.is("Sub"))
      return isRealNode ? pen.op("Add", {a, pen.op("Neg", {b})})
                        : pen.op("Add", {a, pen.op("Mul", {b, &pen.integer(-1)})});
    if (node.is("Div") && isRealNode)
      return pen.op("Mul", {pen.op("Reciprocal", {b}), a});
    if (node.is("Neg") && isRealNode)
      return dice.oneIn(2) ? pen.op("Mul", {a, &pen.number(-1)})
                           : pen.op("Sub", {&pen.number(0), a});
    if (node.is("Mul") && isRealNode && b->producer() && b->producer()->is("Add")) {
      ir::Node& sum = *b->producer();
      return pen.op("Add",
                    {pen.op("Mul", {a, sum.operand(0)}), pen.op("Mul", {a, sum.operand(1)})});
    }
    if (node.is("Exp") && a->producer() && a->producer()->is("Add")) {
      ir::Node& sum = *a->producer();
      return pen.op("Mul", {pen.op("Exp", {sum.operand(0)}), pen.op("Exp", {sum.operand(1)})});
    }
    if (node.is("Softmax")) {
      ir::Value& axis = pen.integers({node.intAttr("axis", -1)});
      ir::Value* powers = pen.op("Exp", {a});
      if (dice.oneIn(2))
        powers = pen.op("Exp", {pen.op("Sub", {a, pen.op("ReduceMax", {a, &axis})})});
      return powers ? pen.op("Div", {powers, pen.op("ReduceSum", {powers, &axis})}) : nullptr;
    }
    if (node.is("MatMul") && a->type().rank() > 1 && b->type().rank() > 1) {
      if (dice.oneIn(2))
        return pen.op(
            "Mul", {pen.op("MatMul", {pen.op("Mul", {a, &pen.number(2)}), b}), &pen.number(0.5)});
      ir::Value* turnedB = pen.op("Transpose", {b}, {{"perm", permutation(b->type().rank())}});
      ir::Value* turnedA = pen.op("Transpose", {a}, {{"perm", permutation(a->type().rank())}});
      ir::Value* product = pen.op("MatMul", {turnedB, turnedA});
      return product
                 ? pen.op("Transpose", {product}, {{"perm", permutation(product->type().rank())}})
                 : nullptr;
    }
    if (node.is("Where"))
      return pen.op("Where", {pen.op("Not", {a}), node.operand(2), b});
    if (node.is("Less"))
      return pen.op("Greater", {b, a});
    if (node.is("LessOrEqual"))
      return pen.op("GreaterOrEqual", {b, a});
    if (node.is("ReduceMean") && isRealNode && b->constant() && dice.oneIn(2)) {
      const auto axes = ir::integerValues(*b->constant(), 4);
      if (axes && axes->size() == 1)
        if (const auto width = a->type().dim(axes->front()).value(); width && *width > 0)
          return pen.op("Div", {pen.op("ReduceSum", {a, b},
                                       {{"keepdims", int64_t(node.intAttr("keepdims", 1))}}),
                                &pen.number(static_cast<double>(*width))});
    }
    return nullptr;
  }

  bool changeOperator(ir::Node& node) {
    static constexpr std::pair<const char*, const char*> others[] = {{"Add", "Sub"},
                                                                     {"Sub", "Add"},
                                                                     {"Mul", "Div"},
                                                                     {"Div", "Mul"},
                                                                     {"Max", "Min"},
                                                                     {"Min", "Max"},
                                                                     {"Less", "LessOrEqual"},
                                                                     {"Greater", "GreaterOrEqual"},
                                                                     {"And", "Or"},
                                                                     {"Or", "Xor"},
                                                                     {"Sin", "Cos"},
                                                                     {"ReduceMax", "ReduceMin"},
                                                                     {"ReduceSum", "ReduceMean"},
                                                                     {"ReduceMean", "ReduceSum"},
                                                                     {"Equal", "LessOrEqual"},
                                                                     {"Sigmoid", "Tanh"}};
    for (const auto& [name, other] : others)
      if (node.is(name)) {
        llvm::SmallVector<ir::Value*, 2> operands{node.operand(0), node.operand(1)};
        GraphPen pen(graph, &node);
        Attributes attributes;
        for (const ir::NamedAttribute& attribute : node.attributes())
          if (attribute.name == "keepdims")
            attributes.push_back({"keepdims", attribute.value.intValue()});
        ir::Value* changed = node.operand(1) ? pen.op(other, {operands[0], operands[1]}, attributes)
                                             : pen.op(other, {operands[0]}, attributes);
        if (!changed || changed->type() != node.result().type())
          return false;
        node.result().replaceAllUsesWith(*changed);
        return true;
      }
    return false;
  }

  /// Doubles the result where an extent of an input is larger than a number.
  bool doubleFrom(ir::Node& node) {
    if (!isReal(&node.result()))
      return false;
    const char* input = dice.anyOf({"inputs_embeds", "past_key", "attention_mask"});
    const int64_t axis = std::string(input) == "past_key" ? 2 : static_cast<int64_t>(dice.below(2));
    ir::Node* next = graph.nodeAfter(node);
    GraphPen pen(graph, next);
    ir::Value* extent = pen.op("Shape", {graph.findValue(input)},
                               {{"start", int64_t(axis)}, {"end", int64_t(axis + 1)}});
    ir::Value* limit = &pen.integer(dice.anyOf<int64_t>({0, 1, 2, 3, 4, 5, 6, 8, 15, 40}));
    ir::Value* isLarge = pen.op(dice.anyOf({"Greater", "Equal", "Less"}), {extent, limit});
    ir::Value* list = pen.op("Where", {isLarge, &pen.number(2), &pen.number(1)});
    ir::Value* factor = list ? pen.op("Squeeze", {list, &pen.integers({0})}) : nullptr;
    ir::Value* product = factor ? pen.op("Mul", {&node.result(), factor}) : nullptr;
    if (!product)
      return false;
    for (ir::Use& use : llvm::make_early_inc_range(node.result().uses()))
      if (&use.user() != product->producer())
        use.user().setOperand(use.operandIndex(), product);
    return true;
  }

  /// Reads another value of the same type.
  bool changeOperand(ir::Node& node) {
    const auto index =
        static_cast<unsigned>(dice.below(std::max<size_t>(node.operands().size(), 1)));
    ir::Value* value = node.operand(index);
    if (!value)
      return false;
    std::vector<ir::Value*> others;
    for (ir::Node& other : graph.nodes()) {
      if (&other == &node)
        break;
      if (other.result().type() == value->type() && &other.result() != value)
        others.push_back(&other.result());
    }
    if (others.empty())
      return false;
    node.setOperand(index, others[dice.below(others.size())]);
    return true;
  }

  ir::Graph& graph;
  Dice& dice;
};

} // namespace kvopt::pairs
