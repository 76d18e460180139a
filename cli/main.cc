// The kvopt program.
#include "cli/app.h"
#include "cli/process.h"

int main(int argc, char** argv) {
  kvopt::prepareProcess();
  return kvopt::runProgram(argc, argv);
}
