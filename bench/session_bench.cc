// Time to save and load a session's caches, compared with plain copies of the same bytes:
// bench_session [FOLDER] (default: /dev/shm, to exclude the disk).
#include "runtime/cache/cache_set.h"
#include "support/diagnostic.h"
#include "support/file_access.h"
#include "support/format.h"
#include "support/mapped_file.h"
#include "support/output_file.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <functional>
#include <sys/mman.h>
#include <unistd.h>

using namespace kvopt;
using namespace kvopt::ir;
using namespace kvopt::runtime;

namespace {

constexpr int64_t heads = 8;
constexpr int64_t width = 128;
constexpr int64_t layers = 4;
constexpr int64_t capacity = 16384;
constexpr int rounds = 15;

double secondsOf(const std::function<void()>& action) {
  auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Keys and values of `layers` layers, float32, [1, 8, capacity, 128].
CacheSet makeCaches(int64_t tokens) {
  std::vector<ManifestCache> caches;
  for (int64_t i = 0; i < 2 * layers; ++i) {
    ManifestCache cache;
    cache.past = formatted("past_{}", i);
    cache.storage = BufferCache();
    cache.shape = {std::string("batch"), heads, std::string("capacity"), width};
    caches.push_back(std::move(cache));
  }
  CacheSetOptions options;
  options.room = capacity;
  options.allocator = std::make_shared<Allocator>();
  CacheSet set = llvm::cantFail(CacheSet::create(caches, std::move(options)));
  set.advance(tokens);
  return set;
}

/// Minimum and median of the ratios of one action to another, measured in turns.
struct Ratio {
  double least = 0;
  double median = 0;
};

Ratio ratioOf(const std::vector<double>& times, const std::vector<double>& base) {
  std::vector<double> ratios;
  for (size_t i = 0; i < times.size(); ++i)
    ratios.push_back(times[i] / base[i]);
  std::sort(ratios.begin(), ratios.end());
  return {*std::min_element(times.begin(), times.end()) /
              *std::min_element(base.begin(), base.end()),
          ratios[ratios.size() / 2]};
}

std::string text(const Ratio& ratio) {
  return formatted("{:4.2f} {:4.2f}", ratio.least, ratio.median);
}

void measure(int64_t tokens, const std::string& path) {
  CacheSet caches = makeCaches(tokens);
  size_t bytes = static_cast<size_t>(tokens * heads * width * 4 * 2 * layers);
  std::vector<char> source(bytes, 1);
  std::vector<char> target(bytes, 2);
  ModelFingerprint fingerprint{};
  std::vector<double> warm;
  std::vector<double> fresh;
  std::vector<double> plainWrite;
  std::vector<double> save;
  std::vector<double> load;
  CacheSet loaded = makeCaches(1);
  for (int round = 0; round < rounds; ++round) {
    warm.push_back(secondsOf([&] { std::memcpy(target.data(), source.data(), bytes); }));
    // Saving creates a new file, and so does this.
    fresh.push_back(secondsOf([&] {
      void* memory =
          ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      std::memcpy(memory, source.data(), bytes);
      ::munmap(memory, bytes);
    }));
    plainWrite.push_back(secondsOf([&] {
      int file = ::open((path + ".plain").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      size_t done = 0;
      while (file >= 0 && done < bytes) {
        ssize_t written = ::write(file, source.data() + done, bytes - done);
        if (written <= 0)
          break;
        done += static_cast<size_t>(written);
      }
      ::close(file);
    }));
    std::filesystem::remove(path + ".plain");
    std::filesystem::remove(path);
    save.push_back(secondsOf([&] {
      FileAccess access;
      llvm::cantFail(writeCacheFile(llvm::cantFail(OutputFile::create(path, access)), fingerprint,
                                    caches.lengths(), llvm::cantFail(caches.stored())));
    }));
    load.push_back(secondsOf([&] {
      auto file = llvm::cantFail(MappedFile::open(path));
      auto contents = llvm::cantFail(parseCacheFile(file->bytes()));
      llvm::cantFail(loaded.restore(contents, capacity));
    }));
  }
  fmt::print("{:6} {:7.1f} {:8.2f} {:7.3f}  {}  {}  {}  {}\n", tokens,
             static_cast<double>(bytes) / (1 << 20),
             *std::min_element(save.begin(), save.end()) * 1e3,
             *std::min_element(save.begin(), save.end()) * 1e9 / static_cast<double>(bytes),
             text(ratioOf(save, warm)), text(ratioOf(save, fresh)), text(ratioOf(save, plainWrite)),
             text(ratioOf(load, warm)));
}

} // namespace

int main(int argc, char** argv) {
  std::string folder = argc > 1 ? argv[1] : "/dev/shm";
  std::string path = formatted("{}/kvopt-bench-{}.kvc", folder, getpid());
  fmt::print("caches of {} layers, [1, {}, {}, {}] float32, saved to {}\n", layers, heads, capacity,
             width, folder);
  fmt::print("ratios: of the fastest rounds, and the median of {} rounds\n", rounds);
  fmt::print("tokens     MiB  save ms ns/byte  save:copy  save:copy  save:write load:copy\n");
  fmt::print("                                 warm       to fresh   unsummed   warm\n");
  for (int64_t tokens = 256; tokens <= capacity / 2; tokens *= 2)
    measure(tokens, path);
  std::filesystem::remove(path);
  return 0;
}
