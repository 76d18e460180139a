// What rules recognize is compared with what the exported graph computes: a recovered model that is
// made wrong is refused.
#include "driver/recover.h"
#include "ir/model.h"
#include "ir/shapes/shape_inference.h"
#include "tests/equivalence/rewritten_model.h"

#include <limits>

namespace kvopt {
using namespace driver;
using namespace ir;

namespace {

/// Makes the canonical attention say something else than the exported graph.
struct PlantedFault {
  const char* name;
  void (*plant)(Graph& graph, Node& attention);
};

void PrintTo(const PlantedFault& fault, std::ostream* out) { *out << fault.name; }

Value& before(Graph& graph, Node& attention, const char* op, llvm::ArrayRef<Value*> operands,
              std::vector<NamedAttribute> attributes = {}) {
  Node& node = graph.createFresh(OpName(op), operands, 1, &attention);
  for (NamedAttribute& attribute : attributes)
    node.setAttribute(attribute.name, std::move(attribute.value));
  llvm::cantFail(inferNode(node));
  return node.result();
}

Value& ints(Graph& graph, llvm::ArrayRef<int64_t> values) {
  return graph.addConstant("planted", int64Tensor(values));
}

/// The operand with the entries of an axis in another order.
template <unsigned operand, int64_t axis>
void reorder(Graph& graph, Node& attention, llvm::ArrayRef<int64_t> order) {
  std::vector<NamedAttribute> attributes;
  attributes.push_back({"axis", Attribute::ofInt(axis)});
  attention.setOperand(operand, &before(graph, attention, "Gather",
                                        {attention.operand(operand), &ints(graph, order)},
                                        std::move(attributes)));
}

template <unsigned operand, int64_t axis> void reverse(Graph& graph, Node& attention) {
  attention.setOperand(operand, &before(graph, attention, "Slice",
                                        {attention.operand(operand), &ints(graph, {-1}),
                                         &ints(graph, {std::numeric_limits<int64_t>::min()}),
                                         &ints(graph, {axis}), &ints(graph, {-1})}));
}

/// The operand with its first row behind all others.
template <unsigned operand> void roll(Graph& graph, Node& attention) {
  Value* rows = attention.operand(operand);
  Value& axis = ints(graph, {2});
  Value& one = ints(graph, {1});
  Value& first = before(graph, attention, "Slice", {rows, &ints(graph, {0}), &one, &axis});
  Value& rest = before(graph, attention, "Slice",
                       {rows, &one, &ints(graph, {std::numeric_limits<int64_t>::max()}), &axis});
  std::vector<NamedAttribute> attributes;
  attributes.push_back({"axis", Attribute::ofInt(2)});
  attention.setOperand(operand,
                       &before(graph, attention, "Concat", {&rest, &first}, std::move(attributes)));
}

template <unsigned operand> void takeFromOtherLayer(Graph& graph, Node& attention) {
  for (Node& node : graph.nodes())
    if (node.op() == attention.op() && &node != &attention)
      attention.setOperand(operand, node.operand(operand));
}

void exchangeKeysAndValues(Graph&, Node& attention) {
  Value* keys = attention.operand(1);
  attention.setOperand(1, attention.operand(2));
  attention.setOperand(2, keys);
}

template <int64_t rows> void narrow(Graph&, Node& attention) {
  attention.setAttribute("causal", Attribute::ofInt(1));
  attention.setAttribute("window", Attribute::ofInt(rows));
}

void dropMask(Graph&, Node& attention) {
  llvm::SmallVector<Value*, 4> operands{attention.operand(0), attention.operand(1),
                                        attention.operand(2)};
  attention.setOperands(operands);
  attention.removeAttribute("causal");
}

/// Causal, without the padding that the mask hides, too.
void keepCausalOnly(Graph& graph, Node& attention) {
  dropMask(graph, attention);
  attention.setAttribute("causal", Attribute::ofInt(1));
}

void negateMask(Graph& graph, Node& attention) {
  attention.setOperand(3, &before(graph, attention, "Neg", {attention.operand(3)}));
}

template <unsigned operand> void takeFirstHead(Graph& graph, Node& attention) {
  reorder<operand, 1>(graph, attention, {0, 0});
}

template <unsigned operand> void exchangeHeads(Graph& graph, Node& attention) {
  reorder<operand, 1>(graph, attention, {1, 0});
}

const PlantedFault faults[] = {
    {"keys_of_the_other_head", exchangeHeads<1>},
    {"values_of_the_other_head", exchangeHeads<2>},
    {"keys_of_one_head", takeFirstHead<1>},
    {"values_of_one_head", takeFirstHead<2>},
    {"key_rows_in_reverse", reverse<1, 2>},
    {"value_rows_in_reverse", reverse<2, 2>},
    {"key_rows_moved_by_one", roll<1>},
    {"value_rows_moved_by_one", roll<2>},
    {"keys_of_other_batch_rows", reverse<1, 0>},
    {"values_of_other_batch_rows", reverse<2, 0>},
    {"key_columns_in_reverse", reverse<1, 3>},
    {"value_columns_in_reverse", reverse<2, 3>},
    {"keys_of_another_layer", takeFromOtherLayer<1>},
    {"values_of_another_layer", takeFromOtherLayer<2>},
    {"keys_and_values_exchanged", exchangeKeysAndValues},
    {"a_window_of_one_row", narrow<1>},
    {"a_window_of_five_rows", narrow<5>},
    {"no_mask", dropMask},
    {"no_padding", keepCausalOnly},
    {"the_mask_with_the_other_sign", negateMask},
    {"mask_columns_in_reverse", reverse<3, 3>},
};

class CheckAttention : public testing::TestWithParam<PlantedFault> {
protected:
  /// Recovers the shipped decoder up to the check, with `plant` done to its last attention.
  void run(void (*plant)(Graph& graph, Node& attention)) {
    model =
        valueOrThrow(importModel(modelFolder("llama_gqa-ts14-eager") + "/model.onnx", toolkit.ops));
    const llvm::StringRef pipeline(recoveryPipeline);
    const auto [recovery, rest] = pipeline.split(",check-attention");
    EXPECT_FALSE(rest.empty());
    runPasses(recovery.str());
    Node* last = nullptr;
    for (Node& node : model->graph().nodes())
      if (node.op() == OpName("ai.kvopt::Sdpa"))
        last = &node;
    ASSERT_NE(last, nullptr);
    if (plant)
      plant(model->graph(), *last);
    runPasses("check-attention,detect-sites");
  }

  void runPasses(const std::string& pipeline) {
    passes::PassManager manager(toolkit.passes, {});
    successOrThrow(manager.addPipeline(pipeline));
    successOrThrow(manager.run(*model, context));
  }

  Toolkit toolkit;
  passes::PassContext context{toolkit.rules, toolkit.targets};
  std::unique_ptr<Model> model;
};

class SoundAttention : public CheckAttention {};

TEST_P(SoundAttention, Agrees) {
  run(GetParam().plant);
  EXPECT_EQ(context.statistics["check-attention"]["agreed"], 2);
  for (const analysis::AttentionSite& site : context.sites)
    EXPECT_TRUE(site.isMatched());
}

INSTANTIATE_TEST_SUITE_P(All, SoundAttention, testing::Values(PlantedFault{"none", nullptr}));

class PlantedFaults : public CheckAttention {};

TEST_P(PlantedFaults, AreFound) {
  run(GetParam().plant);
  ASSERT_EQ(context.sites.size(), 2U);
  const auto& failure = context.sites[1].failure;
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->code, pattern::ReasonCode::EvaluatedOtherwise) << failure->str();
  EXPECT_FALSE(failure->found.empty());
}

INSTANTIATE_TEST_SUITE_P(All, PlantedFaults, testing::ValuesIn(faults),
                         [](const auto& parameter) { return std::string(parameter.param.name); });

} // namespace
} // namespace kvopt
