// Small attentions in text, each executed as it is written and after raising, on random inputs of
// several sizes, with rows without any allowed key and with large scores.
#pragma once

#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "tests/equivalence/rewritten_model.h"

#include <cmath>
#include <limits>

namespace kvopt {
struct Spelling {
  const char* name;
  /// Nodes that compute o [B,4,S,16] of q, k, v, kt, mask (additive), allowed, padding and bias.
  const char* body;
  /// What computes the same where the runtime has no kernel for the spelling.
  const char* reference = nullptr;
  double tolerance = 1e-5;
  int opset = 17;
  bool isHalf = false;
};

inline void PrintTo(const Spelling& spelling, std::ostream* stream) { *stream << spelling.name; }

inline std::string modelText(int opset, const std::string& body) {
  return "<ir_version: 8, opset_import: [\"\" : " + std::to_string(opset) + R"(]>
attention (float[B, 4, S, 16] q, float[B, 4, T, 16] k, float[B, 4, T, 16] v, float[B, S, 64] hidden,
           float[B, 1, S, T] mask, bool[S, T] allowed, bool[B, 1, 1, T] padding,
           float[B, 4, S, T] bias)
  => (float[B, 4, S, 16] o)
  <float quarter = {0.25}, float[1] four = {4.0}, float[1, 1, 1, 1] root = {0.5}, float five = {5.0},
   float fifth = {0.2}, float zero = {0.0}, float[1] zeros = {0.0}, float one = {1.0},
   float lowest = {-3.4028234663852886e38}, float ten_thousand = {-10000.0},
   float billion = {-1e9}, float[1] minus_infinity = {-inf}, float16 lowest_half = {-65504.0},
   float16 zero_half = {0.0}, int64[4] split = {0, 0, 4, 16}, int64[1] last = {-1},
   int64[1] end = {9223372036854775807}, float ratio = {0.5}, bool training = {0},
   float[4] sink_values = {0.5, -1.0, 2.0, 0.0}, int64[4] head_axis = {1, 4, 1, 1},
   int64[1] single = {1}, int64[1] begin = {0}, float[64] projection_bias = {)" +
         [] {
           std::string numbers;
           for (int i = 0; i < 64; ++i)
             numbers += (i ? ", " : "") + std::to_string(0.01 * i);
           return numbers;
         }() +
         R"(}>
{
  kt = Transpose <perm = [0, 1, 3, 2]> (k)
)" + body +
         "\n}\n";
}

struct SpellingSizes {
  int64_t batch, rows, tokens;
};

/// Values of all graph inputs.
class Inputs {
public:
  Inputs(const SpellingSizes& sizes, double queryFactor) : random(17) {
    auto [b, s, t] = sizes;
    floats("q", {b, 4, s, 16}, queryFactor);
    floats("k", {b, 4, t, 16}, 1.0);
    floats("v", {b, 4, t, 16}, 1.0);
    floats("hidden", {b, s, 64}, queryFactor);
    floats("bias", {b, 4, s, t}, 2.0);
    // The last row of the first batch row sees nothing, nor does row 0 by `allowed`.
    std::vector<float>& mask = floats("mask", {b, 1, s, t}, 0.0);
    for (int64_t i = 0; i < b * s * t; ++i) {
      bool hidden = (s > 1 && i / t == s - 1) || draw() < 0.3;
      mask[static_cast<size_t>(i)] = hidden ? std::numeric_limits<float>::lowest() : 0.0f;
    }
    std::vector<uint8_t>& allowed = booleans("allowed", {s, t});
    for (int64_t i = 0; i < s * t; ++i)
      allowed[static_cast<size_t>(i)] = !(s > 1 && i < t) && draw() < 0.6;
    std::vector<uint8_t>& padding = booleans("padding", {b, 1, 1, t});
    for (uint8_t& bit : padding)
      bit = draw() < 0.7;
  }

  std::vector<runtime::NamedView> views() {
    std::vector<runtime::NamedView> list;
    for (auto& [name, tensor] : realTensors)
      list.push_back({name, runtime::TensorView::contiguous(
                                ir::ElementType::Float, tensor.first,
                                reinterpret_cast<std::byte*>(tensor.second.data()))});
    for (auto& [name, tensor] : booleanTensors)
      list.push_back({name, runtime::TensorView::contiguous(
                                ir::ElementType::Bool, tensor.first,
                                reinterpret_cast<std::byte*>(tensor.second.data()))});
    return list;
  }

private:
  double draw() { return std::uniform_real_distribution<double>(0.0, 1.0)(random); }

  std::vector<float>& floats(const char* name, std::vector<int64_t> shape, double factor) {
    auto& tensor = realTensors[name];
    tensor.first = std::move(shape);
    size_t count = 1;
    for (int64_t extent : tensor.first)
      count *= static_cast<size_t>(extent);
    for (size_t i = 0; i < count; ++i)
      tensor.second.push_back(static_cast<float>(factor * (2.0 * draw() - 1.0)));
    return tensor.second;
  }

  std::vector<uint8_t>& booleans(const char* name, std::vector<int64_t> shape) {
    auto& tensor = booleanTensors[name];
    tensor.first = std::move(shape);
    size_t count = 1;
    for (int64_t extent : tensor.first)
      count *= static_cast<size_t>(extent);
    tensor.second.resize(count);
    return tensor.second;
  }

  std::mt19937_64 random;
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<float>>> realTensors;
  std::map<std::string, std::pair<std::vector<int64_t>, std::vector<uint8_t>>> booleanTensors;
};

class RaisedSpellingTest : public testing::TestWithParam<Spelling> {
protected:
  std::unique_ptr<ir::Model> read(const char* body) {
    auto model = valueOrThrow(ir::readText(modelText(GetParam().opset, body), toolkit.ops));
    successOrThrow(ir::inferShapes(model->graph()));
    return model;
  }

  std::unique_ptr<ir::Model> raisedModel() {
    auto model = read(GetParam().body);
    passes::PassContext context(toolkit.rules, toolkit.targets);
    context.nearMisses = &misses;
    passes::PassManager manager(toolkit.passes, {});
    successOrThrow(manager.addPipeline(
        "infer-shapes,normalize,raise-attention,normalize,eliminate-dead-nodes"));
    successOrThrow(manager.run(*model, context));
    return model;
  }

  std::string reasons() const {
    std::string text;
    for (const pattern::NearMiss& miss : misses.ranked())
      text += miss.rule + " at " + miss.root + ": " + miss.failure.str() + "\n";
    return text;
  }

  void expectTheSame() {
    auto original = read(GetParam().reference ? GetParam().reference : GetParam().body);
    auto raised = raisedModel();
    unsigned attentions = 0;
    for (const ir::Node& node : raised->graph().nodes()) {
      attentions += node.is("ai.kvopt::Sdpa");
      EXPECT_FALSE(node.is("Softmax") || node.is("Exp") || node.is("MatMul")) << node.describe();
    }
    ASSERT_EQ(attentions, 1u) << reasons();
    auto before = valueOrThrow(runtime::Executor::create(*original, toolkit.runner->kernels()));
    auto after = valueOrThrow(runtime::Executor::create(*raised, toolkit.runner->kernels()));
    const SpellingSizes allSizes[] = {{1, 1, 1}, {1, 1, 7}, {2, 3, 3}, {2, 5, 17}, {1, 4, 33}};
    for (const SpellingSizes& sizes : allSizes)
      // With the larger factor scores reach about 100, where neighboring floats are 8e-6 apart.
      // float16 sums of such scores and -65504 are not -65504 any more but multiples of 32.
      for (double factor : {1.0, 16.0}) {
        if (factor > 1.0 && GetParam().isHalf)
          continue;
        Inputs inputs(sizes, factor);
        auto expected = valueOrThrow(before->run(inputs.views()));
        auto found = valueOrThrow(after->run(inputs.views()));
        ASSERT_EQ(expected[0].view.shape, found[0].view.shape);
        double tolerance = GetParam().tolerance * (factor > 1.0 ? 5.0 : 1.0);
        const float* wanted = expected[0].view.as<float>();
        const float* given = found[0].view.as<float>();
        double worst = 0.0;
        for (int64_t i = 0; i < expected[0].view.elementCount(); ++i) {
          // A row without any allowed key is NaN where the original has no guard, and zeros here.
          double target = std::isnan(wanted[i]) ? 0.0 : static_cast<double>(wanted[i]);
          worst = std::max(worst, std::fabs(target - static_cast<double>(given[i])));
          ASSERT_FALSE(std::isnan(given[i]));
        }
        EXPECT_LE(worst, tolerance) << "B " << sizes.batch << " S " << sizes.rows << " T "
                                    << sizes.tokens << " factor " << factor;
      }
  }

  driver::Toolkit toolkit;
  pattern::NearMissList misses;
};

} // namespace kvopt
