// State and output functions of all subcommands.
#pragma once

#include "cli/support/added_option.h"
#include "cli/support/exit_code.h"
#include "driver/toolkit.h"
#include "passes/pass_manager.h"
#include "support/json_fwd.h"
#include "support/safe_text.h"

#include "llvm/Support/Error.h"

#include <chrono>
#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace kvopt::cli {

/// The format of an answer.
enum class AnswerFormat { Text, Json, Svg };

/// When verdicts are colored. Auto: on a terminal.
enum class ColorChoice { Auto, Always, Never };

/// Options that every subcommand takes.
struct CommonOptions {
  AnswerFormat format = AnswerFormat::Text;
  ColorChoice color = ColorChoice::Auto;
  bool verbose = false;
  bool quiet = false;

  bool json() const { return format == AnswerFormat::Json; }
};

/// The state of one run of the program.
struct CommandContext {
  driver::Toolkit toolkit;
  CommonOptions common;
  /// The options of all commands.
  std::vector<AddedOption> options;
  /// The action of the selected subcommand; parsing sets it.
  std::function<llvm::Expected<ExitCode>()> action;

  /// The name of the selected subcommand.
  std::string command;
  /// Time at which the action started.
  std::chrono::steady_clock::time_point start;

  /// Whether a subcommand may end the process.
  bool endsProcess = false;

  /// For a subcommand that is done but still holds a model: ends the process with the code if
  /// `endsProcess`, otherwise returns the code.
  ExitCode finish(ExitCode code) const;
  /// Prints an error to stderr, even with `--quiet`.
  void error(const SafeText& text) const;
  /// Prints a remark to stderr, except with `--quiet`.
  void remark(const SafeText& text) const;
  /// Prints a remark to stderr with `--verbose`.
  void detail(const SafeText& text) const;
  /// Prints the time of each pass with `--verbose`.
  void detailPasses(llvm::ArrayRef<passes::PassTiming> timings) const;
  /// Prints the time since the start with `--verbose`.
  void detailTime() const;
  /// The files of this run.
  FileAccess& files() const { return *toolkit.files; }
};

/// Prints exactly one JSON object to stdout. Characters that a terminal would interpret or hide are
/// escaped as JSON escapes them; bytes that are not UTF-8 become U+FFFD.
void printJson(const OrderedJson& object);
/// Prints text to stdout. If this fails, the command fails when it ends. If the reader of a pipe
/// has closed it, the process ends at once (`endByClosedPipe`).
void printOut(const SafeText& text);
/// Prints lines of a table to stdout. On a terminal, lines are cut at its width; elsewhere they may
/// have any width.
void printTable(const SafeText& lines);
/// Prints lines of text to stdout. On a terminal, long lines are wrapped at its width; elsewhere
/// they are not, for programs that read them.
void printWrapped(const SafeText& lines);
/// Flushes stdout. False if this or earlier printing failed.
bool flushOut();
/// Prints text to stderr. Failures are ignored: they do not affect the command.
void printErr(const SafeText& text);

/// Subcommands, one per file.
void addInspectCommand(CLI::App& app, CommandContext& context);
void addExplainCommand(CLI::App& app, CommandContext& context);
void addRewriteCommand(CLI::App& app, CommandContext& context);
void addAddCacheCommand(CLI::App& app, CommandContext& context);
void addMakeDynamicCommand(CLI::App& app, CommandContext& context);
void addVerifyCommand(CLI::App& app, CommandContext& context);
void addCheckCommand(CLI::App& app, CommandContext& context);
void addRunCommand(CLI::App& app, CommandContext& context);
void addBenchCommand(CLI::App& app, CommandContext& context);
void addDiffCommand(CLI::App& app, CommandContext& context);
void addReduceCommand(CLI::App& app, CommandContext& context);
void addGenCommand(CLI::App& app, CommandContext& context);
void addOptCommand(CLI::App& app, CommandContext& context);
void addListCommand(CLI::App& app, CommandContext& context);
void addCompletionCommand(CLI::App& app, CommandContext& context);
void addHelpCommand(CLI::App& app, CommandContext& context);

} // namespace kvopt::cli
