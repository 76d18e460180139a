// Command lines: words from bytes, one per line, run in a folder with some models. No command ends
// with an internal error, prints what a terminal would interpret, or changes the model it reads.
#include "cli/app.h"
#include "support/diagnostic.h"
#include "support/escape.h"
#include "tests/fuzz/decoders.h"
#include "tests/fuzz/exercise.h"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/mman.h>
#include <unistd.h>

namespace {

namespace fs = std::filesystem;
using namespace kvopt;
using namespace kvopt::analysis;
using namespace kvopt::cli;
using namespace kvopt::driver;
using namespace kvopt::ir;
using namespace kvopt::passes;
using namespace kvopt::pattern;
using namespace kvopt::runtime;
using namespace kvopt::targets;

std::string contentsOf(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

/// A folder with `growing.onnx`, `shared.onnx`, ...
class Scratch {
public:
  Scratch() {
    char name[] = "/tmp/kvopt-fuzz-XXXXXX";
    if (!::mkdtemp(name))
      std::abort();
    folder = name;
    for (const fuzz::Decoder& decoder : fuzz::decoders())
      files.emplace_back(decoder.name + ".onnx", bytesOf(*decoder.model));
    restore();
  }
  ~Scratch() {
    std::error_code ignored;
    fs::remove_all(folder, ignored);
  }

  int run(const std::vector<const char*>& argv) const {
    const fs::path before = fs::current_path();
    fs::current_path(folder);
    const int code = runApp(static_cast<int>(argv.size()), argv.data());
    fs::current_path(before);
    return code;
  }

  /// Removes what commands wrote.
  void restore() const {
    for (const fs::directory_entry& entry : fs::directory_iterator(folder))
      fs::remove_all(entry.path());
    for (const auto& [name, bytes] : files)
      std::ofstream(folder / name, std::ios::binary) << bytes;
  }
  bool isUnchanged(const std::string& word) const {
    for (const auto& [name, bytes] : files)
      if (word == name)
        return contentsOf(folder / name) == bytes;
    return true;
  }

private:
  static std::string bytesOf(const Model& model) {
    auto bytes = exportModelBytes(model);
    if (!bytes)
      fuzz::mustHold(bytes.takeError(), "a generated decoder");
    return *bytes;
  }
  fs::path folder;
  std::vector<std::pair<std::string, std::string>> files;
};

/// Keeps what is written to a stream in memory while it lives.
class Captured {
public:
  explicit Captured(int streamNumber)
      : number(streamNumber), before(::dup(streamNumber)),
        memory(::memfd_create("output", MFD_CLOEXEC)) {
    ::dup2(memory, number);
  }
  ~Captured() {
    ::dup2(before, number);
    ::close(before);
    ::close(memory);
  }
  std::string text() const {
    std::string all(static_cast<size_t>(::lseek(memory, 0, SEEK_END)), '\0');
    return ::pread(memory, all.data(), all.size(), 0) < 0 ? "" : all;
  }

private:
  int number;
  int before;
  int memory;
};

/// Words that stay in the folder and take little time: no paths, no numbers of several digits, no
/// benchmarks, no colors, no commands for a shell.
std::vector<std::string> wordsOf(const std::string& text) {
  std::vector<std::string> words{"kvopt"};
  std::istringstream lines(text);
  for (std::string word; std::getline(lines, word) && words.size() < 24;) {
    word = word.substr(0, word.find('\0'));
    for (size_t i = 2; i < word.size(); ++i)
      if (std::isdigit(static_cast<unsigned char>(word[i])) != 0 &&
          std::isdigit(static_cast<unsigned char>(word[i - 1])) != 0 &&
          std::isdigit(static_cast<unsigned char>(word[i - 2])) != 0)
        return {};
    if (word.find('/') != std::string::npos || word.find("..") != std::string::npos ||
        word == "bench" || word == "reduce" || word.find("--while") != std::string::npos ||
        word.find("always") != std::string::npos)
      return {};
    words.push_back(std::move(word));
  }
  return words;
}

void require(bool holds, const char* what, const std::vector<std::string>& words,
             const std::string& printed) {
  if (holds)
    return;
  std::string line;
  for (const std::string& word : words)
    line += escaped(word) + " ";
  std::fprintf(stderr, "%s: %s\n%s\n", what, line.c_str(), escapedLines(printed).c_str());
  std::abort();
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Scratch scratch;
  const auto words = wordsOf(std::string(reinterpret_cast<const char*>(data), size));
  if (words.size() < 2)
    return 0;
  std::vector<const char*> argv;
  for (const std::string& word : words)
    argv.push_back(word.c_str());
  int code = 0;
  std::string printed;
  {
    std::fflush(nullptr);
    const Captured out(STDOUT_FILENO);
    const Captured err(STDERR_FILENO);
    code = scratch.run(argv);
    std::fflush(nullptr);
    printed = out.text() + err.text();
  }
  require(code >= 0 && code <= 4, "an exit code that is no answer", words, printed);
  require(!hasUnsafeCharacters(printed), "unsafe characters", words, printed);
  // The first word that names a model is what the command reads, except for `gen`.
  const auto model = std::find_if(words.begin(), words.end(), [](const std::string& word) {
    return std::string_view(word).ends_with(".onnx");
  });
  if (words[1] != "gen" && code == 0 && model != words.end() && model - words.begin() == 2)
    require(scratch.isUnchanged(*model), "a changed input", words, printed);
  scratch.restore();
  return 0;
}
