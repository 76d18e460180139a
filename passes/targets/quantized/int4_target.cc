// The target `int4`: the target `int8` with codes of four bits, of which equal groups of at most 32
// columns have a multiplier. Caches are uint8: support/four_bit_row.h says how a row lies in bytes.
#include "passes/targets/quantized/quantized_target.h"

namespace kvopt::targets {
namespace {

class Int4Target final : public QuantizedTarget {
public:
  Int4Target() : QuantizedTarget(CacheRows::Int4) {}

  llvm::StringRef name() const override { return "int4"; }
  llvm::StringRef summary() const override {
    return "InPlaceQuantizedKvSdpa with its function body: rows of four-bit codes with a scale "
           "each, in one buffer";
  }
};

} // namespace

void register_int4(TargetRegistry& registry) { registry.add(std::make_unique<Int4Target>()); }

} // namespace kvopt::targets
