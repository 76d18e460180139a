// What it costs to append tokens one by one to caches of keys, [1, 8, T, 128] in float32: by
// joining past and new rows into a new tensor at every step, and by the runtime's caches.
//
//   bench_cache_update [--tokens 256,1024,4096] [--layers N] [--rounds N]
//
// Every token is appended to the caches of all layers, one after the other, as a model does; with
// one layer, caches stay in the CPU's. Ways take turns. Times are of all T tokens in one layer.
// `first` counts the making of the cache as well, which is where memory is first touched. Ratios
// are the time of joining over each way's: of the fastest rounds, and the median of the rounds.
// Bytes are those that were in use at the same time beyond the T rows themselves, in one layer.
#include "bench/measure.h"
#include "runtime/cache/cache_set.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

using namespace kvopt;

namespace {

constexpr int64_t heads = 8;
constexpr int64_t width = 128;
constexpr int64_t rowBytes = width * 4;
constexpr int64_t firstRoom = 16; // of a cache that doubles

struct Cost {
  double append = 0; ///< seconds
  double first = 0;  ///< with the making of the cache
  size_t bytesInUse = 0;
};

/// A token's keys, a row a head.
std::vector<std::byte> tokenRows() {
  return std::vector<std::byte>(static_cast<size_t>(heads * rowBytes), std::byte{1});
}

/// Every step makes a tensor of one row more. With two blocks of memory in turns, which is the best
/// that an engine's memory pool can do; with `fresh` memory, what it costs without.
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

/// The runtime's shared buffer with room for `room` tokens, which doubles when it is full.
Cost writeInPlace(int64_t tokens, int64_t layers, int64_t room) {
  auto allocator = std::make_shared<Allocator>();
  const std::vector<std::byte> rows = tokenRows();
  std::vector<ManifestCache> descriptions(static_cast<size_t>(layers));
  for (ManifestCache& description : descriptions) {
    description.past = "past";
    description.oneBuffer = true;
    description.shape = {std::string("batch"), heads, std::string("capacity"), width};
  }
  CacheSetOptions options;
  options.room = room;
  options.allocator = allocator;
  const double made = seconds();
  CacheSet caches = llvm::cantFail(CacheSet::create(descriptions, std::move(options)));
  const double start = seconds();
  for (int64_t length = 0; length < tokens; ++length) {
    if (length == caches.room())
      llvm::cantFail(caches.grow(2 * length));
    for (size_t layer = 0; layer < caches.size(); ++layer) {
      const TensorView& buffer = caches.buffer(layer);
      const int64_t headBytes = buffer.strides[1] * 4;
      for (int64_t head = 0; head < heads; ++head)
        std::memcpy(buffer.data + head * headBytes + length * rowBytes,
                    rows.data() + head * rowBytes, rowBytes);
    }
    caches.advance(1);
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
    {"in place, room for all",
     [](int64_t tokens, int64_t layers) { return writeInPlace(tokens, layers, tokens); }},
    {"in place, room doubles",
     [](int64_t tokens, int64_t layers) { return writeInPlace(tokens, layers, firstRoom); }},
};

/// How many times faster, in the fastest rounds and in the median.
std::string factors(double best, double median) {
  const auto text = [](double factor) {
    return factor < 10 ? fmt::format("{:.1f}", factor) : fmt::format("{:.0f}", factor);
  };
  return text(best) + " " + text(median);
}

void measure(int64_t tokens, int64_t layers, int rounds) {
  std::vector<std::vector<Cost>> costs(std::size(ways));
  for (int round = 0; round < rounds; ++round)
    for (size_t way = 0; way < std::size(ways); ++way)
      costs[way].push_back(ways[way].run(tokens, layers));
  const auto best = [&](size_t way, double Cost::*time) {
    double least = costs[way][0].*time;
    for (const Cost& cost : costs[way])
      least = std::min(least, cost.*time);
    return least;
  };
  const auto median = [&](size_t way, double Cost::*time) {
    std::vector<double> ratios;
    for (size_t round = 0; round < costs[way].size(); ++round)
      ratios.push_back(costs[0][round].*time / costs[way][round].*time);
    return percentile(std::move(ratios), 0.5);
  };
  for (size_t way = 0; way < std::size(ways); ++way) {
    const double own = static_cast<double>(tokens * heads * rowBytes);
    const double each = 1 / static_cast<double>(layers);
    const double append = best(way, &Cost::append), first = best(way, &Cost::first);
    fmt::print(
        "| {} | {} | {:.3f} | {} | {:.3f} | {} | {:.2f} |\n", tokens, ways[way].name,
        1e3 * each * append, factors(best(0, &Cost::append) / append, median(way, &Cost::append)),
        1e3 * each * first, factors(best(0, &Cost::first) / first, median(way, &Cost::first)),
        (each * static_cast<double>(costs[way][0].bytesInUse) - own) / (1 << 20));
  }
  std::fflush(stdout);
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
  fmt::print("| T | way | append ms | times faster | first ms | times faster | MiB beside |\n"
             "|--:|---|--:|--:|--:|--:|--:|\n");
  for (const int64_t count : tokens)
    measure(count, layers, rounds);
  return 0;
}
