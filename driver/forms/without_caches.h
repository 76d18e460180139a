// Recommendation for a model in which no form has caches to keep.
#pragma once

#include "passes/analysis/cache/site.h"

#include <optional>
#include <string>

namespace kvopt::driver {

/// A sentence, and the command to run next; the command may be empty.
struct Recommendation {
  std::string sentence;
  std::string command;

  /// `ONNX Runtime: kvopt rewrite model.onnx -o OUT.onnx`.
  std::string text() const { return command.empty() ? sentence : sentence + ": " + command; }
};

/// The recommendation for the model at `path` if no step changes the keys and values of any
/// attention layer; nullopt for other models, and for a model without attention. Only a form that
/// the user chooses takes such a model.
std::optional<Recommendation> recommendWithoutCaches(const std::string& path,
                                                     const analysis::SiteList& sites);

} // namespace kvopt::driver
