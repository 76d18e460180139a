// kvopt's decode attention beside ONNX Runtime's, and both beside a plain read of exactly the keys
// and values that a step needs, in turns, in one process, on the same memory.
//
//   bench_attention_peers --library PATH [--shape S1,S2,S3] [--dtype f32,f16] [--threads 1,2]
//                         [--tokens 512,2048] [--rounds N] [--warm] [--quick]
//
// PATH is what bench/peers/install.sh prints. A step appends one row to a cache and attends to all
// T rows. Cold: layers in turn, whose caches are 300 MB together. Warm: one cache again and again.
// A turn is all layers once; an engine runs them as one graph, so that the cost of calling it is
// spread over them. Ratios to the floor are the 10th percentile of times over that of floors, in
// the best round; a peer's ratio to kvopt is the median over the turns.
#include "bench/attention_contest.h"
#include "bench/machine.h"
#include "ir/graph.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <chrono>
#include <fmt/format.h>

namespace kvopt {
namespace {

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double percentile(std::vector<double> values, double fraction) {
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(fraction * static_cast<double>(values.size() - 1))];
}

struct Options {
  std::string library;
  std::vector<std::string> shapes, dtypes;
  std::vector<unsigned> threads = {1, 2};
  std::vector<int64_t> tokens; ///< empty: those of the shape
  int rounds = 3;
  int turns = 5;
  bool warm = false;
};

class Bench {
public:
  Bench(const Options& given, const OnnxRuntime& peer, const OpRegistry& registry, const Node& any)
      : options(given), runtime(peer), ops(registry), node(any) {}

  llvm::Error run(const AttentionCase& given) {
    const ContestMemory memory(given);
    for (const unsigned threads : options.threads)
      if (llvm::Error error = measure(memory, threads))
        return error;
    return llvm::Error::success();
  }

  void printHeading() const {
    fmt::print(
        "ONNX Runtime {}, {}; us: one step of one layer; x: time over the floor (kvopt's also "
        "as median), in parentheses over kvopt's\n\n",
        runtime.version(), options.warm ? "warm" : "cold");
    fmt::print("| shape | T | threads | floor us | kvopt us | kvopt |");
    for (const PeerSpelling spelling : spellings)
      fmt::print(" {} |", spellingName(spelling));
    fmt::print("\n|---|---|---|---|---|---|---|---|---|---|\n");
  }

private:
  static constexpr PeerSpelling spellings[] = {PeerSpelling::GroupQuery, PeerSpelling::Scatter,
                                               PeerSpelling::PastPresent, PeerSpelling::Concat};

  struct Entry {
    std::unique_ptr<Contestant> contestant; ///< null: it cannot run
    std::vector<double> times;              ///< of one round
    std::vector<double> toOurs;             ///< of all turns
    double best = 1e9, ratio = 1e9, median = 1e9;
  };

  llvm::Error measure(const ContestMemory& memory, unsigned threads) {
    const AttentionCase& given = memory.given;
    ThreadPool pool(threads);
    std::vector<Entry> entries(1);
    entries[0].contestant = makeOurs(memory, node, pool);
    for (const PeerSpelling spelling : spellings) {
      entries.emplace_back();
      if (llvm::Error error = entries[0].contestant->turn()) // what the peer is compared with
        return error;
      auto peer = makePeer(runtime, spelling, memory, threads, ops);
      if (peer)
        entries.back().contestant = std::move(*peer);
      else
        fmt::print(stderr, "peer skipped: {} {} T {}: {}: {}\n", given.shape.name,
                   dtypeName(given.element).str(), given.rows, spellingName(spelling),
                   llvm::toString(peer.takeError()));
    }
    double bestFloor = 1e9;
    for (int round = 0; round < options.rounds; ++round) {
      std::vector<double> floors;
      for (Entry& entry : entries)
        entry.times.clear();
      for (int turn = 0; turn < options.turns; ++turn) {
        floors.push_back(floorOf(memory, pool));
        for (Entry& entry : entries) {
          if (!entry.contestant)
            continue;
          const double start = seconds();
          if (llvm::Error error = entry.contestant->turn())
            return error;
          entry.times.push_back(seconds() - start);
          entry.toOurs.push_back(entry.times.back() / entries[0].times.back());
        }
      }
      const double floor = percentile(floors, 0.1);
      bestFloor = std::min(bestFloor, floor);
      for (Entry& entry : entries) {
        if (!entry.contestant)
          continue;
        std::vector<double> ratios;
        for (size_t i = 0; i < floors.size(); ++i)
          ratios.push_back(entry.times[i] / floors[i]);
        entry.best = std::min(entry.best, percentile(entry.times, 0.1));
        entry.ratio = std::min(entry.ratio, percentile(entry.times, 0.1) / floor);
        entry.median = std::min(entry.median, percentile(ratios, 0.5));
      }
    }
    print(given, threads, bestFloor, entries);
    return llvm::Error::success();
  }

  /// Reads the valid rows of every layer; no less than their multiply-adds take. Seconds.
  double floorOf(const ContestMemory& memory, ThreadPool& pool) {
    const AttentionCase& given = memory.given;
    const double start = seconds();
    for (int64_t layer = 0; layer < given.layers(); ++layer) {
      const CachePair& cache = memory.cache(layer);
      pool.parallelFor(given.shape.kvHeads * 2, [&](int64_t part) {
        const OwnedTensor& side = part % 2 == 0 ? cache.key : cache.value;
        total += readAll(side.row(part / 2, 0), static_cast<size_t>(given.rows * side.rowBytes()));
      });
    }
    const double arithmetic = given.operations() * static_cast<double>(given.layers()) *
                              perOperation / static_cast<double>(pool.threads());
    return std::max(seconds() - start, arithmetic);
  }

  /// Seconds per floating-point operation of one thread, at best.
  static double secondsPerOperation() {
    double best = 1;
    float sink = 1e-3f;
    for (int i = 0; i < 20; ++i) {
      const double start = seconds();
      const double operations = multiplyAdds(400, sink);
      best = std::min(best, (seconds() - start) / operations);
    }
    return sink == 12345.0f ? 0 : best;
  }

  static void print(const AttentionCase& given, unsigned threads, double floor,
                    llvm::ArrayRef<Entry> entries) {
    const double layers = static_cast<double>(given.layers());
    const Entry& ours = entries.front();
    fmt::print("| {} {} | {} | {} | {:.1f} | {:.1f} | {:.2f} {:.2f} |", given.shape.name,
               given.element == ElementType::Float ? "f32" : "f16", given.rows, threads,
               1e6 * floor / layers, 1e6 * ours.best / layers, ours.ratio, ours.median);
    for (const Entry& entry : entries.drop_front()) {
      if (entry.contestant)
        fmt::print(" {:.2f} ({:.2f}) |", entry.ratio, percentile(entry.toOurs, 0.5));
      else
        fmt::print(" – |");
    }
    fmt::print("\n");
    std::fflush(stdout);
  }

  const Options& options;
  const OnnxRuntime& runtime;
  const OpRegistry& ops;
  const Node& node;
  const double perOperation = secondsPerOperation();
  std::atomic<unsigned long long> total{0};
};

struct KnownShape {
  AttentionShape shape;
  std::vector<int64_t> tokens;
};

std::vector<KnownShape> knownShapes() {
  return {{{"S1", 8, 8, 128, 128}, {256, 1024, 4096}},
          {{"S2", 32, 8, 128, 128}, {512, 2048, 8192}},
          {{"S3", 128, 16, 192, 128}, {512, 2048}}};
}

std::vector<std::string> split(const char* text) {
  llvm::SmallVector<llvm::StringRef, 8> words;
  llvm::StringRef(text).split(words, ',', -1, false);
  return std::vector<std::string>(words.begin(), words.end());
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--warm" || word == "--quick") {
      options.warm |= word == "--warm";
      if (word == "--quick")
        options.rounds = 1, options.turns = 3;
      continue;
    }
    if (i + 1 == argc)
      return false;
    const char* value = argv[++i];
    if (word == "--library") {
      options.library = value;
    } else if (word == "--shape") {
      options.shapes = split(value);
    } else if (word == "--dtype") {
      options.dtypes = split(value);
    } else if (word == "--rounds") {
      options.rounds = std::max(1, std::atoi(value));
    } else if (word == "--threads" || word == "--tokens") {
      std::vector<int64_t> numbers;
      for (const std::string& number : split(value)) {
        numbers.push_back(std::atoll(number.c_str()));
        if (numbers.back() < (word == "--tokens" ? 2 : 1))
          return false;
      }
      if (word == "--tokens")
        options.tokens = numbers;
      else
        options.threads.assign(numbers.begin(), numbers.end());
    } else {
      return false;
    }
  }
  return !options.library.empty();
}

bool isWanted(const std::vector<std::string>& wanted, const std::string& name) {
  return wanted.empty() || std::find(wanted.begin(), wanted.end(), name) != wanted.end();
}

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    fmt::print(stderr,
               "usage: bench_attention_peers --library PATH [--shape S1,S2,S3] [--dtype f32,f16]\n"
               "  [--threads 1,2] [--tokens 512,2048] [--rounds N] [--warm] [--quick]\n"
               "PATH: library=$(bash bench/peers/install.sh)\n");
    return 2;
  }
  auto runtime = OnnxRuntime::load(options.library);
  if (!runtime) {
    fmt::print(stderr, "peers skipped: {}\n", llvm::toString(runtime.takeError()));
    return 77;
  }
  OpRegistry ops;
  registerAll(ops);
  GraphContext graphContext(ops);
  OpsetImports imports{{"", 18}};
  Graph graph(graphContext, imports);
  Node& node = graph.createFresh("MatMul", {}, 1);
  Bench bench(options, **runtime, ops, node);
  bench.printHeading();
  for (const KnownShape& known : knownShapes())
    for (const ElementType element : {ElementType::Float, ElementType::Float16})
      for (const int64_t rows : options.tokens.empty() ? known.tokens : options.tokens)
        if (isWanted(options.shapes, known.shape.name) &&
            isWanted(options.dtypes, element == ElementType::Float ? "f32" : "f16"))
          if (llvm::Error error = bench.run({known.shape, element, rows, options.warm})) {
            fmt::print(stderr, "{}\n", llvm::toString(std::move(error)));
            return 1;
          }
  return 0;
}

} // namespace
} // namespace kvopt

int main(int argc, char** argv) { return kvopt::main(argc, argv); }
