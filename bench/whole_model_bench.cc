// Decode speed of a whole model. Compares, in turns and in one process, kvopt's runtime on the
// rewritten model with ONNX Runtime on the original export, on the same weights with caches in one
// buffer, and on kvopt's rewrite of the export for ONNX Runtime (--rewritten).
//
//   bench_whole_model --library PATH --kvopt M [--growing M] [--shared M] [--rewritten M]
//                     [--depth 4096] [--threads 1,2] [--steps N] [--turns N] [--spin 0|1]
//
// PATH is the output of bench/baselines/install.sh; bench/whole_model.sh creates the models and
// calls this program. All engines start from caches filled by kvopt's prefill, and their first
// logits must agree. A turn is N steps of each engine, all of them after `--depth` tokens, so that
// only the model's run is timed: ONNX Runtime never pays for moving a present to the next step's
// past, and never allocates one.
#include "bench/decode_engines.h"
#include "bench/measure.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "support/half.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <map>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

constexpr const char* growingName = "ONNX Runtime, original export";
constexpr const char* rewrittenName = "ONNX Runtime, rewritten --to ort-gqa";

struct Options {
  std::string library, ours, growing, shared, rewritten;
  int64_t depth = 4096;
  std::vector<unsigned> threads = {1, 2};
  int steps = 8;
  int turns = 6;
  bool spins = false; ///< whether ONNX Runtime's threads spin while they wait
};

llvm::Error checkLogits(const TensorView& ours, const TensorView& theirs) {
  const bool isHalf = ours.element == ElementType::Float16;
  if (ours.element != theirs.element || (!isHalf && ours.element != ElementType::Float) ||
      ours.elementCount() != theirs.elementCount())
    return unsupported("logits are not of one kind");
  const auto number = [&](const TensorView& view, int64_t i) {
    return isHalf ? f16ToFloat(view.as<uint16_t>()[i]) : view.as<float>()[i];
  };
  float largest = 0, difference = 0;
  for (int64_t i = 0; i < ours.elementCount(); ++i) {
    largest = std::max(largest, std::abs(number(ours, i)));
    difference = std::max(difference, std::abs(number(ours, i) - number(theirs, i)));
  }
  // Rounding of sums of thousands of terms over several layers, which are stored after each layer.
  if (!(difference <= (isHalf ? 2e-2f : 1e-3f) * largest))
    return unsupported("logits differ by {} of {}", difference, largest);
  return llvm::Error::success();
}

struct BaselineFile {
  const char* name;
  BaselineCaches caches;
  LoadedModel loaded;
};

class Bench {
public:
  Bench(const Options& given, const OnnxRuntime& baseline, const Toolkit& known)
      : options(given), runtime(baseline), toolkit(known) {}

  llvm::Error run() {
    auto rewritten = LoadedModel::open(options.ours, toolkit);
    if (!rewritten)
      return rewritten.takeError();
    std::vector<BaselineFile> files;
    if (llvm::Error error = add(files, growingName, BaselineCaches::Apart, options.growing))
      return error;
    if (llvm::Error error = add(files, "ONNX Runtime, GroupQueryAttention, one buffer",
                                BaselineCaches::Shared, options.shared))
      return error;
    if (llvm::Error error = add(files, rewrittenName, BaselineCaches::Shared, options.rewritten))
      return error;
    fmt::print(
        "ONNX Runtime {}; decode after {} tokens; the fastest tenth of steps and the median\n\n",
        runtime.version(), options.depth);
    fmt::print(
        "| threads | engine | tokens/s | tokens/s, median | kvopt faster by | median of turns |\n"
        "|--:|---|--:|--:|--:|--:|\n");
    for (const unsigned threads : options.threads)
      if (llvm::Error error = measure(*rewritten, files, threads))
        return error;
    fmt::print("{}", gains);
    return llvm::Error::success();
  }

private:
  struct Entry {
    std::string name;
    std::unique_ptr<DecodeEngine> engine;
    std::vector<double> times;   ///< times of steps
    std::vector<double> medians; ///< medians of turns
  };

  llvm::Error add(std::vector<BaselineFile>& files, const char* name, BaselineCaches caches,
                  const std::string& path) const {
    if (path.empty())
      return llvm::Error::success();
    auto loaded = LoadedModel::open(path, toolkit);
    if (!loaded)
      return loaded.takeError();
    files.push_back({name, caches, std::move(*loaded)});
    return llvm::Error::success();
  }

  llvm::Error measure(const LoadedModel& rewritten, llvm::ArrayRef<BaselineFile> files,
                      unsigned threads) {
    auto ours = SessionEngine::start(rewritten, toolkit, threads, options.depth);
    if (!ours)
      return ours.takeError();
    const SessionEngine& source = **ours;
    std::vector<Entry> entries;
    entries.push_back({"kvopt, rewritten", std::move(*ours), {}, {}});
    if (llvm::Error error = entries[0].engine->step().takeError())
      return error;
    for (const BaselineFile& file : files) {
      auto baseline = startBaseline(runtime, file.loaded, file.caches, threads, options.spins,
                                    options.depth, source);
      if (!baseline)
        return withFile(baseline.takeError(), file.loaded.path);
      if (llvm::Error error = (*baseline)->step().takeError())
        return error;
      if (llvm::Error error = checkLogits(source.logits(), (*baseline)->logits()))
        return withFile(std::move(error), file.loaded.path);
      entries.push_back({file.name, std::move(*baseline), {}, {}});
    }
    for (int turn = 0; turn < options.turns; ++turn)
      for (Entry& entry : entries)
        if (llvm::Error error = takeTurn(entry))
          return error;
    for (const Entry& entry : entries)
      print(threads, entry, entries[0]);
    noteGain(entries, threads);
    std::fflush(stdout);
    return llvm::Error::success();
  }

  llvm::Error takeTurn(Entry& entry) const {
    std::vector<double> times;
    for (int i = 0; i < options.steps; ++i) {
      auto time = entry.engine->step();
      if (!time)
        return time.takeError();
      times.push_back(*time);
    }
    entry.times.insert(entry.times.end(), times.begin(), times.end());
    entry.medians.push_back(percentile(std::move(times), 0.5));
    return llvm::Error::success();
  }

  static void print(unsigned threads, const Entry& entry, const Entry& ours) {
    std::vector<double> ratios;
    for (size_t i = 0; i < ours.medians.size(); ++i)
      ratios.push_back(entry.medians[i] / ours.medians[i]);
    const double best = percentile(entry.times, 0.1);
    fmt::print("| {} | {} | {:.2f} | {:.2f} | {:.2f} | {:.2f} |\n", threads, entry.name, 1 / best,
               1 / percentile(entry.times, 0.5), best / percentile(ours.times, 0.1),
               percentile(ratios, 0.5));
  }

  /// Reports the speedup of the rewritten model over the original in one engine.
  void noteGain(llvm::ArrayRef<Entry> entries, unsigned threads) {
    const Entry* before = nullptr;
    const Entry* after = nullptr;
    for (const Entry& entry : entries) {
      if (entry.name == growingName)
        before = &entry;
      if (entry.name == rewrittenName)
        after = &entry;
    }
    if (!before || !after)
      return;
    std::vector<double> ratios;
    for (size_t i = 0; i < before->medians.size(); ++i)
      ratios.push_back(before->medians[i] / after->medians[i]);
    gains += formatted("\nONNX Runtime, {} threads: rewritten {:.2f} times as fast as the original "
                       "export, median of turns {:.2f}\n",
                       threads, percentile(before->times, 0.1) / percentile(after->times, 0.1),
                       percentile(ratios, 0.5));
  }

  const Options& options;
  const OnnxRuntime& runtime;
  const Toolkit& toolkit;
  std::string gains;
};

bool parse(int argc, char** argv, Options& options) {
  std::map<std::string, std::string*> paths = {{"--library", &options.library},
                                               {"--kvopt", &options.ours},
                                               {"--growing", &options.growing},
                                               {"--shared", &options.shared},
                                               {"--rewritten", &options.rewritten}};
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string word = argv[i];
    const char* value = argv[i + 1];
    if (auto found = paths.find(word); found != paths.end()) {
      *found->second = value;
    } else if (word == "--depth") {
      options.depth = std::max<int64_t>(1, std::atoll(value));
    } else if (word == "--steps") {
      options.steps = std::max(1, std::atoi(value));
    } else if (word == "--turns") {
      options.turns = std::max(1, std::atoi(value));
    } else if (word == "--spin") {
      options.spins = std::atoi(value) != 0;
    } else if (word == "--threads") {
      options.threads.clear();
      llvm::SmallVector<llvm::StringRef, 4> words;
      llvm::StringRef(value).split(words, ',', -1, false);
      for (llvm::StringRef text : words)
        options.threads.push_back(
            static_cast<unsigned>(std::max(1, std::atoi(text.str().c_str()))));
    } else {
      return false;
    }
  }
  return argc % 2 == 1 && !options.library.empty() && !options.ours.empty();
}

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    fmt::print(
        stderr,
        "usage: bench_whole_model --library PATH --kvopt M [--growing M] [--shared M]\n"
        "  [--rewritten M] [--depth 4096] [--threads 1,2] [--steps N] [--turns N] [--spin 0|1]\n");
    return 2;
  }
  auto runtime = OnnxRuntime::load(options.library);
  if (!runtime) {
    fmt::print(stderr, "baselines skipped: {}\n", llvm::toString(runtime.takeError()));
    return 77;
  }
  const Toolkit toolkit;
  Bench bench(options, **runtime, toolkit);
  if (llvm::Error error = bench.run()) {
    fmt::print(stderr, "{}\n", llvm::toString(std::move(error)));
    return 1;
  }
  return 0;
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) { return kvopt::main(argc, argv); }
