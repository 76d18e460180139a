// Symbols that replace extents that an export fixed.
#pragma once

#include "passes/analysis/interface/decoder_extents.h"
#include "passes/builders/attention_builder.h"

#include <optional>
#include <set>
#include <string>
#include <utility>

namespace kvopt::extents {

/// Maps exported extents to symbols, and creates nodes that compute the symbols from the inputs'
/// extents.
class ExtentSymbols {
public:
  /// `freed` has a symbol for each number of `exported` that becomes one. The inputs belong to
  /// `graph` and have their new shapes.
  ExtentSymbols(const analysis::DecoderExtents& exported, const analysis::DecoderExtents& freed,
                llvm::ArrayRef<analysis::FreedInput> inputs, pattern::Rewriter& rewriter);

  const analysis::DecoderExtents& exported() const { return before; }
  const analysis::DecoderExtents& freed() const { return after; }

  /// The exported extent.
  ir::Dim was(const ir::Dim& extent) const;
  /// Whether the extent was replaced.
  bool isFreed(const ir::Dim& extent) const;
  /// Whether extents of the value, or numbers in it, were replaced.
  bool isFreed(const ir::Value& value) const;

  /// The range that numbers counted: the keys from 0 or those of the new tokens, or tokens or batch
  /// rows from 0. A single number from 0 is ambiguous. nullopt for other ranges.
  std::optional<std::pair<ir::Dim, ir::Dim>> counted(const ir::Dim& start,
                                                     const ir::Dim& end) const;
  /// A list of extents that contains exported ones, with symbols: that of a mask, or of a tensor of
  /// the same size, [B, …, S, keys]. nullopt for other lists.
  std::optional<ir::Shape> freedList(llvm::ArrayRef<ir::Dim> list) const;

  /// The extent as an int64 [1]; null if no input has it.
  ir::Value* value(const ir::Dim& extent);
  /// The extent as a scalar of an integer type.
  ir::Value* scalar(const ir::Dim& extent, ir::ElementType type);
  /// Extents as an int64 list.
  ir::Value* list(llvm::ArrayRef<ir::Dim> shape);

  builders::AttentionBuilder& builder() { return build; }

  /// Assumes that a mask with a number for each token and key of the export has the exported
  /// meaning for all sizes: causal, or a window. Such a mask cannot contain wider windows, or keys
  /// that other tokens see.
  void assumeCausal(const ir::TensorType& mask);
  /// Assumptions, one sentence each.
  const std::set<std::string>& assumptions() const { return assumed; }

private:
  ir::Value* combined(const char* op, const ir::Dim& first, const ir::Dim& second);

  struct Source {
    ir::Dim extent;
    ir::Value* input;
    unsigned axis;
  };
  analysis::DecoderExtents before;
  analysis::DecoderExtents after;
  std::vector<Source> sources;
  std::set<std::string> assumed;
  builders::AttentionBuilder build;
};

/// Text of a list of extents: `[batch, 4, past + sequence]`.
std::string listText(llvm::ArrayRef<ir::Dim> extents);

} // namespace kvopt::extents
