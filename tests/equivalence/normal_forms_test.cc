// Normalised and stripped graphs compute bit for bit what the spelled-out ones compute, at several
// sizes of every symbol.
#include "cli/command.h"
#include "ir/diagnostic.h"
#include "ir/shape_inference.h"
#include "ir/text_reader.h"
#include "passes/pass_manager.h"
#include "runtime/executor.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <random>

namespace kvopt {
namespace {

using Sizes = std::map<std::string, int64_t, std::less<>>;

struct Spelling {
  std::string name;
  /// Nodes, after the signature and constants that all spellings share.
  std::string nodes;
  /// Operators that may not be left, space separated.
  std::string gone;
  int64_t opset = 17;
};

void PrintTo(const Spelling& spelling, std::ostream* out) { *out << spelling.name; }

/// Q[B,8,S,16], keys and values of 2 or 1 heads in several layouts, their flattened forms.
constexpr const char* signature = R"(
spelling (float[B, 8, S, 16] q, float[B, 2, T, 16] k, float[B, 2, T, 12] v, float[B, 1, S, T] mask,
          float[B, 2, 16, T] kt, float[B, T, 2, 16] ks, float[B, 1, T, 16] k1, float[B, 1, T, 12] v1,
          float[B, 8, T, 16] k8, float[B, 8, T, 12] v8, float["8*B", 1, T] bias,
          float[B, 2, 4, S, 16] q5, float[B, S, 16] q3, float[B, T, 16] k3, float[B, T, 12] v3)
  => (float[?, ?, ?, ?] o)
  <int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}, int64[5] times = {1, 1, 4, 1, 1},
   int64[5] ones = {1, 1, 1, 1, 1}, int64[5] before = {1, 4, 1, 1, 1}, int64[4] mk = {0, 8, -1, 16},
   int64[4] mv = {0, 8, -1, 12}, int64[4] mkt = {0, 8, 16, -1}, int64[5] inner = {1, 1, 1, 4, 1},
   int64[4] tokens = {0, -1, 8, 16}, int64[8] order = {0, 0, 0, 0, 1, 1, 1, 1},
   int64[4] all = {1, 8, 1, 1}, int64[4] four = {1, 4, 1, 1}, int64[1] eight = {8},
   int64[1] open = {-1}, int64[1] wk = {16}, int64[1] wv = {12}, float scale = {0.25},
   float unit = {1.0}, float[1] unit1 = {1.0}>)";

class NormalFormsTest : public testing::TestWithParam<Spelling> {
protected:
  std::unique_ptr<Model> read() {
    std::string text = "<ir_version: 8, opset_import: [\"\" : " + std::to_string(GetParam().opset) +
                       ", \"ai.kvopt\" : 1]>" + signature + "\n{" + GetParam().nodes + "}\n";
    auto model = readText(text, registries.ops);
    if (!model)
      throw std::runtime_error(takeDiagnostic(model.takeError()).str());
    return std::move(*model);
  }

  void run(Model& model, const std::string& pipeline) {
    PassContext context(registries.rules, registries.targets);
    PassManager manager(registries.passes, {});
    llvm::Error error = manager.addPipeline(pipeline);
    if (!error)
      error = manager.run(model, context);
    if (error)
      throw std::runtime_error(takeDiagnostic(std::move(error)).str());
  }

  std::vector<std::byte> execute(const Model& model, const Sizes& sizes) {
    std::mt19937_64 random{5};
    std::normal_distribution<float> normal;
    std::vector<std::vector<float>> data;
    std::vector<NamedView> inputs;
    data.reserve(model.graph().inputs().size());
    for (const std::unique_ptr<Value>& input : model.graph().inputs()) {
      Extents shape;
      size_t count = 1;
      for (const Dim& extent : input->type().shape()) {
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
      inputs.push_back({input->name(), TensorView::contiguous(ElementType::Float, shape, bytes)});
    }
    auto executor = Executor::create(model, registries.kernels);
    if (!executor)
      throw std::runtime_error(takeDiagnostic(executor.takeError()).str());
    auto outputs = (*executor)->run(inputs);
    if (!outputs)
      throw std::runtime_error(takeDiagnostic(outputs.takeError()).str());
    const TensorView& view = outputs->front().view;
    shapeOfResult.assign(view.shape.begin(), view.shape.end());
    return {view.data, view.data + view.byteSize()};
  }

  void expectSameBytes(const Model& a, const Model& b) {
    for (const Sizes& sizes :
         {Sizes{{"B", 1}, {"S", 1}, {"T", 1}}, // no past
          Sizes{{"B", 2}, {"S", 1}, {"T", 5}}, Sizes{{"B", 2}, {"S", 3}, {"T", 3}},
          Sizes{{"B", 3}, {"S", 4}, {"T", 9}}, Sizes{{"B", 1}, {"S", 7}, {"T", 17}}}) {
      SCOPED_TRACE("B " + std::to_string(sizes.find("B")->second) + " S " +
                   std::to_string(sizes.find("S")->second) + " T " +
                   std::to_string(sizes.find("T")->second));
      std::vector<std::byte> first = execute(a, sizes);
      std::vector<int64_t> firstShape = shapeOfResult;
      std::vector<std::byte> second = execute(b, sizes);
      EXPECT_EQ(firstShape, shapeOfResult);
      ASSERT_GT(first.size(), 0u);
      EXPECT_TRUE(first == second) << "the bytes differ";
    }
  }

  static unsigned count(const Model& model, llvm::StringRef op) {
    unsigned found = 0;
    for (const Node& node : model.graph().nodes())
      found += node.op().str() == op ? 1 : 0;
    return found;
  }

  void expectGone(const Model& model) {
    llvm::SmallVector<llvm::StringRef, 4> names;
    llvm::StringRef(GetParam().gone).split(names, ' ', -1, false);
    for (llvm::StringRef name : names)
      EXPECT_EQ(count(model, name), 0u) << name.str() << " is left";
  }

  Registries registries;
  std::vector<int64_t> shapeOfResult;
};

using NormalizedTest = NormalFormsTest;

TEST_P(NormalizedTest, ComputesTheSameBytes) {
  std::unique_ptr<Model> spelled = read();
  run(*spelled, "infer-shapes");
  std::unique_ptr<Model> normal = read();
  run(*normal, "infer-shapes,normalize,eliminate-dead-nodes,infer-shapes");
  expectGone(*normal);
  expectSameBytes(*spelled, *normal);
}

using StrippedTest = NormalFormsTest;

TEST_P(StrippedTest, ComputesTheSameBytes) {
  std::unique_ptr<Model> raised = read();
  run(*raised, "infer-shapes");
  ASSERT_EQ(count(*raised, "ai.kvopt::Sdpa"), 1u);
  std::unique_ptr<Model> stripped = read();
  run(*stripped, "infer-shapes,strip-gqa-broadcast,normalize,eliminate-dead-nodes,infer-shapes");
  EXPECT_EQ(count(*stripped, "ai.kvopt::Sdpa"), 1u);
  expectGone(*stripped);
  expectSameBytes(*raised, *stripped);
}

/// Sizes as vectors of one element.
const std::string sizes = R"(
  b = Shape <start = 0, end = 1> (q)
  s = Shape <start = 2, end = 3> (q)
  t = Shape <start = 2, end = 3> (k)
)";
const std::string sizes13 = R"(
  at0 = Constant <value = int64[1] {0}> ()
  at2 = Constant <value = int64[1] {2}> ()
  q_shape = Shape (q)
  k_shape = Shape (k)
  b = Gather <axis = 0> (q_shape, at0)
  s = Gather <axis = 0> (q_shape, at2)
  t = Gather <axis = 0> (k_shape, at2)
)";
/// Queries, keys and values of all heads in three axes.
const std::string flat = R"(
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
const std::string attention = R"(
  scores = MatMul (q, keys)
  scaled = Mul (scores, scale)
  masked = Add (scaled, mask)
  p = Softmax <axis = -1> (masked)
  o = MatMul (p, v8)
)";

const Spelling normalized[] = {
    {"TransposeThatKnowsNoRank", sizes + R"(
  k_flat = Concat <axis = 0> (open, t, wk)
  kf = Reshape (k8, k_flat)
  ktf = Transpose <perm = [0, 2, 1]> (kf)
  shape = Concat <axis = 0> (b, eight, wk, t)
  keys = Reshape <allowzero = 1> (ktf, shape)
)" + attention,
     "Reshape Shape Concat"},
    {"MovementsThatUndoEachOther", sizes + R"(
  shape = Shape (k8)
  wide = Expand (k8, shape)
  k1x = Mul (wide, unit1)
  turned = Transpose <perm = [0, 2, 1, 3]> (k1x)
  twice = Transpose <perm = [0, 2, 3, 1]> (turned)
  thrice = Transpose <perm = [0, 3, 2, 1]> (twice)
  added = Unsqueeze (thrice, three)
  removed = Squeeze (added, three)
  keys0 = Div (removed, unit)
  keys = Transpose <perm = [0, 3, 2, 1]> (keys0)
)" + attention,
     "Expand Unsqueeze Squeeze Div"},
    {"FlattenedWithTheMaskInFourAxes", sizes + flat + R"(
  scaled = Mul (scores, scale)
  biased = Add (scaled, bias)
  scores4 = Reshape (biased, wide)
  masked = Add (scores4, mask)
  p4 = Softmax <axis = -1> (masked)
  p = Reshape (p4, narrow)
  of = MatMul (p, vf)
  o = Reshape (of, back)
)",
     ""},
    {"FlattenedWithTheSoftmaxInThreeAxes", sizes + flat + R"(
  scores4 = Reshape (scores, wide)
  masked = Add (scores4, mask)
  masked3 = Reshape (masked, narrow)
  p = Softmax <axis = 2> (masked3)
  of = MatMul (p, vf)
  o = Reshape (of, back)
)",
     "Reshape"},
    {"FlattenedBeforeShapeHadARange", sizes13 + flat + R"(
  scores4 = Reshape (scores, wide)
  masked = Add (scores4, mask)
  p4 = Softmax <axis = 3> (masked)
  p = Reshape (p4, narrow)
  of = MatMul (p, vf)
  o = Reshape (of, back)
)",
     "Reshape", 13},
    {"FlattenedWithAGuardAgainstNaN", sizes + flat + R"(
  scores4 = Reshape (scores, wide)
  masked = Add (scores4, mask)
  p4 = Softmax <axis = -1> (masked)
  isnan = IsNaN (p4)
  zero = Constant <value = float[1] {0.0}> ()
  guarded = Where (isnan, zero, p4)
  p = Reshape (guarded, narrow)
  of = MatMul (p, vf)
  o = Reshape (of, back)
)",
     "Reshape"},
    {"FlattenedWithProbabilitiesReadElsewhere", sizes + flat + R"(
  scores4 = Reshape (scores, wide)
  masked = Add (scores4, mask)
  masked3 = Reshape (masked, narrow)
  p = Softmax <axis = -1> (masked3)
  of = MatMul (p, vf)
  of4 = Reshape (of, back)
  greatest = ReduceMax <axes = [0, 1, 2], keepdims = 0> (p)
  o = Add (of4, greatest)
)",
     ""},
    {"FiveAxesWithSharedKeys", sizes + R"(
  kt5 = Unsqueeze (kt, two)
  v5 = Unsqueeze (v, two)
  mask5 = Unsqueeze (mask, one)
  scores = MatMul (q5, kt5)
  scaled = Mul (scores, scale)
  masked = Add (scaled, mask5)
  p = Softmax <axis = -1> (masked)
  o5 = MatMul (p, v5)
  shape = Concat <axis = 0> (b, eight, s, wv)
  o = Reshape (o5, shape)
)",
     ""},
    {"OneHeadInThreeAxes", sizes + R"(
  kt3 = Transpose <perm = [0, 2, 1]> (k3)
  mask3 = Squeeze (mask, one)
  scores = MatMul (q3, kt3)
  scaled = Mul (scores, scale)
  masked = Add (scaled, mask3)
  p = Softmax <axis = -1> (masked)
  o3 = MatMul (p, v3)
  o = Unsqueeze (o3, one)
)",
     "Squeeze"},
};

const std::string sdpa = R"(
  o = ai.kvopt.Sdpa <scale = 0.25> (q, kr, vr, mask)
)";
const std::string values = R"(
  v5 = Unsqueeze (v, two)
  vx = Expand (v5, times)
  vr = Reshape (vx, mv)
)";
const std::string keys5 = "  k5 = Unsqueeze (k, two)\n";

const Spelling stripped[] = {
    {"ExpandByAConstant", sizes + keys5 + values + R"(
  kx = Expand (k5, times)
  kr = Reshape (kx, mk)
)" + sdpa,
     "Expand Reshape"},
    {"ExpandByWhere", sizes + keys5 + values + R"(
  groups = Constant <value = int64[2] {2, 4}> ()
  asked = Concat <axis = 0> (b, groups, t, wk)
  length = Shape (asked)
  ones5 = ConstantOfShape <value = int64[1] {1}> (length)
  minus = Constant <value = int64 {-1}> ()
  open5 = Mul (ones5, minus)
  same = Equal (asked, open5)
  shape = Where (same, ones5, asked)
  kx = Expand (k5, shape)
  merged = Concat <axis = 0> (b, eight, t, wk)
  kr = Reshape (kx, merged)
)" + sdpa,
     "Expand Reshape Where"},
    {"Tile", sizes + keys5 + values + R"(
  kx = Tile (k5, times)
  kr = Reshape (kx, mk)
)" + sdpa,
     "Tile Expand Reshape"},
    {"ExpandAndTile", sizes + keys5 + values + R"(
  kw = Expand (k5, ones)
  kx = Tile (kw, times)
  kr = Reshape (kx, mk)
)" + sdpa,
     "Tile Expand Reshape"},
    {"Gather", sizes + R"(
  kr = Gather <axis = 1> (k, order)
  vr = Gather <axis = -3> (v, order)
)" + sdpa,
     "Gather"},
    {"ConcatWithItself", sizes + keys5 + values + R"(
  kx = Concat <axis = 2> (k5, k5, k5, k5)
  kr = Reshape (kx, mk)
)" + sdpa,
     "Concat Reshape"},
    {"OneHeadForAll", sizes + R"(
  kr = Tile (k1, all)
  like = Shape (v8)
  vr = Expand (v1, like)
)" + sdpa,
     "Tile Expand"},
    {"TransposedKeys", sizes + values + R"(
  kt5 = Unsqueeze (kt, two)
  ktx = Expand (kt5, times)
  ktr = Reshape (ktx, mkt)
  kr = Transpose <perm = [0, 1, 3, 2]> (ktr)
)" + sdpa,
     "Expand Reshape"},
    {"TokenMajorKeys", sizes + values + R"(
  ks5 = Unsqueeze (ks, three)
  ksx = Tile (ks5, inner)
  ksr = Reshape (ksx, tokens)
  kr = Transpose <perm = [0, 2, 1, 3]> (ksr)
)" + sdpa,
     "Tile Expand Reshape"},
    {"FlattenedGroups", sizes + values + R"(
  three_axes = Concat <axis = 0> (open, t, wk)
  kf = Reshape (k, three_axes)
  apart = Unsqueeze (kf, one)
  kx = Tile (apart, four)
  heads = Concat <axis = 0> (b, eight, t, wk)
  kr = Reshape (kx, heads)
)" + sdpa,
     "Tile Expand Reshape"},
    {"BehindACast", sizes + keys5 + values + R"(
  half = Cast <to = 10> (k5)
  kx = Expand (half, times)
  kh = Reshape (kx, mk)
  kr = Cast <to = 1> (kh)
)" + sdpa,
     "Expand Reshape"},
    {"BehindAScale", sizes + keys5 + values + R"(
  kx = Expand (k5, times)
  kl = Reshape (kx, mk)
  kr = Mul (scale, kl)
)" + sdpa,
     "Expand Reshape"},
    {"StackedQueries", sizes + R"(
  groups = Constant <value = int64[2] {0, 2}> ()
  qshape = Concat <axis = 0> (groups, open, wk)
  qs = Reshape (q, qshape)
  tiled = Tile (mask, four)
  mshape = Concat <axis = 0> (b, one, open, t)
  ms = Reshape (tiled, mshape)
  os = ai.kvopt.Sdpa <scale = 0.25> (qs, k, v, ms)
  shape = Concat <axis = 0> (b, eight, s, wv)
  o = Reshape <allowzero = 1> (os, shape)
)",
     "Reshape Tile"},
};

std::string spellingName(const testing::TestParamInfo<Spelling>& parameter) {
  return parameter.param.name;
}

INSTANTIATE_TEST_SUITE_P(Spellings, NormalizedTest, testing::ValuesIn(normalized), spellingName);
INSTANTIATE_TEST_SUITE_P(Spellings, StrippedTest, testing::ValuesIn(stripped), spellingName);

} // namespace
} // namespace kvopt
