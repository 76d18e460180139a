// Meaning of an attention's mask as proved facts: causal, windowed, padding, or other.
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

/// Facts about the keys that the rows of one ai.kvopt::Sdpa see, according to its attributes and
/// its operand together. Row i of S sees key j of T; P is T - S, or the node's own past length.
/// Facts hold in every execution that the graph's operators allow.
struct MaskFacts {
  enum class Kind { None, Boolean, Additive };
  Kind kind = Kind::None; ///< kind of the operand

  /// Proved: row i sees no key j > i + P, and every other key except those that `window` and
  /// `padding` hide.
  Proof causal = Proof::Unproven;
  /// Whether no row i sees a key j > i + P, whatever the rest of the mask.
  bool hidesLaterKeys = false;
  /// Whether every row i sees the key i + P, its own token's, unless a condition of `padding` hides
  /// it.
  bool seesOwnKey = false;
  /// If causal is refuted: a row that sees too much or too little.
  std::string counterExample;
  /// If causal is unproven: it holds in those executions in which the graph input `positions`
  /// numbers the new tokens after the earlier ones. P is then the first row's position, which is
  /// not T - S for a static cache. The mask may also have to be as long as the keys. All other
  /// facts hold without this condition.
  struct IfCounting {
    const ir::Value* positions = nullptr;
    std::string text;   ///< `position_ids[b, i] = P + i and total = past + sequence`
    int64_t window = 0; ///< as in MaskFacts
    /// Whether it holds for any first position, without further conditions.
    bool holdsForAnyFirst = false;
  };
  std::optional<IfCounting> causalIf;
  /// Proved: row i sees only keys with i + P - j < window. 0 if no window was proved.
  int64_t window = 0;

  /// A condition on the batch row and the key that hides keys.
  struct Padding {
    std::string text;                        ///< `attention_mask[b, j]`
    std::vector<const ir::Value*> dependsOn; ///< graph inputs
    /// Graph input whose element [b, j] is not zero exactly where the key is visible; null for
    /// other conditions.
    const ir::Value* shownBy = nullptr;
    /// Whether the condition depends on elements [·, j] of graph inputs alone, and not on the key's
    /// position.
    bool isOfElements = false;
  };
  std::vector<Padding> padding;
  /// Whether rows see keys after the frontier where a condition holds (prefixes, image blocks).
  bool hasBidirectionalBlocks = false;

  /// Bias added to the scores of visible keys.
  enum class Bias {
    None,
    ByDistance, ///< depends on j - i - P and the head only, and on no graph input
    Other
  };
  Bias bias = Bias::None;
  std::vector<const ir::Value*> biasDependsOn; ///< graph inputs

  /// Whether hidden keys get -inf or false; otherwise they get finite numbers, at most
  /// `hiddenValue`. True if nothing is hidden.
  bool isExact = true;
  double hiddenValue = 0;
  /// Whether every row sees at least one key for all inputs of the graph.
  bool everyRowSeesAKey = false;

  /// Meaning of the operand apart from causal and window.
  enum class Remaining { Nothing, Padding, Other };
  Remaining remaining = Remaining::Other;

  /// `j <= i + P and i + P - j < 6 and attention_mask[b, j]`.
  std::string text;
};

/// Analyzes masks. Graphs may be edited between calls, but analyzed values must not be erased.
class MaskAnalysis {
public:
  MaskAnalysis();
  ~MaskAnalysis();
  MaskAnalysis(const MaskAnalysis&) = delete;
  MaskAnalysis& operator=(const MaskAnalysis&) = delete;

  /// Requires an ai.kvopt::Sdpa.
  MaskFacts factsOf(const ir::Node& sdpa);

  /// One mask (null for none) of an attention, with the attention's extents and attributes.
  struct Question {
    const ir::Value* mask = nullptr;
    IndexSpace space;
    bool causal = false;
    int64_t window = 0;
    /// int64 [1] or [B]: number of keys before row 0; null: T - S.
    const ir::Value* lengths = nullptr;
  };
  MaskFacts facts(const Question& question);

  /// A boolean tensor of the graph, with the extents [B or 1, 1, 1, T], that equals the padding in
  /// the mask; null if the graph has none. It is available where the mask is read.
  ir::Value* paddingValue(const Question& question);

private:
  class Impl;
  std::unique_ptr<Impl> impl;
};

/// The question for the operand and attributes of an ai.kvopt::Sdpa.
MaskAnalysis::Question maskQuestion(const ir::Node& sdpa);
/// The same question if the operand past_length were `lengths`, over all keys, including those
/// after a row's length and its new rows.
MaskAnalysis::Question maskQuestion(const ir::Node& sdpa, const ir::Value& lengths);

} // namespace kvopt::analysis
