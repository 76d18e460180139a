// What the operators of a decoder say of its inputs, before any of them is rewritten.
#pragma once

#include "passes/analysis/interface/input_readers.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"

namespace kvopt::analysis {

/// Rewriting an operator takes away what its operands mean, so that this is read first.
struct InterfaceFacts {
  /// By the names of inputs.
  llvm::StringMap<InputReaders> readers;
  /// Rows of a batch advance by tokens that an input counts (countsRowsByInput()).
  bool countsTokens = false;

  /// Nothing of an input that there was not.
  InputReaders of(const ir::Value& input) const { return readers.lookup(input.name()); }
};

/// Reads a graph as it was exported.
InterfaceFacts readInterface(const ir::Graph& graph);

/// The word of manifests for it.
const char* wordOf(ir::LengthFeed feed);

/// Whether both are the same number; all rows together or each alone makes no difference.
bool isSameLength(ir::LengthFeed one, ir::LengthFeed other);

/// An error that names both operators where they take one input for different lengths.
llvm::Error checkLengths(const InterfaceFacts& facts);

} // namespace kvopt::analysis
