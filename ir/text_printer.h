// Printer of ONNX's textual syntax: print(read(print(m))) == print(m).
#pragma once

#include "ir/model.h"

#include <string>

namespace kvopt {

struct PrintOptions {
  /// Tensors with more elements are printed as `{…}` placeholders, which cannot be read back.
  int64_t maxTensorElements = INT64_MAX;
  /// Print inferred types of intermediate values as trailing comments.
  bool types = false;
};

std::string printText(const Model& model, const PrintOptions& options = {});
std::string printText(const Graph& graph, const PrintOptions& options = {});
/// One line.
std::string printText(const Node& node);

} // namespace kvopt
