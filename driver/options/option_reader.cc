// Reading of options from names and texts.
#include "driver/options/option_reader.h"

#include "driver/options/option_check.h"
#include "support/diagnostic.h"
#include "support/nearest_word.h"

#include "llvm/ADT/STLExtras.h"

#include <cassert>
#include <charconv>

namespace kvopt::driver {
namespace {

bool isFlag(const OptionInfo& info) { return info.type == OptionType::Flag; }

bool isList(const OptionInfo& info) {
  return info.type == OptionType::Wholes || info.type == OptionType::Words;
}

/// The separate values in the text of an option.
std::vector<std::string> partsOf(const OptionInfo& info, llvm::StringRef text) {
  if (!isList(info))
    return {text.str()};
  llvm::SmallVector<llvm::StringRef, 8> parts;
  text.split(parts, ',');
  std::vector<std::string> all;
  for (llvm::StringRef part : parts)
    all.push_back(part.str());
  return all;
}

std::string problemOf(const OptionInfo& info, const std::string& text) {
  if (!isFlag(info))
    return checkValue(info, text);
  return text == "true" || text == "false" ? "" : formatted("'{}' is none of true, false", text);
}

} // namespace

OptionReader::OptionReader(Command readCommand, llvm::ArrayRef<OptionText> given)
    : command(readCommand) {
  for (const OptionText& option : given) {
    const llvm::StringRef bare = llvm::StringRef(option.name).ltrim('-');
    const std::string name = (bare.size() == 1 ? "-" : "--") + bare.str();
    const OptionInfo* info = findOption(command, name);
    if (!info) {
      options.push_back({nullptr, name, {}});
      continue;
    }
    options.push_back({info, std::string(info->name()), partsOf(*info, option.text)});
  }
}

std::vector<std::string> OptionReader::textsOf(const char* name) {
  const OptionInfo* info = findOption(command, name);
  assert(info && "the option is in the table");
  std::vector<std::string> texts;
  for (Given& option : options) {
    if (option.info != info)
      continue;
    option.isRead = true;
    for (const std::string& text : option.texts) {
      const std::string wrong = problemOf(*info, text);
      if (!wrong.empty() && problem.empty())
        problem = formatted("{}: {}", option.name, wrong);
      if (!wrong.empty())
        return {};
      texts.push_back(text);
    }
  }
  return texts;
}

void OptionReader::assign(const std::string& text, double& value) {
  std::from_chars(text.data(), text.data() + text.size(), value);
}

llvm::Error OptionReader::finish() {
  for (const Given& option : options) {
    if (option.isRead)
      continue;
    std::vector<std::string> known;
    for (const OptionInfo* info : optionsOf(command))
      known.emplace_back(info->name());
    const std::string meant = nearestWord(option.name, known);
    if (option.info || meant.empty())
      return usageError("there is no option {} here", option.name);
    return usageError("there is no option {} here", option.name)
        .hint(formatted("did you mean {}?", meant));
  }
  if (!problem.empty())
    return usageError("{}", problem);
  return llvm::Error::success();
}

} // namespace kvopt::driver
