// Owners of the C interface's objects, for tests.
#pragma once

#include "kvopt/kvopt.h"

#include "gtest/gtest.h"

#include <memory>
#include <string>
#include <vector>

namespace kvopt::api {

using ErrorHandle = std::unique_ptr<kvopt_error, void (*)(kvopt_error*)>;
using ModelHandle = std::unique_ptr<kvopt_model, void (*)(kvopt_model*)>;
using SessionHandle = std::unique_ptr<kvopt_session, void (*)(kvopt_session*)>;

inline ErrorHandle held(kvopt_error* error) { return {error, kvopt_error_free}; }

/// Text of an error; empty for success.
inline std::string textOf(kvopt_error* error) {
  const ErrorHandle owner = held(error);
  return error ? kvopt_error_text(error) : "";
}

/// Code of an error; empty for success.
inline std::string codeOf(kvopt_error* error) {
  const ErrorHandle owner = held(error);
  return error ? kvopt_error_code(error) : "";
}

/// A model that ships.
inline std::string shippedModel() {
  return std::string(KVOPT_SOURCE_DIR) + "/models/llama_gqa-ts14-eager/model.onnx";
}

/// What it generates after the prompt 1, 2, 3.
inline const std::vector<int64_t> shippedTokens = {96, 65, 84, 156, 149, 151, 94, 76};

inline ModelHandle openShipped() {
  kvopt_model* model = nullptr;
  EXPECT_EQ(textOf(kvopt_model_open(shippedModel().c_str(), nullptr, 0, &model)), "");
  return {model, kvopt_model_free};
}

inline SessionHandle sessionOf(const kvopt_model* model, int64_t batch = 1,
                               const std::vector<kvopt_option>& options = {}) {
  kvopt_session* session = nullptr;
  EXPECT_EQ(textOf(kvopt_session_create(model, batch, options.data(), options.size(), &session)),
            "");
  return {session, kvopt_session_free};
}

/// Feeds the tokens, one sequence after the other, and returns the next token of the first.
inline int64_t fed(kvopt_session* session, const std::vector<int64_t>& tokens) {
  const int64_t rows = kvopt_session_batch(session);
  EXPECT_EQ(textOf(kvopt_session_feed(session, tokens.data(),
                                      static_cast<int64_t>(tokens.size()) / rows)),
            "");
  int64_t token = -1;
  EXPECT_EQ(textOf(kvopt_session_choose(session, 0, nullptr, 0, &token)), "");
  return token;
}

/// Generates tokens greedily after a prompt.
inline std::vector<int64_t> generated(kvopt_session* session, std::vector<int64_t> prompt,
                                      size_t count) {
  std::vector<int64_t> made;
  while (made.size() < count) {
    made.push_back(fed(session, prompt));
    prompt = {made.back()};
  }
  return made;
}

} // namespace kvopt::api
