// The table of operators. An operator that is missing here is refused by name when a model's opset
// is raised. To add one, read ONNX's Changelog for every version.
#include "passes/opset/op_history.h"

#include <algorithm>

namespace kvopt::opset {
namespace {

constexpr OpVersion changed(int64_t since) { return {since, true}; }

constexpr size_t mostVersions = 10;

struct Row {
  const char* name;
  OpVersion versions[mostVersions]; ///< entries after the last are 0
};

// OneHot begins at 11: before, negative indices were out of range. SimplifiedLayerNormalization,
// and LayerNormalization before 17, are ONNX Runtime's, in ONNX's domain at every opset. Scan
// begins at 9, which removed its batch axis. clang-format off
constexpr Row rows[] = {
    {"Abs", {{6}, {13}}},
    {"Acos", {{7}, {22}}},
    {"Acosh", {{9}, {22}}},
    {"Add", {{7}, {13}, {14}}},
    {"And", {{7}}},
    {"ArgMax", {{1}, {11}, {12}, {13}}},
    {"ArgMin", {{1}, {11}, {12}, {13}}},
    {"Asin", {{7}, {22}}},
    {"Asinh", {{9}, {22}}},
    {"Atan", {{7}, {22}}},
    {"Atanh", {{9}, {22}}},
    {"Attention", {{23}, changed(24), {25}}},
    {"BatchNormalization", {{7}, changed(9), changed(14), {15}}},
    {"Bernoulli", {{15}, {22}}},
    {"BitCast", {{26}}},
    {"BitShift", {{11}}},
    {"BitwiseAnd", {{18}}},
    {"BitwiseNot", {{18}}},
    {"BitwiseOr", {{18}}},
    {"BitwiseXor", {{18}}},
    {"Cast", {{6}, {9}, {13}, {19}, {21}, {23}, {24}, {25}}},
    {"CastLike", {{15}, {19}, {21}, {23}, {24}, {25}}},
    {"CausalConvWithState", {{27}}},
    {"Ceil", {{6}, {13}}},
    {"Celu", {{12}, {28}}},
    {"Clip", {{6}, changed(11), {12}, {13}}},
    {"Compress", {{9}, {11}}},
    {"Concat", {{4}, {11}, {13}}},
    {"Constant", {{1}, {9}, {11}, {12}, {13}, {19}, {21}, {23}, {24}, {25}}},
    {"ConstantOfShape", {{9}, {20}, {21}, {23}, {24}, {25}}},
    {"Conv", {{1}, {11}, {22}}},
    {"ConvInteger", {{10}}},
    {"Cos", {{7}, {22}}},
    {"Cosh", {{9}, {22}}},
    {"CumProd", {{26}}},
    {"CumSum", {{11}, {14}}},
    {"DepthToSpace", {{1}, {11}, {13}}},
    {"DequantizeLinear", {{10}, {13}, {19}, {21}, {23}, {24}, {25}}},
    {"Div", {{7}, {13}, {14}}},
    {"Dropout", {{7}, {10}, changed(12), {13}, {22}}},
    {"DynamicQuantizeLinear", {{11}}},
    {"Einsum", {{12}}},
    {"Elu", {{6}, {22}}},
    {"Equal", {{7}, {11}, {13}, {19}}},
    {"Erf", {{9}, {13}}},
    {"Exp", {{6}, {13}}},
    {"Expand", {{8}, {13}}},
    {"EyeLike", {{9}, {22}}},
    {"Flatten", {{1}, {9}, {11}, {13}, {21}, {23}, {24}, {25}}},
    {"Floor", {{6}, {13}}},
    {"Gather", {{1}, {11}, {13}}},
    {"GatherElements", {{11}, {13}}},
    {"GatherND", {{11}, {12}, {13}}},
    {"Gelu", {{20}}},
    {"Gemm", {{7}, {9}, {11}, {13}}},
    {"Greater", {{7}, {9}, {13}}},
    {"GreaterOrEqual", {{12}, {16}}},
    {"GroupNormalization", {{18}, changed(21)}},
    {"HardSigmoid", {{6}, {22}}},
    {"HardSwish", {{14}, {22}}},
    {"Hardmax", {{1}, {11}, changed(13)}},
    {"Identity", {{1}, {13}, {14}, {16}, {19}, {21}, {23}, {24}, {25}}},
    {"If", {{1}, {11}, {13}, {16}, {19}, {21}, {23}, {24}, {25}}},
    {"InstanceNormalization", {{6}, {22}}},
    {"IsInf", {{10}, {20}}},
    {"IsNaN", {{9}, {13}, {20}}},
    {"LayerNormalization", {{1}, {17}}},
    {"LeakyRelu", {{6}, {16}}},
    {"Less", {{7}, {9}, {13}}},
    {"LessOrEqual", {{12}, {16}}},
    {"LinearAttention", {{27}}},
    {"Log", {{6}, {13}}},
    {"LogSoftmax", {{1}, {11}, changed(13)}},
    {"Loop", {{1}, {11}, {13}, {16}, {19}, {21}, {23}, {24}, {25}}},
    {"LpNormalization", {{1}, {22}}},
    {"MatMul", {{1}, {9}, {13}}},
    {"MatMulInteger", {{10}}},
    {"Max", {{6}, {8}, {12}, {13}}},
    {"Mean", {{6}, {8}, {13}}},
    {"MeanVarianceNormalization", {{9}, {13}}},
    {"Min", {{6}, {8}, {12}, {13}}},
    {"Mish", {{18}, {22}}},
    {"Mod", {{10}, {13}}},
    {"Mul", {{7}, {13}, {14}}},
    {"Neg", {{6}, {13}}},
    {"NonZero", {{9}, {13}}},
    {"Not", {{1}}},
    {"OneHot", {{11}}},
    {"Or", {{7}}},
    {"PRelu", {{7}, {9}, {16}}},
    {"Pad", {{2}, changed(11), {13}, {18}, {19}, {21}, {23}, {24}, {25}}},
    {"Pow", {{7}, {12}, {13}, {15}}},
    {"QLinearMatMul", {{10}, {21}}},
    {"QuantizeLinear", {{10}, {13}, {19}, {21}, {23}, {24}, {25}}},
    {"RMSNormalization", {{23}}},
    {"RandomNormal", {{1}, {22}}},
    {"RandomNormalLike", {{1}, {22}}},
    {"RandomUniform", {{1}, {22}}},
    {"RandomUniformLike", {{1}, {22}}},
    {"Range", {{11}, {27}}},
    {"Reciprocal", {{6}, {13}}},
    {"ReduceL1", {{1}, {11}, {13}, changed(18)}},
    {"ReduceL2", {{1}, {11}, {13}, changed(18)}},
    {"ReduceLogSum", {{1}, {11}, {13}, changed(18)}},
    {"ReduceLogSumExp", {{1}, {11}, {13}, changed(18)}},
    {"ReduceMax", {{1}, {11}, {12}, {13}, changed(18), {20}}},
    {"ReduceMean", {{1}, {11}, {13}, changed(18)}},
    {"ReduceMin", {{1}, {11}, {12}, {13}, changed(18), {20}}},
    {"ReduceProd", {{1}, {11}, {13}, changed(18)}},
    {"ReduceSum", {{1}, {11}, changed(13)}},
    {"ReduceSumSquare", {{1}, {11}, {13}, changed(18)}},
    {"Relu", {{6}, {13}, {14}}},
    {"Reshape", {{5}, {13}, {14}, {19}, {21}, {23}, {24}, {25}}},
    {"ReverseSequence", {{10}}},
    {"RotaryEmbedding", {{23}}},
    {"Round", {{11}, {22}}},
    {"Scan", {{9}, {11}, {16}, {19}, {21}, {23}, {24}, {25}}},
    {"Scatter", {{9}, changed(11)}},
    {"ScatterElements", {{11}, {13}, {16}, {18}}},
    {"ScatterND", {{11}, {13}, {16}, {18}}},
    {"Selu", {{6}, {22}}},
    {"Shape", {{1}, {13}, {15}, {19}, {21}, {23}, {24}, {25}}},
    {"Shrink", {{9}}},
    {"Sigmoid", {{6}, {13}}},
    {"Sign", {{9}, {13}}},
    {"SimplifiedLayerNormalization", {{1}}},
    {"Sin", {{7}, {22}}},
    {"Sinh", {{9}, {22}}},
    {"Size", {{1}, {13}, {19}, {21}, {23}, {24}, {25}}},
    {"Slice", {{1}, changed(10), {11}, {13}}},
    {"Softmax", {{1}, {11}, changed(13)}},
    {"Softplus", {{1}, {22}}},
    {"Softsign", {{1}, {22}}},
    {"SpaceToDepth", {{1}, {13}}},
    {"Split", {{2}, {11}, changed(13), changed(18)}},
    {"Sqrt", {{6}, {13}}},
    {"Squeeze", {{1}, {11}, changed(13), {21}, {23}, {24}, {25}}},
    {"Sub", {{7}, {13}, {14}}},
    {"Sum", {{6}, {8}, {13}}},
    {"SwiGLU", {{28}}},
    {"Swish", {{24}}},
    {"Tan", {{7}, {22}}},
    {"Tanh", {{6}, {13}}},
    {"TensorScatter", {{24}}},
    {"ThresholdedRelu", {{10}, {22}}},
    {"Tile", {{6}, {13}}},
    {"TopK", {{1}, changed(10), {11}, {24}}},
    {"Transpose", {{1}, {13}, {21}, {23}, {24}, {25}}},
    {"Trilu", {{14}}},
    {"Unique", {{11}}},
    {"Unsqueeze", {{1}, {11}, changed(13), {21}, {23}, {24}, {25}}},
    {"Where", {{9}, {16}}},
    {"Xor", {{7}}},
};
// clang-format on

OpHistory historyOf(const Row& row) {
  size_t count = 0;
  while (count < mostVersions && row.versions[count].since != 0)
    ++count;
  return {row.name, llvm::ArrayRef(row.versions, count)};
}

} // namespace

const OpVersion* OpHistory::versionAt(int64_t opset) const {
  const OpVersion* found = nullptr;
  for (const OpVersion& version : versions)
    if (version.since <= opset)
      found = &version;
  return found;
}

std::optional<OpHistory> findHistory(llvm::StringRef op) {
  const Row* found = std::lower_bound(
      std::begin(rows), std::end(rows), op,
      [](const Row& row, llvm::StringRef name) { return llvm::StringRef(row.name) < name; });
  if (found == std::end(rows) || op != found->name)
    return std::nullopt;
  return historyOf(*found);
}

std::vector<OpHistory> opHistories() {
  std::vector<OpHistory> histories;
  for (const Row& row : rows)
    histories.push_back(historyOf(row));
  return histories;
}

} // namespace kvopt::opset
