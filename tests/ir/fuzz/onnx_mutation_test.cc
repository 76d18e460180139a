// Damaged models: import, shape inference, verification and printing refuse them or go through.
#include "ir/shapes/shape_inference.h"
#include "ir/text/printer.h"
#include "ir/verify/verifier.h"
#include "tests/ir/onnx/onnx_fixture.h"
#include "tests/ir/text/text_fixture.h"

#include <random>

namespace kvopt {
using namespace ir;

namespace {

using Random = std::mt19937_64;

size_t below(Random& random, size_t limit) { return static_cast<size_t>(random() % limit); }

/// Models whose nodes reach most shape rules, with subgraphs, functions and constants.
std::vector<std::string> victims() {
  std::vector<std::string> bytes{smallModel().SerializeAsString()};
  for (const char* text :
       {R"(<ir_version: 8, opset_import: ["" : 18]>
g (float[B, S, 8] x, bool c, int64 n) => (y, z, u, w, l, f) <int64[4] t = {0, 0, 2, -1},
  int64[1] a = {1}, int64[2] sizes = {3, 5}, int64[6] pads = {0, 1, 1, 0, 0, 0}, int64[1] k = {2},
  int64[1] start = {-3}, int64[1] end = {9223372036854775807}, int64[1] step = {-2}>
{
  r = Reshape(x, t)
  p = Transpose <perm = [0, 2, 1, 3]>(r)
  q = Transpose <perm = [0, 2, 3, 1]>(r)
  m = MatMul(p, q)
  y = Softmax(m)
  s = Shape(x)
  o = ConstantOfShape <value = int64[1] {1}>(a)
  j = Concat <axis = 0>(s, o)
  z = Expand(x, s)
  h, i = Split <axis = 2>(x, sizes)
  b = Pad(h, pads)
  v, w = TopK(b, k)
  e = Einsum <equation = "bsd,btd->bst">(x, x)
  u = If <then_branch = t () => (g1) { g1 = Relu(x) }, else_branch = e () => (x) {}>(c)
  l, f = Loop <body = b (int64 it, bool co, float[B, N, 8] va) => (bool cn, vo, so) {
    cn = Identity(co)
    vo = Concat <axis = 1>(va, va)
    so = Slice(va, start, end, a, step)
  }>(n, c, x)
})",
        R"(<ir_version: 10, opset_import: ["" : 24, "com.microsoft" : 1, "ai.kvopt" : 1]>
g (float[B, S, 512] q, float[B, S, 128] k, float[B, S, 128] v, float[B, 2, C, 64] pk,
   float[B, 2, C, 64] pv, int32[B] l, int32 t, float[B, 3, L] x, float[8, 3, 5] w) => (o, nk, y, z)
{
  o, nk, nv = com.microsoft.GroupQueryAttention <num_heads = 8, kv_num_heads = 2>(q, k, v, pk, pv, l, t)
  y = Conv <pads = [2, 2], strides = [2]>(x, w)
  z = Attention <q_num_heads = 8, kv_num_heads = 2>(q, k, v)
  n = RMSNormalization <axis = -1>(q, k)
  r = ReduceSum(q, l)
  c = Constant <value_ints = [1, 2, 3]>()
  e = Range(c, c, c)
}
<domain: "own", opset_import: ["" : 24]>
fn <alpha, beta: float = 1.0> (a) => (b) { b = LeakyRelu <alpha: float = @alpha>(a) })"}) {
    if (auto model = readOrFail(text))
      bytes.push_back(llvm::cantFail(exportModelBytes(*model)));
  }
  return bytes;
}

void flipBits(std::string& bytes, Random& random) {
  for (size_t i = 0, count = 1 + below(random, 3); i < count; ++i) {
    size_t bit = below(random, bytes.size() * 8);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << (bit % 8)));
  }
}

/// Swaps two bytes or puts an extreme one: lengths, extents and kinds are varints of a byte mostly.
void swapVarints(std::string& bytes, Random& random) {
  size_t a = below(random, bytes.size());
  size_t b = below(random, bytes.size());
  std::swap(bytes[a], bytes[b]);
  constexpr char extremes[] = {'\0', '\1', '\x7f', '\xff'};
  if (below(random, 2) == 0)
    bytes[b] = extremes[below(random, std::size(extremes))];
}

/// A varint of ten bytes (a negative number) in the place of one.
void growVarint(std::string& bytes, Random& random) {
  size_t at = below(random, bytes.size());
  bytes.replace(at, 1, std::string(9, '\xff') + '\1');
}

std::string damaged(std::string bytes, Random& random) {
  switch (below(random, 6)) {
  case 0:
    bytes.resize(below(random, bytes.size()));
    return bytes;
  case 1:
    growVarint(bytes, random);
    return bytes;
  case 2:
  case 3:
    swapVarints(bytes, random);
    return bytes;
  default:
    flipBits(bytes, random);
    return bytes;
  }
}

/// Whether the model could be read; everything after that must either fail or go through.
bool exercise(const std::string& bytes) {
  auto model = importText(bytes, textRegistry());
  if (!model) {
    EXPECT_FALSE(takeDiagnostic(model.takeError()).str().empty());
    return false;
  }
  if (llvm::Error error = inferShapes((*model)->graph())) {
    EXPECT_FALSE(takeDiagnostic(std::move(error)).message.empty());
  }
  if (llvm::Error error = verify(**model)) {
    EXPECT_FALSE(takeDiagnostic(std::move(error)).message.empty());
  }
  PrintOptions options;
  options.maxTensorElements = 100;
  options.types = true;
  options.declareTypes = true;
  EXPECT_FALSE(printText(**model, options).empty());
  (*model)->graph().eraseDeadNodes();
  return true;
}

TEST(OnnxMutation, DamagedModelsAreRefusedOrProcessed) {
  std::vector<std::string> originals = victims();
  ASSERT_EQ(originals.size(), 3u);
  for (const std::string& original : originals)
    ASSERT_TRUE(exercise(original));
  Random random(2024);
  unsigned read = 0;
  constexpr unsigned iterations = 30000;
  for (unsigned i = 0; i < iterations; ++i)
    read += exercise(damaged(originals[i % originals.size()], random)) ? 1 : 0;
  RecordProperty("read", static_cast<int>(read));
  // The damage must neither be fatal to every model nor harmless to all of them.
  EXPECT_GT(read, iterations / 20);
  EXPECT_LT(read, iterations * 19 / 20);
}

} // namespace
} // namespace kvopt
