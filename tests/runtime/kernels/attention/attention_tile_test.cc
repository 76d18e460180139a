// AttentionTile, by its kernel and by its function body, run as a host runs it: a chain of tiles
// computes what attention to all keys at once does, however the keys are divided and whatever the
// first tiles hide.
#include "ir/ops/kvopt/attention_tile_body.h"
#include "ir/text/reader.h"
#include "runtime/exec/executor.h"
#include "support/half.h"
#include "tests/runtime/kernels/kernel_harness.h"

#include <array>
#include <cmath>
#include <limits>
#include <random>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

constexpr double hiddenLogit = -std::numeric_limits<double>::infinity();

/// One attention; numbers are floats, row-major.
struct TiledProblem {
  int64_t batches = 2, heads = 4, groups = 2, rows = 3, width = 8, valueWidth = 5;
  int64_t keys = 0;
  float scale = 0.35f;
  float softcap = 0;
  /// The standard deviation of a score is about this.
  double spread = 2;
  /// Whether queries and keys are integers, whose products float32 sums exactly.
  bool isInteger = false;
  std::optional<double> sink;
  /// What is added to the score of a row and a key.
  std::function<double(int64_t row, int64_t key)> mask = [](int64_t, int64_t) { return 0.0; };

  std::vector<float> query, key, value;

  void fill() {
    std::mt19937_64 random(static_cast<uint64_t>(keys) + 5);
    std::normal_distribution<float> any;
    const auto drawn = [&](int64_t count, double factor) {
      std::vector<float> numbers(static_cast<size_t>(count));
      for (float& number : numbers)
        number = static_cast<float>(factor * static_cast<double>(any(random)));
      return numbers;
    };
    const double factor =
        spread / static_cast<double>(scale) / std::sqrt(static_cast<double>(width));
    query = drawn(batches * heads * rows * width, factor);
    key = drawn(batches * groups * keys * width, 1);
    if (isInteger)
      for (std::vector<float>* numbers : {&query, &key})
        for (float& number : *numbers)
          number = std::round(number);
    value = drawn(batches * groups * keys * valueWidth, 1);
  }

  /// In double, over all keys at once: [B,H,S,Dv].
  std::vector<double> expected() const {
    std::vector<double> result;
    for (int64_t batch = 0; batch < batches; ++batch)
      for (int64_t head = 0; head < heads; ++head)
        for (int64_t row = 0; row < rows; ++row)
          for (double number : rowOf(batch, head, row))
            result.push_back(number);
    return result;
  }

private:
  std::vector<double> rowOf(int64_t batch, int64_t head, int64_t row) const {
    const int64_t group = batch * groups + head / (heads / groups);
    std::vector<double> logits;
    double top = sink.value_or(hiddenLogit);
    for (int64_t t = 0; t < keys; ++t) {
      double dot = 0;
      for (int64_t d = 0; d < width; ++d)
        dot +=
            double(query[static_cast<size_t>(((batch * heads + head) * rows + row) * width + d)]) *
            double(key[static_cast<size_t>((group * keys + t) * width + d)]);
      dot *= double(scale);
      if (softcap != 0)
        dot = std::tanh(dot / double(softcap)) * double(softcap);
      logits.push_back(dot + mask(row, t));
      top = std::max(top, logits.back());
    }
    std::vector<double> mean(static_cast<size_t>(valueWidth), 0.0);
    if (top == hiddenLogit)
      return mean;
    double sum = sink ? std::exp(*sink - top) : 0;
    for (int64_t t = 0; t < keys; ++t) {
      const double weight = std::exp(logits[static_cast<size_t>(t)] - top);
      sum += weight;
      for (int64_t d = 0; d < valueWidth; ++d)
        mean[static_cast<size_t>(d)] +=
            weight * double(value[static_cast<size_t>((group * keys + t) * valueWidth + d)]);
    }
    for (double& number : mean)
      number /= sum;
    return mean;
  }
};

/// The state between tiles, in its element type.
struct HostState {
  Tensor output, maximum, sum;
};

class TileHost {
public:
  TileHost(const TiledProblem& tiled, ElementType stateElement, const KernelRegistry& kernels)
      : p(tiled), element(stateElement), model(testOperators()) {
    model.opsets = {{"", 18}, {kvoptDomain, 1}};
    llvm::cantFail(readFunctionText(attentionTileFunctionText(18, element), model));
    Graph& graph = model.graph();
    llvm::SmallVector<Value*, 7> operands;
    const auto input = [&](const char* name, ElementType type, Shape shape) {
      operands.push_back(&graph.addInput(name, TensorType(type, std::move(shape))));
    };
    const auto fixed = [](int64_t extent) { return Dim::fixed(extent); };
    const Dim t = Dim::symbol("T");
    input("query", ElementType::Float,
          {fixed(p.batches), fixed(p.heads), fixed(p.rows), fixed(p.width)});
    input("key", ElementType::Float, {fixed(p.batches), fixed(p.groups), t, fixed(p.width)});
    input("value", ElementType::Float, {fixed(p.batches), fixed(p.groups), t, fixed(p.valueWidth)});
    input("mask", ElementType::Float, {fixed(1), fixed(1), fixed(p.rows), t});
    for (const char* name : {"output", "maximum", "sum"})
      input(name, element,
            {fixed(p.batches), fixed(p.heads), fixed(p.rows),
             fixed(llvm::StringRef(name) == "output"    ? p.valueWidth
                   : llvm::StringRef(name) == "maximum" ? maximumColumns()
                                                        : 1)});
    Node& tile = graph.createFresh("ai.kvopt::AttentionTile", operands, 3);
    tile.setAttribute("scale", Attribute::ofFloat(p.scale));
    tile.setAttribute("softcap", Attribute::ofFloat(p.softcap));
    for (Value& result : tile.results())
      graph.addOutput(result);
    executor = llvm::cantFail(Executor::create(model, kernels));
  }

  HostState first() {
    const bool isHalf = element == ElementType::Float16;
    const double lowest = isHalf ? -65504.0 : double(std::numeric_limits<float>::lowest());
    const double sink = p.sink.value_or(lowest);
    const auto rounded = [&](double number) {
      return isHalf ? double(f16ToFloat(floatToF16(float(number)))) : double(float(number));
    };
    const double head = rounded(sink);
    const double rest = isHalf ? rounded(sink - head) : 0;
    HostState state{filled(p.valueWidth, 0), filled(maximumColumns(), head),
                    filled(1, p.sink ? std::exp(sink - head - rest) / 64 : 0)};
    for (int64_t row = 0; isHalf && row < p.batches * p.heads * p.rows; ++row)
      state.maximum.view.as<uint16_t>()[2 * row + 1] = floatToF16(float(rest));
    return state;
  }

  /// Attends to keys [begin, end).
  void attend(HostState& state, int64_t begin, int64_t end) {
    const int64_t count = end - begin;
    const auto part = [&](std::vector<float>& all, int64_t columns) {
      TensorView view = TensorView::contiguous(
          ElementType::Float, {p.batches, p.groups, p.keys, columns}, bytesOf(all));
      return llvm::cantFail(Tensor::copyOf(allocator, sliceAxis(view, 2, begin, end)));
    };
    const Tensor key = part(p.key, p.width);
    const Tensor value = part(p.value, p.valueWidth);
    std::vector<float> mask;
    for (int64_t row = 0; row < p.rows; ++row)
      for (int64_t t = begin; t < end; ++t)
        mask.push_back(static_cast<float>(p.mask(row, t)));
    const TensorView views[] = {
        TensorView::contiguous(ElementType::Float, {p.batches, p.heads, p.rows, p.width},
                               bytesOf(p.query)),
        key.view,
        value.view,
        TensorView::contiguous(ElementType::Float, {1, 1, p.rows, count}, bytesOf(mask)),
        state.output.view,
        state.maximum.view,
        state.sum.view};
    std::vector<Tensor> next = llvm::cantFail(executor->run(views));
    state = {std::move(next[0]), std::move(next[1]), std::move(next[2])};
  }

  /// The output after tiles of `size` keys.
  std::vector<double> run(int64_t size) {
    HostState state = first();
    for (int64_t begin = 0; begin < p.keys; begin += size)
      attend(state, begin, std::min(begin + size, p.keys));
    return numbersOf(state.output);
  }

  static std::vector<double> numbersOf(const Tensor& tensor) {
    std::vector<double> numbers;
    for (int64_t i = 0; i < tensor.view.elementCount(); ++i)
      numbers.push_back(tensor.view.element == ElementType::Float16
                            ? double(f16ToFloat(tensor.view.as<uint16_t>()[i]))
                            : double(tensor.view.as<float>()[i]));
    return numbers;
  }

private:
  int64_t maximumColumns() const { return element == ElementType::Float16 ? 2 : 1; }

  static std::byte* bytesOf(std::vector<float>& numbers) {
    return reinterpret_cast<std::byte*>(numbers.data());
  }

  Tensor filled(int64_t columns, double number) {
    Tensor tensor =
        llvm::cantFail(Tensor::create(allocator, element, {p.batches, p.heads, p.rows, columns}));
    for (int64_t i = 0; i < tensor.view.elementCount(); ++i)
      if (element == ElementType::Float16)
        tensor.view.as<uint16_t>()[i] = floatToF16(static_cast<float>(number));
      else
        tensor.view.as<float>()[i] = static_cast<float>(number);
    return tensor;
  }

  TiledProblem p;
  ElementType element;
  Model model;
  std::shared_ptr<Allocator> allocator = std::make_shared<Allocator>();
  std::unique_ptr<Executor> executor;
};

double largestDifference(const std::vector<double>& expected, const std::vector<double>& found) {
  EXPECT_EQ(expected.size(), found.size());
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(std::isfinite(found[i])) << i;
    largest = std::max(largest, std::abs(expected[i] - found[i]));
  }
  return largest;
}

/// Those with the kernel, and those with the function body.
std::array<const KernelRegistry*, 2> bothKernels() { return {&testKernels(), &standardKernels()}; }

/// The stated bounds for both types of state, for tiles of 16 to 128 keys.
void expectEqualsOneShot(TiledProblem p) {
  p.fill();
  const std::vector<double> expected = p.expected();
  for (const KernelRegistry* kernels : bothKernels())
    for (const auto& [state, bound] :
         {std::pair(ElementType::Float, 1e-6), std::pair(ElementType::Float16, 5e-3)}) {
      TileHost host(p, state, *kernels);
      for (int64_t size : {16, 32, 48, 64, 100, 128}) {
        SCOPED_TRACE(formatted("{} keys in tiles of {}, a state of {}, {}", p.keys, size,
                               dtypeName(state), kernels == &testKernels() ? "kernel" : "body"));
        EXPECT_LE(largestDifference(expected, host.run(size)), bound);
      }
    }
}

TEST(AttentionTile, EqualsOneShotForEveryNumberOfKeys) {
  for (int64_t keys : {1, 2, 15, 16, 17, 31, 48, 63, 64, 65, 127, 128, 129, 200, 384}) {
    TiledProblem p;
    p.keys = keys;
    expectEqualsOneShot(p);
  }
}

TEST(AttentionTile, CausalityWindowsAndSoftCaps) {
  TiledProblem p;
  p.keys = 150;
  p.mask = [](int64_t row, int64_t key) { return key <= 147 + row ? 0 : hiddenLogit; };
  expectEqualsOneShot(p);
  p.mask = [](int64_t row, int64_t key) {
    return key <= 147 + row && key > 107 + row ? 0.25 * double(key % 3) : hiddenLogit;
  };
  expectEqualsOneShot(p);
  p.softcap = 5;
  expectEqualsOneShot(p);
}

TEST(AttentionTile, TilesThatHideAllHealAtTheFirstVisibleKey) {
  TiledProblem p;
  p.keys = 300;
  // Two tiles of 128 in a row, more of fewer; then nothing for the first row.
  for (double fill : {hiddenLogit, -1e30, double(std::numeric_limits<float>::lowest())}) {
    p.mask = [fill](int64_t, int64_t key) { return key >= 280 ? 0 : fill; };
    expectEqualsOneShot(p);
  }
  p.mask = [](int64_t row, int64_t key) { return row != 0 && key >= 280 ? 0 : hiddenLogit; };
  expectEqualsOneShot(p);
}

TEST(AttentionTile, RowsWhoseKeysAreAllHiddenByTheLowestNumberAverageAll) {
  TiledProblem p;
  p.keys = 100;
  const auto lowest = double(std::numeric_limits<float>::lowest());
  p.mask = [lowest](int64_t, int64_t) { return lowest; };
  p.fill();
  TiledProblem even = p;
  even.mask = [](int64_t, int64_t) { return 0; };
  even.query.assign(even.query.size(), 0);
  for (const KernelRegistry* kernels : bothKernels())
    for (ElementType state : {ElementType::Float, ElementType::Float16})
      EXPECT_LE(largestDifference(even.expected(), TileHost(p, state, *kernels).run(32)), 1e-3);
}

TEST(AttentionTile, Sinks) {
  TiledProblem p;
  p.keys = 130;
  for (double sink : {-30.0, -1.3, 0.0, 2.7, 12.3}) {
    p.sink = sink;
    expectEqualsOneShot(p);
  }
  // All weight is the sink's.
  p.mask = [](int64_t, int64_t) { return hiddenLogit; };
  expectEqualsOneShot(p);
}

TEST(AttentionTile, LogitsOfTenThousand) {
  TiledProblem p;
  p.keys = 200;
  p.spread = 1e4;
  p.scale = 0.5f;
  p.isInteger = true;
  expectEqualsOneShot(p);
  // The same size, with exact differences: a logit that all keys have in common.
  TiledProblem shifted;
  shifted.keys = 1200;
  shifted.spread = 0;
  for (double level : {1e4, -1e4, 6e4}) {
    shifted.mask = [level](int64_t, int64_t key) { return level + double(key % 7); };
    expectEqualsOneShot(shifted);
  }
}

/// More weights than float16 counts.
TEST(AttentionTile, ManyKeysDoNotOverflowAStateOfFloat16) {
  TiledProblem p;
  p.batches = 1;
  p.heads = 1;
  p.groups = 1;
  p.rows = 1;
  p.keys = 80000;
  p.spread = 0;
  p.mask = [](int64_t, int64_t) { return 10003.9; };
  p.fill();
  p.value.assign(p.value.size(), 100.0f);
  for (const KernelRegistry* kernels : bothKernels())
    EXPECT_LE(largestDifference(p.expected(), TileHost(p, ElementType::Float16, *kernels).run(128)),
              0.5);
}

TEST(AttentionTile, KeysThatAreHiddenMayBeAnything) {
  TiledProblem p;
  p.keys = 64;
  p.mask = [](int64_t, int64_t key) { return key < 40 ? 0 : hiddenLogit; };
  p.fill();
  const std::vector<double> expected = p.expected();
  for (int64_t group = 0; group < p.batches * p.groups; ++group)
    for (int64_t at = (group * p.keys + 40) * p.width; at < (group + 1) * p.keys * p.width; ++at)
      p.key[static_cast<size_t>(at)] = at % 2 ? std::numeric_limits<float>::quiet_NaN() : 3e38f;
  for (const KernelRegistry* kernels : bothKernels())
    for (ElementType state : {ElementType::Float, ElementType::Float16})
      EXPECT_LE(largestDifference(expected, TileHost(p, state, *kernels).run(16)),
                state == ElementType::Float ? 1e-6 : 5e-3);
}

} // namespace
} // namespace kvopt
