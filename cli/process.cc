// Standard streams and signal handlers.
#include "cli/process.h"

#include "cli/support/exit_code.h"
#include "support/json.h"
#include "support/mapped_ranges.h"
#include "support/termination.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <initializer_list>
#include <string_view>
#include <unistd.h>

namespace kvopt::cli {
namespace {

void openClosedStreams() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) < 0 && errno == EBADF) {
      // The lowest free descriptor is this one. Lost results must be an error, so standard output
      // is opened for reading only.
      const int flags = stream == STDERR_FILENO ? O_WRONLY : O_RDONLY;
      if (::open("/dev/null", flags) != stream)
        return; // No /dev/null: there is nothing else to do.
    }
}

/// The command whose errors are printed as JSON; empty for none. A signal handler reads it.
std::array<char, 32> jsonCommand{};
std::atomic<bool> isJson{false};
/// Whether SIGPIPE would end this process without `prepareProcess`.
std::atomic<bool> endsByClosedPipe{false};

void writeText(int stream, std::string_view text) {
  while (!text.empty()) {
    const ssize_t written = ::write(stream, text.data(), text.size());
    if (written <= 0)
      return;
    text.remove_prefix(static_cast<size_t>(written));
  }
}

/// Writes the object that `kvopt COMMAND --format json` prints when it fails. Async-signal-safe.
void writeJsonError(std::string_view path, std::string_view message) {
  writeText(STDOUT_FILENO, "{\n  \"schema\": \"kvopt/");
  writeText(STDOUT_FILENO, jsonCommand.data());
  writeText(STDOUT_FILENO,
            "/1\",\n  \"error\": {\n    \"exit_code\": 3,\n    \"kind\": \"invalid\","
            "\n    \"message\": \"");
  writeText(STDOUT_FILENO, message);
  writeText(STDOUT_FILENO, "\",\n    \"file\": \"");
  for (char byte : path) {
    constexpr std::string_view digits = "0123456789abcdef";
    const auto code = static_cast<unsigned char>(byte);
    const char escaped[] = {'\\', 'u', '0', '0', digits[code >> 4], digits[code & 15]};
    const bool isPlain = code >= 0x20 && code < 0x7f && byte != '"' && byte != '\\';
    writeText(STDOUT_FILENO,
              isPlain ? std::string_view(&byte, 1) : std::string_view(escaped, sizeof(escaped)));
  }
  writeText(STDOUT_FILENO, "\",\n    \"node\": null,\n    \"op\": null,\n    \"value\": null,\n"
                           "    \"hint\": null,\n    \"notes\": []\n  }\n}\n");
}

/// Writes text to stderr, with control characters replaced. Async-signal-safe.
void writePrintable(std::string_view text) {
  for (char byte : text) {
    const auto code = static_cast<unsigned char>(byte);
    const char shown = code < 0x20 || code >= 0x7f ? '?' : byte;
    writeText(STDERR_FILENO, {&shown, 1});
  }
}

void reportTruncation(int number, siginfo_t* info, void*) {
  if (const char* path = mappedFileAt(info->si_addr)) {
    constexpr std::string_view message = "the file became shorter while it was read";
    if (isJson.load())
      writeJsonError(path, message);
    writeText(STDERR_FILENO, "kvopt: error: ");
    writePrintable(path);
    writeText(STDERR_FILENO, ": ");
    writeText(STDERR_FILENO, message);
    writeText(STDERR_FILENO, "\n");
    removeTemporaryFiles();
    ::_exit(static_cast<int>(ExitCode::BadInput));
  }
  // Not a mapped file: the instruction runs again and ends the process.
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  ::sigaction(number, &action, nullptr);
}

void handleUnlessIgnored(int number) {
  struct sigaction before {};
  if (::sigaction(number, nullptr, &before) != 0 || before.sa_handler == SIG_IGN)
    return;
  struct sigaction action {};
  action.sa_handler = endBySignal;
  action.sa_flags = SA_RESTART;
  ::sigaction(number, &action, nullptr);
}

} // namespace

void reportTruncationAsJson(const std::string& command) {
  jsonCommand[command.copy(jsonCommand.data(), jsonCommand.size() - 1)] = '\0';
  isJson.store(!command.empty());
}

void endByClosedPipe() {
  if (endsByClosedPipe.load())
    endBySignal(SIGPIPE);
}

void prepareProcess() {
  openClosedStreams();
  endsByClosedPipe.store(std::signal(SIGPIPE, SIG_IGN) != SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  for (int number : {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGXCPU})
    handleUnlessIgnored(number);
  struct sigaction action {};
  action.sa_sigaction = reportTruncation;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

} // namespace kvopt::cli
