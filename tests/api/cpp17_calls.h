// Calls of kvopt.hpp that a file of C++17 makes for the tests.
#pragma once

#include "kvopt/kvopt.h"

#include <string>
#include <utility>
#include <vector>

/// Whether an error of the C interface becomes an exception with its fields.
bool kvoptHppWorks();

/// Seeds a session with `tokens` tokens of caches, feeds it `next`, and returns the `count` tokens
/// that it chooses.
std::vector<int64_t>
tokensAfterSeeding(const std::string& path,
                   const std::vector<std::pair<std::string, kvopt_tensor>>& caches, int64_t tokens,
                   const std::vector<int64_t>& next, size_t count);

/// Whether the second model is proved equal, with the report or the error. `folder` receives the
/// step in which they differ.
std::pair<bool, std::string> checkedWithCounterexample(const std::string& before,
                                                       const std::string& after,
                                                       const std::string& folder);

/// Whether a model computes what a recording has, and the report or the error.
std::pair<bool, std::string> comparedWithRecording(const std::string& path,
                                                   const std::string& recording);
