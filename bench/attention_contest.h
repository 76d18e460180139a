// Contestants of a comparison of attention: kvopt's kernel and other engines, which read and
// write the same caches.
#pragma once

#include "bench/attention_case.h"
#include "bench/baseline_models.h"
#include "bench/onnx_runtime.h"
#include "runtime/memory/buffer.h"
#include "runtime/threads/thread_pool.h"

namespace kvopt {

/// A step appends rows to a cache and attends to all of its rows that they may see, in every layer.
struct ContestCase {
  AttentionShape shape;
  ir::ElementType element = ir::ElementType::Float; ///< or Float16
  int64_t rows = 0;                                 ///< T, with the new ones; >= 2
  bool warm = false;                                ///< all layers share one cache
  int64_t newRows = 1;                              ///< S

  bool isDecode() const { return newRows == 1; }
  CacheType cache() const {
    return element == ir::ElementType::Float ? CacheType::f32 : CacheType::f16;
  }
  int64_t elementBytes() const { return *byteWidth(element); }
  /// Of keys and values, in one layer.
  int64_t validBytes() const {
    return shape.kvHeads * rows * (shape.keyWidth + shape.valueWidth) * elementBytes();
  }
  /// Cold: as many as have 300 MB of caches, which takes T >= 256 where rows are small.
  int64_t layers() const;
  int64_t cacheCount() const { return warm ? 1 : layers(); }
  /// Rows that a cache in place has room for.
  int64_t capacity() const;
  /// Floating-point operations in one layer, those of visible pairs.
  double operations() const;
};

/// A contiguous tensor with memory of its own.
class OwnedTensor {
public:
  OwnedTensor() = default;
  OwnedTensor(ir::ElementType element, llvm::ArrayRef<int64_t> shape);

  const runtime::TensorView& view() const { return tensor; }
  /// Of a tensor [1,G,T,D]: row `index` of head `head`.
  std::byte* row(int64_t head, int64_t index) const {
    return tensor.data + (head * tensor.shape[2] + index) * rowBytes();
  }
  int64_t rowBytes() const { return tensor.shape.back() * *byteWidth(tensor.element); }
  /// Of a tensor of floats, or of halves.
  float number(int64_t index) const;

private:
  std::shared_ptr<runtime::Buffer> memory;
  runtime::TensorView tensor;
};

struct CachePair {
  OwnedTensor key, value; ///< [1,G,C,D], [1,G,C,Dv]
};

/// What all contestants of a case read and write.
struct ContestMemory {
  explicit ContestMemory(const ContestCase& given);

  const CachePair& cache(int64_t layer) const {
    return caches[static_cast<size_t>(layer % given.cacheCount())];
  }

  ContestCase given;
  OwnedTensor query, key, value; ///< [1,S,H,D], [1,S,G,D], [1,S,G,Dv]
  std::vector<OwnedTensor> outs; ///< of each layer: [1,S,H,Dv]
  std::vector<CachePair> caches; ///< in place
  /// For those that cannot work in place: the first T - S rows of every cache, and room for T.
  std::vector<CachePair> pasts, presents;
};

class Contestant {
public:
  virtual ~Contestant() = default;
  /// A step in every layer, in any order; the results are in the memory's `outs`.
  virtual llvm::Error turn() = 0;
};

/// kvopt's attention as its runtime calls it. `node` may be any.
std::unique_ptr<Contestant> makeOurs(const ContestMemory& memory, const ir::Node& node,
                                     runtime::ThreadPool& pool);

/// ONNX Runtime on one graph of all layers. It fails where the engine does, where a new row is
/// not in the memory of the cache after a turn, and where the results are not what `memory.outs`
/// held before.
llvm::Expected<std::unique_ptr<Contestant>>
makeBaseline(const OnnxRuntime& runtime, BaselineSpelling spelling, const ContestMemory& memory,
             unsigned threads, bool spins, const ir::OpRegistry& ops);

} // namespace kvopt
