// Element types of ONNX that are stored as floating-point numbers.
#include "runtime/memory/element_storage.h"

namespace kvopt::runtime {
using namespace ir;
using namespace simd;

std::optional<FloatStorage> storageOf(ElementType element) {
  switch (element) {
  case ElementType::Float:
    return FloatStorage::f32;
  case ElementType::Float16:
    return FloatStorage::f16;
  case ElementType::BFloat16:
    return FloatStorage::bf16;
  default:
    return std::nullopt;
  }
}

} // namespace kvopt::runtime
