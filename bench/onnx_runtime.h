// ONNX Runtime, loaded from its library at run time, as a baseline that benchmarks run in the same
// process and on the same memory as kvopt.
#pragma once

#include "runtime/memory/tensor_view.h"

#include "llvm/Support/Error.h"

#include <memory>
#include <string>
#include <vector>

namespace kvopt {

class OnnxRuntime;

/// One model. The caller owns the memory of inputs and outputs, which is bound once by name; an
/// input and an output may be bound to the same memory. Every input and output must be bound before
/// the first run, at a fixed address.
class OnnxRuntimeSession {
public:
  OnnxRuntimeSession(OnnxRuntimeSession&&) noexcept = default;
  OnnxRuntimeSession(const OnnxRuntimeSession&) = delete;

  /// The view must be contiguous.
  llvm::Error bindInput(const std::string& name, const runtime::TensorView& tensor);
  llvm::Error bindOutput(const std::string& name, const runtime::TensorView& tensor);
  llvm::Error run();

private:
  friend class OnnxRuntime;
  using Handle = std::shared_ptr<void>;
  struct Values {
    std::vector<std::string> names;
    std::vector<Handle> values;
  };
  OnnxRuntimeSession(const OnnxRuntime& onnxRuntime, Handle handle)
      : runtime(&onnxRuntime), session(std::move(handle)) {}
  llvm::Error bind(Values& values, const std::string& name, const runtime::TensorView& tensor);

  const OnnxRuntime* runtime;
  Handle session;
  Values inputs, outputs;
};

/// The library. Must outlive its sessions.
class OnnxRuntime {
public:
  /// Fails if `library` (libonnxruntime.so) cannot be loaded.
  static llvm::Expected<std::unique_ptr<OnnxRuntime>> load(const std::string& library);
  OnnxRuntime(const OnnxRuntime&) = delete;

  const std::string& version() const { return versionText; }

  /// Opens a model with all graph optimizations, sequential operators, and `threads` threads within
  /// an operator. Idle threads sleep or, with `spins`, wait at full speed.
  llvm::Expected<OnnxRuntimeSession> open(const std::string& model, unsigned threads,
                                          bool spins) const;

private:
  friend class OnnxRuntimeSession;
  using Handle = std::shared_ptr<void>;
  enum Slot : unsigned;

  OnnxRuntime() = default;
  /// Calls a function of the library's table that returns a status.
  template <class... Parameters, class... Arguments>
  llvm::Error call(Slot slot, Arguments... arguments) const;
  /// The same for functions that create an object, which is returned.
  template <class... Parameters, class... Arguments>
  llvm::Expected<Handle> make(Slot creator, Slot releaser, Arguments... arguments) const;
  template <class Function> Function* function(Slot slot) const;

  void* const* table = nullptr;
  std::string versionText;
  Handle environment, memoryInfo;
};

} // namespace kvopt
