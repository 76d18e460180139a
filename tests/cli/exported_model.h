// Models for the tests of commands, written as text.
#pragma once

#include "tests/cli/cli_fixture.h"

#include <fstream>

namespace kvopt {

/// A file in `folder` of the model that `text` describes, with its attention in standard operators.
inline std::string exportedModel(const std::string& text, const TemporaryFolder& folder) {
  const std::string source = folder.path("model.onnxtxt");
  std::ofstream(source) << text;
  std::string path = folder.path("model.onnx");
  const ProgramResult made = runProgram(
      {"opt", source, "--pipeline", "infer-shapes,detect-sites,lower{to=primitive}", "-o", path});
  EXPECT_EQ(made.code, 0) << made.err;
  return path;
}

} // namespace kvopt
