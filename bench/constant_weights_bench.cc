// Cost of linear layers whose weights are transposed, cast or dequantized in the graph, compared
// with layers with plain float32 weights.
//
//   bench_constant_weights [STEPS [THREADS]]
//
// Eight layers of 2048 x 2048. All variants run one step per turn. The ratio of a variant is the
// median of its steps' times, divided by those of plain weights in the same turn.
#include "bench/measure.h"
#include "driver/synthetic/random_tensor.h"
#include "ir/model.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "support/format.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

constexpr int64_t width = 2048;
constexpr int64_t layers = 8;
constexpr int64_t blockSize = 32;

enum class Form { Plain, Transposed, Cast, TransposedCast, Int8, TransposedInt8, Int4 };
constexpr Form forms[] = {Form::Plain, Form::Transposed,     Form::Cast, Form::TransposedCast,
                          Form::Int8,  Form::TransposedInt8, Form::Int4};
constexpr const char* names[] = {
    "float32",
    "Transpose(float32)",
    "Cast(float16)",
    "Transpose(Cast(float16))",
    "DequantizeLinear(int8), by column",
    "Transpose(DequantizeLinear(int8))",
    "DequantizeLinear(int4), blocks of 32",
};

TensorRef randomInt4(uint64_t key) {
  const TensorRef bytes = randomCodes({width * width / 2}, key);
  const std::span<const std::byte> read = llvm::cantFail(bytes->bytes());
  return llvm::cantFail(makeTensor(ElementType::Int4, {width, width},
                                   std::vector<std::byte>(read.begin(), read.end())));
}

TensorRef randomInt8(uint64_t key) {
  const TensorRef bytes = randomCodes({width * width}, key);
  const std::span<const std::byte> read = llvm::cantFail(bytes->bytes());
  return llvm::cantFail(makeTensor(ElementType::Int8, {width, width},
                                   std::vector<std::byte>(read.begin(), read.end())));
}

class ChainBuilder {
public:
  ChainBuilder(Model& built, Form weightForm) : graph(built.graph()), form(weightForm) {}

  void build() {
    Value* x = &graph.addInput(
        "x", TensorType(ElementType::Float, Shape{Dim::symbol("N"), Dim::fixed(width)}));
    for (int64_t layer = 0; layer < layers; ++layer)
      x = &graph.createFresh("MatMul", {x, &weights(layer)}, 1).result();
    graph.addOutput(*x);
  }

private:
  Value& constant(const char* what, int64_t layer, TensorRef data) {
    return graph.addInitializer(fmt::format("{}.{}", what, layer), std::move(data));
  }
  Value& floats(ElementType type, int64_t layer) {
    return constant(
        "weight", layer,
        randomNumbers(type, {width, width}, keyOf(1, fmt::format("{}", layer)), 0, 0.02));
  }
  Value& scales(int64_t layer, llvm::ArrayRef<int64_t> shape) {
    return constant("scale", layer,
                    randomNumbers(ElementType::Float, shape, keyOf(2, fmt::format("{}", layer)),
                                  0.001, 0.0001));
  }
  Node& node(const char* type, llvm::ArrayRef<Value*> operands) {
    return graph.createFresh(type, operands, 1);
  }
  Value& transposed(Value& matrix) {
    Node& made = node("Transpose", {&matrix});
    made.setAttribute("perm", Attribute::ofInts({1, 0}));
    return made.result();
  }
  Value& cast(int64_t layer) {
    Node& made = node("Cast", {&floats(ElementType::Float16, layer)});
    made.setAttribute("to", Attribute::ofInt(static_cast<int64_t>(ElementType::Float)));
    return made.result();
  }
  Value& dequantized(int64_t layer, int64_t axis, int64_t block) {
    const auto key = static_cast<uint64_t>(layer);
    Value& codes = constant("codes", layer, block != 0 ? randomInt4(key) : randomInt8(key));
    Value& scale = block != 0 ? scales(layer, {width / block, width}) : scales(layer, {width});
    Node& made = node("DequantizeLinear", {&codes, &scale});
    made.setAttribute("axis", Attribute::ofInt(axis));
    if (block != 0)
      made.setAttribute("block_size", Attribute::ofInt(block));
    return made.result();
  }
  Value& weights(int64_t layer) {
    switch (form) {
    case Form::Plain:
      break;
    case Form::Transposed:
      return transposed(floats(ElementType::Float, layer));
    case Form::Cast:
      return cast(layer);
    case Form::TransposedCast:
      return transposed(cast(layer));
    case Form::Int8:
      return dequantized(layer, 1, 0);
    case Form::TransposedInt8:
      return transposed(dequantized(layer, 0, 0));
    case Form::Int4:
      return dequantized(layer, 0, blockSize);
    }
    return floats(ElementType::Float, layer);
  }

  Graph& graph;
  Form form;
};

struct Subject {
  std::unique_ptr<Model> model;
  std::unique_ptr<Executor> executor;
  std::vector<Tensor> outputs;
  double startSeconds = 0;
  std::vector<double> times;

  double step(TensorView x) {
    const double begin = seconds();
    const NamedView inputs[] = {{"x", x}};
    llvm::cantFail(executor->run(inputs, {}, outputs));
    return seconds() - begin;
  }
};

void measure(std::vector<Subject>& subjects, int64_t rows, int steps) {
  std::vector<float> values(static_cast<size_t>(rows * width), 0.5f);
  const TensorView x = TensorView::contiguous(ElementType::Float, {rows, width},
                                              reinterpret_cast<std::byte*>(values.data()));
  for (Subject& subject : subjects) {
    subject.times.clear();
    subject.step(x);
  }
  for (int step = 0; step < steps; ++step)
    for (Subject& subject : subjects)
      subject.times.push_back(subject.step(x));
  fmt::print("\n{} row{}, {} steps\n", rows, rows == 1 ? "" : "s", steps);
  fmt::print("{:<38} {:>9} {:>7} {:>9} {:>8} {:>9}\n", "weights", "ms", "ratio", "start ms", "MiB",
             "every step");
  for (size_t i = 0; i < subjects.size(); ++i) {
    std::vector<double> ratios;
    for (size_t step = 0; step < subjects[i].times.size(); ++step)
      ratios.push_back(subjects[i].times[step] / subjects[0].times[step]);
    const RunStatistics& statistics = subjects[i].executor->statistics();
    fmt::print("{:<38} {:9.3f} {:7.2f} {:9.1f} {:8.1f} {:>9}\n", names[i],
               percentile(subjects[i].times, 0.5) * 1e3, percentile(ratios, 0.5),
               subjects[i].startSeconds * 1e3,
               static_cast<double>(statistics.foldedBytes) / (1 << 20), statistics.streamedNodes);
  }
}

int run(int steps, unsigned threads) {
  OpRegistry ops;
  registerAll(ops);
  KernelRegistry kernels;
  registerAll(kernels);
  ExecutorOptions options;
  options.pool = std::make_shared<ThreadPool>(threads);
  std::vector<Subject> subjects;
  for (Form form : forms) {
    Subject& subject = subjects.emplace_back();
    subject.model = std::make_unique<Model>(ops);
    subject.model->opsets[""] = 21;
    ChainBuilder(*subject.model, form).build();
    llvm::cantFail(inferShapes(subject.model->graph()));
    const double begin = seconds();
    auto executor = Executor::create(*subject.model, kernels, options);
    if (!executor) {
      fmt::print(stderr, "{}\n", takeDiagnostic(executor.takeError()).str());
      return 1;
    }
    subject.startSeconds = seconds() - begin;
    subject.executor = std::move(*executor);
  }
  fmt::print("{} layers of {} x {}, {} threads; start: time to make the executor; MiB: constants "
             "computed then\n",
             layers, width, width, options.pool->threads());
  measure(subjects, 1, steps);
  measure(subjects, 64, std::max(1, steps / 8));
  return 0;
}

} // namespace
} // namespace kvopt

int main(int count, char** arguments) {
  const int steps = count > 1 ? std::max(1, std::atoi(arguments[1])) : 40;
  const int threads = count > 2 ? std::max(1, std::atoi(arguments[2])) : 1;
  return kvopt::run(steps, static_cast<unsigned>(threads));
}
