// Small attention graphs in text, executed before and after a pipeline at several sizes of every
// symbol.
#pragma once

#include "driver/toolkit.h"
#include "ir/shapes/shape_inference.h"
#include "ir/text/reader.h"
#include "passes/pass_manager.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

namespace kvopt {
using SymbolValues = std::map<std::string, int64_t, std::less<>>;

struct SpelledCase {
  std::string name;
  /// Nodes, after the signature and constants that all spellings share.
  std::string nodes;
  /// Operators that may not be left, space separated.
  std::string gone;
  int64_t opset = 17;
};

inline void PrintTo(const SpelledCase& spelling, std::ostream* out) { *out << spelling.name; }

/// Q[B,8,S,16], keys and values of 2 or 1 heads in several layouts, their flattened forms.
inline constexpr const char* signature = R"(
spelling (float[B, 8, S, 16] q, float[B, 2, T, 16] k, float[B, 2, T, 12] v, float[B, 1, S, T] mask,
          float[B, 2, 16, T] kt, float[B, T, 2, 16] ks, float[B, 1, T, 16] k1, float[B, 1, T, 12] v1,
          float[B, 8, T, 16] k8, float[B, 8, T, 12] v8, float["8*B", 1, T] bias,
          float[B, 2, 4, S, 16] q5, float[B, S, 16] q3, float[B, T, 16] k3, float[B, T, 12] v3,
          float[B, S, 128] projected)
  => (float[?, ?, ?, ?] o)
  <int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[5] times = {1, 1, 4, 1, 1},
   int64[5] ones = {1, 1, 1, 1, 1}, int64[5] before = {1, 4, 1, 1, 1}, int64[4] mk = {0, 8, -1, 16},
   int64[4] mv = {0, 8, -1, 12}, int64[4] mkt = {0, 8, 16, -1}, int64[5] inner = {1, 1, 1, 4, 1},
   int64[4] tokens = {0, -1, 8, 16}, int64[8] order = {0, 0, 0, 0, 1, 1, 1, 1},
   int64[4] all = {1, 8, 1, 1}, int64[4] four = {1, 4, 1, 1}, int64[1] eight = {8},
   int64[1] open = {-1}, int64[1] wk = {16}, int64[1] wv = {12}, float scale = {0.25},
   float unit = {1.0}, float[1] unit1 = {1.0}>)";

class SpelledGraphTest : public testing::TestWithParam<SpelledCase> {
protected:
  std::unique_ptr<ir::Model> read() {
    std::string text = "<ir_version: 8, opset_import: [\"\" : " + std::to_string(GetParam().opset) +
                       ", \"ai.kvopt\" : 1]>" + signature + "\n{" + GetParam().nodes + "}\n";
    auto model = ir::readText(text, toolkit.ops);
    if (!model)
      throw std::runtime_error(takeDiagnostic(model.takeError()).str());
    return std::move(*model);
  }

  void run(ir::Model& model, const std::string& pipeline) {
    passes::PassContext context(toolkit.rules, toolkit.targets);
    passes::PassManager manager(toolkit.passes, {});
    llvm::Error error = manager.addPipeline(pipeline);
    if (!error)
      error = manager.run(model, context);
    if (error)
      throw std::runtime_error(takeDiagnostic(std::move(error)).str());
  }

  std::vector<std::byte> execute(const ir::Model& model, const SymbolValues& sizes) {
    std::mt19937_64 random{5};
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> data;
    std::vector<runtime::NamedView> inputs;
    data.reserve(model.graph().inputs().size());
    for (const std::unique_ptr<ir::Value>& input : model.graph().inputs()) {
      runtime::Extents shape;
      size_t count = 1;
      for (const ir::Dim& extent : input->type().shape()) {
        shape.push_back(extent
                            .evaluate([&](llvm::StringRef name) {
                              return std::optional<int64_t>(sizes.find(name.str())->second);
                            })
                            .value());
        count *= static_cast<size_t>(shape.back());
      }
      data.emplace_back(std::max<size_t>(count, 1));
      for (float& element : data.back())
        element = normal(random);
      auto* bytes = reinterpret_cast<std::byte*>(data.back().data());
      inputs.push_back(
          {input->name(), runtime::TensorView::contiguous(ir::ElementType::Float, shape, bytes)});
    }
    auto executor = runtime::Executor::create(model, toolkit.runner->kernels());
    if (!executor)
      throw std::runtime_error(takeDiagnostic(executor.takeError()).str());
    auto outputs = (*executor)->run(inputs);
    if (!outputs)
      throw std::runtime_error(takeDiagnostic(outputs.takeError()).str());
    const runtime::TensorView& view = outputs->front().view;
    shapeOfResult.assign(view.shape.begin(), view.shape.end());
    return {view.data, view.data + view.byteSize()};
  }

  /// Bit for bit with a tolerance of 0.
  void expectSame(const ir::Model& a, const ir::Model& b, float tolerance = 0) {
    for (const SymbolValues& sizes :
         {SymbolValues{{"B", 1}, {"S", 1}, {"T", 1}}, // no past
          SymbolValues{{"B", 2}, {"S", 1}, {"T", 5}}, SymbolValues{{"B", 2}, {"S", 3}, {"T", 3}},
          SymbolValues{{"B", 3}, {"S", 4}, {"T", 9}},
          SymbolValues{{"B", 1}, {"S", 7}, {"T", 17}}}) {
      SCOPED_TRACE("B " + std::to_string(sizes.find("B")->second) + " S " +
                   std::to_string(sizes.find("S")->second) + " T " +
                   std::to_string(sizes.find("T")->second));
      std::vector<std::byte> first = execute(a, sizes);
      std::vector<int64_t> firstShape = shapeOfResult;
      std::vector<std::byte> second = execute(b, sizes);
      EXPECT_EQ(firstShape, shapeOfResult);
      ASSERT_GT(first.size(), 0u);
      if (tolerance == 0) {
        EXPECT_TRUE(first == second) << "the bytes differ";
        continue;
      }
      auto* x = reinterpret_cast<const float*>(first.data());
      auto* y = reinterpret_cast<const float*>(second.data());
      for (size_t i = 0; i < std::min(first.size(), second.size()) / sizeof(float); ++i)
        ASSERT_NEAR(x[i], y[i], tolerance) << "at " << i;
    }
  }

  static unsigned count(const ir::Model& model, llvm::StringRef op) {
    unsigned found = 0;
    for (const ir::Node& node : model.graph().nodes())
      found += node.op().str() == op ? 1 : 0;
    return found;
  }

  void expectGone(const ir::Model& model) {
    llvm::SmallVector<llvm::StringRef, 4> names;
    llvm::StringRef(GetParam().gone).split(names, ' ', -1, false);
    for (llvm::StringRef name : names)
      EXPECT_EQ(count(model, name), 0u) << name.str() << " is left";
  }

  driver::Toolkit toolkit;
  std::vector<int64_t> shapeOfResult;
};

/// Sizes as vectors of one element.
inline const std::string sizes = R"(
  b = Shape <start = 0, end = 1> (q)
  s = Shape <start = 2, end = 3> (q)
  t = Shape <start = 2, end = 3> (k)
)";
inline const std::string sizes13 = R"(
  at0 = Constant <value = int64[1] {0}> ()
  at2 = Constant <value = int64[1] {2}> ()
  q_shape = Shape (q)
  k_shape = Shape (k)
  b = Gather <axis = 0> (q_shape, at0)
  s = Gather <axis = 0> (q_shape, at2)
  t = Gather <axis = 0> (k_shape, at2)
)";
/// Queries, keys and values of all heads in three axes.
inline const std::string flat = R"(
  q_flat = Concat <axis = 0> (open, s, wk)
  k_flat = Concat <axis = 0> (open, t, wk)
  v_flat = Concat <axis = 0> (open, t, wv)
  qf = Reshape (q, q_flat)
  kf = Reshape (k8, k_flat)
  vf = Reshape (v8, v_flat)
  ktf = Transpose <perm = [0, 2, 1]> (kf)
  scores = MatMul (qf, ktf)
  wide = Concat <axis = 0> (b, eight, s, t)
  narrow = Concat <axis = 0> (open, s, t)
  back = Concat <axis = 0> (b, eight, s, wv)
)";
inline const std::string attention = R"(
  scores = MatMul (q, keys)
  scaled = Mul (scores, scale)
  masked = Add (scaled, mask)
  p = Softmax <axis = -1> (masked)
  o = MatMul (p, v8)
)";

inline std::string spellingName(const testing::TestParamInfo<SpelledCase>& parameter) {
  return parameter.param.name;
}

} // namespace kvopt
