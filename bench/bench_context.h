// BenchContext: memory and threads for kernels that run outside of a graph.
#pragma once

#include "runtime/exec/kernel.h"
#include "runtime/threads/thread_pool.h"
#include "support/diagnostic.h"

#include <memory>
#include <vector>

namespace kvopt {

/// The benchmark owns the results; this context does not return them.
class BenchContext final : public runtime::KernelContext {
public:
  BenchContext(const ir::Node& node, runtime::ThreadPool& threadPool)
      : runtime::KernelContext(node), pool(threadPool) {}
  const runtime::TensorView* input(unsigned) const override { return nullptr; }
  llvm::Expected<runtime::TensorView> output(unsigned, ir::ElementType,
                                             llvm::ArrayRef<int64_t>) override {
    return error("no results");
  }
  llvm::Error outputView(unsigned, unsigned, llvm::ArrayRef<int64_t>) override {
    return error("no results");
  }
  llvm::Expected<runtime::TensorView> outputInPlace(unsigned, unsigned) override {
    return error("no results");
  }
  llvm::Expected<std::span<std::byte>> scratch(size_t bytes) override {
    constexpr size_t alignment = 64;
    if (memory.size() < bytes + alignment)
      memory.resize(bytes + alignment);
    void* start = memory.data();
    size_t room = memory.size();
    return std::span(static_cast<std::byte*>(std::align(alignment, bytes, start, room)), bytes);
  }
  void parallelFor(int64_t count, llvm::function_ref<void(int64_t)> body) override {
    pool.parallelFor(count, body);
  }
  unsigned threads() const override { return pool.threads(); }
  void noteCacheWrite(int64_t) override {}

private:
  runtime::ThreadPool& pool;
  std::vector<std::byte> memory;
};

} // namespace kvopt
