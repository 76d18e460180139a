// The textual form of pipelines.
#include "passes/pass_manager.h"
#include "support/diagnostic.h"

#include "llvm/ADT/StringExtras.h"

namespace kvopt::passes {
namespace {

/// Reads one pipeline text from left to right.
class PipelineParser {
public:
  explicit PipelineParser(llvm::StringRef pipeline) : text(pipeline) {}

  llvm::Expected<std::vector<PipelineStep>> parse() {
    std::vector<PipelineStep> steps;
    skipSpaces();
    while (position < text.size()) {
      PipelineStep step;
      step.pass = word();
      if (step.pass.empty())
        return expected("the name of a pass");
      if (take('{'))
        if (llvm::Error error = options(step.options))
          return error;
      steps.push_back(std::move(step));
      skipSpaces();
      if (position == text.size())
        break;
      if (!take(','))
        return expected("','");
      skipSpaces();
      if (position == text.size())
        return expected("the name of a pass");
    }
    return steps;
  }

private:
  llvm::Error options(PassOptions& result) {
    while (true) {
      skipSpaces();
      if (take('}'))
        return llvm::Error::success();
      std::string key = word();
      if (key.empty() || !take('='))
        return expected("'key=value' or '}'");
      std::string value;
      if (take('"')) {
        size_t end = text.find('"', position);
        if (end == llvm::StringRef::npos)
          return expected("a closing '\"'");
        value = text.slice(position, end).str();
        position = end + 1;
      } else {
        size_t end = std::min(text.find_first_of(" }", position), text.size());
        value = text.slice(position, end).str();
        position = end;
      }
      if (!result.emplace(key, value).second)
        return usageError("pipeline, column {}: option '{}' is given twice", position + 1, key);
    }
  }

  std::string word() {
    size_t start = position;
    while (position < text.size() &&
           (llvm::isAlnum(text[position]) || text[position] == '-' || text[position] == '_'))
      ++position;
    return text.slice(start, position).str();
  }

  bool take(char character) {
    if (position >= text.size() || text[position] != character)
      return false;
    ++position;
    return true;
  }

  void skipSpaces() {
    while (position < text.size() && llvm::isSpace(text[position]))
      ++position;
  }

  DiagnosticBuilder expected(const char* what) const {
    return usageError("pipeline, column {}: expected {}", position + 1, what);
  }

  llvm::StringRef text;
  size_t position = 0;
};

} // namespace

llvm::Expected<std::vector<PipelineStep>> parsePipeline(llvm::StringRef text) {
  return PipelineParser(text).parse();
}

std::string printPipeline(llvm::ArrayRef<PipelineStep> steps) {
  std::string text;
  for (const PipelineStep& step : steps) {
    if (!text.empty())
      text += ',';
    text += step.pass;
    if (step.options.empty())
      continue;
    text += '{';
    bool first = true;
    for (const auto& [key, value] : step.options) {
      if (!first)
        text += ' ';
      first = false;
      bool plain = !value.empty() && value.front() != '"' &&
                   llvm::StringRef(value).find_first_of(" }") == llvm::StringRef::npos;
      text += key + '=' + (plain ? value : '"' + value + '"');
    }
    text += '}';
  }
  return text;
}

} // namespace kvopt::passes
