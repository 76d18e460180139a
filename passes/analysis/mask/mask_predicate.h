// What an attention's mask means: causal, windowed, padding, or something else, as proved facts.
#pragma once

#include "ir/graph.h"
#include "passes/analysis/mask/mask_expression.h"

#include <memory>
#include <optional>
#include <vector>

namespace kvopt::analysis {

enum class Proof {
  Proved,
  Refuted, ///< there is a counter-example
  Unproven,
};

/// "proved", "refuted", "unproven".
llvm::StringRef proofName(Proof proof);

/// Facts about which keys the rows of one ai.kvopt::Sdpa see, by its attributes and its operand
/// together. Row i of S sees key j of T; P is T - S, or the node's own past length. Facts hold in
/// every execution that the graph's operators admit.
struct MaskFacts {
  enum class Kind { None, Boolean, Additive };
  Kind kind = Kind::None; ///< of the operand

  /// Proved: row i sees no key j > i + P, and every other key, but for those that `window` and
  /// `padding` hide.
  Proof causal = Proof::Unproven;
  /// No row i sees a key j > i + P, whatever else the mask says.
  bool hidesLaterKeys = false;
  /// Every row i sees the key i + P, that of its own token, unless a condition of `padding` hides
  /// it.
  bool seesOwnKey = false;
  /// Where causal is refuted: a row that sees too much or too little.
  std::string counterExample;
  /// Where causal is unproven: it holds in those executions in which the graph input `positions`
  /// counts the new tokens on from the earlier ones. P is then what the first row is fed, which in
  /// a cache of static capacity is not T - S. The mask may have to be as long as the keys, too. All
  /// other facts hold without the condition.
  struct IfCounting {
    const ir::Value* positions = nullptr;
    std::string text;   ///< `position_ids[b, i] = P + i and total = past + sequence`
    int64_t window = 0; ///< as below
    /// Whatever the first row is fed, and nothing else has to hold.
    bool holdsForAnyFirst = false;
  };
  std::optional<IfCounting> causalIf;
  /// Proved: row i sees only keys with i + P - j < window. 0 when no window was proved.
  int64_t window = 0;

  /// A condition on the batch row and the key that hides keys.
  struct Padding {
    std::string text;                        ///< `attention_mask[b, j]`
    std::vector<const ir::Value*> dependsOn; ///< graph inputs
    /// The graph input whose element [b, j] is not zero exactly where the key is shown; null where
    /// the condition is another one.
    const ir::Value* shownBy = nullptr;
    /// Whether it is on elements [·, j] of graph inputs alone: the place of a key says nothing.
    bool isOfElements = false;
  };
  std::vector<Padding> padding;
  /// Some keys beyond the frontier are seen where a condition holds (prefixes, image blocks).
  bool hasBidirectionalBlocks = false;

  /// What is added to the scores of keys that are seen.
  enum class Bias {
    None,
    ByDistance, ///< depends on j - i - P and the head only, and on no graph input
    Other
  };
  Bias bias = Bias::None;
  std::vector<const ir::Value*> biasDependsOn; ///< graph inputs

  /// Hidden keys get -inf or false; otherwise finite numbers, the largest of which is
  /// `hiddenValue`. True where nothing is hidden.
  bool isExact = true;
  double hiddenValue = 0;
  /// Every row sees at least one key, whatever the graph's inputs are.
  bool everyRowSeesAKey = false;

  /// What the operand says apart from causal and window.
  enum class Remaining { Nothing, Padding, Other };
  Remaining remaining = Remaining::Other;

  /// `j <= i + P and i + P - j < 6 and attention_mask[b, j]`.
  std::string text;
};

/// Analyses masks. Graphs may be edited between calls, but values that were seen must live.
class MaskAnalysis {
public:
  MaskAnalysis();
  ~MaskAnalysis();
  MaskAnalysis(const MaskAnalysis&) = delete;
  MaskAnalysis& operator=(const MaskAnalysis&) = delete;

  /// Requires an ai.kvopt::Sdpa.
  MaskFacts factsOf(const ir::Node& sdpa);

  /// The facts of one mask (null for none) of an attention with these extents and attributes.
  struct Question {
    const ir::Value* mask = nullptr;
    IndexSpace space;
    bool causal = false;
    int64_t window = 0;
    /// int64 [1] or [B]: how many keys lie before row 0; null: T - S.
    const ir::Value* lengths = nullptr;
  };
  MaskFacts facts(const Question& question);

  /// A boolean tensor of the graph, with the extents [B or 1, 1, 1, T], that is the padding that
  /// the mask holds, no more and no less; null where the graph has none. It stands where the mask
  /// can be read.
  ir::Value* paddingValue(const Question& question);

private:
  class Impl;
  std::unique_ptr<Impl> impl;
};

/// The question that an ai.kvopt::Sdpa's operand and attributes put.
MaskAnalysis::Question maskQuestion(const ir::Node& sdpa);
/// The question that they would put if the operand past_length were `lengths`, over all keys: those
/// behind a row's length and its new rows as well.
MaskAnalysis::Question maskQuestion(const ir::Node& sdpa, const ir::Value& lengths);

} // namespace kvopt::analysis
