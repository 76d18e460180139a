// KvoptOperands: what nodes of ai.kvopt have in common whose function bodies are to run: every
// operand and every attribute written.
#pragma once

#include "ir/model.h"
#include "ir/ops/kvopt/function_body.h"
#include "passes/analysis/cache/site.h"
#include "passes/pattern/rewriter.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::targets {

/// Operands and attributes of one model's attentions. A body cannot do without an operand: it is
/// given neutral contents where a site has none.
class KvoptOperands {
public:
  explicit KvoptOperands(ir::Model& lowered) : model(lowered) {}

  /// Why a node that is not ai.kvopt::Sdpa cannot express `sdpa`; nullopt if it can.
  static std::optional<pattern::MatchFailure> obstacle(const ir::Node& sdpa);

  /// All sites must be shown before the first is written: bodies are the same for all.
  void see(const analysis::AttentionSite& site);
  bool anySinks() const { return sinksSeen; }

  /// The site's mask, or a neutral one.
  ir::Value& mask(const ir::Node& sdpa);
  /// The site's sinks; where any site has some, others get ones without weight; else null.
  ir::Value* sinks(const ir::Node& sdpa);
  static ir::AttributeList attributes(const ir::Node& sdpa, const ir::Value& mask);
  ir::BodyForm bodyForm(const ir::Node& sdpa) const;

  /// Completes an ai.kvopt::Sdpa that stays, and writes its body. `pastLength` is for attention
  /// over a cache with room for more rows than there are.
  llvm::Error complete(ir::Node& sdpa, pattern::Rewriter& rewriter,
                       ir::Value* pastLength = nullptr);

  /// Writes the body of `op` into the model, once, in the place of one in another form that the
  /// model has.
  llvm::Error addFunction(ir::OpName op, llvm::function_ref<std::string()> text);
  /// Writes the body of ai.kvopt::AppendRows if a node of it is left: caches that stay as they are
  /// may hold rows of different lengths.
  llvm::Error addAppendRows();

private:
  ir::Value& lengths(ir::Node& sdpa, pattern::Rewriter& rewriter);

  ir::Model& model;
  ir::Value* neutralMask = nullptr;
  bool sinksSeen = false;
  bool lengthsSeen = false;
  llvm::StringSet<> written; ///< operators whose bodies are those of this lowering
};

/// The new rows of a site's cache as [B,G,S,D].
ir::Value& canonicalNewRows(const analysis::AttentionSite& site, const analysis::SiteCache& update,
                            pattern::Rewriter& rewriter);

/// Says in the metadata of `fused` which nodes of a site it stands for.
void recordSiteOrigin(ir::Node& fused, const analysis::AttentionSite& site,
                      pattern::Rewriter& rewriter);

} // namespace kvopt::targets
