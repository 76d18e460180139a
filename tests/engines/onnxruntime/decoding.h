// Decoding: a decoder with the inputs of the GenAI builder's models, driven step by step.
#pragma once

#include "tests/engines/onnxruntime/test_engine.h"

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kvopt {

/// How caches are bound.
enum class Binding {
  growing,    ///< the engine allocates presents, which are the next step's pasts
  oneBuffer,  ///< one buffer of a capacity as past and present
  twoBuffers, ///< two buffers of a capacity, in turns
};

/// Tokens and mask of one step; both have `rows` rows of `count` numbers.
struct Step {
  int64_t count = 1;
  std::vector<int64_t> tokens;
  std::vector<int64_t> mask;
};

class Decoding {
public:
  Decoding(Ort::Session& ofSession, Binding howBound, int64_t batchRows, int64_t cacheRows);

  /// Logits of the step's tokens as f32, [B,S,vocabulary], and what the engine throws.
  std::vector<float> take(const Step& step);

  /// Whether the model has states of a fixed size next to its caches.
  bool hasStates() const;
  /// Whether caches have the number of rows that the model declares, such as the slots of a ring.
  bool hasFixedRows() const { return areRowsFixed; }
  /// Whether caches have a capacity and their length is an input, as in files that kvopt wrote.
  bool isInPlace() const { return has("past_length") || isScattered(); }
  /// Whether TensorScatter writes the caches, and attention only reads them.
  bool isScattered() const { return has("write_indices"); }

private:
  struct Cache {
    std::string past, present;
    ONNXTensorElementDataType type;
    std::vector<int64_t> shape; ///< with the capacity, or 0 rows where caches grow
    /// A state of a fixed size, such as that of a convolution: the engine allocates it anew.
    bool isState = false;
    std::vector<std::byte> buffers[2];
    Ort::Value grown{nullptr};
  };

  bool has(const char* input) const;
  Ort::Value tensorOf(Cache& cache, unsigned buffer);

  Ort::Session& session;
  Binding binding;
  int64_t batch;
  Ort::MemoryInfo memory = Ort::MemoryInfo::CreateCpu(OrtDeviceAllocator, OrtMemTypeDefault);
  std::vector<Cache> caches;
  std::vector<std::string> inputs;
  std::vector<int64_t> mask; ///< of all tokens so far, [B,count]
  int64_t taken = 0;         ///< tokens so far
  unsigned steps = 0;
  bool areRowsFixed = false;
};

} // namespace kvopt
