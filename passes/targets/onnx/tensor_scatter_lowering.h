// TensorScatterLowering: writes sites with ONNX's TensorScatter and Attention of opset 24.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/builders/attention_builder.h"
#include "passes/targets/target.h"

namespace kvopt {

/// nullopt if TensorScatterLowering can write the site, otherwise why not. Says nothing of the rest
/// of the model.
std::optional<MatchFailure> supportsTensorScatter(const AttentionSite& site);

/// Lowers sites of one model of opset 24 or newer, each of which supportsTensorScatter: first to
/// ai.kvopt's operators, then those to ONNX's.
class TensorScatterLowering {
public:
  TensorScatterLowering(Model& lowered, const LowerOptions& lowerOptions, Journal& editJournal);

  llvm::Expected<Manifest> run(llvm::ArrayRef<AttentionSite*> sites);

private:
  /// Where new rows go, and how many keys there are with them.
  struct Lengths {
    Value* before = nullptr; ///< int64 [B]; null: 0
    Value* total = nullptr;  ///< int64 [B]
  };

  void addLengthInputs(llvm::ArrayRef<AttentionSite*> sites);
  Lengths lengthsOf(Value& pastLength, Value& query, AttentionBuilder& build) const;
  Value& scatter(Node& fused, unsigned cache, const Lengths& lengths, Rewriter& rewriter) const;
  llvm::Error lowerCached(AttentionSite& site);
  llvm::Error lowerUncached(AttentionSite& site);
  void finishLengths();

  Model& model;
  Graph& graph;
  const LowerOptions& options;
  Journal& journal;
  Manifest manifest;
  /// The input that ai.kvopt's operators got, and what stands for it; null if they needed none.
  Value* pastLength = nullptr;
  Value* writeIndices = nullptr; ///< input, int64 [B]
  Value* keyLengths = nullptr;   ///< input, int64 [B]
  /// Something in the graph is computed from one length for all rows.
  bool isEven = false;
};

} // namespace kvopt
