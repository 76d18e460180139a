// ThreadPool: the worker threads of one executor.
#pragma once

#include "llvm/ADT/STLFunctionalExtras.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace kvopt {

/// Runs loops on a fixed set of threads. Workers spin briefly for the next loop and then sleep, so
/// that an idle pool costs nothing and a machine with fewer free cores than threads does not stall.
class ThreadPool {
public:
  /// `threads` counts the caller; 1 starts no thread. 0 is 1.
  explicit ThreadPool(unsigned threads);
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  ~ThreadPool();

  /// How many calls of a loop's body may run at the same time. Fewer than asked for where the
  /// system refuses to start threads.
  unsigned threads() const { return static_cast<unsigned>(workers.size()) + 1; }

  /// Calls `body` once for each of 0 … count-1 and returns when all are done. One loop at a time;
  /// a loop within a body runs on the calling thread.
  void parallelFor(int64_t count, llvm::function_ref<void(int64_t)> body);

private:
  void work();
  /// Takes indices until none are left.
  void drain();

  std::vector<std::thread> workers;
  std::mutex mutex;
  std::condition_variable wake;
  std::condition_variable finished;
  /// Counts loops; a worker joins each at most once.
  std::atomic<uint64_t> generation{0};
  std::atomic<bool> stopping{false};
  std::atomic<int64_t> next{0};
  unsigned active = 0; // workers inside the current loop
  bool open = false;   // workers may still join the current loop
  std::atomic<bool> looping{false};
  int64_t total = 0;
  const llvm::function_ref<void(int64_t)>* loop = nullptr;
};

} // namespace kvopt
