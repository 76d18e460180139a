// Tables that an export computed from its extents.
#pragma once

#include "passes/extents/extent_symbols.h"

namespace kvopt::extents {

/// Computes constants with a number for each key, or for each token and key, as functions of the
/// extents: the keys that tokens see, and the indices of an input's elements that a mask reads.
class FreedTables {
public:
  FreedTables(ir::Graph& freedGraph, ExtentSymbols& extentSymbols)
      : graph(freedGraph), symbols(extentSymbols) {}

  /// Replaces the constant; does nothing for other constants.
  void free(ir::Value& constant);

private:
  bool freeSeenKeys(ir::Value& constant);
  bool showsAllKeys(const ir::Value& table) const;
  bool isOnlyMask(const ir::Value& table) const;
  bool freeListedPlaces(ir::Value& constant);
  bool freePlaces(ir::Value& constant);
  ir::Value* placesAlong(const ir::TensorData& places, int64_t component);
  ir::Value* rowOfKeys();
  ir::Value* columnOfTokens();
  void replace(ir::Value& constant, ir::Value& computed,
               llvm::function_ref<bool(const ir::Use&)> isMeant);

  ir::Graph& graph;
  ExtentSymbols& symbols;
};

/// The input that integers index, such as batch rows and keys in a mask; null for others.
const ir::Value* pickedInput(const ir::Use& use);

} // namespace kvopt::extents
