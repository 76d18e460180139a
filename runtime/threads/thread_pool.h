// ThreadPool: the threads that operators share their work out to.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace kvopt::runtime {

/// A fixed number of worker threads. Several executors may use one pool from several threads at the
/// same time: whoever runs a loop works on it, and idle workers join the loops that are open, so
/// that there are never more busy threads than callers and workers. Workers spin briefly for the
/// next loop and then sleep: an idle pool costs nothing, and a machine with fewer free cores than
/// threads does not stall.
class ThreadPool {
public:
  /// `threads` counts the caller; 1 needs no worker, 0 stands for usableCores(). Workers are
  /// started by the first loop that has work for them.
  explicit ThreadPool(unsigned threads = 0);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  /// No loop may be running.
  ~ThreadPool();

  /// The most calls of one loop's body that run at the same time.
  unsigned threads() const { return threadCount; }

  /// Calls `body` once for each of 0 … count-1, in any order and maybe at the same time, and
  /// returns when all are done. May be called from several threads, and from within a body.
  void parallelFor(int64_t count, llvm::function_ref<void(int64_t)> body);

private:
  struct Loop;
  void work();
  void startWorkers();
  void unlink(Loop& loop);

  const unsigned threadCount;
  std::mutex mutex;
  std::condition_variable wake;     // for workers: a loop is open
  std::condition_variable finished; // for callers: a worker has left its loop
  std::vector<std::thread> workers;
  Loop* newest = nullptr; // open loops, linked
  unsigned sleeping = 0;
  bool started = false;
  /// Read without the lock by workers that spin.
  std::atomic<unsigned> openLoops{0};
  std::atomic<bool> stopping{false};
};

} // namespace kvopt::runtime
