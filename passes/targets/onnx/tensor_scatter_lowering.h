// TensorScatterLowering: writes sites as ONNX's TensorScatter and Attention of opset 24.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/builders/attention_builder.h"
#include "passes/targets/kvopt/kvopt_lowering.h"
#include "passes/targets/target.h"

namespace kvopt::targets {

struct OnnxAttention;

/// nullopt if TensorScatterLowering can write the site; otherwise the reason. Does not consider the
/// rest of the model. `asRing`: with a ring where one is possible.
std::optional<pattern::MatchFailure> supportsTensorScatter(const analysis::AttentionSite& site,
                                                           bool asRing = false);

/// Lowers sites of one model of opset 24 or newer; supportsTensorScatter must hold for each. The
/// first step lowers them to ai.kvopt's operators, the second from these to ONNX's.
class TensorScatterLowering {
public:
  /// `withRings`: caches become rings where possible, with slots for steps of `lowerOptions.size`
  /// tokens.
  TensorScatterLowering(ir::Model& lowered, const LowerOptions& lowerOptions,
                        pattern::Journal& editJournal, bool withRings = false);

  llvm::Expected<ir::Manifest> run(llvm::ArrayRef<analysis::AttentionSite*> sites);

private:
  /// Number of rows before and after a step.
  struct Lengths {
    ir::Value* before = nullptr; ///< int64 [B]; null: 0
    ir::Value* total = nullptr;  ///< int64 [B]
  };

  llvm::SmallVector<analysis::AttentionSite*, 32>
  sitesLeft(llvm::ArrayRef<analysis::AttentionSite*> sites) const;
  void addLengthInputs(llvm::ArrayRef<analysis::AttentionSite*> sites);
  Lengths lengthsOf(ir::Value& pastLength, ir::Value& query,
                    builders::AttentionBuilder& build) const;
  ir::Value& scatter(ir::Node& fused, unsigned cache, const Lengths& lengths,
                     pattern::Rewriter& rewriter) const;
  /// Sets the visible keys of a buffer: the `before` earlier rows, given by `lengths`, and one row
  /// per query row.
  void attendToBuffer(const Lengths& lengths, const ir::Value& before, ir::Value* mask,
                      OnnxAttention& parts, builders::AttentionBuilder& build);
  /// The same for the ring of a RingKvSdpa.
  void attendToRing(ir::Node& fused, OnnxAttention& parts, builders::AttentionBuilder& build);
  llvm::Error lowerCached(analysis::AttentionSite& site);
  llvm::Error lowerUncached(analysis::AttentionSite& site);
  llvm::Error writeUncached(analysis::AttentionSite& site, const OnnxAttention& parts,
                            pattern::Rewriter& rewriter);
  void finishLengths();

  ir::Model& model;
  ir::Graph& graph;
  const LowerOptions& options;
  pattern::Journal& journal;
  bool hasRings;
  ir::Manifest manifest;
  /// The input of ai.kvopt's operators, and the inputs that replace it; null if the operators
  /// needed none.
  ir::Value* pastLength = nullptr;
  ir::Value* writeIndices = nullptr; ///< input, int64 [B]
  ir::Value* keyLengths = nullptr;   ///< input, int64 [B]
  /// Whether a value in the graph is computed from one length for all batch rows.
  bool isEven = false;
};

} // namespace kvopt::targets
