// Weights that products keep in strips: the memory, the limit, and the bits.
#include "runtime/exec/kept_strips.h"

#include "ir/model.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/exec/executor.h"
#include "runtime/kernels/support/packed_product.h"

#include <gtest/gtest.h>

#include <cstring>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

TEST(KeptStrips, ArePackedOnceWithinTheLimit) {
  auto memory = std::make_shared<ConstantMemory>(std::make_shared<Allocator>(), 1000);
  const KeptStrips kept(memory), tooLarge(memory);
  int packed = 0;
  const auto pack = [&](float* strips) {
    ++packed;
    strips[0] = 7;
  };
  const float* strips = kept.get(100, pack);
  ASSERT_NE(strips, nullptr);
  EXPECT_EQ(strips[0], 7);
  EXPECT_EQ(kept.get(100, pack), strips);
  EXPECT_EQ(memory->used(), 400);
  EXPECT_EQ(tooLarge.get(200, pack), nullptr);
  EXPECT_EQ(packed, 1);
}

class KeptStripsTest : public testing::Test {
protected:
  static constexpr int64_t inner = 256, columns = 250;

  KeptStripsTest() : model(ops) {
    registerAll(ops);
    registerAll(kernels);
    model.opsets[""] = 21;
    Graph& graph = model.graph();
    Value& x = graph.addInput(
        "x", TensorType(ElementType::Float, Shape{Dim::symbol("N"), Dim::fixed(inner)}));
    std::vector<std::byte> bytes(inner * columns * sizeof(float));
    for (size_t i = 0; i < bytes.size() / sizeof(float); ++i) {
      const float value = static_cast<float>(i * 37 % 101) / 101.0f - 0.5f;
      std::memcpy(&bytes[i * sizeof(float)], &value, sizeof(float));
    }
    Value& w = graph.addInitializer(
        "w", llvm::cantFail(makeTensor(ElementType::Float, {inner, columns}, std::move(bytes))));
    graph.addOutput(graph.createFresh("MatMul", {&x, &w}, 1).result());
    llvm::cantFail(inferShapes(graph));
  }

  std::vector<float> run(int64_t rows, int64_t limit, int64_t& folded) {
    ExecutorOptions options;
    options.foldedConstantsLimit = limit;
    auto executor = llvm::cantFail(Executor::create(model, kernels, options));
    std::vector<float> x(static_cast<size_t>(rows * inner));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = static_cast<float>(i * 53 % 97) / 97.0f;
    const auto view = TensorView::contiguous(ElementType::Float, {rows, inner},
                                             reinterpret_cast<std::byte*>(x.data()));
    const std::vector<Tensor> first = llvm::cantFail(executor->run(view));
    const std::vector<Tensor> second = llvm::cantFail(executor->run(view));
    folded = executor->statistics().foldedBytes;
    const float* y = first[0].view.as<float>();
    EXPECT_EQ(std::memcmp(y, second[0].view.data, static_cast<size_t>(first[0].view.byteSize())),
              0);
    return {y, y + rows * columns};
  }

  OpRegistry ops;
  KernelRegistry kernels;
  Model model;
};

TEST_F(KeptStripsTest, DoNotChangeTheBits) {
  const bool hasStrips = kernels::PackedProduct::create(kernels::PackedProduct::Kind::Floats, 160,
                                                        inner, 64) != nullptr;
  int64_t kept = 0, none = 0;
  EXPECT_EQ(run(160, 1 << 20, kept), run(160, 0, none));
  EXPECT_EQ(kept, hasStrips ? inner * 256 * int64_t{sizeof(float)} : 0);
  EXPECT_EQ(none, 0);
  run(16, 1 << 20, kept);
  EXPECT_EQ(kept, 0);
}

} // namespace
} // namespace kvopt
