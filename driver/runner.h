// Runner: the questions that only a run of a model answers.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kvopt {
class FileAccess;
} // namespace kvopt
namespace kvopt::check {
struct DrivenModel;
struct Step;
} // namespace kvopt::check
namespace kvopt::ir {
struct InputRecipe;
struct Manifest;
class Model;
} // namespace kvopt::ir
namespace kvopt::runtime {
class KernelRegistry;
} // namespace kvopt::runtime
namespace kvopt::targets {
struct CodeScales;
} // namespace kvopt::targets

namespace kvopt::driver {

struct CheckRequest;
struct Counterexample;
struct FileCheck;
struct FloatReplay;
struct FoundRoles;
struct GuessedRoles;
struct RewriteComparison;
struct RewriteRequest;
struct RewrittenPair;
struct Toolkit;

/// Runs models for what inspects, rewrites and checks them, which includes nothing of the runtime.
/// driver/verify/ implements it.
class Runner {
public:
  virtual ~Runner() = default;

  /// The kernels of all operators. A program may add its own.
  virtual runtime::KernelRegistry& kernels() = 0;
  /// Names and descriptions of kernels, for `kvopt list kernels`.
  virtual std::vector<std::pair<std::string, std::string>> kernelTexts() const = 0;

  /// Fails if roles of inputs in the manifest of a model cannot be right.
  virtual llvm::Error testRoles(const ir::Model& model, const ir::Manifest& manifest,
                                llvm::ArrayRef<ir::InputRecipe> recipes,
                                const Toolkit& toolkit) const = 0;
  /// The roles that hold in short runs. An UndrivenError if none do; another error if nothing can
  /// be learned.
  virtual llvm::Expected<FoundRoles> findRoles(const GuessedRoles& guessed,
                                               const Toolkit& toolkit) const = 0;

  /// Runs one step of both models. `seed` is that of a check, which feeds the same integers.
  virtual FloatReplay replay(const check::DrivenModel& before, const check::DrivenModel& after,
                             const check::Step& step, unsigned seed,
                             const Toolkit& toolkit) const = 0;
  /// Writes the step of the first output that differs to `folder`, as recorded steps
  /// (runtime/equivalence/reference_steps.h): the first model's inputs and outputs. Then compares
  /// the second model with the recording. nullopt if no output differs.
  virtual llvm::Expected<std::optional<Counterexample>>
  writeCounterexample(const FileCheck& result, const CheckRequest& request,
                      const std::string& folder, const Toolkit& toolkit,
                      FileAccess& files) const = 0;

  /// Runs a model before and after its rewrite side by side, and completes the result.
  virtual llvm::Error compare(const RewrittenPair& pair, const RewriteRequest& request,
                              const Toolkit& toolkit, RewriteComparison& result) const = 0;
  /// Determines scales of codes by the request's text. `exported` drives the model that was read,
  /// if it is known.
  virtual llvm::Expected<targets::CodeScales> calibrate(const ir::Model& model,
                                                        const ir::Manifest& manifest,
                                                        const std::optional<ir::Manifest>& exported,
                                                        const RewriteRequest& request,
                                                        const Toolkit& toolkit) const = 0;
};

/// The runner of this build; null in a build without the runtime.
std::unique_ptr<Runner> makeRunner();

/// Reason that a build without the runtime cannot do something.
inline constexpr const char* noRuntime = "this build of kvopt has no runtime";

/// The error for `what`, such as `kvopt run`, in a build without the runtime.
llvm::Error needsRuntime(llvm::StringRef what);

} // namespace kvopt::driver
