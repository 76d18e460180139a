// GqaLowering: writes sites as com.microsoft.GroupQueryAttention.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/builders/attention_builder.h"
#include "passes/targets/target.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::targets {

/// nullopt if GqaLowering can write the site; otherwise the reason.
std::optional<pattern::MatchFailure> supportsGqaForm(const analysis::AttentionSite& site);

/// Lowers sites of one model; supportsGqaForm must hold for each. The first step lowers those that
/// append to a cache to ai.kvopt's operators, the second turns them into GroupQueryAttention.
/// Attention to another sequence becomes MultiHeadAttention (multi_head_form.h).
class GqaLowering {
public:
  GqaLowering(ir::Model& lowered, const LowerOptions& lowerOptions, pattern::Journal& editJournal);

  llvm::Expected<ir::Manifest> run(llvm::ArrayRef<analysis::AttentionSite*> sites);

private:
  /// Operands that a site's attention had before it was completed for ai.kvopt.
  struct Given {
    const ir::Value* mask = nullptr;
    bool sinks = false;
  };

  void findPadding(llvm::ArrayRef<analysis::AttentionSite*> sites);
  void findLengths(llvm::ArrayRef<analysis::AttentionSite*> sites);
  std::optional<builders::BuilderOperand> newTokens(const ir::Value& query,
                                                    builders::AttentionBuilder& build) const;
  void addLengthsOfPadding(builders::AttentionBuilder& build);
  void addLengthInputs(const ir::Value& query);
  llvm::Error dropPastLength();
  std::pair<ir::Value*, ir::Value*> lengthsOf(ir::Node& fused,
                                              builders::AttentionBuilder& build) const;

  llvm::Error lowerCached(analysis::AttentionSite& site);
  ir::Value* visibleKeys(const analysis::AttentionSite& site, builders::AttentionBuilder& build);
  ir::Value* biasOf(ir::Node& fused, ir::Value& mask, ir::Value& total,
                    builders::AttentionBuilder& build) const;
  llvm::Error normaliseLayout(const analysis::SiteCache& update, ir::Value& present);

  ir::Model& model;
  ir::Graph& graph;
  const LowerOptions& options;
  pattern::Journal& journal;
  ir::Manifest manifest;
  llvm::DenseMap<const analysis::AttentionSite*, Given> given;
  /// int [B,T]: the padding mask whose column j some mask reads for key j; null if there is none.
  ir::Value* padding = nullptr;
  /// The input of ai.kvopt's operators; null if they needed none.
  ir::Value* pastLength = nullptr;
  /// Inputs of the sites whose length is `pastLength`; null where sites compute their own from it.
  ir::Value* lastPositions = nullptr; ///< int32 [B], seqlens_k
  ir::Value* totalLength = nullptr;   ///< int32 scalar
  /// Replaces `pastLength` for its other readers; null if it has none.
  ir::Value* computedPast = nullptr;
};

} // namespace kvopt::targets
