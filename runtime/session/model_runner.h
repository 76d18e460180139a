// ModelRunner: runs one step of a model, of one of its variants, or of its pieces.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/exec/executor.h"
#include "runtime/session/cut_decoder.h"
#include "runtime/session/session_options.h"

namespace kvopt::runtime {

/// The executors of one session. A model in blocks of fixed extents has variants: each step runs
/// the smallest one that has room for the tokens there are, made ready when it is first needed. A
/// model in pieces is never run itself.
class ModelRunner {
public:
  /// The model, the kernels and the manifest must outlive it. The options have a pool and an
  /// allocator. `like` runs the same model, and its constants are used; null: the runner has its
  /// own. Fails where Executor::create does.
  static llvm::Expected<std::unique_ptr<ModelRunner>>
  create(const ir::Model& model, const KernelRegistry& kernels, const ir::Manifest& manifest,
         const SessionOptions& options, const ModelRunner* like);

  /// Makes the smallest variant that has room for `past` tokens the one that runs.
  llvm::Error chooseVariant(int64_t past);
  /// How many of a cache's blocks the chosen variant is given.
  size_t blockCount(const ir::ManifestCache& cache) const;
  /// Runs what was chosen, after `past` tokens. After an error `outputs` is as before.
  llvm::Error run(llvm::ArrayRef<NamedView> inputs, llvm::ArrayRef<Binding> bindings, int64_t past,
                  std::vector<Tensor>& outputs);

  const ir::Graph& graph() const { return executor ? executor->graph() : model.graph(); }
  /// The variants of the model, of which the last is the model itself; empty without any.
  const Pyramid& variants() const { return pyramid; }
  /// Which of them took the latest step; that of none is the last.
  size_t latestVariant() const { return runningVariant; }
  /// Of the latest run.
  const RunStatistics& statistics() const {
    return pieces ? pieces->statistics() : running->statistics();
  }
  /// Gives back what is kept for the next run.
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
  std::shared_ptr<VariantSource> source; ///< null where nothing comes from it
  /// Of the model, and null where it is run in pieces.
  std::unique_ptr<Executor> executor;
  std::unique_ptr<CutDecoder> pieces;
  Pyramid pyramid;
  /// By variant; null for the last, and for those that no step has needed.
  std::vector<std::unique_ptr<Executor>> variantExecutors;
  Executor* running = nullptr; ///< the one of the latest step; null as `executor` is
  size_t runningVariant = 0;
};

} // namespace kvopt::runtime
