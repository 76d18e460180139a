// The kvopt program.
#include "cli/app.h"

#include <csignal>

int main(int argc, char** argv) {
  // A limit on the size of files is then an error like a full disk, and nothing is left behind.
  std::signal(SIGXFSZ, SIG_IGN);
  return kvopt::runProgram(argc, argv);
}
