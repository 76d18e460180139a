// StepRunner: prepares the inputs of a step, runs it, and passes its rows to the caches.
#pragma once

#include "runtime/session/cache_growth.h"
#include "runtime/session/cache_state.h"
#include "runtime/session/length_inputs.h"
#include "runtime/session/model_runner.h"
#include "runtime/session/step_result.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::runtime {

/// Runs the steps of one session. Memory is reused, so that steps do not allocate.
class StepRunner {
public:
  /// The model, the kernels, the manifest and the caches must outlive this object. The constants of
  /// `like`, which runs the same model, are shared; null: separate constants. Fails if
  /// Executor::create does.
  static llvm::Expected<std::unique_ptr<StepRunner>>
  create(const ir::Model& model, const KernelRegistry& kernels, const ir::Manifest& manifest,
         const SessionOptions& options, CacheState& caches, const StepRunner* like);
  ~StepRunner();

  /// Both must be called before the first step: the first finds the output of each cache, the
  /// second creates the tensors of lengths for the caches' batch rows.
  llvm::Error findOutputs() { return growth.findOutputs(runner->graph()); }
  llvm::Error makeLengths() { return lengths.resize(state.batch()); }
  /// See Session::step.
  llvm::Error step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens, StepResult& result);
  /// Maximum number of tokens of the next step; INT64_MAX if only the capacity limits it.
  int64_t mostStepTokens() const;

  /// Graph inputs that a caller must provide.
  llvm::ArrayRef<const ir::Value*> callerInputs() const { return given; }
  const ModelRunner& model() const { return *runner; }
  const SessionStatistics& statistics() const { return counters; }
  /// Releases memory kept for the next step.
  void dropMemory();

private:
  StepRunner(const ir::Manifest& described, CacheState& caches,
             std::unique_ptr<ModelRunner> modelRunner);
  void listInputs();
  llvm::Error checkStep(llvm::ArrayRef<NamedView> inputs, int64_t newTokens) const;
  llvm::Error takeOrder(llvm::ArrayRef<NamedView> inputs);
  llvm::Error prepare(llvm::ArrayRef<NamedView> inputs);
  void feedLengths();
  llvm::Error feedCaches();
  llvm::Error feedBlocks(size_t index);
  void noteRun();
  void takeResult(StepResult& result);

  const ir::Manifest& manifest;
  std::unique_ptr<ModelRunner> runner;
  CacheState& state;
  SessionStatistics counters;
  LengthInputs lengths;
  CacheGrowth growth;
  std::vector<const ir::Value*> given; ///< inputs from the caller
  llvm::StringSet<> takenInputs;       ///< the same, and inputs with a default

  /// Reused by every step.
  std::vector<NamedView> stepInputs;
  std::vector<Binding> stepBindings;
  std::vector<Tensor> stepOutputs;
};

} // namespace kvopt::runtime
