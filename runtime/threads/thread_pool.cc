// Loops distributed over worker threads.
#include "runtime/threads/thread_pool.h"

#include "runtime/threads/cpu_count.h"

#include <algorithm>
#include <exception>
#include <system_error>

namespace kvopt::runtime {

namespace {
/// Number of checks for work, or for its end, before a thread sleeps.
constexpr int spinRounds = 2000;
/// Number of pieces of a loop for each thread, if it has enough indices.
constexpr int64_t piecesPerThread = 8;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}
} // namespace

/// On its caller's stack; linked while indices are left.
struct ThreadPool::Loop {
  llvm::function_ref<void(int64_t)> body;
  int64_t total;
  int64_t piece;
  std::atomic<int64_t> next{0};
  /// Number of workers inside. Increases only under the lock while the loop is linked.
  std::atomic<unsigned> active{0};
  Loop* following = nullptr;
  bool isLinked = true;
  /// Whether `exception` is set or about to be.
  std::atomic<bool> hasFailed{false};
  /// The first exception of an index, for the caller.
  std::exception_ptr exception;

  /// Processes indices until none are left. After an exception, indices that no thread has begun
  /// are left out. Nothing is thrown, because other threads use the loop.
  void drain() {
    try {
      for (int64_t first = next.fetch_add(piece); first < total; first = next.fetch_add(piece))
        for (int64_t i = first; i < std::min(first + piece, total); ++i)
          body(i);
    } catch (...) {
      next = total;
      if (!hasFailed.exchange(true))
        exception = std::current_exception();
    }
  }

  /// Throws the exception of an index, if there was one. Only when no worker is inside.
  void rethrow() {
    if (hasFailed)
      std::rethrow_exception(std::move(exception));
  }
};

ThreadPool::ThreadPool(unsigned threads) : threadCount(threads == 0 ? usableCores() : threads) {}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  for (std::thread& worker : workers)
    worker.join();
}

/// Requires the lock.
void ThreadPool::startWorkers() {
  started = true;
  for (unsigned i = 1; i < threadCount; ++i) {
    // The standard library throws if a thread cannot be started; the pool then has fewer workers.
    try {
      workers.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      break;
    }
  }
}

/// Requires the lock.
void ThreadPool::unlink(Loop& loop) {
  if (!loop.isLinked)
    return;
  Loop** link = &newest;
  while (*link != &loop)
    link = &(*link)->following;
  *link = loop.following;
  loop.isLinked = false;
  --openLoops;
}

void ThreadPool::parallelFor(int64_t count, llvm::function_ref<void(int64_t)> body) {
  if (count <= 1 || threadCount == 1) {
    for (int64_t i = 0; i < count; ++i)
      body(i);
    return;
  }
  Loop loop{body, count, std::max<int64_t>(1, count / (threadCount * piecesPerThread))};
  unsigned sleepers = 0;
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (!started)
      startWorkers();
    loop.following = newest;
    newest = &loop;
    ++openLoops;
    sleepers = sleeping;
  }
  if (sleepers != 0 && (sleepers == 1 || count == 2))
    wake.notify_one();
  else if (sleepers != 0)
    wake.notify_all();
  loop.drain();
  const auto waitForWorkers = [&] {
    std::unique_lock<std::mutex> lock(mutex);
    unlink(loop);
    if (loop.active == 0)
      return;
    lock.unlock();
    for (int round = 0; round < spinRounds && loop.active != 0; ++round)
      pause();
    if (loop.active == 0)
      return;
    lock.lock();
    finished.wait(lock, [&] { return loop.active == 0; });
  };
  waitForWorkers();
  loop.rethrow();
}

void ThreadPool::work() {
  std::unique_lock<std::mutex> lock(mutex);
  while (true) {
    if (!newest && !stopping) {
      lock.unlock();
      for (int round = 0; round < spinRounds && openLoops == 0 && !stopping; ++round)
        pause();
      lock.lock();
    }
    while (!newest && !stopping) {
      ++sleeping;
      wake.wait(lock);
      --sleeping;
    }
    if (stopping)
      return;
    Loop& loop = *newest;
    ++loop.active;
    lock.unlock();
    loop.drain();
    lock.lock();
    unlink(loop);
    // The caller may return as soon as the count is 0, so the loop is not accessed after that.
    if (--loop.active == 0)
      finished.notify_all();
  }
}

} // namespace kvopt::runtime
