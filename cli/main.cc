// The kvopt program.
#include "cli/app.h"
#include "cli/process.h"

int main(int argc, char** argv) {
  kvopt::cli::prepareProcess();
  return kvopt::cli::runProgram(argc, argv);
}
