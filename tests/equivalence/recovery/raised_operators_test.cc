// Fused attention operators against what is raised from them, on random operands: outputs and
// presents, at lengths that differ by batch row.
#include "driver/recover.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace runtime;

namespace {

struct Input {
  const char* name;
  TestTensor tensor;
};

/// A graph of one call: `call` with its attributes and operands.
struct Case {
  std::string call;
  std::vector<Input> inputs;
  /// Declared types of the results, as "float[2, 3, 16] out".
  std::string results;
  /// Result names of the call, as "out, present_k, present_v".
  std::string names;
  std::string constants;
  int64_t opset = 17;
};

TestTensor random(Extents shape, unsigned seed) {
  return randomTensor(ElementType::Float, std::move(shape), seed);
}
TestTensor int32s(Extents shape, llvm::ArrayRef<double> values) {
  return {ElementType::Int32, std::move(shape), values};
}

std::unique_ptr<Model> modelOf(const Case& c, const Toolkit& toolkit) {
  std::string inputs;
  for (const Input& input : c.inputs) {
    std::string extents;
    for (int64_t extent : input.tensor.shape())
      extents += (extents.empty() ? "" : ", ") + std::to_string(extent);
    inputs +=
        formatted("{}{}{} {}", inputs.empty() ? "" : ", ", onnxName(input.tensor.element()).str(),
                  extents.empty() ? "" : "[" + extents + "]", input.name);
  }
  std::string text = formatted("<ir_version: 8, opset_import: [\"\" : {}, \"com.microsoft\" : 1]>\n"
                               "one ({}) => ({}) <{}> {{ {} = {} }}",
                               c.opset, inputs, c.results, c.constants, c.names, c.call);
  auto model = valueOrThrow(readText(text, toolkit.ops));
  successOrThrow(inferShapes(model->graph()));
  return model;
}

std::vector<Tensor> outputsOf(const Model& model, const Case& c, const Toolkit& toolkit) {
  auto executor = valueOrThrow(Executor::create(model, toolkit.runner->kernels()));
  std::vector<NamedView> views;
  for (const Input& input : c.inputs)
    views.push_back({input.name, input.tensor.view()});
  return valueOrThrow(executor->run(views));
}

class RaisedOperators : public testing::Test {
protected:
  /// The call raises to one Sdpa, and computes the same.
  void expectSame(const Case& c) {
    SCOPED_TRACE(c.call);
    try {
      std::vector<Tensor> before = outputsOf(*modelOf(c, toolkit), c, toolkit);
      auto model = modelOf(c, toolkit);
      PassContext context(toolkit.rules, toolkit.targets);
      PassManager manager(toolkit.passes, {});
      successOrThrow(manager.addPipeline("raise-attention,eliminate-dead-nodes"));
      successOrThrow(manager.run(*model, context));
      unsigned sdpas = 0;
      for (const Node& node : model->graph().nodes()) {
        sdpas += node.is("ai.kvopt::Sdpa");
        EXPECT_NE(node.op().domain(),
                  node.is("com.microsoft::RotaryEmbedding") ? "" : "com.microsoft");
      }
      EXPECT_EQ(sdpas, 1u);
      std::vector<Tensor> after = outputsOf(*model, c, toolkit);
      ASSERT_EQ(before.size(), after.size());
      for (size_t i = 0; i < before.size(); ++i) {
        ASSERT_EQ(before[i].view.shape, after[i].view.shape) << "output " << i;
        Comparison comparison =
            valueOrThrow(compareTensors(after[i].view, before[i].view, Tolerance{1e-5, 0}));
        EXPECT_TRUE(comparison.isWithin()) << "output " << i << " by " << comparison.maxAbs;
      }
    } catch (const std::runtime_error& error) {
      ADD_FAILURE() << error.what();
    }
  }

  Toolkit toolkit;
};

/// B 2, H 4, G 2, D 8; rows of past and of each batch row's own past.
struct Grouped {
  int64_t rows = 1;
  int64_t past = 5;
  std::vector<double> lengths = {5, 2}; ///< of the pasts
  bool packed = true;
  std::string attributes;
  std::string operands = ", , , , "; ///< from cos_cache on
  std::vector<Input> more;
};

Case groupedCase(const Grouped& g) {
  Case c;
  std::vector<double> totals;
  for (double length : g.lengths)
    totals.push_back(length + static_cast<double>(g.rows) - 1);
  const int64_t all = g.past + g.rows;
  if (g.packed) {
    c.inputs.push_back({"q", random({2, g.rows, 64}, 1)});
  } else {
    c.inputs.push_back({"q", random({2, g.rows, 32}, 1)});
    c.inputs.push_back({"k", random({2, g.rows, 16}, 2)});
    c.inputs.push_back({"v", random({2, g.rows, 16}, 3)});
  }
  c.inputs.push_back({"past_k", random({2, 2, g.past, 8}, 4)});
  c.inputs.push_back({"past_v", random({2, 2, g.past, 8}, 5)});
  c.inputs.push_back({"seqlens_k", int32s({2}, totals)});
  c.inputs.push_back({"total", int32s({1}, {static_cast<double>(all)})});
  for (const Input& input : g.more)
    c.inputs.push_back(input);
  c.call = formatted("com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2{}> "
                     "(q, {}, past_k, past_v, seqlens_k, total{})",
                     g.attributes, g.packed ? ", " : "k, v", g.operands);
  c.results = formatted("float[2, {0}, 32] out, float[2, 2, {1}, 8] present_k, "
                        "float[2, 2, {1}, 8] present_v",
                        g.rows, all);
  c.names = "out, present_k, present_v";
  return c;
}

TEST_F(RaisedOperators, GroupedByLength) {
  for (bool packed : {true, false})
    for (const Grouped& shape :
         {Grouped{1, 5, {5, 2}}, Grouped{3, 5, {5, 5}}, Grouped{1, 1, {1, 0}}}) {
      Grouped g = shape;
      g.packed = packed;
      g.operands = "";
      expectSame(groupedCase(g));
      g.attributes = ", scale = 0.3, softcap = 2.0";
      expectSame(groupedCase(g));
      g.attributes = ", local_window_size = 3";
      expectSame(groupedCase(g));
      g.attributes = ", local_window_size = 1, smooth_softmax = 1";
      expectSame(groupedCase(g));
    }
}

/// A first prompt whose shorter rows are padded on the right.
TEST_F(RaisedOperators, GroupedPrompt) {
  Grouped g{4, 0, {0, -2}};
  g.operands = "";
  expectSame(groupedCase(g));
}

TEST_F(RaisedOperators, GroupedWithoutPast) {
  Case c;
  c.inputs = {{"q", random({2, 3, 64}, 1)},
              {"seqlens_k", int32s({2}, {2, 2})},
              {"total", int32s({1}, {3})},
              {"cos", random({16, 4}, 6)},
              {"sin", random({16, 4}, 7)}};
  c.call = "com.microsoft.GroupQueryAttention <num_heads = 4, kv_num_heads = 2, do_rotary = 1> "
           "(q, , , , , seqlens_k, total, cos, sin)";
  c.results = "float[2, 3, 32] out, float[2, 2, 3, 8] present_k, float[2, 2, 3, 8] present_v";
  c.names = "out, present_k, present_v";
  expectSame(c);
}

TEST_F(RaisedOperators, GroupedRotary) {
  for (int64_t half : {4, 2})
    for (const char* interleaved : {"", ", rotary_interleaved = 1"})
      for (const Grouped& shape : {Grouped{1, 5, {5, 2}}, Grouped{3, 4, {4, 4}}}) {
        Grouped g = shape;
        g.attributes = formatted(", do_rotary = 1{}", interleaved);
        g.operands = ", cos, sin";
        g.more.push_back({"cos", random({16, half}, 6)});
        g.more.push_back({"sin", random({16, half}, 7)});
        expectSame(groupedCase(g));
        g.operands += ", positions";
        std::vector<double> positions;
        for (int64_t i = 0; i < 2 * g.rows; ++i)
          positions.push_back(static_cast<double>(i * 5 % 16));
        g.more.push_back({"positions", int64s({2, g.rows}, positions)});
        expectSame(groupedCase(g));
      }
}

TEST_F(RaisedOperators, GroupedBiasAndSinks) {
  for (const Extents& shape : {Extents{2, 4, 3, 8}, Extents{1, 1, 3, 8}}) {
    Grouped g{3, 5, {5, 5}};
    g.operands = ", , , , bias";
    g.more.push_back({"bias", random(shape, 8)});
    expectSame(groupedCase(g));
    g.operands = ", , , , bias, sinks";
    g.more.push_back({"sinks", random({4}, 9)});
    expectSame(groupedCase(g));
  }
}

/// B 2, H 4, D 8.
Case multiHeadCase(int64_t rows, int64_t keys, int64_t past, const std::string& attributes,
                   const std::string& operands, std::vector<Input> more) {
  Case c;
  c.inputs.push_back({"q", random({2, rows, 32}, 1)});
  c.inputs.push_back({"k", random({2, keys, 32}, 2)});
  c.inputs.push_back({"v", random({2, keys, 24}, 3)});
  for (Input& input : more)
    c.inputs.push_back(std::move(input));
  c.call = formatted("com.microsoft.MultiHeadAttention <num_heads = 4{}> (q, k, v{})", attributes,
                     operands);
  c.results = formatted("float[2, {0}, 24] out, float[2, 4, {1}, 8] present_k, "
                        "float[2, 4, {1}, 6] present_v",
                        rows, keys + past);
  c.names = "out, present_k, present_v";
  return c;
}

TEST_F(RaisedOperators, MultiHead) {
  std::vector<double> padding(2 * 7, 1);
  padding[0] = padding[1] = padding[13] = 0;
  auto pasts = [] {
    return std::vector<Input>{{"past_k", random({2, 4, 4, 8}, 4)},
                              {"past_v", random({2, 4, 4, 6}, 5)}};
  };
  expectSame(multiHeadCase(3, 3, 0, "", "", {}));
  expectSame(multiHeadCase(3, 5, 0, ", scale = 0.2", "", {}));
  expectSame(multiHeadCase(3, 3, 0, ", unidirectional = 1", ", bias", {{"bias", random({88}, 6)}}));
  expectSame(multiHeadCase(3, 3, 4, "", ", , , , past_k, past_v", pasts()));
  expectSame(multiHeadCase(3, 3, 4, ", unidirectional = 1", ", , , , past_k, past_v", pasts()));
  std::vector<Input> masked = pasts();
  masked.push_back({"padding", int32s({2, 7}, padding)});
  expectSame(
      multiHeadCase(3, 3, 4, ", unidirectional = 1", ", , padding, , past_k, past_v", masked));
  masked.push_back({"added", random({2, 1, 3, 7}, 7)});
  expectSame(multiHeadCase(3, 3, 4, ", mask_filter_value = -3.0",
                           ", , padding, added, past_k, past_v", masked));
  expectSame(multiHeadCase(3, 3, 0, "", ", , lengths", {{"lengths", int32s({2}, {3, 1})}}));
  std::vector<double> pairs;
  for (int i = 0; i < 2 * 3 * 7; ++i)
    pairs.push_back(i % 3 != 0);
  std::vector<Input> byRow = pasts();
  byRow.push_back({"padding", int32s({2, 3, 7}, pairs)});
  expectSame(multiHeadCase(3, 3, 4, "", ", , padding, , past_k, past_v", byRow));
}

TEST_F(RaisedOperators, MultiHeadLayouts) {
  Case c;
  c.opset = 12;
  c.names = "out";
  c.results = "float[2, 3, 32] out";
  c.inputs = {{"q", random({2, 3, 4, 3, 8}, 1)}};
  c.call = "com.microsoft.MultiHeadAttention <num_heads = 4> (q)";
  expectSame(c);
  c.inputs = {{"q", random({2, 3, 32}, 1)}, {"kv", random({2, 5, 4, 2, 8}, 2)}};
  c.call = "com.microsoft.MultiHeadAttention <num_heads = 4> (q, kv)";
  expectSame(c);
  c.inputs = {
      {"q", random({2, 3, 32}, 1)}, {"k", random({2, 4, 5, 8}, 2)}, {"v", random({2, 4, 5, 8}, 3)}};
  c.call = "com.microsoft.MultiHeadAttention <num_heads = 4> (q, k, v)";
  expectSame(c);
}

/// A bias of the queries beside keys and values that are split by heads.
TEST_F(RaisedOperators, MultiHeadQueryBias) {
  Case c;
  c.names = "out";
  c.results = "float[2, 3, 4] out";
  c.inputs = {
      {"q", random({2, 3, 4}, 1)}, {"k", random({2, 2, 5, 2}, 2)}, {"v", random({2, 2, 5, 2}, 3)}};
  c.call = "com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v, bias)";
  c.constants = "float[12] bias = {1, -2, 0.5, 3, 0, 0, 0, 0, 0, 0, 0, 0}";
  expectSame(c);
}

TEST_F(RaisedOperators, FusedProjection) {
  Case c;
  c.names = "out, present";
  auto run = [&](int64_t rows, int64_t past, const char* attributes, const char* operands,
                 std::vector<Input> more) {
    c.inputs = {{"x", random({2, rows, 12}, 1)}, {"w", random({12, 96}, 2)}};
    for (Input& input : more)
      c.inputs.push_back(std::move(input));
    c.call = formatted("com.microsoft.Attention <num_heads = 4{}> (x, w{})", attributes, operands);
    c.results = formatted("float[2, {}, 32] out, float[2, 2, 4, {}, 8] present", rows, rows + past);
    expectSame(c);
  };
  const Input bias{"b", random({96}, 3)};
  const Input past{"past", random({2, 2, 4, 4, 8}, 4)};
  const Input mask{"mask", int32s({2, 7}, {0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1})};
  for (int64_t opset : {11, 17}) {
    c.opset = opset;
    run(3, 0, "", ", b", {bias});
    run(3, 0, ", unidirectional = 1, scale = 0.4", ", b", {bias});
    run(3, 4, ", unidirectional = 1", ", b, mask, past", {bias, mask, past});
    run(3, 4, ", unidirectional = 1", ", , mask, past", {mask, past});
    run(3, 0, "", ", b, lengths", {bias, {"lengths", int32s({2}, {3, 1})}});
    run(3, 0, "", ", b, lengths, , added",
        {bias, {"lengths", int32s({2}, {3, 1})}, {"added", random({2, 4, 3, 3}, 5)}});
  }
  c.names = "out";
  c.results = "float[2, 3, 16] out";
  c.inputs = {{"x", random({2, 3, 12}, 1)}, {"w", random({12, 80}, 2)}};
  c.call = "com.microsoft.Attention <num_heads = 4, qkv_hidden_sizes = [32, 32, 16]> (x, w)";
  expectSame(c);
}

} // namespace
} // namespace kvopt
