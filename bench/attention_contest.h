// Contestants of a comparison of attention: kvopt's kernel and other engines, which read and
// write the same caches.
#pragma once

#include "bench/attention_case.h"
#include "bench/baseline_models.h"
#include "bench/onnx_runtime.h"
#include "runtime/memory/buffer.h"
#include "runtime/threads/thread_pool.h"

namespace kvopt {

/// A step that appends rows to a cache and attends to all rows that they see, in every layer.
struct ContestCase {
  AttentionShape shape;
  ir::ElementType element = ir::ElementType::Float; ///< or Float16
  int64_t rows = 0;                                 ///< T, including the new rows; >= 2
  bool warm = false;                                ///< all layers share one cache
  int64_t newRows = 1;                              ///< S

  bool isDecode() const { return newRows == 1; }
  CacheType cache() const {
    return element == ir::ElementType::Float ? CacheType::f32 : CacheType::f16;
  }
  int64_t elementBytes() const { return *byteWidth(element); }
  /// Size of valid keys and values in one layer.
  int64_t validBytes() const {
    return shape.kvHeads * rows * (shape.keyWidth + shape.valueWidth) * elementBytes();
  }
  /// For cold caches: enough layers for 300 MB, which requires T >= 256 if rows are small.
  int64_t layers() const;
  int64_t cacheCount() const { return warm ? 1 : layers(); }
  /// Number of rows for which a cache in place has room.
  int64_t capacity() const;
  /// Floating-point operations of visible pairs in one layer.
  double operations() const;
};

/// A contiguous tensor that owns its memory.
class OwnedTensor {
public:
  OwnedTensor() = default;
  OwnedTensor(ir::ElementType element, llvm::ArrayRef<int64_t> shape);

  const runtime::TensorView& view() const { return tensor; }
  /// Address of row `index` of head `head` of a tensor [1,G,T,D].
  std::byte* row(int64_t head, int64_t index) const {
    return tensor.data + (head * tensor.shape[2] + index) * rowBytes();
  }
  int64_t rowBytes() const { return tensor.shape.back() * *byteWidth(tensor.element); }
  /// Element of a tensor of floats or halves.
  float number(int64_t index) const;

private:
  std::shared_ptr<runtime::Buffer> memory;
  runtime::TensorView tensor;
};

struct CachePair {
  OwnedTensor key, value; ///< [1,G,C,D], [1,G,C,Dv]
};

/// Memory that all contestants of a case read and write.
struct ContestMemory {
  explicit ContestMemory(const ContestCase& given);

  const CachePair& cache(int64_t layer) const {
    return caches[static_cast<size_t>(layer % given.cacheCount())];
  }

  ContestCase given;
  OwnedTensor query, key, value; ///< [1,S,H,D], [1,S,G,D], [1,S,G,Dv]
  std::vector<OwnedTensor> outs; ///< for each layer: [1,S,H,Dv]
  std::vector<CachePair> caches; ///< in place
  /// For contestants that cannot work in place: the first T - S rows of every cache, and room for
  /// T.
  std::vector<CachePair> pasts, presents;
};

class Contestant {
public:
  virtual ~Contestant() = default;
  /// Runs a step in every layer, in any order; the results are in the memory's `outs`.
  virtual llvm::Error turn() = 0;
};

/// kvopt's attention through its runtime. Errors name `node`, which may be any node.
std::unique_ptr<Contestant> makeOurs(const ContestMemory& memory, const ir::Node& node,
                                     runtime::ThreadPool& pool);

/// ONNX Runtime with one graph of all layers. Fails if the engine does, if a new row is not in the
/// memory of the cache after a turn, or if the results differ from the contents of `memory.outs`.
llvm::Expected<std::unique_ptr<Contestant>>
makeBaseline(const OnnxRuntime& runtime, BaselineSpelling spelling, const ContestMemory& memory,
             unsigned threads, bool spins, const ir::OpRegistry& ops);

} // namespace kvopt
