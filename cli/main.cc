// The kvopt program.
#include "cli/app.h"

int main(int argc, char** argv) { return kvopt::runApp(argc, argv); }
