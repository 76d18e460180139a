// Random graphs, evaluated as the analysis does and by the runtime's kernels: numbers are the same,
// and so are sums of elements, once the elements are known.
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "passes/analysis/evaluation/evaluation.h"
#include "runtime/exec/executor.h"
#include "tests/equivalence/recovery/random_graph.h"
#include "tests/equivalence/rewritten_model.h"

#include <map>

namespace kvopt {
using namespace analysis;

namespace {

/// What the runtime computes for each value, as numbers.
class RuntimeNumbers {
public:
  RuntimeNumbers(const ir::Model& model, const RandomGraph& graph, unsigned seed,
                 const driver::Toolkit& toolkit) {
    auto executor = valueOrThrow(runtime::Executor::create(model, toolkit.runner->kernels()));
    std::mt19937 random(seed);
    std::vector<runtime::Tensor> tensors;
    std::vector<runtime::NamedView> views;
    for (const RandomValue& value : graph.values()) {
      if (!value.isInput)
        continue;
      const bool isInteger = value.type == 'i';
      tensors.push_back(valueOrThrow(runtime::Tensor::create(
          executor->allocator(), isInteger ? ir::ElementType::Int64 : ir::ElementType::Float,
          runtime::Extents(value.shape.begin(), value.shape.end()))));
      const runtime::TensorView& view = tensors.back().view;
      for (int64_t i = 0; i < view.elementCount(); ++i)
        if (isInteger)
          view.as<int64_t>()[i] = static_cast<int64_t>(random() % 11) - 5;
        else
          view.as<float>()[i] = static_cast<float>(random() % 1000) / 1000.0F;
      views.push_back({value.name, view});
      note(value.name, view);
    }
    std::vector<runtime::Tensor> outputs = valueOrThrow(executor->run(views));
    for (size_t i = 0; i < outputs.size(); ++i)
      note(model.graph().outputs()[i]->name().str(), outputs[i].view);
  }

  const NumberTensor& of(const std::string& name) const { return known.at(name); }
  bool has(const std::string& name) const { return known.count(name) != 0; }

private:
  void note(const std::string& name, const runtime::TensorView& view) {
    NumberTensor tensor;
    tensor.extents.assign(view.shape.begin(), view.shape.end());
    for (int64_t i = 0; i < view.elementCount(); ++i)
      switch (view.element) {
      case ir::ElementType::Int64:
        tensor.numbers.push_back(static_cast<double>(view.as<int64_t>()[i]));
        break;
      case ir::ElementType::Bool:
        tensor.numbers.push_back(view.as<bool>()[i] ? 1 : 0);
        break;
      default:
        tensor.numbers.push_back(static_cast<double>(view.as<float>()[i]));
      }
    known[name] = std::move(tensor);
  }

  std::map<std::string, NumberTensor> known;
};

class EvaluatedGraphs : public testing::TestWithParam<unsigned> {
protected:
  /// Compares one value; counts what is known of it.
  void compare(const RandomValue& described, const ir::Value& value, Evaluation& evaluation,
               const RuntimeNumbers& computed) {
    SCOPED_TRACE(described.name);
    const NumberTensor& expected = computed.of(described.name);
    const Extents* extents = evaluation.extents(value);
    ASSERT_NE(extents, nullptr);
    ASSERT_EQ(*extents, expected.extents);
    if (described.type != 'f') {
      const NumberTensor* found = evaluation.numbers(value);
      ++(found ? known : unknown);
      if (!found)
        return;
      ASSERT_EQ(found->extents, expected.extents);
      for (size_t i = 0; i < expected.numbers.size(); ++i)
        // Sums of floats are rounded in another order.
        if (described.type == 'n')
          ASSERT_NEAR(found->numbers[i], expected.numbers[i],
                      1e-6 * (1 + std::abs(expected.numbers[i])))
              << "element " << i;
        else
          ASSERT_EQ(found->numbers[i], expected.numbers[i]) << "element " << i;
      return;
    }
    std::vector<LinearForm> forms;
    ASSERT_TRUE(evaluation.traceAll(value, forms));
    ASSERT_EQ(forms.size(), expected.numbers.size());
    for (size_t i = 0; i < forms.size(); ++i) {
      double sum = forms[i].constant, size = std::abs(sum);
      for (const ElementTerm& term : forms[i].terms) {
        ASSERT_TRUE(computed.has(term.block->name().str())) << term.block->name().str();
        isOwnBlock |= term.block == &value;
        const double part =
            term.weight *
            computed.of(term.block->name().str()).numbers.at(static_cast<size_t>(term.element));
        sum += part;
        size += std::abs(part);
      }
      ASSERT_NEAR(sum, expected.numbers[i], 1e-5 * size + 1e-6) << "element " << i;
    }
    ++(isOwnBlock ? opaque : followed);
    isOwnBlock = false;
  }

  driver::Toolkit toolkit;
  size_t known = 0, unknown = 0, followed = 0, opaque = 0;
  bool isOwnBlock = false;
};

TEST_P(EvaluatedGraphs, AgreeWithTheRuntime) {
  std::map<std::string, unsigned> used;
  constexpr unsigned graphs = 200;
  for (unsigned i = 0; i < graphs; ++i) {
    const unsigned seed = GetParam() * graphs + i;
    const RandomGraph graph(seed, 14);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + graph.text());
    const auto model = valueOrThrow(ir::readText(graph.text(), toolkit.ops));
    llvm::cantFail(ir::inferShapes(model->graph()));
    const RuntimeNumbers computed(*model, graph, seed, toolkit);
    EvaluationPoint point;
    std::map<std::string, const ir::Value*> values;
    for (const auto& input : model->graph().inputs()) {
      values[input->name().str()] = input.get();
      if (input->type().elementType() == ir::ElementType::Int64)
        point.inputs[input.get()] = computed.of(input->name().str());
    }
    for (const ir::Value* output : model->graph().outputs())
      values[output->name().str()] = output;
    Evaluation evaluation(model->graph(), std::move(point));
    for (const RandomValue& described : graph.values()) {
      compare(described, *values.at(described.name), evaluation, computed);
      if (HasFatalFailure())
        return;
    }
    for (const std::string& name : graph.operatorsUsed())
      ++used[name];
  }
  // Nearly everything is known.
  EXPECT_GT(known, 500U);
  EXPECT_LT(unknown * 50, known);
  EXPECT_GT(followed, 100U);
  EXPECT_LT(opaque, followed);
  EXPECT_GE(used.size(), 40U);
  for (const auto& [name, count] : used)
    EXPECT_GE(count, 2U) << name;
}

INSTANTIATE_TEST_SUITE_P(Seeds, EvaluatedGraphs, testing::Range(0U, 5U));

} // namespace
} // namespace kvopt
