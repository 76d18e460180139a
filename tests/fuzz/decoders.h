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
  std::unique_ptr<Model> model; ///< shapes inferred, with its manifest in the metadata
  Manifest manifest;
};

/// Growing caches, shared buffers, int8 rows, blocks, and states. Made once.
const std::vector<Decoder>& decoders();

/// A copy, as if it had been written and read.
std::unique_ptr<Model> copyOf(const Model& model);

/// Refuses memory beyond a limit, so that a model's extents cannot exhaust the machine.
class LimitedAllocator : public Allocator {
public:
  explicit LimitedAllocator(size_t mostBytes) : most(mostBytes) {}

protected:
  std::byte* obtain(size_t bytes) override {
    return fits(bytes) ? Allocator::obtain(bytes) : nullptr;
  }
  std::byte* obtainPages(size_t bytes) override {
    return fits(bytes) ? Allocator::obtainPages(bytes) : nullptr;
  }

private:
  bool fits(size_t bytes) const { return bytes <= most && liveBytes() <= most - bytes; }
  size_t most;
};

const KernelRegistry& kernels();

/// One thread, a batch of one row, at most 4 MiB, and room for 16 tokens unless the manifest says
/// how many.
SessionOptions smallSession(const Manifest& manifest);

/// Generates two tokens from a prompt of one. A refusal must have a message.
void takeSteps(Session& session);

} // namespace kvopt::fuzz
