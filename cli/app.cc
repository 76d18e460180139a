// Parsing, dispatch, and the mapping of errors to exit codes.
#include "cli/app.h"

#include "cli/process.h"
#include "cli/support/command.h"
#include "cli/support/help_text.h"
#include "cli/support/option_values.h"
#include "cli/support/progress.h"
#include "cli/support/style.h"
#include "cli/support/terminal.h"
#include "cli/support/wrapped_text.h"
#include "driver/roles/driving.h"
#include "support/format.h"
#include "support/json.h"
#include "support/nearest_word.h"

#include <CLI/CLI.hpp>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace kvopt::cli {
using namespace driver;
using namespace ir;
using namespace passes;
using namespace pattern;

ExitCode exitCodeFor(Diagnostic::Kind kind) {
  switch (kind) {
  case Diagnostic::Kind::Usage:
    return ExitCode::Usage;
  case Diagnostic::Kind::Unsupported:
    return ExitCode::MissingOperator;
  case Diagnostic::Kind::Invalid:
  case Diagnostic::Kind::Io:
    break;
  }
  return ExitCode::BadInput;
}

namespace {

int fail(ExitCode code, const SafeText& message) {
  printErr("kvopt: " + message + "\n");
  return static_cast<int>(code);
}

llvm::StringRef kindName(Diagnostic::Kind kind) {
  switch (kind) {
  case Diagnostic::Kind::Invalid:
    return "invalid";
  case Diagnostic::Kind::Unsupported:
    return "unsupported";
  case Diagnostic::Kind::Io:
    return "io";
  case Diagnostic::Kind::Usage:
    return "usage";
  }
  return "";
}

/// The JSON object for a failed subcommand: the parts of the diagnostic, null if a part is missing.
OrderedJson errorJson(const std::string& command, ExitCode code, const Diagnostic& diagnostic) {
  auto text = [](const std::string& part) {
    return part.empty() ? OrderedJson(nullptr) : OrderedJson(part);
  };
  OrderedJson json;
  json["schema"] = command.empty() ? "kvopt/error/1" : formatted("kvopt/{}/1", command);
  json["error"] = {{"exit_code", static_cast<int>(code)},
                   {"kind", kindName(diagnostic.kind).str()},
                   {"message", diagnostic.message},
                   {"file", text(diagnostic.file)},
                   {"node", text(diagnostic.node)},
                   {"op", text(diagnostic.op)},
                   {"value", text(diagnostic.value)},
                   {"hint", text(diagnostic.hint)},
                   {"notes", diagnostic.notes}};
  return json;
}

/// Reports an error on stderr and, if JSON was requested, as the only object on stdout.
int fail(const CommandContext& context, ExitCode code, const Diagnostic& diagnostic) {
  if (context.common.json())
    printJson(errorJson(context.command, code, diagnostic));
  return fail(code, Style::ofErrors(context.common).bad("error:") + " " + diagnostic.text());
}

/// The exit code of a subcommand that has printed everything. If printing failed, success becomes
/// an error, but a verdict remains.
int endOutput(ExitCode code) {
  if (!flushOut())
    return fail(code == ExitCode::Done ? ExitCode::BadInput : code,
                "error: standard output could not be written");
  return static_cast<int>(code);
}

} // namespace

ExitCode CommandContext::finish(ExitCode code) const {
  if (endsProcess) {
    detailTime();
    std::_Exit(endOutput(code));
  }
  return code;
}

void CommandContext::error(const SafeText& text) const { printErr(text + "\n"); }

void CommandContext::detail(const SafeText& text) const {
  if (common.verbose && !common.quiet)
    printErr(text + "\n");
}

void CommandContext::detailPasses(llvm::ArrayRef<PassTiming> timings) const {
  for (const PassTiming& timing : timings)
    detail(formatText("kvopt: {:<24} {:>9.2f} ms{}", timing.pass, timing.milliseconds,
                      timing.changed ? "" : "   no change"));
}

void CommandContext::detailTime() const {
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;
  detail(formatText("kvopt: {:<24} {:>9.2f} ms", command + ", in all", elapsed.count()));
}

void CommandContext::remark(const SafeText& text) const {
  if (!common.quiet)
    printErr(text + "\n");
}

void printJson(const OrderedJson& object) {
  // Names come from files and need not be valid UTF-8.
  printOut(SafeText::trusted(
      escapedJson(object.dump(2, ' ', false, OrderedJson::error_handler_t::replace)) + "\n"));
}

// The stream's state reports a failure when the command ends.
void printOut(const SafeText& text) {
  const size_t size = text.str().size();
  if (std::fwrite(text.str().data(), 1, size, stdout) != size && errno == EPIPE)
    endByClosedPipe();
}

void printTable(const SafeText& lines) {
  const std::optional<size_t> columns = terminalColumns(stdout);
  printOut(columns ? SafeText(cutLines(lines.str(), *columns)) : lines);
}

void printWrapped(const SafeText& lines) {
  const std::optional<size_t> columns = terminalColumns(stdout);
  printOut(columns ? SafeText::trusted(wrappedLines(lines.str(), *columns)) : lines);
}

bool flushOut() {
  if (std::fflush(stdout) != 0 && errno == EPIPE)
    endByClosedPipe();
  return std::ferror(stdout) == 0;
}

// A failure does not affect the work, and there is no other place to report it.
void printErr(const SafeText& text) {
  std::fwrite(text.str().data(), 1, text.str().size(), stderr);
}

namespace {

int run(const CLI::App& command, CommandContext& context) {
  ProgressLine progress(context.common);
  context.toolkit.progress = &progress;
  context.start = std::chrono::steady_clock::now();
  llvm::Error overlap = registerPaths(command, context);
  llvm::Expected<ExitCode> code =
      overlap ? llvm::Expected<ExitCode>(std::move(overlap)) : context.action();
  context.detailTime();
  if (code)
    return endOutput(*code);
  flushOut();
  const bool isUndriven = code.errorIsA<UndrivenError>();
  const Diagnostic diagnostic = takeDiagnostic(code.takeError());
  const ExitCode failure = isUndriven ? ExitCode::Different : exitCodeFor(diagnostic.kind);
  fail(context, failure, diagnostic);
  flushOut();
  return static_cast<int>(failure);
}

/// Whether the arguments request JSON; also for arguments that cannot be parsed.
bool requestsJson(int argc, const char* const* argv) {
  for (int i = 1; i < argc; ++i) {
    const llvm::StringRef word = argv[i];
    if (word == "--format=json" ||
        (word == "--format" && i + 1 < argc && llvm::StringRef(argv[i + 1]) == "json"))
      return true;
  }
  return false;
}

/// An argument that the parser could not assign, an option if possible; empty if there is none. If
/// a required argument is missing as well, CLI11 reports only that.
std::string unknownWord(const CLI::App& app) {
  std::vector<std::string> words = app.remaining();
  for (const std::string& word : words)
    if (word.size() > 1 && word[0] == '-')
      return word;
  return words.empty() ? "" : words.front();
}

/// One sentence about the error in the arguments.
std::string parseProblem(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App* command = &app;
  for (const CLI::App* chosen : app.get_subcommands())
    command = chosen;
  // A word before the command belongs to the program.
  std::string word = unknownWord(app);
  if (word.empty())
    word = unknownWord(*command);
  else
    command = &app;
  if (word.empty()) {
    for (const CLI::Option* option : command->get_options())
      if (option->get_positional() && error.what() == option->get_name(true) + " is required")
        return formatted("the argument '{}' is missing", option->get_name(true));
    return error.what();
  }
  std::vector<std::string> known;
  bool isOption = word[0] == '-';
  if (isOption) {
    word = word.substr(0, word.find('='));
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames())
        known.push_back("--" + name);
  } else {
    for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
      known.push_back(sub->get_name());
  }
  std::string problem = isOption          ? formatted("unknown option '{}'", word)
                        : command == &app ? formatted("unknown command '{}'", word)
                                          : formatted("unexpected argument '{}'", word);
  return isOption || command == &app ? problem + didYouMean(word, known) : problem;
}

void addCommands(CLI::App& app, CommandContext& context) {
  context.toolkit.files = std::make_shared<FileAccess>();
  addInspectCommand(app, context);
  addExplainCommand(app, context);
  addRewriteCommand(app, context);
  addAddCacheCommand(app, context);
  addMakeDynamicCommand(app, context);
  addVerifyCommand(app, context);
  addCheckCommand(app, context);
  addRunCommand(app, context);
  addBenchCommand(app, context);
  addDiffCommand(app, context);
  addReduceCommand(app, context);
  addGenCommand(app, context);
  addOptCommand(app, context);
  addListCommand(app, context);
  addCompletionCommand(app, context);
  addHelpCommand(app, context);
}

/// The text that `--help` or `--version` prints.
std::string requestedText(const CLI::App& app, const CLI::ParseError& request) {
  if (request.get_name() == "CallForVersion")
    return "kvopt " KVOPT_VERSION "\n";
  for (const CLI::App* chosen : app.get_subcommands())
    for (unsigned i = 0; i < commandCount; ++i)
      if (chosen->get_name() == wordOf(static_cast<Command>(i)))
        return commandHelp(static_cast<Command>(i), textColumns());
  return programHelp(textColumns());
}

int parseAndRun(int argc, const char* const* argv, void (*extend)(Toolkit&), bool endsProcess) {
  CLI::App app{"", "kvopt"};
  app.set_version_flag("--version", "kvopt " KVOPT_VERSION);
  app.require_subcommand(1);
  CommandContext context;
  context.endsProcess = endsProcess;
  if (extend)
    extend(context.toolkit);
  addCommands(app, context);
  try {
    app.parse(argc, argv);
    checkLists(*app.get_subcommands().front(), argc, argv);
  } catch (const CLI::ParseError& error) {
    // Help and version are exceptions of the parser.
    if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) {
      printOut(requestedText(app, error));
      return endOutput(ExitCode::Done);
    }
    for (const CLI::App* sub : app.get_subcommands())
      context.command = sub->get_name();
    const std::string problem = parseProblem(app, error);
    const std::string help =
        formatted("kvopt {}--help", context.command.empty() ? "" : context.command + " ");
    if (requestsJson(argc, argv)) {
      Diagnostic diagnostic;
      diagnostic.kind = Diagnostic::Kind::Usage;
      diagnostic.message = problem;
      diagnostic.hint = help;
      printJson(errorJson(context.command, ExitCode::Usage, diagnostic));
      flushOut();
    }
    return fail(ExitCode::Usage, formatText("{}\nTry '{}'.", problem, help));
  }
  for (const CLI::App* sub : app.get_subcommands())
    context.command = sub->get_name();
  reportTruncationAsJson(context.common.json() ? context.command : "");
  return run(*app.get_subcommands().front(), context);
}

int runSafely(int argc, const char* const* argv, void (*extend)(Toolkit&), bool endsProcess) {
  try {
    return parseAndRun(argc, argv, extend, endsProcess);
  } catch (const std::bad_alloc&) {
    return fail(ExitCode::BadInput, "error: out of memory");
  } catch (const std::exception& error) {
    return fail(ExitCode::Internal,
                formatText("internal error: {}\nPlease report this with the command line and, if "
                           "you can, the model.",
                           error.what()));
  }
}

} // namespace

std::vector<OptionFacts> describeOptions() {
  CLI::App app;
  CommandContext context;
  addCommands(app, context);
  return optionFacts(context);
}

int runApp(int argc, const char* const* argv, void (*extend)(Toolkit& toolkit)) {
  // Failed output of an earlier run in this process is not this run's failure.
  std::clearerr(stdout);
  return runSafely(argc, argv, extend, /*endsProcess=*/false);
}

int runProgram(int argc, const char* const* argv) {
#ifdef __SANITIZE_ADDRESS__
  constexpr bool endsProcess = false; // leaks are checked when main returns
#else
  constexpr bool endsProcess = true;
#endif
  return runSafely(argc, argv, nullptr, endsProcess);
}

} // namespace kvopt::cli
