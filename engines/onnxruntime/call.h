// Call: one execution of a node, with operands by their place in the operator's definition.
#pragma once

#include "engines/onnxruntime/tensor.h"

#include <span>
#include <string>
#include <vector>

namespace kvopt::onnxruntime {

/// Places of operands and results in a kernel's context. A fused node has others than the node:
/// omitted operands are absent, equal ones appear once, and results that are not read are absent.
struct OperandPlaces {
  static constexpr int absent = -1;
  std::vector<int> inputs;  ///< place of each operand
  std::vector<int> outputs; ///< place of each result
};

/// What the calls of one node have in common. Lives as long as the kernel.
struct CallSite {
  std::string node; ///< "operator 'name'", for messages
  OperandPlaces places;
};

class Call {
public:
  Call(OrtKernelContext* context, const CallSite& site);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// Throws an error that names the node.
  [[noreturn]] void fail(const std::string& message) const;
  /// Throws unless `holds`.
  void require(bool holds, const char* message) const {
    if (!holds)
      fail(message);
  }

  /// Number of the node's operands, with those that are omitted.
  size_t operandCount() const { return site_.places.inputs.size(); }
  bool has(unsigned operand) const;
  bool wants(unsigned result) const { return placeOf(site_.places.outputs, result) >= 0; }

  /// A given operand. It may be written only if it is known to be an output too.
  Tensor input(unsigned operand) const;
  /// Values of an operand of int32 or int64.
  std::vector<int64_t> integers(unsigned operand) const;
  /// The only value of an operand of int32 or int64.
  int64_t integer(unsigned operand) const;
  /// Values of a floating-point operand as f32: its own memory or scratch memory.
  const float* floats(const Tensor& tensor);

  /// Memory of a result, scratch memory if the result is not read.
  Tensor output(unsigned result, ElementType type, const Shape& shape);
  /// Uninitialized memory until the end of the call, aligned for every type.
  std::span<std::byte> scratch(int64_t bytes);
  Tensor scratchTensor(ElementType type, const Shape& shape);

  /// Calls body(index) for 0 <= index < count on the session's threads.
  template <class Body> void parallelFor(int64_t count, const Body& body) {
    run(
        count,
        [](void* data, size_t index) {
          (*static_cast<const Body*>(data))(static_cast<int64_t>(index));
        },
        const_cast<void*>(static_cast<const void*>(&body)));
  }
  /// The same, on this thread alone if `elements` elements take less time than waking another one.
  template <class Body> void forEach(int64_t count, int64_t elements, const Body& body) {
    constexpr int64_t fewElements = 32768;
    if (elements > fewElements)
      return parallelFor(count, body);
    for (int64_t index = 0; index < count; ++index)
      body(index);
  }

  /// An upper bound for the number of threads that run one call; a session may have fewer.
  static int64_t mostThreads();
  /// Computes attentions with disjoint outputs.
  void attend(std::span<const simd::AttentionView> views);

  /// Logs a line with the session's logger.
  void log(OrtLoggingLevel level, const std::string& message) const;

private:
  static int placeOf(const std::vector<int>& places, unsigned index) {
    return index < places.size() ? places[index] : OperandPlaces::absent;
  }
  const OrtValue* valueOf(unsigned operand) const;
  void run(int64_t count, void (*body)(void*, size_t), void* data);

  OrtKernelContext* context;
  const CallSite& site_;
  OrtAllocator* allocator = nullptr;
  std::vector<void*> memory;
};

} // namespace kvopt::onnxruntime
