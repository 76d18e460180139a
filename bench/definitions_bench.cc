// Time of single nodes by kernel and by definition, for every operator that has both:
//
//   bench_definitions [TEXT]     only nodes whose text has TEXT
//
// A node runs in turns by both on one thread, with its operands in the CPU's caches. A time is the
// least of many runs, and includes what the executor does for one node.
#include "bench/measure.h"
#include "ir/op.h"
#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include <algorithm>
#include <fmt/format.h>
#include <random>
#include <set>
#include <string>

namespace kvopt {
namespace {
using namespace ir;
using namespace runtime;

/// Nodes with the same operands, separated by semicolons. A node without names of results has the
/// result y.
struct Group {
  const char* inputs;
  const char* constants;
  const char* nodes;
};

const Group groups[] = {
    {"float[1, 64, 1024] a", "",
     "Abs(a); Neg(a); Sqrt(a); Reciprocal(a); Exp(a); Log(a); Erf(a); Tanh(a); Sin(a); Cos(a); "
     "Floor(a); Ceil(a); Round(a); Sign(a); Softplus(a); Sigmoid(a); Relu(a); Gelu(a); "
     "Swish(a); com.microsoft.Gelu(a); com.microsoft.QuickGelu(a); IsNaN(a); IsInf(a); Cast<to "
     "= 10>(a); Cast<to = 7>(a); Dropout(a); Identity(a); Shape(a); Size(a); Flatten(a); "
     "Transpose(a); Transpose<perm = [1, 0, 2]>(a); y, z = Split<axis = 2, num_outputs = "
     "2>(a); Softmax(a); LogSoftmax(a); ReduceSum(a); ArgMax<axis = 2>(a); ArgMin<axis = "
     "2>(a); y, scale, zero = DynamicQuantizeLinear(a)"},
    {"float[1, 64, 1024] a, float[1, 64, 1024] b", "",
     "Add(a, b); Sub(a, b); Mul(a, b); Div(a, b); Pow(a, b); Min(a, b); Max(a, b); Mod<fmod = "
     "1>(a, b); Equal(a, b); Less(a, b); LessOrEqual(a, b); Greater(a, b); GreaterOrEqual(a, "
     "b); CastLike(a, b); SwiGLU(a, b); Concat<axis = 1>(a, b)"},
    {"float[1, 64, 1024] a, float[1024] row, float[1024] c", "",
     "Add(a, row); com.microsoft.BiasGelu(a, row); com.microsoft.FastGelu(a, row); "
     "LayerNormalization(a, row, c); RMSNormalization(a, row); SimplifiedLayerNormalization(a, "
     "row); "
     "com.microsoft.SimplifiedLayerNormalization(a, row); "
     "com.microsoft.SkipLayerNormalization(a, a, row, c); "
     "com.microsoft.SkipSimplifiedLayerNormalization(a, a, row)"},
    {"float[1, 64, 1024] a",
     "int64[1] last = {2}, float low = {0.3}, float high = {0.6}, float[1] scale = {0.01}, "
     "uint8[1] zero = {7}, int64[3] shape = {64, 4, 256}, int64[1] first = {0}, int64[1] end = "
     "{512}, int64[4] wide = {2, 1, 64, 1024}, int64[3] times = {2, 1, 1}, int64[6] pads = {0, "
     "0, 0, 0, 0, 64}, int64 axis = {2}, int64[1] k = {4}",
     "ReduceSum(a, last); ReduceMean(a, last); ReduceMax(a, last); ReduceMin(a, last); "
     "ReduceProd(a, last); ReduceSumSquare(a, last); ReduceL1(a, last); ReduceL2(a, last); "
     "Clip(a, low, high); QuantizeLinear(a, scale, zero); Reshape(a, shape); Unsqueeze(a, "
     "first); Squeeze(a, first); Slice(a, first, end, last); Expand(a, wide); Tile(a, times); "
     "Pad(a, pads); Trilu(a); CumSum(a, axis); CumProd(a, axis); y, z = TopK(a, k)"},
    {"bool[1, 64, 1024] a, bool[1, 64, 1024] b, float[1, 64, 1024] c, float[1, 64, 1024] d", "",
     "And(a, b); Or(a, b); Xor(a, b); Not(a); Where(a, c, d)"},
    {"uint8[64, 1024] a, uint8[1024, 64] b, float[64, 1024] c, float[1024, 64] d",
     "float[1] scale = {0.01}, uint8[1] zero = {7}",
     "DequantizeLinear(a, scale, zero); MatMul(c, d); Gemm(c, d); com.microsoft.FusedMatMul(c, "
     "d); Einsum<equation = \"ik,kj->ij\">(c, d); MatMulInteger(a, b, zero, zero); "
     "QLinearMatMul(a, scale, zero, b, scale, zero, scale, zero)"},
    {"int64[64, 1024] a, float[64, 1024] b, int64[64] rows, int64[64, 1] places",
     "int64 start = {0}, int64 end = {65536}, int64 step = {1}, int64[2] shape = {64, 1024}, "
     "int64[1] depth = {16}, float[2] two = {0, 1}",
     "Gather(b, rows); Gather<axis = 1>(b, rows); GatherElements(b, a); GatherND(b, places); "
     "ScatterElements(b, a, b); ScatterND(b, places, b); OneHot(a, depth, two); Range(start, "
     "end, step); ConstantOfShape(shape); Add(a, a); Div(a, a)"},
    {"float[16, 64] a", "", "NonZero(a)"},
    {"float[1, 8, 32, 32] a, float[8, 8, 3, 3] b", "", "Conv(a, b)"},
    {"float[1, 64, 1024] a, float[64, 32] b, int64[1, 64] positions, uint8[64, 32, 16] codes, "
     "float[64, 32] scales",
     "",
     "RotaryEmbedding<num_heads = 16>(a, b, b, positions); "
     "com.microsoft.RotaryEmbedding<num_heads = 16>(a, positions, b, b); "
     "com.microsoft.MatMulNBits<N = 64, K = 1024, bits = 4, block_size = 32>(a, codes, scales)"},
    {"float[1, 8, 64, 64] q, float[1, 2, 64, 64] past, int64[1] at, float[1, 64, 512] x, "
     "float[1, 64, 128] k, int32[1] lengths",
     "int32 total = {64}",
     "Attention(q, past, past); TensorScatter(q, q, at); "
     "com.microsoft.MultiHeadAttention<num_heads = 8>(x, x, x); "
     "com.microsoft.GroupQueryAttention<num_heads = 8, kv_num_heads = 2>(x, k, k, , , lengths, "
     "total)"},
};

std::string textOf(const Group& group, llvm::StringRef node) {
  llvm::StringRef results = "y", call = node;
  if (node.startswith("y, "))
    std::tie(results, call) = node.split(" = ");
  std::string text = R"(<ir_version: 10, opset_import: ["" : 28, "com.microsoft" : 1]> g ()";
  text += formatted("{}) => ({})", group.inputs, results.str());
  if (*group.constants)
    text += formatted(" <{}>", group.constants);
  return text + formatted(" {{ {} = {} }}", results.str(), call.str());
}

/// Small positive numbers. Lists of one integer are 0.
std::vector<std::byte> contentsOf(const TensorType& type, std::mt19937& random) {
  const TensorView shaped = TensorView::contiguous(type.elementType(), *type.fixedShape(), nullptr);
  std::vector<std::byte> bytes(static_cast<size_t>(shaped.byteSize()));
  const auto count = static_cast<size_t>(shaped.elementCount());
  for (size_t i = 0; i < count; ++i)
    if (type.elementType() == ElementType::Float)
      reinterpret_cast<float*>(bytes.data())[i] =
          std::uniform_real_distribution<float>(0.1f, 0.9f)(random);
    else if (count != 1)
      bytes[i * bytes.size() / count] =
          std::byte(type.elementType() == ElementType::Bool ? random() % 2 : 1 + random() % 7);
  return bytes;
}

class Node {
public:
  Node(const Model& model, const KernelRegistry& kernels, std::vector<TensorView> operands)
      : inputs(std::move(operands)) {
    ExecutorOptions options;
    options.threads = 1;
    executor = orDie(Executor::create(model, kernels, options));
  }
  double run() {
    const double start = seconds();
    outputs = orDie(executor->run(inputs));
    return seconds() - start;
  }
  bool isDefined() const { return !executor->statistics().definedNodes.empty(); }

private:
  template <class T> static T orDie(llvm::Expected<T> value) {
    if (!value) {
      fmt::print(stderr, "{}\n", takeDiagnostic(value.takeError()).str());
      std::exit(1);
    }
    return std::move(*value);
  }
  std::vector<TensorView> inputs;
  std::unique_ptr<Executor> executor;
  std::vector<Tensor> outputs;
};

void measure(const Model& model, llvm::StringRef text, const KernelRegistry& kernels,
             const KernelRegistry& definitions) {
  std::mt19937 random(1);
  std::vector<std::vector<std::byte>> bytes;
  std::vector<TensorView> inputs;
  for (const auto& input : model.graph().inputs()) {
    bytes.push_back(contentsOf(input->type(), random));
    inputs.push_back(TensorView::contiguous(input->type().elementType(),
                                            *input->type().fixedShape(), bytes.back().data()));
  }
  Node byKernel(model, kernels, inputs), byDefinition(model, definitions, inputs);
  double kernel = byKernel.run(), definition = byDefinition.run();
  if (byKernel.isDefined() || !byDefinition.isDefined())
    return;
  const double end = seconds() + 0.3;
  do {
    definition = std::min(definition, byDefinition.run());
    for (int i = 0; i < 5; ++i)
      kernel = std::min(kernel, byKernel.run());
  } while (seconds() < end);
  fmt::print("| `{}` | {:.1f} | {:.1f} | {:.1f} |\n", text.str(), kernel * 1e6, definition * 1e6,
             definition / kernel);
  std::fflush(stdout);
}

int run(llvm::StringRef only) {
  OpRegistry operators;
  registerAll(operators);
  KernelRegistry kernels, definitions;
  registerAll(kernels);
  registerAll(definitions);
  definitions.preferDefinitions();
  std::set<std::string> missing;
  for (const Kernel* kernel : kernels.all())
    if (const Kernel* found = definitions.find(kernel->op, 28); found && found->definition)
      missing.insert(kernel->op.str());
  fmt::print("| node | kernel, us | definition, us | ratio |\n|---|--:|--:|--:|\n");
  for (const Group& group : groups) {
    llvm::SmallVector<llvm::StringRef> nodes;
    llvm::StringRef(group.nodes).split(nodes, "; ");
    for (llvm::StringRef text : nodes) {
      const auto model = llvm::cantFail(readText(textOf(group, text), operators));
      missing.erase(model->graph().nodes().begin()->op().str());
      if (text.contains(only))
        measure(*model, text, kernels, definitions);
    }
  }
  for (const std::string& name : missing)
    fmt::print("| {}: no node | | | |\n", name);
  return 0;
}

} // namespace
} // namespace kvopt

int main(int count, char** arguments) { return kvopt::run(count > 1 ? arguments[1] : ""); }
