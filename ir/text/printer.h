// Printer of ONNX's textual syntax: print(read(print(m))) == print(m).
#pragma once

#include "ir/model.h"

#include <string>

namespace kvopt::ir {

struct PrintOptions {
  /// Tensors with more elements are printed as `{…N elements}`, which cannot be read back.
  int64_t maxTensorElements = INT64_MAX;
  /// Print inferred types of intermediate values as trailing comments.
  bool types = false;
  /// Declare the types of intermediate values next to the initializers, where the reader expects
  /// them. Otherwise the reader infers them.
  bool declareTypes = false;
};

/// Text of a model. Omits everything that the syntax cannot express: doc strings of nodes and
/// graphs, types other than tensors, training information, and fields that kvopt does not know.
/// Sparse and type attributes, sparse initializers, and tensors whose contents are unavailable are
/// printed as `{…}`, which the reader rejects.
std::string printText(const Model& model, const PrintOptions& options = {});
std::string printText(const Graph& graph, const PrintOptions& options = {});
/// One line of text. Subgraphs and tensors of more than 16 elements are printed as `{…}`.
std::string printText(const Node& node);

} // namespace kvopt::ir
