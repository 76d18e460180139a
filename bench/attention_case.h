// AttentionCase: one attention that is timed, with caches of as many layers as make it cold.
#pragma once

#include "runtime/memory/buffer.h"
#include "runtime/simd/attention/attention.h"

#include <string>
#include <vector>

namespace kvopt {

/// Heads and widths of a model's attention.
struct AttentionShape {
  std::string name;
  int64_t queryHeads, kvHeads, keyWidth, valueWidth;
  /// Values are columns of the keys' rows from this one on; -1: they have rows of their own.
  int64_t valueOffset = -1;
};

/// What K and V are kept as; Q and O are f32. Rows of codes have a scale of f32 each.
enum class CacheType { f32, f16, bf16, int8, int4 };

inline bool holdsCodes(CacheType type) {
  return type == CacheType::int8 || type == CacheType::int4;
}

struct AttentionCase {
  AttentionShape shape;
  CacheType cache;
  bool isCold;
  int64_t newRows;     ///< S: 1 for a decode step
  int64_t totalLength; ///< T, with the new rows

  bool isDecode() const { return newRows == 1; }
  /// Bytes of the valid rows of K and V, with their scales, of one layer.
  size_t cacheBytes() const;
  /// Multiply-adds of the visible pairs, two operations each.
  double operations() const;
};

const char* name(CacheType type);

/// Memory for the caches of every case, drawn once, and the views of a case's layers.
class AttentionMemory {
public:
  AttentionMemory();

  /// Prepares `attentionCase`.
  void set(const AttentionCase& attentionCase);

  /// The view of the next layer's attention.
  simd::AttentionView nextLayer();

  /// The bytes of K, or V, or of their scales, of one head, of the layer that nextLayer gave last.
  struct Plane {
    const std::byte* data;
    size_t bytes;
  };
  std::vector<Plane> planes() const;

private:
  AttentionCase current;
  std::shared_ptr<runtime::Buffer> caches; ///< aligned as the runtime's are
  std::vector<float> query, output;
  size_t elementBytes = 4;
  size_t layerBytes = 0, valueBase = 0;
  size_t scaleBase = 0; ///< of keys; those of values follow
  int64_t capacity = 0;
  size_t layers = 1, layer = 0;
};

} // namespace kvopt
