// TokenLimits: the token ids that a model takes.
#pragma once

#include "ir/manifest/manifest.h"
#include "runtime/exec/executor.h"
#include "runtime/session/token_ids.h"

namespace kvopt::runtime {

/// The largest id that all inputs of token ids take: their tables have an entry for it, and it fits
/// in their element types.
class TokenLimits {
public:
  /// Limits of the graph's inputs of token ids, by name or description.
  static TokenLimits of(const ir::Graph& graph, llvm::ArrayRef<ir::ManifestInput> described);

  /// A usage error that names the first token outside the limits.
  llvm::Error check(llvm::ArrayRef<int64_t> tokens) const;
  /// The same for the contents of inputs. Ids that the graph itself replaces by others may be any
  /// numbers.
  llvm::Error check(llvm::ArrayRef<NamedView> inputs) const;

private:
  struct Limit {
    const ir::Value* input;
    int64_t largest; ///< id; INT64_MAX if there is no limit
    bool isOfType;   ///< whether the element type is the limit
    bool areReplaced;
  };

  static llvm::Error check(const Limit& limit, int64_t token);

  std::vector<Limit> limits;
};

} // namespace kvopt::runtime
