// Session: drives a model step by step as its manifest says, and owns the caches.
#pragma once

#include "ir/manifest.h"
#include "runtime/executor.h"

#include "llvm/ADT/StringSet.h"

#include <string>

namespace kvopt {

struct SessionOptions {
  enum class Mode {
    AsManifest, ///< A shared buffer has a fixed capacity; exceeding it is an error.
    Stateful,   ///< A shared buffer grows geometrically as far as the manifest allows.
  };
  Mode mode = Mode::AsManifest;
  /// Tokens a shared buffer, or a static cache whose extent is open, has room for; 0 takes the
  /// manifest's capacity or, in Stateful mode, a small one.
  int64_t capacity = 0;
  int64_t batch = 1;
  /// As in ExecutorOptions.
  unsigned threads = 0;
  std::shared_ptr<ThreadPool> pool;
  std::shared_ptr<Allocator> allocator;
  bool timeOperators = false;
  /// Fill fresh shared buffers with NaN instead of zeros: nothing may depend on unwritten rows.
  bool poison = false;
};

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

struct StepResult {
  /// Every graph output that is no cache, in order.
  std::vector<NamedTensor> outputs;
  const Tensor* find(llvm::StringRef name) const;
};

/// Accumulated over the steps of a session.
struct SessionStatistics {
  int64_t steps = 0;
  int64_t cacheReallocations = 0;
  int64_t inPlaceBytesCopied = 0;
  int64_t cacheBytesWritten = 0;
  int64_t cacheBytesMoved = 0; ///< by growth and crop
  /// The most of RunStatistics::temporaryPeak over the steps.
  int64_t temporaryPeak = 0;
  RunStatistics lastRun;
};

/// One sequence (or batch of sequences of one length). Caches that the model writes in place itself
/// (static ones, states) start as zeros and are handed from step to step; cross-attention caches
/// are inputs that the caller gives. A model without caches gets whole sequences. Sessions share
/// nothing that changes. The model and kernels must outlive it.
class Session {
public:
  /// Fails for contracts that it does not drive (blocks, recurrent), for a manifest that does not
  /// fit the model, and where Executor::create fails.
  static llvm::Expected<std::unique_ptr<Session>> create(const Model& model,
                                                         const KernelRegistry& kernels,
                                                         const Manifest& manifest,
                                                         const SessionOptions& options = {});
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Runs the model on `newTokens` tokens a row after the `length()` earlier ones. `inputs` are all
  /// graph inputs but caches and lengths. After an error the session is as before.
  llvm::Expected<StepResult> step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens);
  /// The same into `result`, whose storage is used again: with the result of the step before,
  /// decoding with caches in place allocates nothing. Its former tensors stay until the step is
  /// over, so that inputs may be views of them. After an error `result` is as before.
  llvm::Error step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens, StepResult& result);

  /// Valid tokens in the caches.
  int64_t length() const { return validLength; }
  /// Tokens there is room for; INT64_MAX where caches grow with every step.
  int64_t capacity() const;
  int64_t batch() const { return options.batch; }
  void reset();
  /// Keeps the first `tokens` tokens; an error if there are fewer.
  llvm::Error crop(int64_t tokens);

  size_t cacheCount() const { return caches.size(); }
  const ManifestCache& cacheInfo(size_t index) const { return description.caches[index]; }
  const Manifest& manifest() const { return description; }
  /// The valid region of a cache, strided; all of a cache that the model itself keeps in place. It
  /// is overwritten or invalid after the next step.
  TensorView cacheView(size_t index) const;
  /// The whole memory of a cache.
  TensorView cacheBuffer(size_t index) const { return caches[index].view; }

  /// Graph inputs that a caller must give.
  std::vector<const Value*> callerInputs() const;
  const Graph& graph() const { return executor->graph(); }
  const SessionStatistics& statistics() const { return counters; }
  const std::shared_ptr<Allocator>& allocator() const { return executor->allocator(); }

private:
  Session(const Manifest& manifest, const SessionOptions& sessionOptions);
  llvm::Error start();
  llvm::Error checkInterface() const;
  llvm::Expected<Extents> cacheShape(const ManifestCache& cache, int64_t tokens) const;
  llvm::Expected<Extents> extents(llvm::ArrayRef<ManifestExtent> shape,
                                  std::optional<unsigned> sequenceAxis, int64_t tokens) const;
  llvm::Expected<Tensor> freshCache(size_t cache, int64_t tokens) const;
  /// Rows of a cache before the first step: a shared buffer's or a static cache's capacity, none of
  /// a growing one.
  int64_t startRows(size_t index) const;
  llvm::Error makeRoom(int64_t tokens);
  llvm::Error prepareSteps();
  llvm::Error checkInputs(llvm::ArrayRef<NamedView> inputs) const;
  llvm::Error writeLengths(int64_t newTokens);
  llvm::Error checkPresents(llvm::ArrayRef<Tensor> presents, int64_t tokens) const;
  bool isShared(size_t cache) const { return description.caches[cache].oneBuffer; }
  CachePolicy policy(size_t cache) const { return description.caches[cache].policy; }
  bool hasShared() const;
  unsigned sequenceAxis(size_t cache) const {
    return static_cast<unsigned>(description.caches[cache].sequenceAxis);
  }

  Manifest description;
  SessionOptions options;
  std::unique_ptr<Executor> executor;
  std::vector<Tensor> caches;
  std::vector<unsigned> presentOutputs; // index of the graph output, per cache
  int64_t validLength = 0;
  int64_t room = 0;
  int64_t staticRoom = INT64_MAX; ///< tokens that caches of static capacity have room for
  SessionStatistics counters;

  /// What every step uses again, so that it allocates nothing.
  llvm::StringSet<> callerNames;       ///< inputs that a caller may give
  std::vector<Tensor> lengthTensors;   ///< per length of the manifest
  std::vector<Extents> presentShapes;  ///< per cache, the sequence axis to be filled in
  std::vector<unsigned> resultOutputs; ///< indices of the graph outputs that are no caches
  std::vector<NamedView> stepInputs;
  std::vector<Binding> stepBindings;
  std::vector<Tensor> stepOutputs;
};

} // namespace kvopt
