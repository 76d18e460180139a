// Printer of ONNX's textual syntax: print(read(print(m))) == print(m).
#pragma once

#include "ir/model.h"

#include <string>

namespace kvopt::ir {

struct PrintOptions {
  /// Tensors with more elements are printed as `{…}` placeholders, which cannot be read back.
  int64_t maxTensorElements = INT64_MAX;
  /// Print inferred types of intermediate values as trailing comments.
  bool types = false;
  /// Declare the types of intermediate values beside the initializers, where the reader takes them
  /// up. Without it they are left to shape inference.
  bool declareTypes = false;
};

/// What the syntax cannot say is left out: doc strings of nodes and graphs, types that are no
/// tensors, training information, fields kvopt does not know. Sparse and type attributes, sparse
/// initializers and tensors whose contents cannot be had stand as `{…}`, which the reader refuses.
std::string printText(const Model& model, const PrintOptions& options = {});
std::string printText(const Graph& graph, const PrintOptions& options = {});
/// One line: subgraphs and tensors of more than 16 elements are `{…}`.
std::string printText(const Node& node);

} // namespace kvopt::ir
