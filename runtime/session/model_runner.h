// ModelRunner: runs one step of a model, of one of its variants, or of its pieces.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/exec/executor.h"
#include "runtime/session/cut_decoder.h"
#include "runtime/session/session_options.h"

namespace kvopt::runtime {

/// Executors of one session. A model with blocks of fixed extents has variants: each step runs the
/// smallest one with room for the current tokens, which is prepared on first use. A model in pieces
/// is never run as a whole.
class ModelRunner {
public:
  /// The model, the kernels and the manifest must outlive this object. The options have a pool and
  /// an allocator. The constants of `like`, which runs the same model, are shared; null: separate
  /// constants. Fails if Executor::create does.
  static llvm::Expected<std::unique_ptr<ModelRunner>>
  create(const ir::Model& model, const KernelRegistry& kernels, const ir::Manifest& manifest,
         const SessionOptions& options, const ModelRunner* like);

  /// Selects the smallest variant with room for `past` tokens.
  llvm::Error chooseVariant(int64_t past);
  /// Number of a cache's blocks that the selected variant reads.
  size_t blockCount(const ir::ManifestCache& cache) const;
  /// Runs the selected variant after `past` tokens. After an error, `outputs` is unchanged.
  llvm::Error run(llvm::ArrayRef<NamedView> inputs, llvm::ArrayRef<Binding> bindings, int64_t past,
                  std::vector<Tensor>& outputs);

  const ir::Graph& graph() const { return executor ? executor->graph() : model.graph(); }
  /// Variants of the model; the last one is the model itself. Empty without variants.
  const Pyramid& variants() const { return pyramid; }
  /// Index of the variant that ran the latest step; the last one if there was no step.
  size_t latestVariant() const { return runningVariant; }
  /// Statistics of the latest run.
  const RunStatistics& statistics() const {
    return pieces ? pieces->statistics() : running->statistics();
  }
  /// Releases memory kept for the next run.
  void dropMemory();

private:
  ModelRunner(const ir::Model& runModel, const KernelRegistry& knownKernels,
              const ir::Manifest& described, const SessionOptions& settings);
  llvm::Error start(const ModelRunner* like);
  llvm::Error startPieces(const ModelRunner* like);
  llvm::Expected<std::unique_ptr<Executor>> createExecutor(const ir::Model& executed,
                                                           const Executor* constantsOf) const;
  llvm::Error makeVariant(size_t index);
  llvm::Error checkVariant(const ir::Graph& variant, int64_t blocks) const;

  const ir::Model& model;
  const KernelRegistry& kernels;
  const ir::Manifest& manifest;
  ExecutorOptions executorOptions;
  std::shared_ptr<ir::VariantSource> source; ///< null if it is not needed
  /// Executor of the model; null if it is run in pieces.
  std::unique_ptr<Executor> executor;
  std::unique_ptr<CutDecoder> pieces;
  Pyramid pyramid;
  /// For each variant; null for the last one, and for those that were not used yet.
  std::vector<std::unique_ptr<Executor>> variantExecutors;
  Executor* running = nullptr; ///< executor of the latest step; null like `executor`
  size_t runningVariant = 0;
};

} // namespace kvopt::runtime
