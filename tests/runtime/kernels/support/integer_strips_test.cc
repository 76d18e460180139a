// Products of codes with constant weights are exact, as those with weights that a caller gives.
#include "runtime/kernels/support/integer_strips.h"

#include "ir/model.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/exec/executor.h"
#include "runtime/kernels/support/packed_product.h"
#include "tests/runtime/kernels/kernel_harness.h"

namespace kvopt {
using namespace ir;
using namespace kernels;
using namespace runtime;

namespace {

TestTensor codesOf(ElementType element, Extents shape, uint32_t seed) {
  TestTensor result(element, std::move(shape));
  std::mt19937 random(seed);
  for (size_t i = 0; i < result.bytes(); ++i)
    result.data()[i] = static_cast<std::byte>(random());
  return result;
}

struct Registries {
  Registries() {
    registerAll(ops);
    registerAll(kernels);
  }
  OpRegistry ops;
  KernelRegistry kernels;
};

/// MatMulInteger of a [rows,inner] and b [inner,columns] with zero points.
struct Problem {
  TestTensor a, b, aZero, bZero;

  Value& constant(Graph& graph, const char* name, const TestTensor& tensor) const {
    return graph.addInitializer(
        name, llvm::cantFail(makeTensor(
                  tensor.element(), tensor.shape(),
                  std::vector<std::byte>(tensor.data(), tensor.data() + tensor.bytes()))));
  }

  /// With constant weights; sets `folded` to the size of their strips.
  std::vector<int32_t> run(const Registries& known, unsigned threads, int64_t& folded) const {
    Model model(known.ops);
    model.opsets[""] = 21;
    Graph& graph = model.graph();
    Value& x = graph.addInput(
        "x", TensorType(a.element(), Shape{Dim::fixed(a.shape()[0]), Dim::fixed(a.shape()[1])}));
    graph.addOutput(graph
                        .createFresh("MatMulInteger",
                                     {&x, &constant(graph, "b", b), &constant(graph, "za", aZero),
                                      &constant(graph, "zb", bZero)},
                                     1)
                        .result());
    llvm::cantFail(inferShapes(graph));
    ExecutorOptions options;
    options.pool = std::make_shared<ThreadPool>(threads);
    options.foldedConstantsLimit = 1 << 20;
    auto executor = llvm::cantFail(Executor::create(model, known.kernels, options));
    const std::vector<Tensor> y = llvm::cantFail(executor->run(a.view()));
    folded = executor->statistics().foldedBytes;
    const int32_t* sums = y[0].view.as<int32_t>();
    return {sums, sums + y[0].view.elementCount()};
  }

  std::vector<int32_t> expected() const {
    const int64_t inner = a.shape()[1], columns = b.shape()[1];
    const std::vector<double> left = a.values(), right = b.values();
    std::vector<int32_t> result;
    for (int64_t m = 0; m < a.shape()[0]; ++m)
      for (int64_t n = 0; n < columns; ++n) {
        const double za = aZero.get(aZero.count() == 1 ? 0 : m);
        const double zb = bZero.get(bZero.count() == 1 ? 0 : n);
        double sum = 0;
        for (int64_t k = 0; k < inner; ++k)
          sum += (left[static_cast<size_t>(m * inner + k)] - za) *
                 (right[static_cast<size_t>(k * columns + n)] - zb);
        result.push_back(static_cast<int32_t>(sum));
      }
    return result;
  }
};

TEST(IntegerStrips, EveryTypeAndZeroPoint) {
  const Registries known;
  const bool hasStrips = PackedProduct::create(PackedProduct::Kind::Codes, 1, 70, 64) != nullptr;
  for (const ElementType aType : {ElementType::UInt8, ElementType::Int8})
    for (const ElementType bType : {ElementType::UInt8, ElementType::Int8})
      for (const int64_t rows : {1, 17, 260})
        for (const bool areMany : {false, true}) {
          SCOPED_TRACE(formatted("{} {} {} {}", onnxName(aType).str(), onnxName(bType).str(), rows,
                                 areMany));
          const int64_t inner = 70, columns = rows == 260 ? 70 : 330;
          Problem problem{codesOf(aType, {rows, inner}, 1), codesOf(bType, {inner, columns}, 2),
                          codesOf(aType, areMany ? Extents{rows} : Extents{}, 3),
                          codesOf(bType, areMany ? Extents{columns} : Extents{}, 4)};
          const std::vector<int32_t> expected = problem.expected();
          for (const unsigned threads : {1u, 3u}) {
            int64_t folded = 0;
            EXPECT_EQ(problem.run(known, threads, folded), expected);
            EXPECT_EQ(folded > 0, hasStrips);
          }
        }
}

} // namespace
} // namespace kvopt
