// Checks of a run's inputs against the graph's declared types, and the values of its symbols.
#pragma once

#include "ir/graph.h"
#include "runtime/memory/tensor_view.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::runtime {

/// Values of symbolic extents in the current run.
class SymbolValues {
public:
  /// nullopt for a name that no input declares, and for one without a value in this run.
  std::optional<int64_t> find(llvm::StringRef name) const;
  std::optional<int64_t> evaluate(const ir::Dim& dim) const;
  /// Changes whenever a value differs from the previous run.
  uint64_t version() const { return changes; }

private:
  friend class InputBinding;
  std::vector<std::string> names;
  std::vector<std::optional<int64_t>> values; // for each name
  uint64_t changes = 0;
};

/// Inputs of one graph, prepared for checking in every run.
class InputBinding {
public:
  /// The graph must outlive it.
  explicit InputBinding(const ir::Graph& graph);

  /// Checks one view for each graph input (null for the default contents) and determines the values
  /// of symbols. An extent that is a symbol defines its value; an expression is compared if all its
  /// symbols have values. Errors name the input. Does not allocate memory.
  llvm::Error bind(llvm::ArrayRef<const TensorView*> views);
  const SymbolValues& symbols() const { return bound; }

private:
  static constexpr unsigned none = UINT_MAX;
  struct Axis {
    std::optional<int64_t> fixed;
    unsigned symbol = none; // if the extent is a single symbol
  };
  llvm::Error bindSymbol(unsigned symbol, size_t input, unsigned axis, int64_t extent);

  const ir::Graph& graph;
  std::vector<std::vector<Axis>> axes; // for each input, if its rank is declared
  SymbolValues bound;
  std::vector<std::optional<int64_t>> fresh; // values that are being determined
  std::vector<size_t> binders;               // for each symbol: the input that defined it
};

/// Text of a shape: `[2, 3, 4]`
std::string extentsText(llvm::ArrayRef<int64_t> shape);

} // namespace kvopt::runtime
