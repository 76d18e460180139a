// Cost of decode attention over blocks of keys and values: one query row after T - 1 tokens, with
// 32 query heads and 8 key/value heads of 128 columns, over one piece of memory and over blocks, in
// turns. The last block is not full, and the new row has separate memory.
//
//   bench_block_attention [--size 1024,512,1000] [--length 8192] [--threads 1,2] [--rounds 7]
//
// Every call reads the caches of another layer, so that all reads are from memory. Ratios are
// relative to one piece: of tenth percentiles in the best round, and the median of the ratios of
// pairs.
#include "bench/measure.h"
#include "runtime/memory/buffer.h"
#include "runtime/simd/attention/attention.h"
#include "runtime/threads/thread_pool.h"
#include "support/format.h"

#include "llvm/ADT/StringExtras.h"

#include <atomic>
#include <cstring>
#include <fmt/format.h>
#include <random>

using namespace kvopt;
using namespace kvopt::ir;
using namespace kvopt::runtime;
using namespace kvopt::simd;

namespace {

constexpr int64_t heads = 8;
constexpr int64_t group = 4;
constexpr int64_t width = 128;
constexpr int64_t layers = 6;

using Memory = std::shared_ptr<Buffer>;

Memory filled(size_t bytes, FloatStorage storage) {
  Memory memory = llvm::cantFail(Buffer::create(std::make_shared<Allocator>(), bytes));
  std::mt19937 random(3);
  std::vector<std::byte> pattern(size_t{1} << 16);
  // Numbers near 1 in every storage.
  const unsigned high = storage == FloatStorage::f16 ? 0x3800 : 0x3f00;
  for (size_t at = 0; at < pattern.size(); at += 2) {
    const auto bits = static_cast<uint16_t>(high + random() % 128);
    std::memcpy(&pattern[at], &bits, sizeof bits);
  }
  for (size_t at = 0; at < bytes; at += pattern.size())
    std::memcpy(memory->data() + at, pattern.data(), std::min(pattern.size(), bytes - at));
  return memory;
}

RowStrides stridesOf(int64_t rows) { return {heads * rows * width, rows * width, width}; }

/// Caches of one layer, in one piece and in blocks.
struct Layer {
  Memory keys, values;
  std::vector<Memory> blocks;
  std::vector<KeyValueSegment> segments;
};

Layer makeLayer(int64_t length, int64_t size, FloatStorage storage) {
  const int64_t element = storage == FloatStorage::f32 ? 4 : 2;
  const auto bytesOf = [&](int64_t rows) {
    return static_cast<size_t>(heads * rows * width * element);
  };
  Layer layer;
  layer.keys = filled(bytesOf(length), storage);
  layer.values = filled(bytesOf(length), storage);
  for (int64_t begin = 0; begin < length;) {
    const bool isNew = begin == length - 1;
    const int64_t rows = isNew ? 1 : size;
    KeyValueSegment segment;
    segment.begin = begin;
    for (const void** side : {&segment.key, &segment.value}) {
      layer.blocks.push_back(filled(bytesOf(rows), storage));
      *side = layer.blocks.back()->data();
    }
    segment.keyStrides = segment.valueStrides = stridesOf(rows);
    layer.segments.push_back(segment);
    begin = isNew ? length : std::min(begin + size, length - 1);
  }
  return layer;
}

class Caller {
public:
  explicit Caller(unsigned threads) : pool(threads) {}

  double timeOf(const AttentionView& view) {
    const double start = seconds();
    AttentionJob job(view);
    const auto workers = std::min<int64_t>(job.units(), pool.threads());
    const size_t bytes = job.scratchBytes(workers).value();
    if (scratch.size() < bytes)
      scratch.resize(bytes);
    job.start(std::span(scratch).first(bytes));
    std::atomic<int64_t> next{0};
    pool.parallelFor(workers, [&](int64_t worker) {
      for (int64_t unit = next.fetch_add(1); unit < job.units(); unit = next.fetch_add(1))
        job.run(unit, worker, unit + workers);
    });
    return seconds() - start;
  }

private:
  ThreadPool pool;
  std::vector<std::byte> scratch;
};

void measure(int64_t length, int64_t size, FloatStorage storage, unsigned threads, int rounds) {
  std::vector<Layer> made;
  for (int64_t i = 0; i < layers; ++i)
    made.push_back(makeLayer(length, size, storage));
  std::vector<float> query(static_cast<size_t>(heads * group * width), 0.1f);
  std::vector<float> output(query.size());
  Caller caller(threads);
  const auto viewOf = [&](const Layer& layer, bool isInBlocks) {
    AttentionView view;
    view.batches = 1;
    view.queryHeads = heads * group;
    view.kvHeads = heads;
    view.queryRows = 1;
    view.keyWidth = view.valueWidth = width;
    view.totalLength = length;
    view.cacheStorage = storage;
    view.query = query.data();
    view.output = output.data();
    view.queryStrides = view.outputStrides = {heads * group * width, width, width};
    view.key = layer.keys->data();
    view.value = layer.values->data();
    view.keyStrides = view.valueStrides = stridesOf(length);
    if (isInBlocks)
      view.segments = layer.segments;
    view.scale = 0.08f;
    view.causal = true;
    return view;
  };
  PairedTimes times;
  for (int round = 0; round < rounds; ++round) {
    times.startRound();
    for (int64_t call = 0; call < 4 * layers; ++call) {
      const Layer& layer = made[static_cast<size_t>(call % layers)];
      const Layer& other = made[static_cast<size_t>((call + layers / 2) % layers)];
      const double whole = caller.timeOf(viewOf(layer, false));
      times.add(whole, caller.timeOf(viewOf(other, true)));
    }
  }
  fmt::print("| {} | {} | {} | {} | {:.0f} | {:.0f} | {:.3f} | {:.3f} |\n",
             storage == FloatStorage::f32 ? "f32" : "f16", length, size, threads,
             1e6 * times.reference(), 1e6 * times.time(), times.ratioP10(), times.ratioMedian());
  std::fflush(stdout);
}

std::vector<int64_t> numbers(llvm::StringRef text) {
  std::vector<int64_t> values;
  for (llvm::StringRef part : llvm::split(text, ','))
    if (int64_t value = 0; !part.getAsInteger(10, value) && value > 0)
      values.push_back(value);
  return values;
}

} // namespace

int main(int argc, char** argv) {
  std::vector<int64_t> sizes{1024, 512, 1000}, lengths{8192}, threads{1, 2}, rounds{7};
  for (int i = 1; i + 1 < argc; i += 2) {
    const llvm::StringRef flag = argv[i];
    std::vector<int64_t>* target = flag == "--size"      ? &sizes
                                   : flag == "--length"  ? &lengths
                                   : flag == "--threads" ? &threads
                                   : flag == "--rounds"  ? &rounds
                                                         : nullptr;
    if (target)
      *target = numbers(argv[i + 1]);
    if (!target || target->empty()) {
      fmt::print(stderr, "usage: bench_block_attention [--size N,…] [--length N,…] [--threads N,…] "
                         "[--rounds N]\n");
      return 2;
    }
  }
  fmt::print("| dtype | T | block | threads | one piece us | blocks us | p10 | median |\n"
             "|---|--:|--:|--:|--:|--:|--:|--:|\n");
  for (FloatStorage storage : {FloatStorage::f32, FloatStorage::f16})
    for (int64_t length : lengths)
      for (int64_t size : sizes)
        for (int64_t count : threads)
          measure(length, size, storage, static_cast<unsigned>(count),
                  static_cast<int>(rounds.front()));
  return 0;
}
