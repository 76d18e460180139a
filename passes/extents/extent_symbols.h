// Symbols that take the place of extents that an export fixed.
#pragma once

#include "passes/analysis/interface/decoder_extents.h"
#include "passes/builders/attention_builder.h"

#include <optional>
#include <set>
#include <string>
#include <utility>

namespace kvopt::extents {

/// What extents were and what they are, and nodes that compute them of the inputs' extents.
class ExtentSymbols {
public:
  /// `freed` has a symbol for each number of `exported` that is to become one. The inputs are those
  /// of `graph`, in their new shapes.
  ExtentSymbols(const analysis::DecoderExtents& exported, const analysis::DecoderExtents& freed,
                llvm::ArrayRef<analysis::FreedInput> inputs, pattern::Rewriter& rewriter);

  const analysis::DecoderExtents& exported() const { return before; }
  const analysis::DecoderExtents& freed() const { return after; }

  /// What an extent was.
  ir::Dim was(const ir::Dim& extent) const;
  /// Whether the extent is another one now.
  bool isFreed(const ir::Dim& extent) const;
  /// Whether extents of the value, or numbers in it, are.
  bool isFreed(const ir::Value& value) const;

  /// What a range of numbers counted: the keys from 0 or those of the new tokens, or tokens or
  /// batch rows from 0. A single number from 0 says too little. nullopt for other ranges.
  std::optional<std::pair<ir::Dim, ir::Dim>> counted(const ir::Dim& start,
                                                     const ir::Dim& end) const;
  /// A list of extents of which some are what an export fixed, those of a mask or of what is as
  /// large: [B, …, S, keys]. nullopt for other lists.
  std::optional<ir::Shape> freedList(llvm::ArrayRef<ir::Dim> list) const;

  /// The extent as an int64 [1]; null where no input tells it.
  ir::Value* value(const ir::Dim& extent);
  /// The extent as a scalar of an integer type.
  ir::Value* scalar(const ir::Dim& extent, ir::ElementType type);
  /// Extents as an int64 list.
  ir::Value* list(llvm::ArrayRef<ir::Dim> shape);

  builders::AttentionBuilder& builder() { return build; }

  /// A mask with a number for each token and key of the export is taken for what it is there:
  /// causal, or a window. Wider windows, and keys that other tokens see, would not be in it.
  void assumeCausal(const ir::TensorType& mask);
  /// What is taken for granted, a sentence each.
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

/// `[batch, 4, past + sequence]`.
std::string listText(llvm::ArrayRef<ir::Dim> extents);

} // namespace kvopt::extents
