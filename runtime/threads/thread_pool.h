// ThreadPool: threads that share the work of operators.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace kvopt::runtime {

/// A fixed number of worker threads. Several executors may use one pool from several threads
/// simultaneously: the caller of a loop works on it, and idle workers join open loops, so that
/// there are never more busy threads than callers and workers. Workers spin briefly before they
/// sleep: an idle pool costs nothing, and a machine with fewer free cores than threads does not
/// stall.
class ThreadPool {
public:
  /// `threads` includes the caller; 1 needs no worker, 0 means usableCores(). Workers are started
  /// by the first loop that has work for them.
  explicit ThreadPool(unsigned threads = 0);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  /// Requires that no loop is running.
  ~ThreadPool();

  /// Maximum number of simultaneous calls of one loop's body.
  unsigned threads() const { return threadCount; }

  /// Calls `body` once for each of 0 … count-1, in any order and possibly simultaneously, and
  /// returns when all calls have returned. May be called from several threads, and from within a
  /// body.
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
  /// Workers that spin read it without the lock.
  std::atomic<unsigned> openLoops{0};
  std::atomic<bool> stopping{false};
};

} // namespace kvopt::runtime
