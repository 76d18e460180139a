// ONNX's Attention where rows and keys are not aligned as in a decoder: causal ranges that count
// from the first key, windows, lengths shorter than the query, steps that append more or fewer rows
// than the query has. Rewritten for every target, and compared with what it was.
#include "ir/text/reader.h"
#include "tests/equivalence/manifest_step.h"
#include "tests/runtime/kernels/kernel_harness.h"

#include <cmath>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace runtime;

namespace {

struct Positions {
  const char* name;
  const char* attributes;
  int64_t rows = 4;    ///< of the query
  int64_t newKeys = 4; ///< appended, or all without a past
  int64_t past = 0;
  const char* mask = ""; ///< type and extents of a mask, or ""
  /// nonpad_kv_seqlen, one a batch row; -1: none is given.
  double lengths[2] = {-1, -1};
  /// Targets that refuse it, each with a space after it.
  const char* refusedBy = "";
};

void PrintTo(const Positions& positions, std::ostream* out) { *out << positions.name; }

constexpr Positions allPositions[] = {
    {"CausalFromTheFirstKey", "is_causal = 1", 4, 6},
    {"CausalWithFewerKeys", "is_causal = 1", 6, 4},
    {"CausalWithFewerKeysAndAMask", "is_causal = 1", 6, 4, 0, "float[6, 4]"},
    {"Window", "is_causal = 1, left_window_size = 1", 5, 5},
    {"WindowFromTheFirstKey", "is_causal = 1, left_window_size = 1", 4, 7},
    {"WindowWithFewerKeys", "left_window_size = 1, right_window_size = 0", 7, 3},
    {"WindowOverLaterKeys", "left_window_size = 1", 4, 6},
    {"WindowOnBothSides", "left_window_size = 2, right_window_size = 1", 5, 7},
    {"WindowAheadOnly", "right_window_size = 1", 5, 7, 0, "bool[5, 7]"},
    {"WindowOnBothSidesWithAMask", "left_window_size = 1, right_window_size = 1", 5, 7, 0,
     "float[2, 1, 5, 7]"},
    {"NegativeOffset", "is_causal = 1", 4, 6, 0, "", {2, 5}},
    {"NegativeOffsetWithAWindow", "is_causal = 1, left_window_size = 0", 4, 6, 0, "", {0, 3}},
    {"LengthsWithoutKeys", "", 3, 6, 0, "", {0, 6}},
    {"LengthsWithAWindowAhead", "left_window_size = 1, right_window_size = 1", 3, 6, 0, "", {2, 6}},
    {"Past", "is_causal = 1", 4, 4, 5},
    {"PastAndWindow", "is_causal = 1, left_window_size = 2", 4, 4, 5},
    {"PastAndWindowOnBothSides",
     "left_window_size = 2, right_window_size = 1",
     4,
     4,
     5,
     "",
     {-1, -1},
     "ort-gqa "},
    {"MoreNewRows", "", 4, 6, 5, "", {-1, -1}, "ort-gqa "},
    {"MoreNewRowsWithAMask", "", 4, 6, 5, "float[4, 11]", {-1, -1}, "ort-gqa "},
    {"MoreNewRowsWithABooleanMask", "", 4, 6, 5, "bool[2, 1, 4, 11]", {-1, -1}, "ort-gqa "},
    {"MoreNewRowsCausal", "is_causal = 1", 4, 6, 5},
    {"MoreNewRowsCausalWithAMask", "is_causal = 1", 4, 6, 5, "float[2, 4, 4, 11]"},
    {"MoreNewRowsWithAWindow", "is_causal = 1, left_window_size = 3", 4, 6, 5},
    {"FewerNewRows", "is_causal = 1", 4, 2, 5, "", {-1, -1}, "kvopt onnx24 ort-gqa "},
    {"FewerNewRowsWithAWindow",
     "is_causal = 1, left_window_size = 2",
     4,
     2,
     5,
     "",
     {-1, -1},
     "kvopt onnx24 ort-gqa "},
};

class AttentionPositions : public testing::TestWithParam<Positions> {
protected:
  static constexpr int64_t capacity = 16;

  static bool hasLengths() { return GetParam().lengths[0] >= 0; }

  std::string text() const {
    const Positions& p = GetParam();
    std::string inputs = formatted("float[2, 4, {0}, 8] q, float[2, 2, {1}, 8] k, "
                                   "float[2, 2, {1}, 8] v",
                                   p.rows, p.newKeys);
    if (*p.mask)
      inputs += formatted(", {} mask", p.mask);
    if (p.past)
      inputs += formatted(", float[2, 2, {0}, 8] past_k, float[2, 2, {0}, 8] past_v", p.past);
    if (hasLengths())
      inputs += ", int64[2] lengths";
    std::string outputs = formatted("float[2, 4, {}, 8] o", p.rows);
    if (p.past)
      outputs += formatted(", float[2, 2, {0}, 8] present_k, float[2, 2, {0}, 8] present_v",
                           p.past + p.newKeys);
    return formatted("<ir_version: 10, opset_import: [\"\" : 25]>\n"
                     "one ({}) => ({}) {{ {} = Attention <{}> (q, k, v, {}, {}, {}) }}",
                     inputs, outputs, p.past ? "o, present_k, present_v" : "o", p.attributes,
                     *p.mask ? "mask" : "\"\"", p.past ? "past_k, past_v" : "\"\", \"\"",
                     hasLengths() ? "lengths" : "\"\"");
  }

  std::unique_ptr<Model> read() {
    auto model = valueOrThrow(readText(text(), toolkit.ops));
    successOrThrow(inferShapes(model->graph()));
    return model;
  }

  NamedTensors inputsOf(const Model& model) {
    NamedTensors views;
    unsigned seed = 1;
    for (const auto& input : model.graph().inputs()) {
      Extents shape;
      for (const Dim& extent : input->type().shape())
        shape.push_back(*extent.value());
      const ElementType element = input->type().elementType();
      TestTensor tensor(element, shape);
      if (element == ElementType::Int64)
        tensor = TestTensor(
            element, shape,
            std::vector<double>(std::begin(GetParam().lengths), std::end(GetParam().lengths)));
      else if (element == ElementType::Bool)
        // Row 1 sees nothing.
        for (int64_t i = 0; i < tensor.count(); ++i)
          tensor.set(i, i / shape.back() % GetParam().rows != 1 && i % 3 != 0 ? 1.0 : 0.0);
      else
        tensor = randomTensor(element, shape, seed++);
      views.emplace(input->name().str(), tensor.view());
      tensors.push_back(std::move(tensor));
    }
    return views;
  }

  Toolkit toolkit;
  std::vector<TestTensor> tensors;
};

TEST_P(AttentionPositions, EveryTargetComputesTheSame) {
  auto original = read();
  const NamedTensors inputs = inputsOf(*original);
  std::vector<NamedView> views;
  for (const auto& [name, view] : inputs)
    views.push_back({name, view});
  auto executor = valueOrThrow(Executor::create(*original, toolkit.runner->kernels()));
  const std::vector<Tensor> results = valueOrThrow(executor->run(views));
  NamedTensors outputs;
  for (size_t i = 0; i < results.size(); ++i) {
    outputs.emplace(original->graph().outputs()[i]->name().str(), results[i].view);
    for (int64_t j = 0; j < results[i].view.elementCount(); ++j)
      ASSERT_FALSE(std::isnan(results[i].view.as<float>()[j])) << "output " << i;
  }
  for (const std::string target :
       {"kvopt", "onnx24", "onnx23", "ort-gqa", "primitive", "blocks-plain:4"}) {
    SCOPED_TRACE(target);
    auto model = read();
    PassContext context(toolkit.rules, toolkit.targets);
    PassManager manager(toolkit.passes, {});
    successOrThrow(manager.addPipeline(
        formatted("{},lower{{to={} capacity={}}}", recoveryPipeline, target, capacity)));
    llvm::Error error = manager.run(*model, context);
    // These are for caches.
    const bool needsPast = target == "kvopt" || target == "ort-gqa" || target == "blocks-plain:4";
    if ((needsPast && GetParam().past == 0) ||
        std::string(GetParam().refusedBy).find(target + " ") != std::string::npos) {
      EXPECT_TRUE(static_cast<bool>(error)) << "is rewritten";
      llvm::consumeError(std::move(error));
      continue;
    }
    successOrThrow(std::move(error));
    for (const Node& node : model->graph().nodes())
      EXPECT_FALSE(target == "primitive" && node.is("Attention"));
    EXPECT_TRUE(ManifestStep(inputs, outputs, capacity)
                    .agrees(*model, *context.manifest, toolkit.runner->kernels(), {1e-5, 0}));
  }
}

INSTANTIATE_TEST_SUITE_P(All, AttentionPositions, testing::ValuesIn(allPositions),
                         [](const auto& parameter) { return parameter.param.name; });

} // namespace
} // namespace kvopt
