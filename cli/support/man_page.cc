// The manual page as troff.
#include "cli/support/man_page.h"

#include "cli/support/help_text.h"
#include "support/format.h"

namespace kvopt::cli {
using namespace driver;

namespace {

/// Text of one line. Backslashes and dashes are escaped, and also a dot or quote at the start,
/// which would begin a request.
std::string troff(std::string_view text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (char byte : text)
    if (byte == '\\')
      out += "\\e";
    else if (byte == '-')
      out += "\\-";
    else if (byte == '\'')
      out += "\\(aq";
    else if (byte == '^')
      out += "\\(ha";
    else if (byte == '~')
      out += "\\(ti";
    else if (byte == '`')
      out += "\\(ga";
    else
      out += byte;
  return out;
}

/// The argument of a macro, with quotes doubled.
std::string argument(std::string_view text) {
  std::string out = "\"";
  for (char byte : troff(text))
    out += byte == '"' ? std::string("\"\"") : std::string(1, byte);
  return out + "\"";
}

std::string exampleText(std::span<const CommandExample> examples) {
  std::string out;
  for (const CommandExample& example : examples)
    out += formatted(".PP\n{}:\n.PP\n.RS 4\n.EX\n{}\n.EE\n.RE\n", troff(example.purpose),
                     troff(example.line));
  return out;
}

std::string usageText(const CommandInfo& info) {
  std::string out;
  for (const char* usage : info.usages)
    out += formatted("{}.B kvopt {}\n{}\n", out.empty() ? "" : ".br\n", troff(info.word),
                     troff(usage));
  return out;
}

std::string commandText(Command command) {
  const CommandInfo& info = commandInfo(command);
  std::string out = formatted(".SH {}\n{}.PP\n{}\n", argument("kvopt " + std::string(info.word)),
                              usageText(info), troff(info.description));
  for (const HelpSection& section : helpSections(command)) {
    out += formatted(".SS {}\n", argument(section.title));
    for (const OptionInfo* option : section.options)
      out += formatted(".TP\n.B {}\n{}\n", argument(optionHead(*option)),
                       troff(optionSentence(*option)));
  }
  return out + ".SS \"Examples\"\n" + exampleText(info.examples);
}

} // namespace

std::string manPage(const std::string& version) {
  std::string out =
      formatted(".TH KVOPT 1 \"\" {} \"User Commands\"\n", argument("kvopt " + version));
  out += ".SH NAME\nkvopt \\- rewrite key/value caches of ONNX decoders in place\n";
  out += ".SH SYNOPSIS\n.B kvopt\n.I command\n[\\fIarguments\\fR] [\\fIoptions\\fR]\n";
  out += formatted(".SH DESCRIPTION\n{}\n", troff(programText()));
  for (unsigned i = 0; i < commandCount; ++i) {
    const CommandInfo& info = commandInfo(static_cast<Command>(i));
    out += formatted(".TP\n.B {}\n{}.\n", troff(info.word), troff(info.summary));
  }
  out += ".SH EXAMPLES\n" + exampleText(firstExamples());
  for (unsigned i = 0; i < commandCount; ++i)
    out += commandText(static_cast<Command>(i));
  out += formatted(".SH \"EXIT STATUS\"\n{}\n", troff(exitCodeText()));
  out += ".SH ENVIRONMENT\n"
         ".TP\n.B COLUMNS\nWidth of texts and tables, in place of that of the terminal.\n"
         ".TP\n.B NO_COLOR\nTurns colors off, unless \\-\\-color says otherwise.\n";
  return out;
}

} // namespace kvopt::cli
