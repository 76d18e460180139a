// GqaLowering: writes sites with com.microsoft.GroupQueryAttention.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/builders/attention_builder.h"
#include "passes/targets/target.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt {

/// nullopt if GqaLowering can write the site, otherwise why not.
std::optional<MatchFailure> supportsGqaForm(const AttentionSite& site);

/// Lowers sites of one model, each of which supportsGqaForm: first to ai.kvopt's operators, then
/// those with a cache to GroupQueryAttention. Cross-attention stays with ai.kvopt.
class GqaLowering {
public:
  GqaLowering(Model& lowered, const LowerOptions& lowerOptions, Journal& editJournal);

  llvm::Expected<Manifest> run(llvm::ArrayRef<AttentionSite*> sites);

private:
  /// What a site's attention had before it was completed for ai.kvopt.
  struct Given {
    bool mask = false;
    bool sinks = false;
  };

  void findPadding(llvm::ArrayRef<AttentionSite*> sites);
  void findLengths(llvm::ArrayRef<AttentionSite*> sites);
  std::optional<BuilderOperand> newTokens(const Value& query, AttentionBuilder& build) const;
  void addLengthsOfPadding(AttentionBuilder& build);
  void addLengthInputs(const Value& query);
  llvm::Error dropPastLength();
  std::pair<Value*, Value*> lengthsOf(Node& fused, AttentionBuilder& build) const;

  llvm::Error lowerCached(AttentionSite& site);
  Value* biasOf(Node& fused, Value& total, AttentionBuilder& build) const;
  void handOutRows(Node& fused, Value& rows, Rewriter& rewriter) const;
  llvm::Error normaliseLayout(const CacheUpdate& update, Value& present);

  Model& model;
  Graph& graph;
  const LowerOptions& options;
  Journal& journal;
  Manifest manifest;
  llvm::DenseMap<const AttentionSite*, Given> given;
  /// int [B,T] of which some mask reads column j for key j; null if there is none.
  Value* padding = nullptr;
  /// The input that ai.kvopt's operators got; null if none did.
  Value* pastLength = nullptr;
  /// Of the sites whose length is `pastLength`; null where they compute their own from it.
  Value* lastPositions = nullptr; ///< int32 [B], seqlens_k
  Value* totalLength = nullptr;   ///< int32 scalar
  /// What its other readers get instead of `pastLength`; null where nobody reads it.
  Value* computedPast = nullptr;
};

} // namespace kvopt
