// Facts about a decoder's inputs that follow from its operators, read before any operator is
// rewritten.
#pragma once

#include "passes/analysis/interface/input_readers.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Error.h"

namespace kvopt::analysis {

/// Roles of inputs that do not follow from the graph: a user gave them, or runs of the model showed
/// them.
struct GivenRoles {
  std::vector<ir::ManifestLength> lengths;
  std::vector<ir::ManifestInput> inputs; ///< extents that are empty follow from the type

  /// Contents of states before the first step, by the names of their inputs.
  std::vector<std::pair<std::string, std::vector<double>>> states;

  bool empty() const { return lengths.empty() && inputs.empty() && states.empty(); }
};

/// Facts about inputs. Rewriting an operator loses the meaning of its operands, so these facts are
/// read first.
struct InterfaceFacts {
  /// Readers by the name of the input.
  llvm::StringMap<InputReaders> readers;
  /// Whether batch rows advance by numbers of tokens that an input counts (countsRowsByInput()).
  bool countsTokens = false;
  /// Roles that take precedence over the readers.
  GivenRoles given;

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
