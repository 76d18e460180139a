// Compares the speed of linear layers, in one run, with a plain read of exactly the weights' bytes.
//
//   bench_linear [--quick] [--threads 1,2] [--rounds N] [--only TEXT]
//
// Weights are cold: every call uses the next of several copies that together exceed any cache. The
// bound of a case is the larger of that read and of the multiply-adds at the speed of registers.
// Ratios are of consecutive times: the 10th percentile of times divided by that of bounds, and the
// median of the pairs' ratios, each in the best round.
#include "bench/bench_context.h"
#include "bench/machine.h"
#include "bench/measure.h"
#include "ir/graph.h"
#include "ir/op.h"
#include "runtime/kernels/support/blas.h"
#include "runtime/kernels/support/linear.h"
#include "runtime/threads/thread_pool.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/half.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <memory>
#include <string>
#include <vector>

namespace kvopt {
using namespace ir;
using namespace kernels;
using namespace linear;
using namespace runtime;
using namespace simd;

namespace {

enum class Weights { F32, F16, Bf16, Int4, Int8 };

constexpr int64_t blockSize = 32;

struct Case {
  int64_t k, n;
  Weights weights;
  bool transposed; ///< [N,K]
  int64_t m;

  /// Size of the weights and their scales in bytes.
  size_t bytes() const {
    const double each = weights == Weights::F32    ? 4
                        : weights == Weights::Int8 ? 1 + 4.0 / blockSize
                        : weights == Weights::Int4 ? 0.5 + 4.0 / blockSize
                                                   : 2;
    return static_cast<size_t>(static_cast<double>(k * n) * each);
  }
  const char* weightsName() const {
    switch (weights) {
    case Weights::F32:
      return "f32";
    case Weights::F16:
      return "f16";
    case Weights::Bf16:
      return "bf16";
    case Weights::Int4:
      return "int4";
    case Weights::Int8:
      return "int8";
    }
    return "";
  }
  std::string name() const {
    return formatted("{:<5} {:<6} K{:<5} N{:<6} M{:<4}", weightsName(),
                     transposed ? "[N,K]" : "[K,N]", k, n, m);
  }
};

struct Options {
  bool quick = false;
  int rounds = 3;
  std::vector<unsigned> threads = {1, 2};
  std::string only;
};

/// Cold memory for the weights of any case, filled with small numbers of that case's type.
class WeightMemory {
public:
  explicit WeightMemory(size_t size) : bytes(size) {}

  void fill(Weights weights) {
    uint32_t state = 1;
    const auto next = [&] {
      state = state * 1664525u + 1013904223u;
      return static_cast<float>(state >> 8) * 0x1p-24f - 0.5f;
    };
    std::vector<std::byte> pattern(1 << 16);
    for (size_t i = 0; i + 4 <= pattern.size(); i += 4) {
      if (weights == Weights::F32) {
        const float value = next();
        std::memcpy(&pattern[i], &value, 4);
      } else if (weights == Weights::F16 || weights == Weights::Bf16) {
        for (size_t j = 0; j < 4; j += 2) {
          const uint16_t value = weights == Weights::F16 ? floatToF16(next()) : floatToBf16(next());
          std::memcpy(&pattern[i + j], &value, 2);
        }
      } else { // small numbers if read as scales, too
        const float value = next();
        std::memcpy(&pattern[i], &value, 4);
      }
    }
    for (size_t at = 0; at < bytes.size(); at += pattern.size())
      std::memcpy(&bytes[at], pattern.data(), std::min(pattern.size(), bytes.size() - at));
  }
  const std::byte* data() const { return bytes.data(); }
  size_t size() const { return bytes.size(); }

private:
  std::vector<std::byte> bytes;
};

class Bench {
public:
  Bench(const Options& given, const Node& benchNode)
      : options(given), node(benchNode), memory(size_t{1} << 29) {}

  llvm::Error run(const std::vector<Case>& cases) {
    fmt::print("{:<34} {:>3}  {:>9} {:>7} {:>7}  {:>8} {:>8}\n", "case", "thr", "us", "p10",
               "median", "peak", "openblas");
    Weights filled = Weights::F32;
    bool isFilled = false;
    for (const Case& c : cases) {
      if (c.name().find(options.only) == std::string::npos)
        continue;
      if (!isFilled || filled != c.weights)
        memory.fill(c.weights);
      isFilled = true;
      filled = c.weights;
      for (const unsigned threads : options.threads)
        if (llvm::Error error = measure(c, threads))
          return error;
    }
    return llvm::Error::success();
  }

private:
  struct Times {
    std::vector<double> bounds, ours, theirs;
  };

  void multiplyBy(const Case& c, const std::byte* weights, BenchContext& context, bool openBlas) {
    if (openBlas) {
      MatrixProduct product;
      product.m = c.m;
      product.n = c.n;
      product.k = c.k;
      product.transposeB = c.transposed;
      product.a = a.data();
      product.lda = c.k;
      product.b = reinterpret_cast<const float*>(weights);
      product.ldb = c.transposed ? c.k : c.n;
      product.c = out.data();
      product.ldc = c.n;
      multiply(product);
      return;
    }
    LinearProduct product;
    product.rows = c.m;
    product.inner = c.k;
    product.columns = c.n;
    product.a = a.data();
    product.transposeWeights = c.transposed;
    product.storage = c.weights == Weights::F32   ? FloatStorage::f32
                      : c.weights == Weights::F16 ? FloatStorage::f16
                                                  : FloatStorage::bf16;
    product.weights = weights;
    product.out = out.data();
    BlockWeights blocks;
    if (c.weights == Weights::Int4 || c.weights == Weights::Int8) {
      blocks.columns = c.n;
      blocks.inner = c.k;
      blocks.bits = c.weights == Weights::Int4 ? 4 : 8;
      blocks.blockSize = blockSize;
      blocks.blocks = c.k / blockSize;
      blocks.numbers = reinterpret_cast<const uint8_t*>(weights);
      blocks.scales = weights + c.n * blocks.rowBytes();
      product.blocks = &blocks;
    }
    llvm::cantFail(multiplyMatrices(context, product));
  }

  llvm::Error measure(const Case& c, unsigned threads) {
    ThreadPool pool(threads);
    BenchContext context(node, pool);
    a.assign(static_cast<size_t>(c.m * c.k), 0.5f);
    out.assign(static_cast<size_t>(c.m * c.n), 0.0f);
    const size_t stride = (c.bytes() + 4095) / 4096 * 4096;
    const size_t copies = memory.size() / stride;
    if (copies == 0)
      return invalid("{} does not fit in the benchmark's memory", c.name());
    const double arithmetic = 2.0 * static_cast<double>(c.m * c.n * c.k) * perOperation / threads;
    const bool hasOpenBlas = c.weights == Weights::F32 && threads == 1;
    double bestP10 = 1e9, bestMedian = 1e9, bestTime = 1e9, bestTheirs = 1e9;
    size_t copy = 0;
    const auto nextCopy = [&] {
      copy = (copy + 1) % copies;
      return memory.data() + copy * stride;
    };
    const size_t calls = std::max<size_t>(8, (options.quick ? 1 : 2) * copies);
    for (int round = 0; round < options.rounds; ++round) {
      Times times;
      std::vector<double> ratios;
      for (size_t call = 0; call < calls; ++call) {
        const double start = seconds();
        const std::byte* read = nextCopy();
        const size_t parts = std::max<size_t>(threads * 4, c.bytes() >> 22);
        pool.parallelFor(static_cast<int64_t>(parts), [&](int64_t part) {
          const size_t each = c.bytes() / parts / 64 * 64;
          total += readAll(read + static_cast<size_t>(part) * each, each);
        });
        const double bound = std::max(seconds() - start, arithmetic);
        const std::byte* weights = nextCopy();
        const double before = seconds();
        multiplyBy(c, weights, context, false);
        const double time = seconds() - before;
        if (hasOpenBlas && call % 2 == 0) {
          const std::byte* others = nextCopy();
          const double blasStart = seconds();
          multiplyBy(c, others, context, true);
          times.theirs.push_back(seconds() - blasStart);
        }
        times.bounds.push_back(bound);
        times.ours.push_back(time);
        ratios.push_back(time / bound);
      }
      const double bound = percentile(times.bounds, 0.1);
      bestP10 = std::min(bestP10, percentile(times.ours, 0.1) / bound);
      bestMedian = std::min(bestMedian, percentile(ratios, 0.5));
      bestTime = std::min(bestTime, percentile(times.ours, 0.1));
      if (!times.theirs.empty())
        bestTheirs = std::min(bestTheirs, percentile(times.theirs, 0.1) / bound);
    }
    fmt::print("{:<34} {:>3}  {:>9.1f} {:>7.2f} {:>7.2f}  {:>8.2f} {:>8}\n", c.name(), threads,
               1e6 * bestTime, bestP10, bestMedian, arithmetic / bestTime,
               hasOpenBlas ? formatted("{:.2f}", bestTheirs) : "");
    std::fflush(stdout);
    return llvm::Error::success();
  }

  const Options& options;
  const Node& node;
  WeightMemory memory;
  std::vector<float> a, out;
  double perOperation = secondsPerOperation();
  std::atomic<unsigned long long> total{0};
};

std::vector<Case> allCases(bool quick) {
  std::vector<Case> cases;
  struct Shape {
    int64_t k, n;
  };
  const std::vector<Shape> shapes =
      quick ? std::vector<Shape>{{2048, 2048}, {2048, 8192}}
            : std::vector<Shape>{
                  {2048, 512}, {2048, 2048}, {2048, 8192}, {8192, 2048}, {2048, 32000}};
  for (const Weights weights :
       {Weights::F32, Weights::F16, Weights::Bf16, Weights::Int4, Weights::Int8})
    for (const bool transposed : {false, true}) {
      if (!transposed && (weights == Weights::Int4 || weights == Weights::Int8))
        continue;
      for (const Shape& shape : shapes)
        cases.push_back({shape.k, shape.n, weights, transposed, 1});
      for (const int64_t m : {2, 4, 8, 16, 128})
        cases.push_back({2048, 2048, weights, transposed, m});
    }
  return cases;
}

int parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--quick")
      options.quick = true;
    else if (word == "--rounds" && i + 1 < argc)
      options.rounds = std::max(1, std::atoi(argv[++i]));
    else if (word == "--only" && i + 1 < argc)
      options.only = argv[++i];
    else if (word == "--threads" && i + 1 < argc) {
      options.threads.clear();
      for (const char* at = argv[++i]; *at; ++at)
        if (*at >= '1' && *at <= '9')
          options.threads.push_back(static_cast<unsigned>(*at - '0'));
    } else {
      fmt::print(stderr, "usage: bench_linear [--quick] [--threads 1,2] [--rounds N] "
                         "[--only TEXT]\n");
      return 2;
    }
  }
  return 0;
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) {
  kvopt::Options options;
  if (const int code = kvopt::parse(argc, argv, options))
    return code;
  kvopt::ir::OpRegistry ops;
  registerAll(ops);
  kvopt::ir::GraphContext graphContext(ops);
  kvopt::ir::OpsetImports imports{{"", 18}};
  kvopt::ir::Graph graph(graphContext, imports);
  kvopt::ir::Node& node = graph.createFresh("MatMul", {}, 1);
  kvopt::Bench bench(options, node);
  if (llvm::Error error = bench.run(kvopt::allCases(options.quick))) {
    fmt::print(stderr, "{}\n", llvm::toString(std::move(error)));
    return 1;
  }
  return 0;
}
