// Cost of appending tokens one by one to caches of keys, [1, 8, T, 128] in float32: by joining past
// and new rows into a new tensor at every step, and with the runtime's caches.
//
//   bench_cache_update [--tokens 256,1024,4096] [--layers N] [--rounds N]
//
// Every token is appended to the caches of all layers, one after another, as in a model; with one
// layer, caches stay in the CPU's caches. Variants take turns. Times are for all T tokens in one
// layer. `first` includes the allocation of the cache. Memory is touched when a row is written or,
// in some variants, when the cache is allocated. Ratios are the time of joining divided by that of
// each variant: in the fastest rounds, and the median of the rounds. Bytes are the maximum in use,
// in one layer, in addition to the T rows.
//
// The second table shows the price of growth: `first` of a cache that doubles, divided by that of a
// cache with room for all rows. The third table shows the cost of opening a session's caches for a
// long context: time, and resident memory before and after the first token; and the time with a
// prompt that fills half of the room.
#include "bench/measure.h"
#include "runtime/cache/cache_set.h"
#include "support/format.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <unistd.h>

using namespace kvopt;
using namespace kvopt::ir;
using namespace kvopt::runtime;

namespace {

constexpr int64_t heads = 8;
constexpr int64_t width = 128;
constexpr int64_t rowBytes = width * 4;
constexpr int64_t firstRoom = 16; // initial room of a cache that doubles

struct Cost {
  double append = 0; ///< seconds
  double first = 0;  ///< including the allocation of the cache
  size_t bytesInUse = 0;
};

/// Keys of one token, one row per head.
std::vector<std::byte> tokenRows() {
  return std::vector<std::byte>(static_cast<size_t>(heads * rowBytes), std::byte{1});
}

/// Creates a tensor with one more row at every step: in two alternating blocks of memory, which is
/// the best case of an engine's memory pool, or, with `fresh`, in new memory.
Cost joinAtEveryStep(int64_t tokens, int64_t layers, bool fresh) {
  auto allocator = std::make_shared<Allocator>();
  const std::vector<std::byte> rows = tokenRows();
  struct Blocks {
    std::shared_ptr<Buffer> past, spare;
  };
  std::vector<Blocks> caches(static_cast<size_t>(layers));
  const auto bytesOf = [](int64_t count) { return static_cast<size_t>(count * heads * rowBytes); };
  const double made = seconds();
  for (Blocks& cache : caches)
    for (std::shared_ptr<Buffer>* block : {&cache.past, &cache.spare})
      if (!fresh) {
        *block = llvm::cantFail(Buffer::create(allocator, bytesOf(tokens)));
        std::memset((*block)->data(), 0, bytesOf(tokens));
      }
  const double start = seconds();
  for (int64_t length = 0; length < tokens; ++length)
    for (Blocks& cache : caches) {
      if (fresh)
        cache.spare = llvm::cantFail(Buffer::create(allocator, bytesOf(length + 1)));
      for (int64_t head = 0; head < heads; ++head) {
        std::byte* to = cache.spare->data() + head * (length + 1) * rowBytes;
        if (length != 0)
          std::memcpy(to, cache.past->data() + head * length * rowBytes,
                      static_cast<size_t>(length * rowBytes));
        std::memcpy(to + length * rowBytes, rows.data() + head * rowBytes, rowBytes);
      }
      std::swap(cache.past, cache.spare);
      if (fresh)
        cache.spare.reset();
    }
  const double end = seconds();
  return {end - start, end - made, allocator->peakBytes()};
}

/// Caches of the runtime with room for `room` tokens: `count` shared buffers.
CacheSet makeCaches(int64_t count, int64_t room, const std::shared_ptr<Allocator>& allocator) {
  std::vector<ManifestCache> descriptions(static_cast<size_t>(count));
  for (ManifestCache& description : descriptions) {
    description.past = "past";
    description.storage = BufferCache();
    description.shape = {std::string("batch"), heads, std::string("capacity"), width};
  }
  CacheSetOptions options;
  options.room = room;
  options.allocator = allocator;
  return llvm::cantFail(CacheSet::create(descriptions, std::move(options)));
}

/// Appends `count` tokens with equal keys.
void append(CacheSet& caches, const std::vector<std::byte>& rows, int64_t count) {
  llvm::cantFail(caches.reserve(count));
  for (size_t layer = 0; layer < caches.size(); ++layer) {
    const TensorView& buffer = caches.buffer(layer);
    const int64_t headBytes = buffer.strides[1] * 4;
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t token = caches.length(); token < caches.length() + count; ++token)
        std::memcpy(buffer.data + head * headBytes + token * rowBytes,
                    rows.data() + head * rowBytes, rowBytes);
  }
  caches.advance(count);
}

/// Doubles the room when it is full. With `touched`, all memory is touched when the caches are
/// allocated.
Cost writeInPlace(int64_t tokens, int64_t layers, int64_t room, bool touched) {
  auto allocator = std::make_shared<Allocator>();
  const std::vector<std::byte> rows = tokenRows();
  const double made = seconds();
  CacheSet caches = makeCaches(layers, room, allocator);
  for (size_t layer = 0; touched && layer < caches.size(); ++layer)
    std::memset(caches.buffer(layer).data, 0, static_cast<size_t>(caches.buffer(layer).byteSize()));
  const double start = seconds();
  while (caches.length() < tokens) {
    if (caches.length() == caches.room())
      llvm::cantFail(caches.grow(2 * caches.room()));
    append(caches, rows, 1);
  }
  const double end = seconds();
  return {end - start, end - made, allocator->peakBytes()};
}

struct Way {
  const char* name;
  Cost (*run)(int64_t tokens, int64_t layers);
};

constexpr Way ways[] = {
    {"joined, memory from a pool",
     [](int64_t tokens, int64_t layers) { return joinAtEveryStep(tokens, layers, false); }},
    {"joined, fresh memory",
     [](int64_t tokens, int64_t layers) { return joinAtEveryStep(tokens, layers, true); }},
    {"in place, room for all, touched",
     [](int64_t tokens, int64_t layers) { return writeInPlace(tokens, layers, tokens, true); }},
    {"in place, room for all",
     [](int64_t tokens, int64_t layers) { return writeInPlace(tokens, layers, tokens, false); }},
    {"in place, room doubles",
     [](int64_t tokens, int64_t layers) { return writeInPlace(tokens, layers, firstRoom, false); }},
};
constexpr size_t wayOfAll = 3, wayOfDoubling = 4;

/// Speedup in the fastest rounds and in the median.
std::string factors(double best, double median) {
  const auto text = [](double factor) {
    return factor < 10 ? formatted("{:.1f}", factor) : formatted("{:.0f}", factor);
  };
  return text(best) + " " + text(median);
}

/// For one length: a list of rounds for each variant.
using Costs = std::vector<std::vector<Cost>>;

Costs measure(int64_t tokens, int64_t layers, int rounds) {
  Costs costs(std::size(ways));
  for (int round = 0; round < rounds; ++round)
    for (size_t way = 0; way < std::size(ways); ++way)
      costs[way].push_back(ways[way].run(tokens, layers));
  return costs;
}

double best(const std::vector<Cost>& rounds, double Cost::*time) {
  double least = rounds[0].*time;
  for (const Cost& cost : rounds)
    least = std::min(least, cost.*time);
  return least;
}

double medianRatio(const std::vector<Cost>& of, const std::vector<Cost>& to, double Cost::*time) {
  std::vector<double> ratios;
  for (size_t round = 0; round < of.size(); ++round)
    ratios.push_back(of[round].*time / to[round].*time);
  return percentile(std::move(ratios), 0.5);
}

void printWays(int64_t tokens, int64_t layers, const Costs& costs) {
  const auto faster = [&](size_t way, double Cost::*time) {
    return factors(best(costs[0], time) / best(costs[way], time),
                   medianRatio(costs[0], costs[way], time));
  };
  const double own = static_cast<double>(tokens * heads * rowBytes);
  const double each = 1 / static_cast<double>(layers);
  for (size_t way = 0; way < std::size(ways); ++way)
    fmt::print("| {} | {} | {:.3f} | {} | {:.3f} | {} | {:.2f} |\n", tokens, ways[way].name,
               1e3 * each * best(costs[way], &Cost::append), faster(way, &Cost::append),
               1e3 * each * best(costs[way], &Cost::first), faster(way, &Cost::first),
               (each * static_cast<double>(costs[way][0].bytesInUse) - own) / (1 << 20));
}

void printPrice(int64_t tokens, int64_t layers, const Costs& costs) {
  const std::vector<Cost>&all = costs[wayOfAll], &doubling = costs[wayOfDoubling];
  const double each = 1e3 / static_cast<double>(layers);
  fmt::print("| {} | {:.3f} | {:.3f} | {:.2f} {:.2f} |\n", tokens, each * best(all, &Cost::first),
             each * best(doubling, &Cost::first),
             best(doubling, &Cost::first) / best(all, &Cost::first),
             medianRatio(doubling, all, &Cost::first));
}

double residentMebibytes() {
  std::ifstream statistics("/proc/self/statm");
  double all = 0, resident = 0;
  statistics >> all >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE)) / (1 << 20);
}

void measureOpening(int64_t capacity, int64_t layers, int rounds) {
  const std::vector<std::byte> rows = tokenRows();
  std::vector<double> opening, prompting;
  double opened = 0, used = 0;
  for (int round = 0; round < rounds; ++round) {
    const double before = residentMebibytes();
    const auto allocator = std::make_shared<Allocator>();
    double start = seconds();
    CacheSet caches = makeCaches(2 * layers, capacity, allocator);
    opening.push_back(seconds() - start);
    opened = residentMebibytes() - before;
    append(caches, rows, 1);
    used = residentMebibytes() - before;
    caches = CacheSet();
    start = seconds();
    caches = makeCaches(2 * layers, capacity, allocator);
    append(caches, rows, capacity / 2);
    prompting.push_back(seconds() - start);
  }
  const auto text = [](const std::vector<double>& times) {
    return formatted("{:.3f} {:.3f}", 1e3 * percentile(times, 0), 1e3 * percentile(times, 0.5));
  };
  fmt::print("| {} | {} | {} | {:.1f} | {:.1f} | {:.0f} | {} |\n", capacity, layers, text(opening),
             opened, used,
             static_cast<double>(2 * layers * capacity * heads * rowBytes) / (1 << 20),
             text(prompting));
}

} // namespace

int main(int argc, char** argv) {
  std::vector<int64_t> tokens = {256, 1024, 4096};
  int64_t layers = 4;
  int rounds = 3;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--rounds" && i + 1 < argc) {
      rounds = std::max(1, std::atoi(argv[++i]));
    } else if (word == "--layers" && i + 1 < argc) {
      layers = std::max<int64_t>(1, std::atoll(argv[++i]));
    } else if (word == "--tokens" && i + 1 < argc) {
      tokens.clear();
      llvm::SmallVector<llvm::StringRef, 4> words;
      llvm::StringRef(argv[++i]).split(words, ',', -1, false);
      for (llvm::StringRef text : words)
        tokens.push_back(std::max<int64_t>(1, std::atoll(text.str().c_str())));
    } else {
      fmt::print(stderr, "usage: bench_cache_update [--tokens 256,1024,4096] [--layers N] "
                         "[--rounds N]\n");
      return 2;
    }
  }
  fmt::print("| T | way | append ms | times faster | first ms | times faster | MiB extra |\n"
             "|--:|---|--:|--:|--:|--:|--:|\n");
  std::vector<Costs> costs;
  for (const int64_t count : tokens) {
    costs.push_back(measure(count, layers, rounds));
    printWays(count, layers, costs.back());
    std::fflush(stdout);
  }
  fmt::print(
      "\n| T | room for all, ms | room doubles, ms | price of growth |\n|--:|--:|--:|--:|\n");
  for (size_t i = 0; i < tokens.size(); ++i)
    printPrice(tokens[i], layers, costs[i]);
  fmt::print(
      "\n| capacity | layers | opened in ms | resident MiB | after a token | room for, MiB | "
      "with a prompt, ms |\n|--:|--:|--:|--:|--:|--:|--:|\n");
  measureOpening(8192, layers, rounds);
  return 0;
}
