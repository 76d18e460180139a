// Checks of a run's inputs against the graph's declared types, and the values of its symbols.
#pragma once

#include "ir/graph.h"
#include "runtime/memory/tensor_view.h"

#include <optional>
#include <string>
#include <vector>

namespace kvopt::runtime {

/// Symbols of extents and what they are in the current run.
class SymbolValues {
public:
  /// Nullopt for a name that no input declares, and for one that the run leaves open.
  std::optional<int64_t> find(llvm::StringRef name) const;
  std::optional<int64_t> evaluate(const ir::Dim& dim) const;
  /// Another number whenever a value is another one than in the run before.
  uint64_t version() const { return changes; }

private:
  friend class InputBinding;
  std::vector<std::string> names;
  std::vector<std::optional<int64_t>> values; // per name
  uint64_t changes = 0;
};

/// The inputs of one graph, made ready to be checked with every run.
class InputBinding {
public:
  /// The graph must outlive it.
  explicit InputBinding(const ir::Graph& graph);

  /// Checks one view per graph input (null where the default contents are to be used) and collects
  /// the symbols' values. An extent that is a symbol fixes its value; one that is an expression is
  /// compared where all its symbols have values. Errors name the input. Allocates nothing.
  llvm::Error bind(llvm::ArrayRef<const TensorView*> views);
  const SymbolValues& symbols() const { return bound; }

private:
  static constexpr unsigned none = UINT_MAX;
  struct Axis {
    std::optional<int64_t> fixed;
    unsigned symbol = none; // where the extent is one symbol
  };
  llvm::Error bindSymbol(unsigned symbol, size_t input, unsigned axis, int64_t extent);

  const ir::Graph& graph;
  std::vector<std::vector<Axis>> axes; // per input, as far as its rank is declared
  SymbolValues bound;
  std::vector<std::optional<int64_t>> fresh; // values in the making
  std::vector<size_t> binders;               // per symbol: the input that fixed it
};

/// `[2, 3, 4]`
std::string extentsText(llvm::ArrayRef<int64_t> shape);

} // namespace kvopt::runtime
