// Compares the speed of attention, in turns, with a plain read of exactly the step's valid K and V
// bytes (decode), or with the multiply-adds of the visible pairs in registers (prefill).
//
//   attention_bench [--shape S1,S2,S3,latent,separate] [--dtype f32,f16,bf16,int8,int4]
//                   [--threads 1,2] [--phase decode,prefill] [--cache cold,warm] [--length N,…]
//                   [--rounds N] [--calls N] [--quick] [--json]
//                   [--baselines LIBRARY [--baselines-spin]] [--simd TARGET]
//
// Cold: each step uses the caches of the next layer, 320 MB together; warm: those of one layer. The
// bound of a decode step is the larger of the read and of the multiply-adds. --simd simulates a CPU
// whose best SIMD target is TARGET.
//
// --baselines compares kvopt's runtime with ONNX Runtime instead (attention_baselines.h); LIBRARY
// is the output of bench/baselines/install.sh. A step also appends its rows. A turn is a step of
// every layer, which an engine runs as one graph, so that the cost of the call is distributed over
// all layers.
#include "bench/attention_baselines.h"
#include "bench/attention_case.h"
#include "bench/machine.h"
#include "bench/measure.h"
#include "runtime/simd/attention/attention_kernel.h"
#include "runtime/simd/attention/simd_target.h"
#include "runtime/threads/thread_pool.h"
#include "support/format.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace kvopt {
using namespace ir;
using namespace runtime;
using namespace simd;

namespace {

const std::vector<AttentionShape>& shapes() {
  static const std::vector<AttentionShape> all = {
      {"S1", 8, 8, 128, 128},         {"S2", 32, 8, 128, 128},       {"S3", 128, 16, 192, 128},
      {"latent", 16, 1, 576, 512, 0}, {"separate", 16, 1, 576, 512},
  };
  return all;
}

struct Options {
  std::vector<std::string> shapes = {"S1", "S2", "S3", "latent", "separate"};
  std::vector<std::string> dtypes = {"f32", "f16", "int8"};
  std::vector<std::string> phases = {"decode", "prefill"};
  std::vector<std::string> caches = {"cold", "warm"};
  std::vector<int64_t> lengths;
  std::vector<unsigned> threads = {1, 2};
  int rounds = 5;
  int calls = 0; ///< calls per round; 0: the number that fits into a fraction of a second
  bool quick = false;
  bool json = false;
  std::string baselines; ///< library of ONNX Runtime
  bool baselinesSpin = false;
  std::string simd; ///< empty for the best target of the CPU
};

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

std::vector<int64_t> lengthsOf(const Options& options, const std::string& shape, bool decode) {
  if (!options.lengths.empty())
    return options.lengths;
  if (!decode)
    return options.quick ? std::vector<int64_t>{128, 512}
                         : std::vector<int64_t>{128, 256, 512, 1024};
  if (shape == "S1")
    return options.quick ? std::vector<int64_t>{1024} : std::vector<int64_t>{256, 1024, 4096};
  if (shape == "S2")
    return options.quick ? std::vector<int64_t>{2048} : std::vector<int64_t>{512, 2048, 8192};
  if (shape == "S3")
    return options.quick ? std::vector<int64_t>{1024} : std::vector<int64_t>{128, 512, 1024, 2048};
  return options.quick ? std::vector<int64_t>{4096} : std::vector<int64_t>{1024, 4096, 16384};
}

std::vector<AttentionCase> casesOf(const Options& options) {
  std::vector<AttentionCase> cases;
  for (const CacheType cache :
       {CacheType::f32, CacheType::f16, CacheType::bf16, CacheType::int8, CacheType::int4})
    for (const AttentionShape& shape : shapes())
      for (const bool decode : {true, false}) {
        // Columns of keys have no separate scales.
        const bool isLatent = shape.valueOffset >= 0;
        if ((holdsCodes(cache) && isLatent) || !contains(options.dtypes, name(cache)) ||
            !contains(options.shapes, shape.name) ||
            !contains(options.phases, decode ? "decode" : "prefill"))
          continue;
        for (const bool cold : {true, false})
          // A prefill reads little, so cold and warm caches make no difference.
          if (decode ? contains(options.caches, cold ? "cold" : "warm") : !cold)
            for (const int64_t length : lengthsOf(options, shape.name, decode))
              cases.push_back({shape, cache, cold, decode ? 1 : length, length});
      }
  return cases;
}

struct Row {
  AttentionCase attentionCase;
  unsigned threads = 1;
  std::string kernel;
  PairedTimes times;
  double peakSeconds = 0; ///< time of the multiply-adds in registers
  size_t temporaryBytes = 0;
};

class Bench {
public:
  explicit Bench(const Options& given) : options(given) {}

  Row measure(const AttentionCase& attentionCase, unsigned threads) {
    ThreadPool pool(threads);
    memory.set(attentionCase);
    Row row{attentionCase, threads, {}, {}, 0, 0};
    row.peakSeconds = attentionCase.operations() * perOperation / threads;
    const double typical =
        std::max(row.peakSeconds, static_cast<double>(attentionCase.cacheBytes()) / 30e9);
    const double budget = options.quick ? 0.05 : 0.15;
    const int calls = options.calls > 0
                          ? options.calls
                          : static_cast<int>(std::clamp(budget / typical, 7.0, 400.0));
    for (int round = 0; round < options.rounds; ++round) {
      row.times.startRound();
      for (int call = 0; call < calls; ++call) {
        const double bound =
            attentionCase.isDecode() ? std::max(read(pool), row.peakSeconds) : row.peakSeconds;
        row.times.add(bound, attend(pool, row));
      }
    }
    return row;
  }

private:
  double read(ThreadPool& pool) {
    memory.nextLayer();
    const auto planes = memory.planes();
    // A few pieces for each thread.
    const size_t cuts = std::max<size_t>(1, 4 * pool.threads() / planes.size());
    const double start = seconds();
    pool.parallelFor(static_cast<int64_t>(planes.size() * cuts), [&](int64_t unit) {
      const AttentionMemory::Plane& plane = planes[static_cast<size_t>(unit) / cuts];
      const size_t part = plane.bytes / cuts / 64 * 64;
      total += readAll(plane.data + static_cast<size_t>(unit) % cuts * part, part);
    });
    return seconds() - start;
  }

  double attend(ThreadPool& pool, Row& row) {
    const AttentionView view = memory.nextLayer();
    const double start = seconds();
    AttentionJob job(view);
    const int64_t workers = std::min<int64_t>(job.units(), pool.threads());
    const size_t bytes = job.scratchBytes(workers).value();
    if (scratch.size() < bytes)
      scratch.resize(bytes);
    job.start(std::span(scratch).first(bytes));
    std::atomic<int64_t> next{0};
    pool.parallelFor(workers, [&](int64_t worker) {
      for (int64_t unit = next.fetch_add(1); unit < job.units(); unit = next.fetch_add(1))
        job.run(unit, worker, unit + workers);
    });
    const double time = seconds() - start;
    row.kernel = job.kernel().name;
    row.temporaryBytes = bytes;
    return time;
  }

  const Options& options;
  AttentionMemory memory;
  std::vector<std::byte> scratch;
  double perOperation = secondsPerOperation();
  std::atomic<unsigned long long> total{0};
};

const char* cacheName(const AttentionCase& c) { return c.isCold ? "cold" : "warm"; }
const char* phaseName(const AttentionCase& c) { return c.isDecode() ? "decode" : "prefill"; }

void printHeader() {
  fmt::print(
      "| shape | dtype | phase | cache | T | threads | kernel | us | bound us | p10 | median "
      "| of peak | temporary bytes |\n|---|---|---|---|--:|--:|---|--:|--:|--:|--:|--:|--:|\n");
}

void print(const Row& row) {
  const AttentionCase& c = row.attentionCase;
  const double p10 = row.times.ratioP10(), median = row.times.ratioMedian();
  // A difference between the two shows that the machine did other work.
  const char* doubt = median > 1.15 * p10 || p10 > 1.15 * median ? " ?" : "";
  fmt::print(
      "| {} | {} | {} | {} | {} | {} | {} | {:.1f} | {:.1f} | {:.2f} | {:.2f}{} | {:.2f} | {} "
      "|\n",
      c.shape.name, name(c.cache), phaseName(c), cacheName(c), c.totalLength, row.threads,
      row.kernel, 1e6 * row.times.time(), 1e6 * row.times.reference(), p10, median, doubt,
      row.peakSeconds / row.times.time(), row.temporaryBytes);
  std::fflush(stdout);
}

nlohmann::json toJson(const Row& row) {
  const AttentionCase& c = row.attentionCase;
  return {{"shape", c.shape.name},
          {"dtype", name(c.cache)},
          {"cache", cacheName(c)},
          {"phase", phaseName(c)},
          {"T", c.totalLength},
          {"threads", row.threads},
          {"kernel", row.kernel},
          {"us", 1e6 * row.times.time()},
          {"bound_us", 1e6 * row.times.reference()},
          {"ratio_p10", row.times.ratioP10()},
          {"ratio_median", row.times.ratioMedian()},
          {"temp_bytes", row.temporaryBytes},
          {"of_fma_peak", row.peakSeconds / row.times.time()}};
}

/// Cases with separate rows for keys and values, in types that baselines support.
BaselineComparison comparisonOf(const Options& options) {
  BaselineComparison comparison;
  for (const AttentionCase& c : casesOf(options))
    if (c.shape.valueOffset < 0 && c.cache != CacheType::bf16 && !holdsCodes(c.cache) &&
        c.totalLength > 1)
      comparison.cases.push_back(
          {c.shape, c.cache == CacheType::f32 ? ElementType::Float : ElementType::Float16,
           c.totalLength, !c.isCold, c.newRows});
  comparison.threads = options.threads;
  comparison.rounds = options.rounds;
  comparison.turns = options.quick ? 3 : 5;
  comparison.spins = options.baselinesSpin;
  return comparison;
}

nlohmann::json toJson(const BaselineResult& result) {
  if (!result.missing.empty())
    return {{"skipped", result.missing}};
  return {{"us", 1e6 * result.time},
          {"ratio_p10", result.ratioP10},
          {"ratio_median", result.ratioMedian},
          {"over_kvopt", result.overOurs}};
}

nlohmann::json toJson(const BaselineRow& row) {
  nlohmann::json json = toJson(row.ours);
  json["shape"] = row.given.shape.name;
  json["dtype"] = name(row.given.cache());
  json["cache"] = row.given.warm ? "warm" : "cold";
  json["phase"] = row.given.isDecode() ? "decode" : "prefill";
  json["T"] = row.given.rows;
  json["threads"] = row.threads;
  json["bound_us"] = 1e6 * row.bound;
  for (size_t i = 0; i < row.baselines.size(); ++i)
    json["baselines"][spellingName(baselineSpellings[i])] = toJson(row.baselines[i]);
  return json;
}

/// Returns 77 if the baselines are not available.
int runBaselines(const Options& options) {
  auto runtime = OnnxRuntime::load(options.baselines);
  if (!runtime) {
    fmt::print(stderr, "baselines skipped: {}\n", llvm::toString(runtime.takeError()));
    return 77;
  }
  nlohmann::json rows = nlohmann::json::array();
  if (!options.json)
    fmt::print("{}", baselineTableHeading(**runtime));
  llvm::Error error =
      compareBaselines(comparisonOf(options), **runtime, [&](const BaselineRow& row) {
        fmt::print(stderr, "{}", missingBaselines(row));
        if (options.json)
          rows.push_back(toJson(row));
        else
          fmt::print("{}", baselineTableRow(row));
        std::fflush(stdout);
      });
  if (error) {
    fmt::print(stderr, "{}\n", llvm::toString(std::move(error)));
    return 1;
  }
  if (options.json)
    fmt::print("{}\n", nlohmann::json{{"rows", rows}}.dump(1));
  return 0;
}

void runAll(const Options& options) {
  Bench bench(options);
  nlohmann::json rows = nlohmann::json::array();
  if (!options.json)
    printHeader();
  for (const AttentionCase& c : casesOf(options))
    for (const unsigned threads : options.threads) {
      const Row row = bench.measure(c, threads);
      if (options.json)
        rows.push_back(toJson(row));
      else
        print(row);
    }
  if (options.json)
    fmt::print("{}\n", nlohmann::json{{"rows", rows}}.dump(1));
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) {
  kvopt::Options options;
  CLI::App app("Attention compared with the bound of its memory and arithmetic", "attention_bench");
  const auto list = [&](const char* flag, std::vector<std::string>& values,
                        std::vector<std::string> known) {
    app.add_option(flag, values)->delimiter(',')->check(CLI::IsMember(std::move(known)));
  };
  list("--shape", options.shapes, {"S1", "S2", "S3", "latent", "separate"});
  list("--dtype", options.dtypes, {"f32", "f16", "bf16", "int8", "int4"});
  list("--phase", options.phases, {"decode", "prefill"});
  list("--cache", options.caches, {"cold", "warm"});
  app.add_option("--length", options.lengths, "T, in place of each shape's own")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, int64_t{16384}));
  app.add_option("--threads", options.threads)->delimiter(',')->check(CLI::Range(1u, 256u));
  app.add_option("--rounds", options.rounds)->check(CLI::Range(1, 1000));
  app.add_option("--calls", options.calls,
                 "calls per round; default: enough for a fraction of a second")
      ->check(CLI::Range(1, 100000));
  app.add_flag("--quick", options.quick, "fewer lengths, shorter rounds");
  app.add_flag("--json", options.json);
  const CLI::Option* baselines = app.add_option("--baselines", options.baselines,
                                                "ONNX Runtime's library: compare with it instead");
  app.add_flag("--baselines-spin", options.baselinesSpin, "its threads wait at full speed");
  app.add_option("--simd", options.simd, "one of the CPU's SIMD targets, in place of the best")
      ->check(CLI::IsMember(kvopt::simd::simdTargets()));
  CLI11_PARSE(app, argc, argv);
  if (!options.simd.empty())
    kvopt::simd::useSimdTarget(options.simd);
  if (baselines->count() != 0)
    return kvopt::runBaselines(options);
  kvopt::runAll(options);
  return 0;
}
