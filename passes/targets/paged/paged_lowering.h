// PagedLowering: writes sites as com.microsoft.PagedAttention over pools of blocks.
#pragma once

#include "ir/manifest/manifest.h"
#include "ir/model.h"
#include "passes/builders/attention_builder.h"
#include "passes/targets/target.h"

#include "llvm/ADT/DenseMap.h"

namespace kvopt::targets {

/// nullopt if PagedLowering can write the site; otherwise the reason.
std::optional<pattern::MatchFailure> supportsPagedForm(const analysis::AttentionSite& site);

/// Lowers sites of one model; supportsPagedForm must hold for each. The first step lowers them to
/// ai.kvopt's operators, the second turns those with a cache into PagedAttention. Cross-attention
/// remains in ai.kvopt's operators.
class PagedLowering {
public:
  /// `lowerOptions.size` is the number of tokens in a block.
  PagedLowering(ir::Model& lowered, const LowerOptions& lowerOptions,
                pattern::Journal& editJournal);

  /// Returns a usage error if ONNX Runtime does not support the block size.
  llvm::Expected<ir::Manifest> run(llvm::ArrayRef<analysis::AttentionSite*> sites);

private:
  void addInputs(const ir::Node& fused);
  void addRowStarts(ir::Value& query);
  ir::Value& pastLengths(ir::Value& before, ir::Value& query,
                         builders::AttentionBuilder& build) const;
  llvm::Error lowerCached(analysis::AttentionSite& site);
  llvm::Error makePool(const analysis::SiteCache& update, ir::Value& present);
  void rewireShapeReaders(ir::Value& past, llvm::ArrayRef<int64_t> order,
                          llvm::ArrayRef<ir::Node*> readers);
  void describePool(const ir::Value& past, llvm::ArrayRef<int64_t> order);
  std::string freshSymbol(const std::string& base) const;

  ir::Model& model;
  ir::Graph& graph;
  LowerOptions options;
  pattern::Journal& journal;
  ir::Manifest manifest;
  /// Sites whose attention had sinks before it was completed for ai.kvopt.
  llvm::DenseSet<const analysis::AttentionSite*> withSinks;
  llvm::DenseSet<const ir::Value*> pools;
  ir::Dim blocks;                   ///< number of blocks in a pool
  ir::Value* pastLength = nullptr;  ///< the input of ai.kvopt's operators
  ir::Value* pastSeqlens = nullptr; ///< int32 [B]
  ir::Value* blockTable = nullptr;  ///< int32 [B, number of blocks of a row]
  ir::Value* rowStarts = nullptr;   ///< int32 [B+1]
};

} // namespace kvopt::targets
