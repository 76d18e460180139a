// A shipped decoder that a test changes: where its attentions are, and how to edit around them.
#pragma once

#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt {

/// One attention as the exporter spelled it.
struct SpelledAttention {
  ir::Node* softmax = nullptr;
  ir::Node* masking = nullptr;     ///< Add(scores, mask)
  ir::Node* scaling = nullptr;     ///< Mul or Div of the scores
  ir::Node* scores = nullptr;      ///< MatMul(q, k transposed)
  ir::Node* weighing = nullptr;    ///< MatMul(probabilities, v)
  ir::Node* keyConcat = nullptr;   ///< Concat(past, new)
  ir::Node* valueConcat = nullptr; ///< Concat(past, new)
};

class MutatedDecoder {
public:
  MutatedDecoder(const std::string& path, const driver::Toolkit& toolkit)
      : model(valueOrThrow(ir::importModel(path, toolkit.ops))) {
    successOrThrow(ir::inferShapes(model->graph()));
    for (ir::Node& node : graph().nodes())
      if (node.op() == "Softmax")
        attentions.push_back(locate(node));
  }

  ir::Graph& graph() { return model->graph(); }

  /// A node after the producer of its first operand, or before all others.
  ir::Value& add(ir::OpName op, std::vector<ir::Value*> operands,
                 std::vector<ir::NamedAttribute> attributes = {}) {
    ir::Node* last = nullptr;
    for (ir::Value* operand : operands)
      if (ir::Node* producer = operand ? operand->producer() : nullptr)
        if (!last || last->comesBefore(*producer))
          last = producer;
    auto& nodes = graph().nodes();
    auto next = last ? std::next(last->getIterator()) : nodes.begin();
    ir::Node& node = graph().createFresh(op, operands, 1, next == nodes.end() ? nullptr : &*next);
    for (ir::NamedAttribute& attribute : attributes)
      node.setAttribute(attribute.name, std::move(attribute.value));
    llvm::cantFail(ir::inferNode(node));
    return node.result();
  }

  ir::Value& number(double value) {
    return graph().addConstant("number", ir::floatScalar(ir::ElementType::Float, value));
  }
  ir::Value& integers(llvm::ArrayRef<int64_t> values) {
    return graph().addConstant("integers", ir::int64Tensor(values));
  }
  ir::Value& floats(llvm::ArrayRef<int64_t> values) {
    return add("Cast", {&integers(values)}, attributeList("to", static_cast<int64_t>(1)));
  }
  ir::Value& input(llvm::StringRef name) {
    for (const std::unique_ptr<ir::Value>& candidate : graph().inputs())
      if (candidate->name() == name)
        return *candidate;
    throw std::runtime_error("no input " + name.str());
  }
  /// A positive float scalar that depends on what the model is fed.
  ir::Value& dataDependentScalar() {
    ir::Value& positions =
        add("Cast", {&input("position_ids")}, attributeList("to", static_cast<int64_t>(1)));
    ir::Value& flat = add("Reshape", {&positions, &integers({-1})});
    ir::Value& most = add("ReduceMax", {&flat}, attributeList("keepdims", static_cast<int64_t>(0)));
    return add("Add", {&most, &number(1.0)});
  }
  static std::vector<ir::NamedAttribute> attributeList(const char* name, int64_t value) {
    std::vector<ir::NamedAttribute> attributes;
    attributes.push_back({name, ir::Attribute::ofInt(value)});
    return attributes;
  }
  static std::vector<ir::NamedAttribute> permutation(std::vector<int64_t> axes) {
    std::vector<ir::NamedAttribute> attributes;
    attributes.push_back({"perm", ir::Attribute::ofInts(std::move(axes))});
    return attributes;
  }

  /// Puts `build(old)` in the place of one operand.
  void wrapOperand(ir::Node& node, unsigned index,
                   llvm::function_ref<ir::Value&(ir::Value&)> build) {
    ir::Value& replacement = build(*node.operand(index));
    node.setOperand(index, &replacement);
    pattern::restoreOrder(graph());
  }
  /// Puts `build(result)` in the place of a node's result, for all its readers.
  void wrapResult(ir::Node& node, llvm::function_ref<ir::Value&(ir::Value&)> build) {
    ir::Value& result = node.result();
    std::vector<std::pair<ir::Node*, unsigned>> readers;
    for (const ir::Use& use : result.uses())
      readers.emplace_back(&use.user(), use.operandIndex());
    ir::Value& replacement = build(result);
    for (auto [reader, index] : readers)
      reader->setOperand(index, &replacement);
    pattern::restoreOrder(graph());
  }
  void expose(ir::Value& value) {
    ir::Value& copy = add("Identity", {&value});
    graph().addOutput(copy);
  }
  /// The nodes of an operator, in order.
  std::vector<ir::Node*> all(ir::OpName op) {
    std::vector<ir::Node*> found;
    for (ir::Node& node : graph().nodes())
      if (node.op() == op)
        found.push_back(&node);
    return found;
  }

  std::unique_ptr<ir::Model> model;
  std::vector<SpelledAttention> attentions;

private:
  static ir::Node* above(ir::Value* value, llvm::ArrayRef<llvm::StringRef> wanted) {
    for (unsigned steps = 0; value && value->producer() && steps < 12; ++steps) {
      ir::Node* producer = value->producer();
      if (llvm::is_contained(wanted, producer->op().type()))
        return producer;
      value = producer->operand(0);
    }
    throw std::runtime_error("the model does not spell its attention as expected");
  }
  static ir::Node* below(ir::Value* value, llvm::StringRef wanted) {
    for (unsigned steps = 0; value && steps < 6; ++steps) {
      ir::Node* reader = &value->uses().begin()->user();
      if (reader->op().type() == wanted)
        return reader;
      value = &reader->result();
    }
    throw std::runtime_error("the model does not spell its attention as expected");
  }
  static SpelledAttention locate(ir::Node& softmax) {
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
