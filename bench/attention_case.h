// AttentionCase: one attention that is timed, with enough layers for cold caches.
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
  /// First column of the keys' rows that belongs to the values; -1 for separate rows.
  int64_t valueOffset = -1;
};

/// Element type of K and V; Q and O are f32. Rows of codes have an f32 scale each.
enum class CacheType { f32, f16, bf16, int8, int4 };

inline bool holdsCodes(CacheType type) {
  return type == CacheType::int8 || type == CacheType::int4;
}

struct AttentionCase {
  AttentionShape shape;
  CacheType cache;
  bool isCold;
  int64_t newRows;     ///< S: 1 for a decode step
  int64_t totalLength; ///< T, including the new rows

  bool isDecode() const { return newRows == 1; }
  /// Size of the valid rows of K and V, with their scales, of one layer in bytes.
  size_t cacheBytes() const;
  /// Number of operations of the visible pairs; a multiply-add is two.
  double operations() const;
};

const char* name(CacheType type);

/// Memory for the caches of every case, filled once, and the views of a case's layers.
class AttentionMemory {
public:
  AttentionMemory();

  /// Prepares `attentionCase`.
  void set(const AttentionCase& attentionCase);

  /// View of the next layer's attention.
  simd::AttentionView nextLayer();

  /// Bytes of K, of V, or of their scales, of one head of the layer that nextLayer last returned.
  struct Plane {
    const std::byte* data;
    size_t bytes;
  };
  std::vector<Plane> planes() const;

private:
  AttentionCase current;
  std::shared_ptr<runtime::Buffer> caches; ///< aligned like the runtime's caches
  std::vector<float> query, output;
  size_t elementBytes = 4;
  size_t layerBytes = 0, valueBase = 0;
  size_t scaleBase = 0; ///< offset of the scales of keys; those of values follow
  int64_t capacity = 0;
  size_t layers = 1, layer = 0;
};

} // namespace kvopt
