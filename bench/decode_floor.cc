// How fast whole models decode, as tokens a second and as a fraction of the weight-read floor: the
// time to read exactly the weight bytes of one step from the same memory, measured in turns with
// the steps.
#include "cli/generate/decoder.h"
#include "cli/recover.h"
#include "ir/diagnostic.h"
#include "ir/onnx_export.h"
#include "ir/onnx_import.h"
#include "runtime/decoder_inputs.h"
#include "runtime/generation.h"
#include "runtime/thread_pool.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fmt/format.h>
#include <unistd.h>

namespace kvopt {
namespace {

using Clock = std::chrono::steady_clock;

double secondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The constants that a step reads as a whole. A table of which a step gathers rows is none.
llvm::Expected<std::vector<std::span<const std::byte>>> weightsOf(const Graph& graph) {
  std::vector<std::span<const std::byte>> weights;
  for (const std::unique_ptr<Value>& value : graph.initializers()) {
    bool isReadWhole = false;
    for (const Use& use : value->uses())
      isReadWhole |= !(use.user().is("Gather") && use.operandIndex() == 0);
    if (!isReadWhole || !value->initializer())
      continue;
    auto bytes = value->initializer()->bytes();
    if (!bytes)
      return bytes.takeError();
    weights.push_back(*bytes);
  }
  return weights;
}

/// Sums the words of a span in four streams a quarter apart, as one core reads memory fastest.
uint64_t readFourStreams(std::span<const std::byte> bytes) {
  constexpr size_t lanes = 8;
  const size_t words = bytes.size() / sizeof(uint64_t);
  const size_t quarter = words / 4 / lanes * lanes;
  const auto* data = reinterpret_cast<const uint64_t*>(bytes.data());
  uint64_t sums[4][lanes] = {};
  for (size_t i = 0; i < quarter; i += lanes)
    for (size_t stream = 0; stream < 4; ++stream)
      for (size_t lane = 0; lane < lanes; ++lane)
        sums[stream][lane] += data[stream * quarter + i + lane];
  uint64_t total = 0;
  for (size_t i = 4 * quarter; i < words; ++i)
    total += data[i];
  for (const auto& stream : sums)
    for (uint64_t sum : stream)
      total += sum;
  return total;
}

/// One pass over all weights, each shared among the threads.
uint64_t readAll(llvm::ArrayRef<std::span<const std::byte>> weights, ThreadPool& pool) {
  std::vector<uint64_t> totals(pool.threads());
  const size_t parts = pool.threads();
  for (std::span<const std::byte> weight : weights) {
    const size_t part = weight.size() / parts / 64 * 64;
    pool.parallelFor(static_cast<int64_t>(parts), [&](int64_t index) {
      const auto at = static_cast<size_t>(index);
      const size_t length = at + 1 == parts ? weight.size() - at * part : part;
      totals[at] += readFourStreams(weight.subspan(at * part, length));
    });
  }
  uint64_t total = 0;
  for (uint64_t one : totals)
    total += one;
  return total;
}

double percentile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(fraction * static_cast<double>(values.size() - 1))];
}

struct LoadedModel {
  std::unique_ptr<Model> model;
  Manifest manifest;
};

/// Rewritten in place: what kvopt runs.
llvm::Expected<LoadedModel> load(const std::string& path, const Registries& registries) {
  auto model = importModel(path, registries.ops);
  if (!model)
    return model.takeError();
  PassContext context(registries.rules, registries.targets);
  PassManager manager(registries.passes, {});
  if (llvm::Error error = manager.addPipeline(std::string(recoveryPipeline) +
                                              ",lower{to=kvopt},eliminate-dead-nodes"))
    return error;
  if (llvm::Error error = manager.run(**model, context))
    return error;
  if (!context.manifest)
    return invalid("nothing was lowered").file(path);
  return LoadedModel{std::move(*model), *context.manifest};
}

constexpr int64_t promptTokens = 16;

llvm::Error measure(const LoadedModel& loaded, const std::string& name, unsigned threads,
                    int64_t steps, const Registries& registries) {
  auto weights = weightsOf(loaded.model->graph());
  if (!weights)
    return weights.takeError();
  size_t bytes = 0;
  for (std::span<const std::byte> weight : *weights)
    bytes += weight.size();

  SessionOptions options;
  options.threads = threads;
  options.capacity = promptTokens + steps + 1;
  auto session = Session::create(*loaded.model, registries.kernels, loaded.manifest, options);
  if (!session)
    return session.takeError();
  ThreadPool pool(threads);
  DecoderStep step;
  step.tokens = {std::vector<int64_t>(promptTokens)};
  for (size_t i = 0; i < promptTokens; ++i)
    step.tokens[0][i] = static_cast<int64_t>(i * 37 % 101);
  std::vector<double> stepSeconds;
  std::vector<double> floorSeconds;
  std::vector<double> ratios;
  uint64_t sum = 0;
  for (int64_t i = -1; i < steps; ++i) { // the first is the prompt
    step.pastLength = (*session)->length();
    Clock::time_point start = Clock::now();
    auto result = stepDecoder(**session, step);
    if (!result)
      return result.takeError();
    const double seconds = secondsSince(start);
    start = Clock::now();
    sum += readAll(*weights, pool);
    const double floor = secondsSince(start);
    if (i >= 0) {
      stepSeconds.push_back(seconds);
      floorSeconds.push_back(floor);
      ratios.push_back(floor / seconds);
    }
    auto logits = findLogits(*result);
    if (!logits)
      return logits.takeError();
    auto token = greedyToken(**logits, 0);
    if (!token)
      return token.takeError();
    step.tokens = {{*token}};
  }
  const double fastStep = percentile(stepSeconds, 0.1);
  const double fastFloor = percentile(floorSeconds, 0.1);
  fmt::print("{:<24} {:>7} {:>9.2f} {:>10.1f} {:>10.1f} {:>9.2f} {:>9.2f} {:>9.2f}\n", name,
             threads, static_cast<double>(bytes) / 1e9, 1e3 * percentile(stepSeconds, 0.5),
             1.0 / percentile(stepSeconds, 0.5), static_cast<double>(bytes) / fastFloor / 1e9,
             fastFloor / fastStep, percentile(ratios, 0.5));
  // What was read must not be optimised away.
  if (sum == 1)
    return invalid("the sum of all weights is 1");
  return llvm::Error::success();
}

/// llama with 16 layers of width 2048, 32 heads that share 8 key/value heads.
llvm::Error generate(const std::string& path, ElementType real, const Registries& registries) {
  DecoderSpec spec;
  spec.real = real;
  spec.layers = 16;
  spec.hidden = 2048;
  spec.heads = 32;
  spec.kvHeads = 8;
  spec.vocabulary = 32000;
  auto complete = resolved(spec);
  if (!complete)
    return complete.takeError();
  ExportOptions options;
  options.externalFile = std::filesystem::path(path).filename().string() + ".data";
  return exportModel(*generateDecoder(registries.ops, *complete), path, options);
}

llvm::Error measureAll(llvm::ArrayRef<std::string> paths, int64_t steps,
                       const Registries& registries) {
  fmt::print("{:<24} {:>7} {:>9} {:>10} {:>10} {:>9} {:>9} {:>9}\n", "model", "threads", "GB/token",
             "ms median", "tokens/s", "floor GB/s", "p10", "median");
  for (const std::string& path : paths) {
    auto loaded = load(path, registries);
    if (!loaded)
      return loaded.takeError();
    for (unsigned threads : {1u, 2u})
      if (llvm::Error error = measure(*loaded, std::filesystem::path(path).stem().string(), threads,
                                      steps, registries))
        return error;
  }
  fmt::print("p10: 10th percentiles of floor over step; median: of the ratios of neighbours.\n");
  return llvm::Error::success();
}

llvm::Error run(std::vector<std::string> paths, int64_t steps) {
  const Registries registries;
  if (!paths.empty())
    return measureAll(paths, steps, registries);
  const std::string folder =
      (std::filesystem::temp_directory_path() / fmt::format("kvopt_bench_{}", getpid())).string();
  std::error_code failure;
  std::filesystem::create_directory(folder, failure);
  if (failure)
    return ioError("'{}' cannot be made", folder);
  llvm::Error error = llvm::Error::success();
  for (auto [name, real] :
       {std::pair("llama-f32", ElementType::Float), std::pair("llama-f16", ElementType::Float16)}) {
    if (error)
      break;
    const std::string path = fmt::format("{}/{}.onnx", folder, name);
    error = generate(path, real, registries);
    paths.push_back(path);
  }
  if (!error)
    error = measureAll(paths, steps, registries);
  std::filesystem::remove_all(folder, failure);
  return error;
}

} // namespace
} // namespace kvopt

/// decode_floor [--steps N] [MODEL…]: decoders with caches; a llama of 1.1 G weights in float32 and
/// float16 (7 GB in the temporary folder) when none are given.
int main(int argc, char** argv) {
  std::vector<std::string> paths;
  int64_t steps = 32;
  for (int i = 1; i < argc; ++i) {
    const llvm::StringRef argument = argv[i];
    if (argument != "--steps") {
      paths.push_back(argument.str());
      continue;
    }
    if (++i == argc || llvm::StringRef(argv[i]).getAsInteger(10, steps) || steps < 1 ||
        steps > 4096) {
      fmt::print(stderr, "--steps takes a number from 1 to 4096\n");
      return 2;
    }
  }
  if (llvm::Error error = kvopt::run(std::move(paths), steps)) {
    fmt::print(stderr, "{}\n", kvopt::takeDiagnostic(std::move(error)).str());
    return 1;
  }
  return 0;
}
