// Reduction of a model to the part for which a command gives the same exit code.
#pragma once

#include "driver/toolkit.h"

#include "llvm/Support/Error.h"

#include <chrono>
#include <string>
#include <vector>

namespace kvopt::driver {

/// A request to reduce a model.
struct ReduceRequest {
  /// Path of the model.
  std::string model;
  /// A command line for `/bin/sh -c`. Every `{}` is replaced by the absolute path of a candidate,
  /// quoted for the shell where its characters require that.
  std::string command;
  /// Path of the reduced model. It is an output of `Toolkit::files`.
  std::string output;
  /// Time that the command may take on one model. A candidate that exceeds it is rejected.
  std::chrono::seconds limit{60};
  /// Whether names, doc strings, metadata and values of weights are removed, too.
  bool isAnonymous = false;
  /// Whether the files of the model get hard links for the candidates instead of copies.
  bool linksFiles = false;
};

/// Size of a model.
struct ReducedSize {
  size_t nodes = 0; ///< with nodes of subgraphs and functions
  size_t inputs = 0;
  size_t outputs = 0;
  size_t initializers = 0;
  size_t functions = 0;
  uint64_t bytes = 0; ///< size of the model's file, without external data
};

/// Work of one kind of reduction.
struct ReductionStep {
  std::string name;      ///< "outputs", "nodes"
  size_t candidates = 0; ///< for which the command ran
  size_t accepted = 0;
};

/// A model that was reduced and written.
struct ReducedModel {
  int exitCode = 0; ///< code of the command, for the whole and for the reduced model
  ReducedSize before;
  ReducedSize after;
  /// Steps in the order in which they were first made.
  std::vector<ReductionStep> steps;
  double seconds = 0;
  bool hasManifest = false; ///< a manifest was written next to the model
  bool hasData = false;     ///< external data was written next to the model

  size_t candidates() const;
};

/// Removes parts of the model as long as the exit code of the command remains what it is for the
/// whole model: outputs, weights, nodes, subgraphs, functions, attributes, operands, inputs and
/// extents. Every candidate is a model that kvopt can read and that the verifier accepts; if shape
/// inference accepts the whole model, it accepts every candidate.
///
/// Candidates are in a private folder next to the output, which has links to the model's external
/// data. Weights are not read, except those of at most 16 MiB whose extents become smaller. The
/// output is the smallest model so far whenever it is not yet complete, so that a signal which ends
/// the process leaves a useful file. While external data remains, nothing is written before the
/// end.
///
/// Fails if the command exceeds its time on the whole model, or if its exit code for a copy of the
/// model differs.
llvm::Expected<ReducedModel> reduce(const ReduceRequest& request, const Toolkit& toolkit);

} // namespace kvopt::driver
