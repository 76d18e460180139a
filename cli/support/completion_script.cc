// Scripts for bash, zsh and fish.
#include "cli/support/completion_script.h"
#include "support/format.h"

namespace kvopt::cli {
namespace {

std::string inOneLine(const std::vector<std::string>& words) { return joinedText(words, " "); }

/// Text in single quotes. Only fish interprets escapes there.
std::string quoted(const std::string& text, bool isFish = false) {
  std::string out = "'";
  for (char byte : text)
    if (byte == '\'')
      out += "'\\''";
    else if (byte == '\\' && isFish)
      out += "\\\\";
    else
      out += byte == '\n' ? ' ' : byte;
  return out + "'";
}

std::vector<std::string> namesOf(const CompletionCommand& command) {
  std::vector<std::string> names;
  for (const CompletionOption& option : command.options)
    names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

std::vector<std::string> commandNames(const std::vector<CompletionCommand>& commands) {
  std::vector<std::string> names;
  for (const CompletionCommand& command : commands)
    names.push_back(command.name);
  return names;
}

} // namespace

namespace {

/// The assignments of one case of a bash script.
std::string bashValue(const CompletionOption& option) {
  std::string text = formatted("chosen='{}'", inOneLine(option.choices));
  if (option.isList)
    text += "; isList=1";
  if (option.choices.empty())
    text += formatted("; files='{}'", option.extension.empty() ? "*" : option.extension);
  return text;
}

} // namespace

std::string bashCompletion(const std::vector<CompletionCommand>& commands) {
  std::string values;
  std::string options;
  std::string words;
  for (const CompletionCommand& command : commands) {
    for (const CompletionOption& option : command.options)
      for (const std::string& name : option.names)
        if (option.takesValue)
          values +=
              formatted("    '{} {}') {}; isValue=1 ;;\n", command.name, name, bashValue(option));
    options += formatted("    {}) chosen='{}' ;;\n", command.name, inOneLine(namesOf(command)));
    for (const CompletionOption& option : command.options)
      if (option.names.empty()) {
        words += formatted("    {}) {} ;;\n", command.name, bashValue(option));
        break;
      }
  }
  return formatted(R"(# bash completion of kvopt: source <(kvopt completion bash)
_kvopt() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}}
  local command=${{COMP_WORDS[1]}} chosen='' isValue='' isList='' files='' before=''
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{} --help --version' -- "$current"))
    return
  fi
  # readline breaks words at '=': --option=value is three of them.
  if [ "$current" = '=' ]; then
    current=''
  elif [ "$previous" = '=' ] && [ "$COMP_CWORD" -gt 2 ]; then
    previous=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  case "$command $previous" in
{}  esac
  if [ -z "$isValue" ]; then
    case "$current" in
    -*) case "$command" in
{}    esac ;;
    *) case "$command" in
{}    esac ;;
    esac
  fi
  if [ -n "$files" ]; then
    [ "$files" = '*' ] && return
    compopt -o filenames 2>/dev/null
    local IFS=$'\n'
    COMPREPLY=($(compgen -d -- "$current"; compgen -f -X "!*.$files" -- "$current"))
    return
  fi
  if [ -n "$isList" ]; then
    case "$current" in
    *,*) before=${{current%,*}},; current=${{current##*,}} ;;
    esac
    compopt -o nospace 2>/dev/null
  fi
  COMPREPLY=($(compgen -P "$before" -W "$chosen" -- "$current"))
}}
complete -o default -F _kvopt kvopt
)",
                   inOneLine(commandNames(commands)), values, options, words);
}

namespace {

/// Text within the brackets of a zsh specification.
std::string zshText(const std::string& text) {
  std::string out;
  for (char byte : text) {
    if (byte == '[' || byte == ']' || byte == ':' || byte == '\\')
      out += '\\';
    out += byte;
  }
  return out;
}

std::string zshValue(const CompletionOption& option) {
  if (option.isList)
    return formatted("_sequence compadd - {}", inOneLine(option.choices));
  if (!option.choices.empty())
    return "(" + inOneLine(option.choices) + ")";
  return option.extension.empty() ? "_files" : formatted("_files -g \"*.{}\"", option.extension);
}

} // namespace

std::string zshCompletion(const std::vector<CompletionCommand>& commands) {
  std::string names;
  std::string cases;
  for (const CompletionCommand& command : commands) {
    names += formatted("    {}\n", quoted(command.name + ":" + zshText(command.description)));
    cases += formatted("  {}) _arguments -S", command.name);
    bool hasPositional = false;
    for (const CompletionOption& option : command.options) {
      if (option.names.empty()) {
        if (!hasPositional)
          cases += " \\\n    " + quoted("*:argument:" + zshValue(option));
        hasPositional = true;
        continue;
      }
      for (const std::string& name : option.names)
        cases += " \\\n    " + quoted("*" + name + "[" + zshText(option.description) + "]" +
                                      (option.takesValue ? ":value:" + zshValue(option) : ""));
    }
    cases += " ;;\n";
  }
  return formatted(R"(#compdef kvopt
# zsh completion of kvopt: kvopt completion zsh > a file _kvopt in a folder of $fpath
_kvopt() {{
  local -a commands
  commands=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command commands
    return
  fi
  local command=$words[2]
  shift words
  (( CURRENT-- ))
  case $command in
{}  esac
}}
if [ "$funcstack[1]" = _kvopt ]; then _kvopt "$@"; else compdef _kvopt kvopt; fi
)",
                   names, cases);
}

std::string fishCompletion(const std::vector<CompletionCommand>& commands) {
  std::string out = "# fish completion of kvopt: kvopt completion fish | source\n";
  for (const CompletionCommand& command : commands)
    out += formatted("complete -c kvopt -f -n __fish_use_subcommand -a {} -d {}\n", command.name,
                     quoted(command.description, true));
  for (const CompletionCommand& command : commands)
    for (const CompletionOption& option : command.options) {
      std::string line =
          formatted("complete -c kvopt -n '__fish_seen_subcommand_from {}'", command.name);
      for (const std::string& name : option.names)
        line += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (option.isList)
        line += formatted(" -x -a '(__fish_append , {})'", inOneLine(option.choices));
      else if (!option.choices.empty())
        line += formatted(" -x -a '{}'", inOneLine(option.choices));
      else if (!option.extension.empty())
        line += formatted(" -k -x -a '(__fish_complete_suffix .{})'", option.extension);
      else if (option.takesValue && !option.names.empty())
        line += " -r";
      else if (option.names.empty())
        continue;
      out += line + " -d " + quoted(option.description, true) + "\n";
    }
  return out;
}

} // namespace kvopt::cli
