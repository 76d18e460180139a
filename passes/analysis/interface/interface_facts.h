// Facts about a decoder's inputs that follow from its operators, read before any operator is
// rewritten.
#pragma once

#include "passes/analysis/interface/input_readers.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"

namespace kvopt::analysis {

/// Facts about inputs. Rewriting an operator loses the meaning of its operands, so these facts are
/// read first.
struct InterfaceFacts {
  /// Readers by the name of the input.
  llvm::StringMap<InputReaders> readers;
  /// Whether batch rows advance by numbers of tokens that an input counts (countsRowsByInput()).
  bool countsTokens = false;

  /// Readers of an input; empty for an input that was added later.
  InputReaders of(const ir::Value& input) const { return readers.lookup(input.name()); }
};

/// Reads an exported graph.
InterfaceFacts readInterface(const ir::Graph& graph);

/// The manifest's word for a length.
const char* wordOf(ir::LengthFeed feed);

/// Whether both are the same number, whether it is one number for all rows or one per row.
bool isSameLength(ir::LengthFeed one, ir::LengthFeed other);

/// Returns an error that names both operators if they read one input as different lengths.
llvm::Error checkLengths(const InterfaceFacts& facts);

} // namespace kvopt::analysis
