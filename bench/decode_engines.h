// Engines that decode with a whole model after the same tokens: kvopt's sessions and ONNX Runtime.
#pragma once

#include "bench/onnx_runtime.h"
#include "driver/toolkit.h"
#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "runtime/session/session.h"

namespace kvopt {

/// A model file and its manifest.
struct LoadedModel {
  static llvm::Expected<LoadedModel> open(const std::string& path, const driver::Toolkit& toolkit);

  std::string path;
  std::unique_ptr<ir::Model> model;
  ir::Manifest manifest;
  int64_t vocabulary = 0;
};

/// Decodes the token at `depth` repeatedly.
class DecodeEngine {
public:
  virtual ~DecodeEngine() = default;
  /// Seconds of the model's run, without preparing its inputs and without cropping.
  virtual llvm::Expected<double> step() = 0;
  /// Scores of the latest step, one row, valid until the next one.
  virtual runtime::TensorView logits() const = 0;
};

/// kvopt's session with `depth` tokens. The model and toolkit must outlive it.
class SessionEngine final : public DecodeEngine {
public:
  static llvm::Expected<std::unique_ptr<SessionEngine>>
  start(const LoadedModel& loaded, const driver::Toolkit& toolkit, unsigned threads, int64_t depth);

  llvm::Expected<double> step() override;
  runtime::TensorView logits() const override;
  /// Valid rows of the cache with this name in the model; nullopt if there is none.
  std::optional<runtime::TensorView> cache(llvm::StringRef past) const;

private:
  SessionEngine(const LoadedModel& model, std::unique_ptr<runtime::Session> started, int64_t tokens)
      : loaded(model), session(std::move(started)), depth(tokens) {}

  const LoadedModel& loaded;
  std::unique_ptr<runtime::Session> session;
  int64_t depth;
  runtime::StepResult result;
};

/// Whether past and present are separate tensors, or one buffer with room for additional rows.
enum class BaselineCaches { Apart, Shared };

/// ONNX Runtime on `loaded`, with the contents of `source`'s caches of the same names. It writes
/// presents to existing memory, and does not move them to the next step's past.
llvm::Expected<std::unique_ptr<DecodeEngine>>
startBaseline(const OnnxRuntime& runtime, const LoadedModel& loaded, BaselineCaches caches,
              unsigned threads, bool spins, int64_t depth, const SessionEngine& source);

} // namespace kvopt
