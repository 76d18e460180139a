// Runs engines in turns, and prints the table of their times.
#include "bench/attention_baselines.h"

#include "bench/machine.h"
#include "ir/graph.h"
#include "support/format.h"

#include <algorithm>

namespace kvopt {
using namespace ir;
using namespace runtime;
using namespace simd;

namespace {

struct Entry {
  std::unique_ptr<Contestant> contestant; ///< null if it is missing
  PairedTimes times;
  std::vector<double> overOurs;
};

class BaselineRun {
public:
  BaselineRun(const BaselineComparison& given, const OnnxRuntime& baseline)
      : plan(given), runtime(baseline) {
    registerAll(ops);
  }

  llvm::Expected<BaselineRow> measure(const ContestMemory& memory, unsigned threads) {
    BaselineRow row;
    row.given = memory.given;
    row.threads = threads;
    ThreadPool pool(threads);
    std::vector<Entry> entries(1);
    entries[0].contestant = makeOurs(memory, anyNode, pool);
    for (const BaselineSpelling spelling : baselineSpellings) {
      entries.emplace_back();
      row.baselines.emplace_back();
      if (llvm::Error error = entries[0].contestant->turn()) // the baseline of the comparison
        return error;
      auto baseline = makeBaseline(runtime, spelling, memory, threads, plan.spins, ops);
      if (baseline)
        entries.back().contestant = std::move(*baseline);
      else
        row.baselines.back().missing = llvm::toString(baseline.takeError());
    }
    for (int round = 0; round < plan.rounds; ++round) {
      for (Entry& entry : entries)
        entry.times.startRound();
      for (int turn = 0; turn < plan.turns; ++turn)
        if (llvm::Error error = takeTurn(memory, pool, entries))
          return error;
    }
    const auto each = 1 / static_cast<double>(row.given.layers());
    row.bound = each * entries[0].times.reference();
    for (size_t i = 0; i < entries.size(); ++i)
      if (entries[i].contestant) {
        BaselineResult& result = i == 0 ? row.ours : row.baselines[i - 1];
        const PairedTimes& times = entries[i].times;
        result.time = each * times.time();
        result.ratioP10 = times.ratioP10();
        result.ratioMedian = times.ratioMedian();
        result.overOurs = percentile(entries[i].overOurs, 0.5);
      }
    return row;
  }

private:
  llvm::Error takeTurn(const ContestMemory& memory, ThreadPool& pool, std::vector<Entry>& entries) {
    const double bound = boundOf(memory, pool);
    double ours = 0;
    for (Entry& entry : entries) {
      if (!entry.contestant)
        continue;
      const double start = seconds();
      if (llvm::Error error = entry.contestant->turn())
        return error;
      const double time = seconds() - start;
      if (&entry == &entries.front())
        ours = time;
      entry.times.add(bound, time);
      entry.overOurs.push_back(time / ours);
    }
    return llvm::Error::success();
  }

  /// Seconds to read the valid rows of every layer, but at least the time of their multiply-adds;
  /// for a prefill, only that of the multiply-adds.
  double boundOf(const ContestMemory& memory, ThreadPool& pool) {
    const ContestCase& given = memory.given;
    const double arithmetic = given.operations() * static_cast<double>(given.layers()) *
                              perOperation / static_cast<double>(pool.threads());
    if (!given.isDecode())
      return arithmetic;
    const double start = seconds();
    for (int64_t layer = 0; layer < given.layers(); ++layer) {
      const CachePair& cache = memory.cache(layer);
      pool.parallelFor(given.shape.kvHeads * 2, [&](int64_t part) {
        const OwnedTensor& side = part % 2 == 0 ? cache.key : cache.value;
        total += readAll(side.row(part / 2, 0), static_cast<size_t>(given.rows * side.rowBytes()));
      });
    }
    return std::max(seconds() - start, arithmetic);
  }

  const BaselineComparison& plan;
  const OnnxRuntime& runtime;
  OpRegistry ops;
  // Kernels need a node to name in errors.
  GraphContext graphContext{ops};
  OpsetImports imports{{"", 18}};
  Graph graph{graphContext, imports};
  const Node& anyNode = graph.createFresh("MatMul", {}, 1);
  const double perOperation = secondsPerOperation();
  std::atomic<unsigned long long> total{0};
};

} // namespace

llvm::Error compareBaselines(const BaselineComparison& comparison, const OnnxRuntime& runtime,
                             llvm::function_ref<void(const BaselineRow&)> tell) {
  BaselineRun engines(comparison, runtime);
  for (const ContestCase& given : comparison.cases) {
    const ContestMemory memory(given);
    for (const unsigned threads : comparison.threads) {
      auto row = engines.measure(memory, threads);
      if (!row)
        return row.takeError();
      tell(*row);
    }
  }
  return llvm::Error::success();
}

std::string baselineTableHeading(const OnnxRuntime& runtime) {
  std::string text =
      formatted("Baselines: ONNX Runtime {}.\n\n"
                "| shape | dtype | phase | cache | T | threads | bound us | kvopt us | "
                "kvopt: p10 median |",
                runtime.version());
  for (const BaselineSpelling spelling : baselineSpellings)
    text += formatted(" {} |", spellingName(spelling));
  text += "\n|---|---|---|---|--:|--:|--:|--:|--:|";
  for (size_t i = 0; i < std::size(baselineSpellings); ++i)
    text += "--:|";
  return text + "\n";
}

std::string baselineTableRow(const BaselineRow& row) {
  const double p10 = row.ours.ratioP10, median = row.ours.ratioMedian;
  // A difference between the two shows that the machine did other work.
  const char* doubt = median > 1.15 * p10 || p10 > 1.15 * median ? " ?" : "";
  std::string text = formatted(
      "| {} | {} | {} | {} | {} | {} | {:.1f} | {:.1f} | {:.2f} {:.2f}{} |", row.given.shape.name,
      name(row.given.cache()), row.given.isDecode() ? "decode" : "prefill",
      row.given.warm ? "warm" : "cold", row.given.rows, row.threads, 1e6 * row.bound,
      1e6 * row.ours.time, p10, median, doubt);
  for (const BaselineResult& baseline : row.baselines)
    text += baseline.missing.empty()
                ? formatted(" {:.2f} ({:.2f}) |", baseline.ratioP10, baseline.overOurs)
                : std::string(" – |");
  return text + "\n";
}

std::string missingBaselines(const BaselineRow& row) {
  std::string text;
  for (size_t i = 0; i < row.baselines.size(); ++i)
    if (!row.baselines[i].missing.empty())
      text += formatted("baseline skipped: {}, {} {} T {}: {}\n",
                        spellingName(baselineSpellings[i]), row.given.shape.name,
                        name(row.given.cache()), row.given.rows, row.baselines[i].missing);
  return text;
}

} // namespace kvopt
