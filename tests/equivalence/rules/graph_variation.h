// Variations of a small graph: other constants, attributes and operands, at random.
#pragma once

#include "ir/model.h"
#include "ir/op.h"

#include "llvm/ADT/STLExtras.h"

#include <random>

namespace kvopt {

/// Changes a few constants, attributes and operands of a graph. The result may be invalid: callers
/// use graphs that shape inference and the runtime accept.
class GraphVariation {
public:
  GraphVariation(ir::Graph& changed, unsigned seed) : graph(changed), random(seed) {}

  /// Even numbers change one attribute or constant operand each, as far as there are such, and all
  /// others make one to three changes at random.
  void vary(unsigned number) {
    std::vector<ir::Node*> nodes;
    for (ir::Node& node : graph.nodes())
      nodes.push_back(&node);
    if (nodes.empty() || (number % 2 == 0 && varyPlace(number / 2)))
      return;
    for (uint64_t changes = 1 + pick(3); changes > 0; --changes)
      varyOne(*nodes[pick(nodes.size())]);
  }

  /// Exchanges the operands of every node with two operands that may be exchanged.
  static void commute(ir::Graph& graph) {
    for (ir::Node& node : graph.nodes())
      for (const char* op : {"Add", "Mul", "And", "Or", "Max", "Min", "Equal"})
        if (node.is(op) && node.operands().size() == 2)
          node.setOperands({node.operand(1), node.operand(0)});
  }

private:
  /// Changes the attribute or the constant operand of this number; false if there are fewer.
  bool varyPlace(size_t number) {
    for (ir::Node& node : graph.nodes()) {
      if (number < node.attributes().size()) {
        varyAttribute(node, number);
        return true;
      }
      number -= node.attributes().size();
      for (unsigned i = 0; i < node.operands().size(); ++i)
        if (node.operand(i) && node.operand(i)->constant() && number-- == 0) {
          varyConstant(node, i);
          return true;
        }
    }
    return false;
  }

  uint64_t pick(uint64_t count) { return random() % count; }

  void varyOne(ir::Node& node) {
    switch (pick(5)) {
    case 0:
    case 1:
      if (!node.attributes().empty())
        varyAttribute(node, pick(node.attributes().size()));
      break;
    case 2:
    case 3:
      for (unsigned i = 0; i < node.operands().size(); ++i)
        if (pick(2) == 0 && varyConstant(node, i))
          break;
      break;
    default:
      varyOperands(node);
    }
  }

  void varyAttribute(ir::Node& node, size_t index) {
    const ir::NamedAttribute& attribute = node.attributes()[index];
    const ir::Attribute& value = attribute.value;
    const std::string name = attribute.name;
    if (pick(6) == 0)
      return node.removeAttribute(name);
    switch (value.kind()) {
    case ir::AttributeKind::Int:
      return node.setAttribute(name, ir::Attribute::ofInt(changed(value.intValue())));
    case ir::AttributeKind::Float:
      return node.setAttribute(name, ir::Attribute::ofFloat(value.floatValue() * factor()));
    case ir::AttributeKind::Ints: {
      std::vector<int64_t> list = value.ints().vec();
      varyList(list);
      return node.setAttribute(name, ir::Attribute::ofInts(std::move(list)));
    }
    case ir::AttributeKind::Tensor:
      if (ir::TensorRef tensor = variedTensor(*value.tensorValue()))
        node.setAttribute(name, ir::Attribute::ofTensor(std::move(tensor)));
      return;
    default:
      return;
    }
  }

  /// Gives the node a varied copy of a constant operand; false if that is not possible.
  bool varyConstant(ir::Node& node, unsigned index) {
    const ir::Value* operand = node.operand(index);
    const ir::TensorData* constant = operand ? operand->constant() : nullptr;
    ir::TensorRef tensor = constant ? variedTensor(*constant) : nullptr;
    if (tensor)
      node.setOperand(index, &graph.addConstant("varied", std::move(tensor)));
    return tensor != nullptr;
  }

  void varyOperands(ir::Node& node) {
    if (node.operands().empty())
      return;
    const auto index = static_cast<unsigned>(pick(node.operands().size()));
    const ir::OpDef* definition = node.definition();
    if (definition && index >= definition->minOperands()) {
      node.setOperand(index, nullptr);
    } else if (node.operands().size() > 1) {
      llvm::SmallVector<ir::Value*, 4> operands;
      for (const ir::Use& use : node.operands())
        operands.push_back(use.value());
      std::swap(operands[index], operands[(index + 1) % operands.size()]);
      if (operands.front() && operands.back())
        node.setOperands(operands);
    }
  }

  ir::TensorRef variedTensor(const ir::TensorData& tensor) {
    if (auto integers = ir::integerValues(tensor, 64); integers && !integers->empty()) {
      if (tensor.elementType() != ir::ElementType::Int64 || tensor.shape().size() > 1)
        return nullptr;
      std::vector<int64_t> list(integers->begin(), integers->end());
      varyList(list);
      return tensor.shape().empty() ? ir::int64Scalar(list.front()) : ir::int64Tensor(list);
    }
    if (auto number = ir::scalarValue(tensor); number && tensor.shape().size() < 2) {
      constexpr double others[] = {0, 1, -1, 0.5, 2, 3};
      const double other =
          pick(2) == 0 || *number == 0 ? others[pick(6)] : *number * double{factor()};
      return ir::floatScalar(tensor.elementType(), other,
                             static_cast<unsigned>(tensor.shape().size()));
    }
    return nullptr;
  }

  void varyList(std::vector<int64_t>& list) {
    if (list.empty())
      return;
    const uint64_t index = pick(list.size());
    if (list.size() > 1 && pick(2) == 0)
      std::swap(list[index], list[(index + 1) % list.size()]);
    else
      list[index] = changed(list[index]);
  }

  int64_t changed(int64_t number) {
    constexpr int64_t steps[] = {1, -1, 2, -2};
    if (pick(4) == 0)
      return number > 1 && number < 1000 ? number * 2 : -number;
    return number < 1000 && number > -1000 ? number + steps[pick(4)] : 1;
  }

  float factor() {
    constexpr float factors[] = {2, 0.5F, -1, 1.5F};
    return factors[pick(4)];
  }

  ir::Graph& graph;
  std::mt19937 random;
};

} // namespace kvopt
