// The runner of a build with the runtime.
#include "driver/runner.h"

#include "driver/verify/calibration.h"
#include "driver/verify/counterexample_files.h"
#include "driver/verify/rewrite_runs.h"
#include "driver/verify/role_search.h"
#include "driver/verify/step_replay.h"
#include "runtime/exec/kernel.h"
#include "runtime/simd/attention/attention_kernel.h"
#include "support/format.h"

namespace kvopt::driver {
using namespace ir;
using namespace runtime;

namespace {

/// Text such as `ai.onnx 13 and later`.
std::string versionsOf(const Kernel& kernel) {
  llvm::StringRef domain = kernel.op.isOnnx() ? llvm::StringRef("ai.onnx") : kernel.op.domain();
  return kernel.until == INT64_MAX
             ? formatted("{:<14} {} and later", domain, kernel.since)
             : formatted("{:<14} {} to {}", domain, kernel.since, kernel.until);
}

class KernelRunner final : public Runner {
public:
  KernelRunner() { registerAll(registry); }

  KernelRegistry& kernels() override { return registry; }

  std::vector<std::pair<std::string, std::string>> kernelTexts() const override {
    std::vector<std::pair<std::string, std::string>> texts;
    for (const Kernel* kernel : registry.all())
      texts.emplace_back(kernel->op.str(), versionsOf(*kernel));
    // Kernels of all attention operators. The first one that accepts a case computes it.
    for (const simd::AttentionKernel& kernel : simd::attentionKernels().all())
      texts.emplace_back(formatted("attention/{}", kernel.name),
                         formatted("{:<14} {}", "SIMD", kernel.use));
    return texts;
  }

  llvm::Error testRoles(const Model& model, const Manifest& manifest,
                        llvm::ArrayRef<InputRecipe> recipes,
                        const Toolkit& toolkit) const override {
    return testStored(model, manifest, recipes, toolkit);
  }

  llvm::Expected<FoundRoles> findRoles(const GuessedRoles& guessed,
                                       const Toolkit& toolkit) const override {
    return searchRoles(guessed, toolkit);
  }

  FloatReplay replay(const check::DrivenModel& before, const check::DrivenModel& after,
                     const check::Step& step, unsigned seed,
                     const Toolkit& toolkit) const override {
    return replayStep(before, after, step, seed, toolkit);
  }

  llvm::Expected<std::optional<Counterexample>>
  writeCounterexample(const FileCheck& result, const CheckRequest& request,
                      const std::string& folder, const Toolkit& toolkit,
                      FileAccess& files) const override {
    return writeStep(result, request, folder, toolkit, files);
  }

  llvm::Error compare(const RewrittenPair& pair, const RewriteRequest& request,
                      const Toolkit& toolkit, RewriteComparison& result) const override {
    return compareByRuns(pair, request, toolkit, result);
  }

  llvm::Expected<targets::CodeScales> calibrate(const Model& model, const Manifest& manifest,
                                                const std::optional<Manifest>& exported,
                                                const RewriteRequest& request,
                                                const Toolkit& toolkit) const override {
    return calibrateFor(model, manifest, exported, request, toolkit);
  }

private:
  KernelRegistry registry;
};

} // namespace

std::unique_ptr<Runner> makeRunner() { return std::make_unique<KernelRunner>(); }

} // namespace kvopt::driver
