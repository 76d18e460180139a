// Small decoders that can be run, one for each way in which caches are kept.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "runtime/exec/kernel.h"
#include "runtime/session/session.h"

#include <memory>
#include <string>
#include <vector>

namespace kvopt::fuzz {

struct Decoder {
  std::string name;
  std::unique_ptr<ir::Model> model; ///< shapes inferred, with its manifest in the metadata
  ir::Manifest manifest;
};

/// Growing caches, shared buffers, int8 rows, blocks, and states. Made once.
const std::vector<Decoder>& decoders();

/// A copy, as if it had been written and read.
std::unique_ptr<ir::Model> copyOf(const ir::Model& model);

/// Refuses memory beyond a limit, so that a model's extents cannot exhaust the machine.
class LimitedAllocator : public runtime::Allocator {
public:
  explicit LimitedAllocator(size_t mostBytes) : most(mostBytes) {}

protected:
  std::byte* obtain(size_t bytes) override {
    return fits(bytes) ? runtime::Allocator::obtain(bytes) : nullptr;
  }
  std::byte* obtainPages(size_t bytes) override {
    return fits(bytes) ? runtime::Allocator::obtainPages(bytes) : nullptr;
  }

private:
  bool fits(size_t bytes) const { return bytes <= most && liveBytes() <= most - bytes; }
  size_t most;
};

const runtime::KernelRegistry& kernels();

/// One thread, a batch of one row, at most 4 MiB, and room for 16 tokens unless the manifest says
/// how many.
runtime::SessionOptions smallSession(const ir::Manifest& manifest);

/// Generates two tokens from a prompt of one. A refusal must have a message.
void takeSteps(runtime::Session& session);

} // namespace kvopt::fuzz
