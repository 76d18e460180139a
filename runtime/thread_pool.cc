// Loops shared out over worker threads.
#include "runtime/thread_pool.h"

#include <system_error>

namespace kvopt {

namespace {
/// Rounds of looking for work before a worker sleeps: some microseconds.
constexpr int spinRounds = 2000;

void pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}
} // namespace

ThreadPool::ThreadPool(unsigned threads) {
  for (unsigned i = 1; i < threads; ++i) {
    // The standard library reports a refused thread by an exception; a smaller pool does as well.
    try {
      workers.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
      break;
    }
  }
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    stopping = true;
  }
  wake.notify_all();
  for (std::thread& worker : workers)
    worker.join();
}

void ThreadPool::drain() {
  for (int64_t i = next.fetch_add(1); i < total; i = next.fetch_add(1))
    (*loop)(i);
}

void ThreadPool::parallelFor(int64_t count, llvm::function_ref<void(int64_t)> body) {
  if (count <= 0)
    return;
  if (workers.empty() || count == 1 || looping.exchange(true)) {
    for (int64_t i = 0; i < count; ++i)
      body(i);
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex);
    loop = &body;
    total = count;
    next = 0;
    open = true;
    ++generation;
  }
  if (count == 2)
    wake.notify_one();
  else
    wake.notify_all();
  drain();
  {
    // Whoever joined is waited for; whoever did not join by now finds the loop closed.
    std::unique_lock<std::mutex> lock(mutex);
    open = false;
    finished.wait(lock, [this] { return active == 0; });
    loop = nullptr;
  }
  looping = false;
}

void ThreadPool::work() {
  uint64_t seen = 0;
  while (true) {
    for (int round = 0; round < spinRounds && generation == seen && !stopping; ++round)
      pause();
    {
      std::unique_lock<std::mutex> lock(mutex);
      wake.wait(lock, [&] { return stopping || generation != seen; });
      if (stopping)
        return;
      seen = generation;
      if (!open)
        continue;
      ++active;
    }
    drain();
    {
      std::lock_guard<std::mutex> lock(mutex);
      --active;
    }
    finished.notify_one();
  }
}

} // namespace kvopt
