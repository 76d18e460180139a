// Time that kvopt takes to recover attention from a decoder and to rewrite it, compared with a
// plain load and save of the same file with protobuf; and growth of both with the number of nodes.
#include "driver/recover.h"
#include "driver/synthetic/decoder.h"
#include "ir/onnx/export.h"
#include "ir/onnx/import.h"
#include "kvopt_onnx.pb.h"
#include "support/diagnostic.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <unistd.h>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace runtime;
using namespace targets;

namespace {

/// Definitions that recovery and rewriting need; nothing is executed.
struct Registered {
  Registered() {
    registerAll(ops);
    registerAll(rules);
    registerAll(passes);
    registerAll(targets);
  }
  OpRegistry ops;
  RuleRegistry rules;
  PassRegistry passes;
  TargetRegistry targets;
};

/// CPU time of this process, which is comparable on a busy machine.
double cpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Measurement {
  size_t nodes = 0;
  size_t sites = 0;
  size_t lowered = 0;
  double loadAndSave = 0;
  double recover = 0;
  double rewrite = 0;
  std::string passes;

  double ours() const { return recover + rewrite; }
};

llvm::Error loadAndSave(const std::string& from, const std::string& to) {
  std::ifstream input(from, std::ios::binary);
  onnx::ModelProto message;
  if (!message.ParseFromIstream(&input))
    return invalid("'{}' cannot be parsed", from);
  std::ofstream output(to, std::ios::binary);
  if (!message.SerializeToOstream(&output))
    return ioError("'{}' cannot be written", to);
  return llvm::Error::success();
}

llvm::Error runPipeline(const char* pipeline, Model& model, PassContext& context,
                        const Registered& toolkit, std::string& timings) {
  PassManager manager(toolkit.passes, {});
  if (llvm::Error error = manager.addPipeline(pipeline))
    return error;
  if (llvm::Error error = manager.run(model, context))
    return error;
  for (const PassTiming& timing : manager.timings())
    timings += formatted(" {} {:.0f}", timing.pass, timing.milliseconds);
  return llvm::Error::success();
}

llvm::Error measureOnce(const std::string& path, const std::string& out, const Registered& toolkit,
                        Measurement& measured) {
  double start = cpuSeconds();
  if (llvm::Error error = loadAndSave(path, out))
    return error;
  measured.loadAndSave = cpuSeconds() - start;

  start = cpuSeconds();
  auto model = importModel(path, toolkit.ops);
  if (!model)
    return model.takeError();
  PassContext context(toolkit.rules, toolkit.targets);
  measured.passes.clear();
  if (llvm::Error error = runPipeline(recoveryPipeline, **model, context, toolkit, measured.passes))
    return error;
  measured.recover = cpuSeconds() - start;
  measured.sites = context.sites.size();

  start = cpuSeconds();
  if (llvm::Error error =
          runPipeline("lower{to=kvopt require=any}", **model, context, toolkit, measured.passes))
    return error;
  if (llvm::Error error = exportModel(**model, out))
    return error;
  measured.rewrite = cpuSeconds() - start;
  measured.lowered = static_cast<size_t>(context.statistics["lower"]["sites"]);
  return llvm::Error::success();
}

llvm::Expected<Measurement> measure(const Registered& toolkit, DecoderSpec decoder, size_t nodes,
                                    unsigned repetitions, const std::string& folder) {
  decoder.layers = layersForNodes(toolkit.ops, decoder, nodes);
  std::string path = folder + "/decoder.onnx";
  Measurement best;
  {
    auto model = generateDecoder(toolkit.ops, decoder);
    best.nodes = nodeCount(*model);
    if (llvm::Error error = exportModel(*model, path))
      return error;
  }
  for (unsigned i = 0; i < repetitions; ++i) {
    Measurement one = best;
    if (llvm::Error error = measureOnce(path, folder + "/out.onnx", toolkit, one))
      return error;
    bool isFirst = i == 0;
    best.loadAndSave = isFirst ? one.loadAndSave : std::min(best.loadAndSave, one.loadAndSave);
    if (isFirst || one.ours() < best.ours()) {
      one.loadAndSave = best.loadAndSave;
      best = one;
    }
  }
  return best;
}

/// The exponent e of time ~ nodes^e between two measurements.
double exponent(const Measurement& smaller, const Measurement& larger) {
  return std::log(larger.ours() / smaller.ours()) /
         std::log(static_cast<double>(larger.nodes) / static_cast<double>(smaller.nodes));
}

llvm::Error measureSpelling(const Registered& toolkit, DecoderSpelling spelling,
                            unsigned repetitions, llvm::ArrayRef<size_t> sizes,
                            const std::string& folder) {
  DecoderSpec decoder;
  decoder.spelling = spelling;
  decoder.hidden = 16;
  decoder.kvHeads = 2;
  decoder.intermediate = 32;
  decoder.vocabulary = 32;
  decoder = llvm::cantFail(resolved(decoder));
  fmt::print("{}\n",
             spelling == DecoderSpelling::TorchScript ? "TorchScript spelling" : "dynamo spelling");
  fmt::print("{:>8} {:>6} {:>8} {:>12} {:>11} {:>11} {:>7} {:>7}\n", "nodes", "sites", "lowered",
             "load+save s", "recover s", "rewrite s", "ratio", "growth");
  std::optional<Measurement> previous;
  for (size_t size : sizes) {
    auto one = measure(toolkit, decoder, size, repetitions, folder);
    if (!one)
      return one.takeError();
    fmt::print("{:>8} {:>6} {:>8} {:>12.3f} {:>11.3f} {:>11.3f} {:>7.1f} {:>7}\n", one->nodes,
               one->sites, one->lowered, one->loadAndSave, one->recover, one->rewrite,
               one->ours() / one->loadAndSave,
               previous ? formatted("{:.2f}", exponent(*previous, *one)) : "");
    fmt::print("         ms by pass:{}\n", one->passes);
    previous = std::move(*one);
  }
  return llvm::Error::success();
}

llvm::Error run(llvm::ArrayRef<size_t> sizes, unsigned repetitions) {
  Registered toolkit;
  std::string folder =
      (std::filesystem::temp_directory_path() / formatted("kvopt_bench_{}", getpid())).string();
  std::error_code failure;
  std::filesystem::create_directory(folder, failure);
  if (failure)
    return ioError("'{}' cannot be made", folder);
  llvm::Error error =
      measureSpelling(toolkit, DecoderSpelling::TorchScript, repetitions, sizes, folder);
  if (!error)
    error = measureSpelling(toolkit, DecoderSpelling::Dynamo, repetitions, sizes, folder);
  std::filesystem::remove_all(folder, failure);
  return error;
}

} // namespace
} // namespace kvopt

/// recognition [NODES …]: sizes to measure; default: 2500 to 40000.
int main(int argc, char** argv) {
  std::vector<size_t> sizes;
  for (int i = 1; i < argc; ++i) {
    size_t size = 0;
    if (llvm::StringRef(argv[i]).getAsInteger(10, size) || size == 0 || size > 1000000) {
      fmt::print(stderr, "'{}' is not a number of nodes\n", argv[i]);
      return 2;
    }
    sizes.push_back(size);
  }
  if (sizes.empty())
    sizes = {2500, 5000, 10000, 20000, 40000};
  if (llvm::Error error = kvopt::run(sizes, 3)) {
    fmt::print(stderr, "{}\n", kvopt::takeDiagnostic(std::move(error)).str());
    return 1;
  }
  return 0;
}
