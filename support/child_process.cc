// Starting a shell, and ending its process group.
#include "support/child_process.h"

#include "support/diagnostic.h"
#include "support/file_descriptor.h"
#include "support/termination.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <fcntl.h>
#include <spawn.h>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

namespace kvopt {
namespace {

/// Process group of the running command; 0 for none. A signal handler reads it.
std::atomic<pid_t> runningGroup{0};
static_assert(std::atomic<pid_t>::is_always_lock_free);

/// Starts the shell in its own process group. Returns its process id, or a negative errno.
pid_t start(const std::string& command) {
  posix_spawn_file_actions_t streams;
  posix_spawn_file_actions_init(&streams);
  posix_spawn_file_actions_addopen(&streams, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&streams, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawn_file_actions_adddup2(&streams, STDOUT_FILENO, STDERR_FILENO);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  // The program ignores these signals for itself only (cli/process.h).
  sigset_t defaults;
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  sigaddset(&defaults, SIGXFSZ);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setpgroup(&attributes, 0);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  std::string shell = "sh";
  std::string option = "-c";
  std::string text = command;
  char* const arguments[] = {shell.data(), option.data(), text.data(), nullptr};
  pid_t child = 0;
  const int error = ::posix_spawn(&child, "/bin/sh", &streams, &attributes, arguments, ::environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&streams);
  return error == 0 ? child : -error;
}

/// Waits until the process ends or the time is over, and returns whether it ended. It remains a
/// zombie, so that its id is not given to another process.
bool waitUntil(pid_t child, std::chrono::steady_clock::time_point end) {
  constexpr long shortest = 200'000;
  constexpr long longest = 5'000'000;
  for (long pause = shortest;; pause = std::min(2 * pause, longest)) {
    siginfo_t info{};
    const int error = retry([&] {
      return ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOHANG | WNOWAIT);
    });
    if (error != 0 || info.si_pid == child)
      return true;
    if (std::chrono::steady_clock::now() >= end)
      return false;
    const timespec time{0, pause};
    ::nanosleep(&time, nullptr);
  }
}

} // namespace

llvm::Expected<CommandEnd> runCommand(const std::string& command, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  pid_t child = 0;
  {
    const UninterruptedSection section;
    child = start(command);
    if (child > 0)
      runningGroup.store(child);
  }
  if (child < 0)
    return ioError("cannot run /bin/sh: {}", errnoText(-child));
  CommandEnd result;
  result.isTimeout = !waitUntil(child, end);
  // Processes that the shell left in its group must not outlive the files that they read.
  ::kill(-child, SIGKILL);
  runningGroup.store(0);
  int status = 0;
  retry([&] { return ::waitpid(child, &status, 0); });
  if (WIFEXITED(status))
    result.code = WEXITSTATUS(status);
  else if (WIFSIGNALED(status))
    result.code = 128 + WTERMSIG(status);
  return result;
}

std::string shellWord(const std::string& text) {
  constexpr std::string_view plain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
      "/._-+=:,@%";
  if (!text.empty() && text.find_first_not_of(plain) == std::string::npos)
    return text;
  std::string word = "'";
  for (char byte : text)
    word += byte == '\'' ? std::string("'\\''") : std::string(1, byte);
  return word + "'";
}

void endRunningCommand() {
  if (const pid_t group = runningGroup.load(); group > 0)
    ::kill(-group, SIGKILL);
}

} // namespace kvopt
