// What rounding and the range of floats add to the real numbers of a run.
#pragma once

#include "driver/toolkit.h"
#include "ir/shapes/shape_inference.h"
#include "tests/equivalence/rules/compared_run.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringMap.h"

#include <cmath>
#include <memory>

namespace kvopt::pairs {

/// A model whose values are all outputs. It tells whether floats decide what the model computes: a
/// comparison of numbers that differ by no more than rounding, a number that is too large or too
/// small for a float, or a function at its limit.
class FloatTrace {
public:
  /// Adds nodes and outputs to the model, which has no other use from then on.
  FloatTrace(ir::Model& model, const driver::Toolkit& toolkit) : graph(model.graph()) {
    for (ir::Node& node : llvm::make_early_inc_range(graph.nodes())) {
      if (isRealComparison(node))
        differences.push_back(
            &graph.createFresh(ir::OpName("Sub"), {node.operand(0), node.operand(1)}, 1, &node)
                 .result());
      for (ir::Value& result : node.results())
        if (!result.isGraphOutput() && result.type().elementType() == ir::ElementType::Float)
          graph.addOutput(result);
    }
    for (ir::Value* difference : differences) {
      llvm::consumeError(ir::inferNode(*difference->producer()));
      graph.addOutput(*difference);
    }
    runtime::ExecutorOptions options;
    options.threads = 1;
    if (auto made = runtime::Executor::create(model, toolkit.runner->kernels(), options))
      executor = std::move(*made);
    else
      llvm::consumeError(made.takeError());
  }

  /// Whether floats decide the run on these inputs. False if the model cannot run.
  bool isDecidedByFloats(llvm::ArrayRef<runtime::NamedView> inputs) {
    if (!executor)
      return false;
    auto outputs = executor->run(inputs);
    if (!outputs) {
      llvm::consumeError(outputs.takeError());
      return false;
    }
    values.clear();
    for (const runtime::NamedView& input : inputs)
      values[input.name] = input.view;
    for (size_t i = 0; i < outputs->size(); ++i)
      values[graph.outputs()[i]->name()] = (*outputs)[i].view;
    return llvm::any_of(differences, [&](const ir::Value* value) { return isClose(*value); }) ||
           llvm::any_of(graph.nodes(), [&](const ir::Node& node) { return leavesRange(node); });
  }

private:
  static bool isReal(const ir::Value* value) {
    return value && value->type().elementType() == ir::ElementType::Float;
  }

  static bool isRealComparison(const ir::Node& node) {
    constexpr const char* names[] = {"Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual"};
    return isReal(node.operand(0)) &&
           llvm::any_of(names, [&](const char* name) { return node.is(name); });
  }

  /// Whether a difference of operands is within rounding. That of a bound counts if it is zero,
  /// too: many numbers have the same bound.
  bool isClose(const ir::Value& difference) const {
    const bool isBound = readsBound(*difference.producer());
    return has(&difference, [&](double x) { return (x != 0 || isBound) && std::fabs(x) < 1e-4; });
  }

  bool has(const ir::Value* value, llvm::function_ref<bool(double)> holds) const {
    const auto at = values.find(value->name());
    if (at == values.end() || !isReal(value))
      return false;
    for (int64_t i = 0; i < at->second.elementCount(); ++i)
      if (holds(elementOf(at->second, i)))
        return true;
    return false;
  }

  /// Whether bounds contribute to an operand, so that it can be zero for many numbers: equality is
  /// for almost all numbers.
  static bool readsBound(const ir::Node& node) {
    constexpr const char* names[] = {"Max", "Min", "Clip", "Relu", "ReduceMax", "ReduceMin"};
    for (unsigned i = 0; i < node.operands().size(); ++i)
      if (const ir::Node* producer = node.operand(i) ? node.operand(i)->producer() : nullptr)
        if (llvm::any_of(names, [&](const char* name) { return producer->is(name); }) ||
            readsBound(*producer))
          return true;
    return false;
  }

  /// Whether a result is infinite or zero although no operand is, or is a limit of its function, or
  /// divides by zero that a bound has made.
  bool leavesRange(const ir::Node& node) const {
    constexpr const char* names[] = {
        "Exp",      "Mul",     "Div",  "Reciprocal", "Pow",
        "MatMul",   "Add",     "Sub",  "ReduceSum",  "ReduceSumSquare",
        "Softplus", "Sigmoid", "Tanh", "Erf",        "LayerNormalization"};
    if (llvm::none_of(names, [&](const char* name) { return node.is(name); }))
      return false;
    auto operandHas = [&](llvm::function_ref<bool(double)> holds) {
      for (unsigned i = 0; i < node.operands().size(); ++i)
        if (node.operand(i) && has(node.operand(i), holds))
          return true;
      return false;
    };
    auto isNotFinite = [](double x) { return !std::isfinite(x); };
    auto isZero = [](double x) { return x == 0; };
    if (operandHas(isNotFinite))
      return false;
    const ir::Value* result = &node.result(0);
    const bool divides = node.is("Div") || node.is("Reciprocal") || node.is("Pow");
    if (has(result, isNotFinite) && (!divides || !operandHas(isZero) || readsBound(node)))
      return true;
    if (has(result, isZero) && !operandHas(isZero) && !node.is("Add") && !node.is("Sub"))
      return true;
    const bool isBounded = node.is("Sigmoid") || node.is("Tanh") || node.is("Erf");
    return isBounded && has(result, [](double x) { return std::fabs(x) == 1; });
  }

  ir::Graph& graph;
  std::vector<ir::Value*> differences; ///< of the operands of comparisons of real numbers
  std::unique_ptr<runtime::Executor> executor;
  llvm::StringMap<runtime::TensorView> values;
};

} // namespace kvopt::pairs
