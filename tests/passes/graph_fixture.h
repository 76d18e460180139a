// Graphs built by hand over a handful of operators, for tests of the pattern language.
#pragma once

#include "ir/model.h"
#include "ir/op.h"
#include "passes/pattern/matcher.h"

#include "llvm/ADT/SmallString.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace kvopt {

class GraphTest : public ::testing::Test {
protected:
  GraphTest() {
    for (const char* name : {"Add", "Mul", "Div", "Sub", "MatMul"})
      define(ops, name, 1).in("a").in("b").out("c");
    for (const char* name : {"Relu", "Neg", "Sigmoid", "Tanh", "Identity", "Shape"})
      define(ops, name, 1).in("x").out("y");
    define(ops, "Softmax", 13).in("x").out("y").attr("axis", int64_t{-1});
    define(ops, "Transpose", 1).in("x").out("y").attr("perm", ir::AttributeKind::Ints);
    define(ops, "Concat", 4).in("x*").out("y").requiredAttr("axis", ir::AttributeKind::Int);
    define(ops, "Unsqueeze", 1).in("x").out("y").attr("axes", ir::AttributeKind::Ints);
    define(ops, "Split", 1).in("x").out("y*").attr("axis", int64_t{0});
    define(ops, "Clip", 1)
        .in("x")
        .in("low?")
        .in("high?")
        .out("y")
        .attr("mode", "hard")
        .attr("slope", 0.5f);
    define(ops, "If", 1).in("condition").out("y*").attr("then_branch", ir::AttributeKind::Graph);
    model.opsets[""] = 17;
  }

  ir::Graph& graph() { return model.graph(); }

  static ir::Shape symbols(std::initializer_list<const char*> extents) {
    ir::Shape shape;
    for (const char* extent : extents)
      shape.push_back(*ir::Dim::parse(extent));
    return shape;
  }
  static ir::TensorType floats(std::initializer_list<const char*> extents) {
    return {ir::ElementType::Float, symbols(extents)};
  }

  ir::Value& input(const char* name, ir::TensorType type = floats({"B", "H", "S", "D"})) {
    return graph().addInput(name, std::move(type));
  }
  ir::Value& scalar(const char* name, double value = 2.0) {
    return graph().addInitializer(name, ir::floatScalar(ir::ElementType::Float, value));
  }
  /// A node `/name` whose one result is `name`, of the type of its first operand.
  ir::Value& node(ir::OpName op, llvm::ArrayRef<ir::Value*> operands, const char* name,
                  std::vector<ir::NamedAttribute> attributes = {}) {
    ir::Node& created = graph().create(op, operands, {llvm::StringRef(name)});
    created.setName(std::string("/") + name);
    for (ir::NamedAttribute& attribute : attributes)
      created.setAttribute(attribute.name, std::move(attribute.value));
    if (!operands.empty() && operands.front())
      created.result().setType(operands.front()->type());
    return created.result();
  }
  static ir::NamedAttribute intAttribute(const char* name, int64_t value) {
    return {name, ir::Attribute::ofInt(value)};
  }
  static std::vector<ir::NamedAttribute> one(ir::NamedAttribute attribute) {
    std::vector<ir::NamedAttribute> list;
    list.push_back(std::move(attribute));
    return list;
  }
  /// A node with a subgraph that reads `captured`.
  ir::Value& holder(ir::Value& captured, const char* name) {
    ir::Node& node = graph().create("If", {&captured}, {llvm::StringRef(name)});
    auto body = std::make_unique<ir::Graph>(model.context(), graph().opsets(), &node);
    ir::Node& inner = body->create("Neg", {&captured}, {llvm::StringRef("inner_result")});
    inner.setName("/inner");
    body->addOutput(inner.result());
    std::vector<std::unique_ptr<ir::Graph>> bodies;
    bodies.push_back(std::move(body));
    node.setAttribute("then_branch", ir::Attribute::ofGraphs(std::move(bodies), false));
    node.setName(std::string("/") + name);
    return node.result();
  }

  std::optional<pattern::Match> tryMatch(const pattern::P& pattern, ir::Value& root,
                                         pattern::Constraints constraints = {},
                                         pattern::MatcherOptions options = {}) {
    miss = pattern::NearMiss();
    uint64_t edits = model.context().edits();
    pattern::CompiledPattern compiled(pattern, std::move(constraints));
    auto match = pattern::matchAt(compiled, *root.producer(), options, &miss, &gaveUp);
    EXPECT_EQ(model.context().edits(), edits) << "matching edited the graph";
    // What nobody listens to must come out the same.
    auto unheard = pattern::matchAt(compiled, *root.producer(), options);
    EXPECT_EQ(unheard.has_value(), match.has_value());
    EXPECT_EQ(miss.isSet && !match, !match) << "a failure without a reason";
    return match;
  }

  /// One line a node: `y = Op(a, b)`; then the outputs.
  std::string text() {
    std::string lines;
    for (const ir::Node& node : graph().nodes()) {
      for (const ir::Value& result : node.results())
        lines += result.name().str() + " ";
      lines += "= " + node.op().str() + "(";
      for (const ir::Use& use : node.operands())
        lines += (use.operandIndex() ? ", " : "") + (use.value() ? use.value()->name().str() : "");
      lines += ")\n";
    }
    lines += "->";
    for (const ir::Value* output : graph().outputs())
      lines += " " + output->name().str();
    for (const auto& initializer : graph().initializers())
      lines += " [" + initializer->name().str() + "]";
    return lines + "\n";
  }

  /// Operands before readers, and no name twice.
  void expectWellFormed() {
    std::set<std::string> names;
    auto take = [&](const ir::Value& value) {
      EXPECT_TRUE(names.insert(value.name().str()).second) << value.name().str();
    };
    for (const auto& value : graph().inputs())
      take(*value);
    for (const auto& value : graph().initializers())
      take(*value);
    for (const ir::Node& node : graph().nodes()) {
      for (const ir::Use& use : node.operands())
        if (use.value()) {
          EXPECT_TRUE(names.count(use.value()->name().str()))
              << node.describe() << " reads " << use.value()->name().str() << " too early";
        }
      for (const ir::Value& result : node.results())
        if (!result.isAbsent())
          take(result);
    }
    for (const ir::Value* output : graph().outputs())
      EXPECT_TRUE(names.count(output->name().str())) << output->name().str();
  }

  ir::OpRegistry ops;
  ir::Model model{ops};
  pattern::NearMiss miss;
  bool gaveUp = false;
};

} // namespace kvopt
