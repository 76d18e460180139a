// Runs the program in this process and keeps what it prints.
#pragma once

#include "cli/app.h"
#include "tests/support/temporary_folder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <fstream>
#include <string>
#include <vector>

namespace kvopt {

struct ProgramResult {
  int code = -1;
  std::string out;
  std::string err;
};

/// `kvopt arguments…`
inline ProgramResult runProgram(const std::vector<std::string>& arguments,
                                void (*extend)(driver::Toolkit&) = nullptr) {
  std::vector<const char*> argv{"kvopt"};
  for (const std::string& argument : arguments)
    argv.push_back(argument.c_str());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  ProgramResult result;
  result.code = cli::runApp(static_cast<int>(argv.size()), argv.data(), extend);
  result.out = testing::internal::GetCapturedStdout();
  result.err = testing::internal::GetCapturedStderr();
  return result;
}

/// The one JSON object a run with `--format json` printed.
inline nlohmann::json runJson(std::vector<std::string> arguments, int expectedCode = 0) {
  arguments.insert(arguments.end(), {"--format", "json"});
  ProgramResult result = runProgram(arguments);
  EXPECT_EQ(result.code, expectedCode) << result.err;
  nlohmann::json parsed = nlohmann::json::parse(result.out, nullptr, /*allow_exceptions=*/false);
  EXPECT_TRUE(parsed.is_object()) << result.out;
  return parsed;
}

/// A file of the models that ship with the project.
inline std::string shippedModel(const std::string& name) {
  return std::string(KVOPT_SOURCE_DIR) + "/models/" + name + "/model.onnx";
}

/// A file of the beginning of the text that the demonstration model has not seen.
inline std::string shortHeldoutText(const TemporaryFolder& folder) {
  std::ifstream file(std::string(KVOPT_SOURCE_DIR) + "/models/kjv/heldout.txt");
  std::string text(2048, ' ');
  file.read(text.data(), 2048);
  return folder.write("heldout.txt", text);
}

inline size_t countLines(const std::string& text) {
  return static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
}

} // namespace kvopt
