// What all subcommands share: toolkit, output, errors.
#pragma once

#include "cli/support/added_option.h"
#include "cli/support/exit_code.h"
#include "driver/toolkit.h"
#include "passes/pass_manager.h"
#include "support/json.h"
#include "support/safe_text.h"

#include "llvm/Support/Error.h"

#include <chrono>
#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace kvopt::cli {

/// The form of an answer.
enum class AnswerFormat { Text, Json, Svg };

/// Whether verdicts are colored. Auto: on a terminal.
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
  /// What the chosen subcommand does; set while parsing, run afterwards.
  std::function<llvm::Expected<ExitCode>()> action;

  /// The name of the chosen subcommand.
  std::string command;
  /// When the action started.
  std::chrono::steady_clock::time_point start;

  /// Whether the process may end where the subcommand is done.
  bool endsProcess = false;

  /// For a subcommand that is done and holds a model still: ends the process with the code, where
  /// that may be, and else returns it.
  ExitCode finish(ExitCode code) const;
  /// An error on stderr, also with `--quiet`.
  void error(const SafeText& text) const;
  /// A remark on stderr, unless `--quiet`.
  void remark(const SafeText& text) const;
  /// A remark on stderr with `--verbose`.
  void detail(const SafeText& text) const;
  /// The time of each pass, with `--verbose`.
  void detailPasses(llvm::ArrayRef<passes::PassTiming> timings) const;
  /// The time since the start, with `--verbose`.
  void detailTime() const;
  /// The files of this run.
  FileAccess& files() const { return *toolkit.files; }
};

/// Prints exactly one JSON object to stdout. Characters that a terminal would interpret or hide are
/// escaped as JSON escapes them; bytes that are not UTF-8 become U+FFFD.
void printJson(const OrderedJson& object);
/// Prints text to stdout. Output that could not be written fails the command when it ends; where
/// the reader of a pipe has closed it, the process ends at once (`endByClosedPipe`).
void printOut(const SafeText& text);
/// Prints lines of a table to stdout. On a terminal they are cut at its edge; elsewhere they have
/// any width.
void printTable(const SafeText& lines);
/// Hands what was printed to stdout to the system. False where that fails, now or before.
bool flushOut();
/// Prints text to stderr. Failures are ignored: they never change what a command does.
void printErr(const SafeText& text);

/// Subcommands, one file each.
void addInspectCommand(CLI::App& app, CommandContext& context);
void addExplainCommand(CLI::App& app, CommandContext& context);
void addRewriteCommand(CLI::App& app, CommandContext& context);
void addAddCacheCommand(CLI::App& app, CommandContext& context);
void addMakeDynamicCommand(CLI::App& app, CommandContext& context);
void addVerifyCommand(CLI::App& app, CommandContext& context);
void addRunCommand(CLI::App& app, CommandContext& context);
void addBenchCommand(CLI::App& app, CommandContext& context);
void addDiffCommand(CLI::App& app, CommandContext& context);
void addGenCommand(CLI::App& app, CommandContext& context);
void addOptCommand(CLI::App& app, CommandContext& context);
void addListCommand(CLI::App& app, CommandContext& context);
void addCompletionCommand(CLI::App& app, CommandContext& context);
void addHelpCommand(CLI::App& app, CommandContext& context);

} // namespace kvopt::cli
