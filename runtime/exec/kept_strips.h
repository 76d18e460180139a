// KeptStrips: f32 weights in strips of columns, packed by the first product that needs them.
#pragma once

#include "runtime/exec/constant_context.h"

#include "llvm/ADT/STLFunctionalExtras.h"

#include <mutex>

namespace kvopt::runtime {

/// Memory for the strips of one matrix (linear/pack_strips.h), in a model's constant memory. Any
/// number of threads may use it.
class KeptStrips {
public:
  explicit KeptStrips(std::shared_ptr<ConstantMemory> constantMemory)
      : memory(std::move(constantMemory)) {}

  /// The strips, `floats` floats. The first call fills them with `pack`. Null if they would exceed
  /// the limit of the constant memory.
  const float* get(int64_t floats, llvm::function_ref<void(float*)> pack) const {
    const std::lock_guard<std::mutex> lock(mutex);
    if (isTried)
      return reinterpret_cast<const float*>(block.data);
    isTried = true;
    llvm::Expected<ConstantMemory::Block> taken = memory->take(floats * int64_t{sizeof(float)});
    if (!taken) {
      llvm::consumeError(taken.takeError());
      return nullptr;
    }
    block = std::move(*taken);
    pack(reinterpret_cast<float*>(block.data));
    return reinterpret_cast<const float*>(block.data);
  }

private:
  const std::shared_ptr<ConstantMemory> memory;
  mutable std::mutex mutex;
  mutable bool isTried = false;
  mutable ConstantMemory::Block block;
};

} // namespace kvopt::runtime
