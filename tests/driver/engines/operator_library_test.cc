// The library for ONNX Runtime is found next to kvopt.
#include "driver/engines/operator_library.h"

#include "support/format.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <unistd.h>

namespace kvopt {
using namespace driver;

namespace {

TEST(OperatorLibrary, IsInTheFolderOfTheBinaryOrInLib) {
  namespace fs = std::filesystem;
  const fs::path root = fs::temp_directory_path() / formatted("operator_library_{}", ::getpid());
  for (const char* folder : {"bin", "lib"})
    fs::create_directories(root / folder);
  const std::string program = root / "bin" / "kvopt";
  std::ofstream{program};
  EXPECT_EQ(operatorLibraryOf(program), "");
  std::ofstream{root / "lib" / operatorLibraryName};
  EXPECT_EQ(operatorLibraryOf(program), fs::canonical(root / "lib" / operatorLibraryName));
  std::ofstream{root / "bin" / operatorLibraryName};
  EXPECT_EQ(operatorLibraryOf(program), fs::canonical(root / "bin" / operatorLibraryName));
  EXPECT_EQ(operatorLibraryOf(root / "bin" / "missing"), "");
  fs::remove_all(root);
}

} // namespace
} // namespace kvopt
