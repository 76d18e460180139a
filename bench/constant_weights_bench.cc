// Cost of linear layers in every form in which exporters and quantizers leave weights.
//
//   bench_constant_weights [--steps N] [--threads N] [--library PATH] [--rows N,…] [--only TEXT]
//
// Four layers of 2048 x 2048. Without --library, all forms run one step per turn, and the ratio of
// a form is the median of its steps' times, divided by those of plain weights in the same turn.
//
// With --library, the output of bench/baselines/install.sh, every form runs in turns with ONNX
// Runtime on the same file, and the table has the ratio of kvopt's time to ONNX Runtime's: minimum
// of the steps over minimum of the steps. With one thread, times are those of the calling thread on
// the processor, so that other programs disturb them less. `difference` is the maximum difference
// of the results, in units of the largest result. A dash marks a form that ONNX Runtime does not
// run.
#include "bench/measure.h"
#include "bench/onnx_runtime.h"
#include "driver/synthetic/random_tensor.h"
#include "ir/model.h"
#include "ir/onnx/export.h"
#include "ir/shapes/shape_inference.h"
#include "runtime/exec/executor.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/half.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fmt/format.h>
#include <limits>
#include <vector>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

constexpr int64_t width = 2048;
constexpr int64_t layers = 4;
constexpr int64_t blockSize = 32;

enum class Form {
  Plain,
  Transposed,
  Cast,
  TransposedCast,
  Float16,
  BFloat16,
  Int8,
  TransposedInt8,
  Int4,
  DynamicInt8,
  DynamicUInt8,
  Packed8,
  Packed4,
  Packed2,
  Packed4Int8,
};
struct FormName {
  Form form;
  const char* name;
  ElementType activations = ElementType::Float;
};
constexpr FormName forms[] = {
    {Form::Plain, "float32"},
    {Form::Transposed, "Transpose(float32)"},
    {Form::Cast, "Cast(float16)"},
    {Form::TransposedCast, "Transpose(Cast(float16))"},
    {Form::Float16, "float16, with activations", ElementType::Float16},
    {Form::BFloat16, "bfloat16, with activations", ElementType::BFloat16},
    {Form::Int8, "DequantizeLinear(int8), by column"},
    {Form::TransposedInt8, "Transpose(DequantizeLinear(int8))"},
    {Form::Int4, "DequantizeLinear(int4), blocks of 32"},
    {Form::DynamicInt8, "dynamic int8, int8 weights"},
    {Form::DynamicUInt8, "dynamic int8, uint8 weights"},
    {Form::Packed8, "MatMulNBits, 8 bits"},
    {Form::Packed4, "MatMulNBits, 4 bits"},
    {Form::Packed2, "MatMulNBits, 2 bits"},
    {Form::Packed4Int8, "MatMulNBits, 4 bits, accuracy level 4"},
};

TensorRef randomIntegers(ElementType type, int64_t bits, uint64_t key) {
  const TensorRef bytes = randomCodes({width * width * bits / 8}, key);
  const std::span<const std::byte> read = llvm::cantFail(bytes->bytes());
  return llvm::cantFail(
      makeTensor(type, {width, width}, std::vector<std::byte>(read.begin(), read.end())));
}

template <class Number> TensorRef oneNumber(ElementType type, Number number) {
  std::vector<std::byte> bytes(sizeof number);
  std::memcpy(bytes.data(), &number, sizeof number);
  return llvm::cantFail(makeTensor(type, {}, std::move(bytes)));
}

class ChainBuilder {
public:
  ChainBuilder(Model& built, const FormName& weightForm)
      : graph(built.graph()), form(weightForm.form), activations(weightForm.activations) {}

  void build() {
    Value* x =
        &graph.addInput("x", TensorType(activations, Shape{Dim::symbol("N"), Dim::fixed(width)}));
    for (int64_t layer = 0; layer < layers; ++layer)
      x = &product(*x, layer);
    graph.addOutput(*x);
  }

private:
  Value& constant(const char* what, int64_t layer, TensorRef data) {
    return graph.addInitializer(formatted("{}.{}", what, layer), std::move(data));
  }
  Value& floats(ElementType type, int64_t layer) {
    return constant("weight", layer,
                    randomNumbers(type, {width, width}, keyOf(1, formatted("{}", layer)), 0, 0.02));
  }
  /// Scales with which the deviation of a layer's results is about that of its activations.
  Value& scales(int64_t layer, llvm::ArrayRef<int64_t> shape, int bits) {
    const double scale = 0.08 / (1 << bits);
    return constant("scale", layer,
                    randomNumbers(ElementType::Float, shape, keyOf(2, formatted("{}", layer)),
                                  scale, scale / 10));
  }
  Node& node(const char* type, llvm::ArrayRef<Value*> operands, unsigned results = 1) {
    return graph.createFresh(type, operands, results);
  }
  Value& transposed(Value& matrix) {
    Node& made = node("Transpose", {&matrix});
    made.setAttribute("perm", Attribute::ofInts({1, 0}));
    return made.result();
  }
  Value& cast(Value& value) {
    Node& made = node("Cast", {&value});
    made.setAttribute("to", Attribute::ofInt(static_cast<int64_t>(ElementType::Float)));
    return made.result();
  }
  Value& dequantized(int64_t layer, int64_t axis, int64_t block) {
    const auto key = static_cast<uint64_t>(layer);
    const int bits = block != 0 ? 4 : 8;
    Value& codes =
        constant("codes", layer,
                 randomIntegers(block != 0 ? ElementType::Int4 : ElementType::Int8, bits, key));
    Value& scale =
        block != 0 ? scales(layer, {width / block, width}, bits) : scales(layer, {width}, bits);
    Node& made = node("DequantizeLinear", {&codes, &scale});
    made.setAttribute("axis", Attribute::ofInt(axis));
    if (block != 0)
      made.setAttribute("block_size", Attribute::ofInt(block));
    return made.result();
  }
  /// The graph of dynamic quantization: DynamicQuantizeLinear, MatMulInteger, Cast, two Mul.
  Value& dynamic(Value& x, int64_t layer) {
    const bool isSigned = form == Form::DynamicInt8;
    const ElementType type = isSigned ? ElementType::Int8 : ElementType::UInt8;
    Value& codes = constant("codes", layer, randomIntegers(type, 8, static_cast<uint64_t>(layer)));
    Value& zero = constant("zero", layer, oneNumber<uint8_t>(type, isSigned ? 0 : 128));
    Value& scale = constant("scale", layer, oneNumber(ElementType::Float, 0.0003f));
    Node& quantized = node("DynamicQuantizeLinear", {&x}, 3);
    Value& sums =
        node("MatMulInteger", {&quantized.result(0), &codes, &quantized.result(2), &zero}).result();
    Value& factor = node("Mul", {&quantized.result(1), &scale}).result();
    return node("Mul", {&cast(sums), &factor}).result();
  }
  Value& packed(Value& x, int64_t layer, int64_t bits) {
    const int64_t blocks = width / blockSize;
    Value& codes =
        constant("codes", layer,
                 randomCodes({width, blocks, blockSize * bits / 8}, static_cast<uint64_t>(layer)));
    Value& scale = scales(layer, {width, blocks}, static_cast<int>(bits));
    Node& made = node("com.microsoft::MatMulNBits", {&x, &codes, &scale});
    made.setAttribute("K", Attribute::ofInt(width));
    made.setAttribute("N", Attribute::ofInt(width));
    made.setAttribute("bits", Attribute::ofInt(bits));
    made.setAttribute("block_size", Attribute::ofInt(blockSize));
    if (form == Form::Packed4Int8)
      made.setAttribute("accuracy_level", Attribute::ofInt(4));
    return made.result();
  }
  Value& product(Value& x, int64_t layer) {
    switch (form) {
    case Form::DynamicInt8:
    case Form::DynamicUInt8:
      return dynamic(x, layer);
    case Form::Packed8:
      return packed(x, layer, 8);
    case Form::Packed4:
    case Form::Packed4Int8:
      return packed(x, layer, 4);
    case Form::Packed2:
      return packed(x, layer, 2);
    default:
      return node("MatMul", {&x, &weights(layer)}).result();
    }
  }
  Value& weights(int64_t layer) {
    switch (form) {
    case Form::Transposed:
      return transposed(floats(ElementType::Float, layer));
    case Form::Cast:
      return cast(floats(ElementType::Float16, layer));
    case Form::TransposedCast:
      return transposed(cast(floats(ElementType::Float16, layer)));
    case Form::Int8:
      return dequantized(layer, 1, 0);
    case Form::TransposedInt8:
      return transposed(dequantized(layer, 0, 0));
    case Form::Int4:
      return dequantized(layer, 0, blockSize);
    default:
      return floats(activations, layer);
    }
  }

  Graph& graph;
  Form form;
  ElementType activations;
};

struct Options {
  int steps = 40;
  unsigned threads = 1;
  std::string library, only;
  std::vector<int64_t> rows = {1, 8, 64, 512};
};

/// Rows of activations of different numbers.
class Activations {
public:
  Activations(ElementType type, int64_t rows) : element(type), shape{rows, width} {
    uint32_t state = 1;
    for (int64_t i = 0; i < rows * width; ++i) {
      state = state * 1664525u + 1013904223u;
      const float value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
      if (type == ElementType::Float)
        append(value);
      else
        append(type == ElementType::Float16 ? floatToF16(value) : floatToBf16(value));
    }
  }
  TensorView view() { return TensorView::contiguous(element, shape, bytes.data()); }

private:
  template <class Number> void append(Number number) {
    const size_t at = bytes.size();
    bytes.resize(at + sizeof number);
    std::memcpy(&bytes[at], &number, sizeof number);
  }
  ElementType element;
  Extents shape;
  std::vector<std::byte> bytes;
};

struct Subject {
  std::unique_ptr<Model> model;
  std::unique_ptr<Executor> executor;
  std::vector<Tensor> outputs;
  double startSeconds = 0;
  std::vector<double> times;

  void run(TensorView x) {
    const NamedView inputs[] = {{"x", x}};
    llvm::cantFail(executor->run(inputs, {}, outputs));
  }
  double step(TensorView x) {
    const double begin = seconds();
    run(x);
    return seconds() - begin;
  }
};

class Bench {
public:
  explicit Bench(const Options& given) : options(given) {
    registerAll(ops);
    registerAll(kernels);
    executorOptions.pool = std::make_shared<ThreadPool>(options.threads);
  }

  llvm::Error run() {
    fmt::print("{} layers of {} x {}, {} thread{}\n", layers, width, width, options.threads,
               options.threads == 1 ? "" : "s");
    return options.library.empty() ? compareForms() : compareEngines();
  }

private:
  bool isChosen(const FormName& form) const {
    return std::string(form.name).find(options.only) != std::string::npos;
  }

  llvm::Expected<Subject> subjectOf(const FormName& form) {
    Subject subject;
    subject.model = std::make_unique<Model>(ops);
    subject.model->opsets[""] = 21;
    subject.model->opsets["com.microsoft"] = 1;
    ChainBuilder(*subject.model, form).build();
    if (llvm::Error error = inferShapes(subject.model->graph()))
      return error;
    const double begin = seconds();
    auto executor = Executor::create(*subject.model, kernels, executorOptions);
    if (!executor)
      return executor.takeError();
    subject.startSeconds = seconds() - begin;
    subject.executor = std::move(*executor);
    return subject;
  }

  llvm::Error compareForms() {
    std::vector<Subject> subjects;
    std::vector<const FormName*> names;
    for (const FormName& form : forms) {
      if (!isChosen(form) || form.activations != ElementType::Float)
        continue;
      auto subject = subjectOf(form);
      if (!subject)
        return subject.takeError();
      subjects.push_back(std::move(*subject));
      names.push_back(&form);
    }
    for (int64_t rows : options.rows)
      measureForms(subjects, names, rows);
    return llvm::Error::success();
  }

  void measureForms(std::vector<Subject>& subjects, llvm::ArrayRef<const FormName*> names,
                    int64_t rows) {
    Activations activations(ElementType::Float, rows);
    const int steps = stepsOf(rows);
    for (Subject& subject : subjects) {
      subject.times.clear();
      subject.step(activations.view());
    }
    for (int step = 0; step < steps; ++step)
      for (Subject& subject : subjects)
        subject.times.push_back(subject.step(activations.view()));
    fmt::print("\n{} row{}, {} steps; start: time to make the executor; MiB: constants computed "
               "then\n",
               rows, rows == 1 ? "" : "s", steps);
    fmt::print("{:<38} {:>9} {:>7} {:>9} {:>8} {:>9}\n", "weights", "ms", "ratio", "start ms",
               "MiB", "every step");
    for (size_t i = 0; i < subjects.size(); ++i) {
      std::vector<double> ratios;
      for (size_t step = 0; step < subjects[i].times.size(); ++step)
        ratios.push_back(subjects[i].times[step] / subjects[0].times[step]);
      const RunStatistics& statistics = subjects[i].executor->statistics();
      fmt::print("{:<38} {:9.3f} {:7.2f} {:9.1f} {:8.1f} {:>9}\n", names[i]->name,
                 percentile(subjects[i].times, 0.5) * 1e3, percentile(ratios, 0.5),
                 subjects[i].startSeconds * 1e3,
                 static_cast<double>(statistics.foldedBytes) / (1 << 20), statistics.streamedNodes);
    }
  }

  /// Seconds from a clock for the comparison of engines.
  double engineSeconds() const {
    timespec time{};
    if (options.threads != 1 || clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) != 0)
      return seconds();
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  int stepsOf(int64_t rows) const {
    return std::max<int>(3, rows < 64 ? options.steps : options.steps * 8 / static_cast<int>(rows));
  }

  llvm::Error compareEngines() {
    auto loaded = OnnxRuntime::load(options.library);
    if (!loaded)
      return loaded.takeError();
    const OnnxRuntime& engine = **loaded;
    fmt::print("ratios of kvopt's time to that of ONNX Runtime {}\n\n| weights |",
               engine.version());
    for (int64_t rows : options.rows)
      fmt::print(" {} row{} |", rows, rows == 1 ? "" : "s");
    fmt::print(" difference |\n|---|");
    for (size_t i = 0; i <= options.rows.size(); ++i)
      fmt::print("--:|");
    fmt::print("\n");
    for (const FormName& form : forms)
      if (isChosen(form))
        if (llvm::Error error = compareEngines(engine, form))
          return error;
    return llvm::Error::success();
  }

  llvm::Error compareEngines(const OnnxRuntime& engine, const FormName& form) {
    auto subject = subjectOf(form);
    if (!subject)
      return subject.takeError();
    llvm::SmallString<128> path;
    if (std::error_code code = llvm::sys::fs::createTemporaryFile("layers", "onnx", path))
      return ioError("cannot make a temporary file: {}", code.message());
    llvm::FileRemover remover(path);
    if (llvm::Error error = exportModel(*subject->model, path.str().str()))
      return error;
    std::string cells;
    double difference = 0;
    bool isRun = true;
    for (int64_t rows : options.rows) {
      auto session = engine.open(path.str().str(), options.threads, false);
      if (!session) {
        fmt::print(stderr, "{}: {}\n", form.name, llvm::toString(session.takeError()));
        isRun = false;
        cells += " – |";
        continue;
      }
      auto cell = compareEngines(*session, *subject, form, rows, difference);
      if (!cell)
        return cell.takeError();
      cells += *cell;
    }
    fmt::print("| {} |{} {} |\n", form.name, cells, isRun ? formatted("{:.1e}", difference) : "–");
    std::fflush(stdout);
    return llvm::Error::success();
  }

  llvm::Expected<std::string> compareEngines(OnnxRuntimeSession& session, Subject& subject,
                                             const FormName& form, int64_t rows,
                                             double& difference) {
    Activations x(form.activations, rows), y(form.activations, rows);
    const std::string outputName = subject.model->graph().outputs()[0]->name().str();
    if (llvm::Error error = session.bindInput("x", x.view()))
      return error;
    if (llvm::Error error = session.bindOutput(outputName, y.view()))
      return error;
    double ours = std::numeric_limits<double>::infinity(), theirs = ours;
    for (int step = 0; step <= stepsOf(rows); ++step) {
      const double begin = engineSeconds();
      subject.run(x.view());
      const double middle = engineSeconds();
      if (llvm::Error error = session.run())
        return error;
      const double end = engineSeconds();
      if (step == 0)
        continue;
      ours = std::min(ours, middle - begin);
      theirs = std::min(theirs, end - middle);
    }
    difference = std::max(difference, largestDifference(subject.outputs[0].view, y.view()));
    if (std::getenv("KVOPT_BENCH_TIMES"))
      fmt::print(stderr, "{} {}: {:.1f} us, {:.1f} us\n", form.name, rows, ours * 1e6,
                 theirs * 1e6);
    return formatted(" {:.2f} |", ours / theirs);
  }

  static double largestDifference(const TensorView& ours, const TensorView& theirs) {
    double largest = 0, difference = 0;
    for (int64_t i = 0; i < ours.elementCount(); ++i) {
      const double a = number(ours, i), b = number(theirs, i);
      largest = std::max(largest, std::abs(b));
      difference = std::max(difference, std::abs(a - b));
    }
    return difference / largest;
  }
  static double number(const TensorView& view, int64_t i) {
    if (view.element == ElementType::Float)
      return view.as<float>()[i];
    const uint16_t bits = view.as<uint16_t>()[i];
    return view.element == ElementType::Float16 ? f16ToFloat(bits) : bf16ToFloat(bits);
  }

  const Options& options;
  OpRegistry ops;
  KernelRegistry kernels;
  ExecutorOptions executorOptions;
};

int parse(int count, char** arguments, Options& options) {
  for (int i = 1; i < count; ++i) {
    const std::string word = arguments[i];
    const bool hasValue = i + 1 < count;
    if (word == "--steps" && hasValue) {
      options.steps = std::max(1, std::atoi(arguments[++i]));
    } else if (word == "--threads" && hasValue) {
      options.threads = static_cast<unsigned>(std::max(1, std::atoi(arguments[++i])));
    } else if (word == "--library" && hasValue) {
      options.library = arguments[++i];
    } else if (word == "--only" && hasValue) {
      options.only = arguments[++i];
    } else if (word == "--rows" && hasValue) {
      options.rows.clear();
      for (char* at = arguments[++i]; *at; at += *at == ',')
        options.rows.push_back(std::max<int64_t>(1, std::strtol(at, &at, 10)));
    } else {
      fmt::print(stderr, "usage: bench_constant_weights [--steps N] [--threads N] [--library PATH] "
                         "[--rows N,…] [--only TEXT]\n");
      return 2;
    }
  }
  return 0;
}

} // namespace
} // namespace kvopt

int main(int count, char** arguments) {
  kvopt::Options options;
  if (const int code = kvopt::parse(count, arguments, options))
    return code;
  if (llvm::Error error = kvopt::Bench(options).run()) {
    fmt::print(stderr, "{}\n", kvopt::takeDiagnostic(std::move(error)).str());
    return 1;
  }
  return 0;
}
