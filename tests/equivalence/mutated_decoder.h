// A shipped decoder that a test changes: where its attentions are, and how to edit around them.
#pragma once

#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {

/// One attention as the exporter spelled it.
struct SpelledAttention {
  Node* softmax = nullptr;
  Node* masking = nullptr;     ///< Add(scores, mask)
  Node* scaling = nullptr;     ///< Mul or Div of the scores
  Node* scores = nullptr;      ///< MatMul(q, k transposed)
  Node* weighing = nullptr;    ///< MatMul(probabilities, v)
  Node* keyConcat = nullptr;   ///< Concat(past, new)
  Node* valueConcat = nullptr; ///< Concat(past, new)
};

class MutatedDecoder {
public:
  MutatedDecoder(const std::string& path, const Toolkit& toolkit)
      : model(valueOrThrow(importModel(path, toolkit.ops))) {
    successOrThrow(inferShapes(model->graph()));
    for (Node& node : graph().nodes())
      if (node.op() == "Softmax")
        attentions.push_back(locate(node));
  }

  Graph& graph() { return model->graph(); }

  /// A node after the producer of its first operand, or before all others.
  Value& add(OpName op, std::vector<Value*> operands, std::vector<NamedAttribute> attributes = {}) {
    Node* last = nullptr;
    for (Value* operand : operands)
      if (Node* producer = operand ? operand->producer() : nullptr)
        if (!last || last->comesBefore(*producer))
          last = producer;
    auto& nodes = graph().nodes();
    auto next = last ? std::next(last->getIterator()) : nodes.begin();
    Node& node = graph().createFresh(op, operands, 1, next == nodes.end() ? nullptr : &*next);
    for (NamedAttribute& attribute : attributes)
      node.setAttribute(attribute.name, std::move(attribute.value));
    llvm::cantFail(inferNode(node));
    return node.result();
  }

  Value& number(double value) {
    return graph().addConstant("number", floatScalar(ElementType::Float, value));
  }
  Value& integers(llvm::ArrayRef<int64_t> values) {
    return graph().addConstant("integers", int64Tensor(values));
  }
  Value& floats(llvm::ArrayRef<int64_t> values) {
    return add("Cast", {&integers(values)}, attributeList("to", static_cast<int64_t>(1)));
  }
  Value& input(llvm::StringRef name) {
    for (const std::unique_ptr<Value>& candidate : graph().inputs())
      if (candidate->name() == name)
        return *candidate;
    throw std::runtime_error("no input " + name.str());
  }
  /// A positive float scalar that depends on what the model is fed.
  Value& dataDependentScalar() {
    Value& positions =
        add("Cast", {&input("position_ids")}, attributeList("to", static_cast<int64_t>(1)));
    Value& flat = add("Reshape", {&positions, &integers({-1})});
    Value& most = add("ReduceMax", {&flat}, attributeList("keepdims", static_cast<int64_t>(0)));
    return add("Add", {&most, &number(1.0)});
  }
  static std::vector<NamedAttribute> attributeList(const char* name, int64_t value) {
    std::vector<NamedAttribute> attributes;
    attributes.push_back({name, Attribute::ofInt(value)});
    return attributes;
  }
  static std::vector<NamedAttribute> permutation(std::vector<int64_t> axes) {
    std::vector<NamedAttribute> attributes;
    attributes.push_back({"perm", Attribute::ofInts(std::move(axes))});
    return attributes;
  }

  /// Puts `build(old)` in the place of one operand.
  void wrapOperand(Node& node, unsigned index, llvm::function_ref<Value&(Value&)> build) {
    Value& replacement = build(*node.operand(index));
    node.setOperand(index, &replacement);
    restoreOrder(graph());
  }
  /// Puts `build(result)` in the place of a node's result, for all its readers.
  void wrapResult(Node& node, llvm::function_ref<Value&(Value&)> build) {
    Value& result = node.result();
    std::vector<std::pair<Node*, unsigned>> readers;
    for (const Use& use : result.uses())
      readers.emplace_back(&use.user(), use.operandIndex());
    Value& replacement = build(result);
    for (auto [reader, index] : readers)
      reader->setOperand(index, &replacement);
    restoreOrder(graph());
  }
  void expose(Value& value) {
    Value& copy = add("Identity", {&value});
    graph().addOutput(copy);
  }
  /// The nodes of an operator, in order.
  std::vector<Node*> all(OpName op) {
    std::vector<Node*> found;
    for (Node& node : graph().nodes())
      if (node.op() == op)
        found.push_back(&node);
    return found;
  }

  std::unique_ptr<Model> model;
  std::vector<SpelledAttention> attentions;

private:
  static Node* above(Value* value, llvm::ArrayRef<llvm::StringRef> wanted) {
    for (unsigned steps = 0; value && value->producer() && steps < 12; ++steps) {
      Node* producer = value->producer();
      if (llvm::is_contained(wanted, producer->op().type()))
        return producer;
      value = producer->operand(0);
    }
    throw std::runtime_error("the model does not spell its attention as expected");
  }
  static Node* below(Value* value, llvm::StringRef wanted) {
    for (unsigned steps = 0; value && steps < 6; ++steps) {
      Node* reader = &value->uses().begin()->user();
      if (reader->op().type() == wanted)
        return reader;
      value = &reader->result();
    }
    throw std::runtime_error("the model does not spell its attention as expected");
  }
  static SpelledAttention locate(Node& softmax) {
    SpelledAttention attention;
    attention.softmax = &softmax;
    attention.masking = above(softmax.operand(0), {"Add"});
    attention.scaling = above(attention.masking->operand(0), {"Mul", "Div"});
    attention.scores = above(attention.scaling->operand(0), {"MatMul"});
    attention.weighing = below(&softmax.result(), "MatMul");
    attention.keyConcat = above(attention.scores->operand(1), {"Concat"});
    attention.valueConcat = above(attention.weighing->operand(1), {"Concat"});
    return attention;
  }
};

} // namespace kvopt
