// StepRunner: prepares what a step of a model reads, runs it, and hands its rows to the caches.
#pragma once

#include "runtime/session/cache_growth.h"
#include "runtime/session/cache_state.h"
#include "runtime/session/length_inputs.h"
#include "runtime/session/model_runner.h"
#include "runtime/session/step_result.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::runtime {

/// The steps of one session. All that a step uses again is kept, so that it allocates nothing.
class StepRunner {
public:
  /// The model, the kernels, the manifest and the caches must outlive it. `like` takes steps of the
  /// same model, and its constants are used; null: the runner has its own. Fails where
  /// Executor::create does.
  static llvm::Expected<std::unique_ptr<StepRunner>>
  create(const ir::Model& model, const KernelRegistry& kernels, const ir::Manifest& manifest,
         const SessionOptions& options, CacheState& caches, const StepRunner* like);

  /// Both come before the first step: the output of each cache is found, and the tensors of lengths
  /// are made for the batch rows that the caches have.
  llvm::Error findOutputs() { return growth.findOutputs(runner->graph()); }
  llvm::Error makeLengths() { return lengths.resize(state.batch()); }
  /// As Session::step.
  llvm::Error step(llvm::ArrayRef<NamedView> inputs, int64_t newTokens, StepResult& result);
  /// The most tokens that the next step may have; INT64_MAX where only the capacity limits them.
  int64_t mostStepTokens() const;

  /// Graph inputs that a caller must give.
  llvm::ArrayRef<const ir::Value*> callerInputs() const { return given; }
  const ModelRunner& model() const { return *runner; }
  const SessionStatistics& statistics() const { return counters; }
  /// Gives back what is kept for the next step.
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
  std::vector<const ir::Value*> given; ///< inputs that are the caller's
  llvm::StringSet<> takenInputs;       ///< those, and those that have a default

  /// What every step uses again.
  std::vector<NamedView> stepInputs;
  std::vector<Binding> stepBindings;
  std::vector<Tensor> stepOutputs;
};

} // namespace kvopt::runtime
