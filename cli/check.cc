// kvopt check: two models, compared without running them.
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "cli/support/style.h"
#include "driver/check/check_json.h"
#include "driver/check/check_words.h"
#include "driver/check/counterexample.h"
#include "support/diagnostic.h"
#include "support/json.h"
#include "support/output_file.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;

namespace {

struct CheckOptions {
  CheckWords words;
  std::string written;
  std::string verified;
};

llvm::Expected<ExitCode> checkPair(const CheckOptions& options, const CommandContext& context) {
  auto result = options.verified.empty()
                    ? checkFiles(options.words.request, context.toolkit)
                    : checkCertificate(options.verified, options.words.request, context.toolkit);
  if (!result)
    return result.takeError();
  // All files of the models are known now.
  if (llvm::Error error = context.files().checkOutputs())
    return error;
  if (!options.written.empty()) {
    auto file = OutputFile::create(options.written, context.files());
    if (!file)
      return file.takeError();
    if (llvm::Error error = file->write(llvm::StringRef(certificateText(*result))))
      return error;
    if (llvm::Error error = file->commit())
      return error;
  }
  auto example = writeCounterexample(*result, options.words.request, options.words.counterexample,
                                     context.toolkit, context.files());
  if (!example)
    return example.takeError();
  if (context.common.json()) {
    printJson(checkJson(*result, *example));
  } else {
    SafeText text = checkSummary(*result, context.common.verbose);
    if (*example)
      text += counterexampleText(**example);
    printOut(text);
  }
  return result->areEqual(options.words.allowsTested) ? ExitCode::Done : ExitCode::Different;
}

} // namespace

void addCheckCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = addCommand(app, Command::Check);
  CommandOptions add(*command, context, Command::Check);
  add.add("before", options->words.request.before.path);
  add.add("after", options->words.request.after.path);
  add.addInput("--manifest", options->words.request.manifest, "the manifest");
  auto* written = add.add("--certificate", options->written);
  addCounterexampleOption(add, options->words);
  add.addInput("--against", options->verified, "the certificate")->excludes(written);
  addCheckOptions(add, options->words);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return checkPair(*options, context); };
  });
}

} // namespace kvopt::cli
