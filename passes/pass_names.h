// Lists of passes by name, and the pipeline text that names the same passes.
#pragma once

#include <array>
#include <cstddef>

namespace kvopt::passes {

/// Number of characters of a joined list, including the terminating null.
template <size_t count> constexpr size_t joinedSize(const char* const (&names)[count]) {
  size_t size = 0;
  for (const char* name : names) {
    while (*name++ != 0)
      ++size;
    ++size; // the comma, or the terminating null
  }
  return size;
}

/// The names joined by commas: a pipeline without options.
template <const auto& names> constexpr std::array<char, joinedSize(names)> joinNames() {
  std::array<char, joinedSize(names)> text{};
  size_t size = 0;
  for (const char* name : names) {
    if (size != 0)
      text[size++] = ',';
    while (*name != 0)
      text[size++] = *name++;
  }
  return text;
}

/// Passes that bring a model to the operators and extents that analyses read.
inline constexpr const char* readingPasses[] = {"inline-functions", "fix-input-defaults",
                                                "raise-old-opset", "infer-shapes"};

/// Passes that bring any spelling to ai.kvopt::Sdpa and find the caches. `readingPasses` come
/// first.
inline constexpr const char* recoveryPasses[] = {
    "inline-functions", "fix-input-defaults",  "raise-old-opset",     "infer-shapes",
    "read-interface",   "relate-extents",      "read-attention",      "normalize",
    "raise-attention",  "infer-shapes",        "normalize",           "infer-shapes",
    "respell-caches",   "strip-gqa-broadcast", "check-attention",     "split-caches",
    "lift-reorders",    "join-presents",       "cache-attended-rows", "widen-cached-rows",
    "prove-masks",      "detect-sites"};

} // namespace kvopt::passes
