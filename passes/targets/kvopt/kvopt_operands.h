// KvoptOperands: what nodes of ai.kvopt have in common whose function bodies are to run: every
// operand and every attribute written.
#pragma once

#include "ir/model.h"
#include "ir/ops/kvopt/function_body.h"
#include "passes/analysis/cache/site.h"
#include "passes/pattern/rewriter.h"

namespace kvopt {

/// Operands and attributes of one model's attentions. A body cannot do without an operand: it is
/// given neutral contents where a site has none.
class KvoptOperands {
public:
  explicit KvoptOperands(Model& lowered) : model(lowered) {}

  /// All sites must be shown before the first is written: bodies are the same for all.
  void see(const AttentionSite& site);
  bool anySinks() const { return sinksSeen; }

  /// The site's mask, or a neutral one.
  Value& mask(const Node& sdpa);
  /// The site's sinks; where any site has some, others get ones without weight; else null.
  Value* sinks(const Node& sdpa);
  static std::vector<NamedAttribute> attributes(const Node& sdpa, const Value& mask);
  BodyForm bodyForm(const Node& sdpa) const;

  /// Completes an ai.kvopt::Sdpa that stays, and writes its body.
  llvm::Error complete(Node& sdpa, Rewriter& rewriter);

  /// Writes the body of `op` into the model, once.
  llvm::Error addFunction(OpName op, llvm::function_ref<std::string()> text);
  /// Writes the body of ai.kvopt::AppendRows if a node of it is left: caches that stay as they are
  /// may hold rows of different lengths.
  llvm::Error addAppendRows();

private:
  Value& lengths(Node& sdpa, Rewriter& rewriter);

  Model& model;
  Value* neutralMask = nullptr;
  bool sinksSeen = false;
  bool lengthsSeen = false;
};

/// The new rows of a site's cache as [B,G,S,D].
Value& canonicalNewRows(const AttentionSite& site, const CacheUpdate& update, Rewriter& rewriter);

/// Says in the metadata of `fused` which nodes of a site it stands for.
void recordSiteOrigin(Node& fused, const AttentionSite& site, Rewriter& rewriter);

} // namespace kvopt
