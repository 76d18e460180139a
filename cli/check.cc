// kvopt check: two models, compared without running them.
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "cli/support/style.h"
#include "driver/check/check_json.h"
#include "support/diagnostic.h"
#include "support/output_file.h"

#include <CLI/CLI.hpp>

namespace kvopt::cli {
using namespace driver;

namespace {

struct CheckOptions {
  CheckRequest request;
  std::string written;
  std::string verified;
};

llvm::Expected<ExitCode> checkPair(const CheckOptions& options, const CommandContext& context) {
  auto result = options.verified.empty()
                    ? checkFiles(options.request, context.toolkit)
                    : checkCertificate(options.verified, options.request, context.toolkit);
  if (!result)
    return result.takeError();
  if (!options.written.empty()) {
    auto file = OutputFile::create(options.written, context.files());
    if (!file)
      return file.takeError();
    if (llvm::Error error = file->write(llvm::StringRef(certificateText(*result))))
      return error;
    if (llvm::Error error = file->commit())
      return error;
  }
  if (context.common.json())
    printJson(checkJson(*result));
  else
    printOut(checkSummary(*result, context.common.verbose));
  switch (result->report.verdict()) {
  case check::Verdict::Proved:
  case check::Verdict::ProvedReduced:
  case check::Verdict::Tested:
    return ExitCode::Done;
  case check::Verdict::Different:
  case check::Verdict::Skipped:
    break;
  }
  return ExitCode::Different;
}

} // namespace

void addCheckCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<CheckOptions>();
  CLI::App* command = addCommand(app, Command::Check);
  CommandOptions add(*command, context, Command::Check);
  add.add("before", options->request.before);
  add.add("after", options->request.after);
  add.addInput("--manifest", options->request.manifest, "the manifest");
  auto* written = add.add("--certificate", options->written);
  add.addInput("--against", options->verified, "the certificate")->excludes(written);
  add.add("--seed", options->request.seed);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return checkPair(*options, context); };
  });
}

} // namespace kvopt::cli
