// PassManager: runs a pipeline of passes with verification, timing, printing and reproducers.
#pragma once

#include "passes/pass.h"

namespace kvopt {
class FileAccess;
class ProgressListener;
} // namespace kvopt

namespace kvopt::passes {

/// One step of a pipeline: a pass's name and options.
struct PipelineStep {
  std::string pass;
  PassOptions options;
};

/// Parses `name,name{key=value key=value},…`; values may be quoted. Errors name the column.
llvm::Expected<std::vector<PipelineStep>> parsePipeline(llvm::StringRef text);
/// Text that parses to the same steps.
std::string printPipeline(llvm::ArrayRef<PipelineStep> steps);

struct PassManagerOptions {
  /// Verify the model before the first pass and after each pass that edits it.
  bool verifyEach = true;
  /// Names of passes that are left out of every pipeline.
  std::vector<std::string> disabledPasses;
  /// Print the model's text before or after these passes ("all" for every pass).
  std::vector<std::string> printBefore;
  std::vector<std::string> printAfter;
  /// Receives the text of printBefore and printAfter.
  std::function<void(const std::string& header, const std::string& text)> print;
  /// File that receives the model as it was before a failing pass, and the rest of the pipeline
  /// from that pass on; empty for none.
  std::string reproducerPath;
  /// Registers that file as an output; null for a program that uses no other files.
  FileAccess* files = nullptr;
  /// Receives how many passes are done; null where nothing shows it.
  ProgressListener* progress = nullptr;
};

struct PassTiming {
  std::string pass;
  double milliseconds = 0;
  bool changed = false;
};

/// Runs passes in order. Errors name the failing pass and the passes that ran before it.
class PassManager {
public:
  PassManager(const PassRegistry& registry, PassManagerOptions options)
      : passes(registry), settings(std::move(options)) {}

  /// Fails if the settings name a pass to print that does not exist.
  llvm::Error checkPrinted() const;
  /// Adds a pass. `name` is its registered name, which messages and `disabledPasses` use.
  void add(llvm::StringRef name, std::unique_ptr<Pass> pass);
  /// Adds registered passes by their names, without options.
  void addNamed(llvm::ArrayRef<const char*> names);
  /// Adds the passes of a pipeline text. Checks the names of passes and options.
  llvm::Error addPipeline(llvm::StringRef text);
  llvm::Error run(ir::Model& model, PassContext& context);

  /// Times of the last run.
  llvm::ArrayRef<PassTiming> timings() const { return measured; }

private:
  struct Stage {
    PipelineStep step;
    std::unique_ptr<Pass> pass;
  };
  llvm::Error add(const PipelineStep& step);
  llvm::Error fail(llvm::Error error, size_t stage, const std::string& before) const;

  const PassRegistry& passes;
  PassManagerOptions settings;
  std::vector<Stage> stages;
  std::vector<PassTiming> measured;
};

} // namespace kvopt::passes
