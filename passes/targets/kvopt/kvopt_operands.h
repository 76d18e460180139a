// KvoptOperands: the common form of ai.kvopt nodes whose function bodies will run. Every operand
// and every attribute is written.
#pragma once

#include "ir/model.h"
#include "ir/ops/kvopt/function_body.h"
#include "passes/analysis/cache/site.h"
#include "passes/pattern/rewriter.h"

#include "llvm/ADT/StringSet.h"

namespace kvopt::targets {

/// Operands and attributes of the attention nodes of one model. A function body needs every
/// operand, so sites without one get a neutral operand.
class KvoptOperands {
public:
  explicit KvoptOperands(ir::Model& lowered) : model(lowered) {}

  /// Reason why a node other than ai.kvopt::Sdpa cannot express `sdpa`; nullopt if it can.
  static std::optional<pattern::MatchFailure> obstacle(const ir::Node& sdpa);

  /// Must be called for every site before the first is written: all sites share the bodies.
  void see(const analysis::AttentionSite& site);
  bool anySinks() const { return sinksSeen; }

  /// The site's mask, or a neutral one if it has none.
  ir::Value& mask(const ir::Node& sdpa);
  /// The site's sinks. If only other sites have sinks, this site gets sinks without weight; null if
  /// no site has any.
  ir::Value* sinks(const ir::Node& sdpa);
  static ir::AttributeList attributes(const ir::Node& sdpa, const ir::Value& mask);
  ir::BodyForm bodyForm(const ir::Node& sdpa) const;

  /// Completes an ai.kvopt::Sdpa that remains, and writes its body. `pastLength` is set for
  /// attention over a cache with a capacity larger than its number of rows.
  llvm::Error complete(ir::Node& sdpa, pattern::Rewriter& rewriter,
                       ir::Value* pastLength = nullptr);

  /// Writes the body of `op` into the model, once. It replaces a body of another form.
  llvm::Error addFunction(ir::OpName op, llvm::function_ref<std::string()> text);
  /// Writes the body of ai.kvopt::AppendRows if such a node is left: caches in the exporter's form
  /// may hold rows of different lengths.
  llvm::Error addAppendRows();

private:
  ir::Value& lengths(ir::Node& sdpa, pattern::Rewriter& rewriter);

  ir::Model& model;
  ir::Value* neutralMask = nullptr;
  bool sinksSeen = false;
  bool lengthsSeen = false;
  llvm::StringSet<> written; ///< operators that this lowering has written a body for
};

/// The new rows of a site's cache as [B,G,S,D].
ir::Value& canonicalNewRows(const analysis::AttentionSite& site, const analysis::SiteCache& update,
                            pattern::Rewriter& rewriter);

/// Records in the metadata of `fused` the nodes of the site that it replaces.
void recordSiteOrigin(ir::Node& fused, const analysis::AttentionSite& site,
                      pattern::Rewriter& rewriter);

} // namespace kvopt::targets
