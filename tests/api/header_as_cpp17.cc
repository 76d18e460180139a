// kvopt.hpp is C++17 that needs nothing but the include folder.
#include "kvopt/kvopt.hpp"

#include "cpp17_calls.h"

static_assert(__cplusplus == 201703L, "compiled as C++17");

bool kvoptHppWorks() {
  try {
    kvopt::Model::open("/nonexistent/model.onnx");
  } catch (const kvopt::Error& error) {
    return error.kind() == KVOPT_ERROR_IO && error.code() == "io" &&
           error.file() == "/nonexistent/model.onnx";
  }
  return false;
}

std::vector<int64_t>
tokensAfterSeeding(const std::string& path,
                   const std::vector<std::pair<std::string, kvopt_tensor>>& caches, int64_t tokens,
                   const std::vector<int64_t>& next, size_t count) {
  kvopt::Session session(kvopt::Model::open(path));
  session.seed(caches, tokens);
  std::vector<int64_t> chosen;
  std::vector<int64_t> fed = next;
  while (chosen.size() < count) {
    session.feed(fed);
    chosen.push_back(session.choose());
    fed = {chosen.back()};
  }
  return chosen;
}

std::pair<bool, std::string> checkedWithCounterexample(const std::string& before,
                                                       const std::string& after,
                                                       const std::string& folder) {
  try {
    const kvopt::Verification result = kvopt::check(
        kvopt::Model::open(before), kvopt::Model::open(after), {{"counterexample", folder}});
    return {result.isEqual, result.report};
  } catch (const kvopt::Error& error) {
    return {false, error.code() + ": " + error.file()};
  }
}

std::pair<bool, std::string> comparedWithRecording(const std::string& path,
                                                   const std::string& recording) {
  try {
    const kvopt::Verification result = kvopt::verifyRecording(kvopt::Model::open(path), recording);
    return {result.isEqual, result.report};
  } catch (const kvopt::Error& error) {
    return {false, error.code() + ": " + error.file()};
  }
}
