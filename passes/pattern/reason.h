// Reason codes and match failures: why a rule, a site or a target was refused.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace kvopt::pattern {

/// The stable, documented set of reasons. The order is that of `reasonTable`.
enum class ReasonCode {
  PatternMismatch, ///< internal to near misses: an operator, operand or attribute differs
  ShapeUnknown,
  ShapeMismatch,
  NotACacheConcat,
  AxisUnproven,
  PastNotInput,
  PresentNotOutput,
  NewBeforePast,
  CacheEscapes,
  SharedReader,
  MaskUnprovenCausal,
  MaskNoncausal,
  WindowNotRepresentable,
  ScaleNotConstant,
  DtypeMix,
  HeadCountUnproven,
  LayoutUnsupported,
  SoftcapUnsupported,
  SinkUnsupported,
  BiasUnsupported,
  InSubgraph,
  DynamicRank,
  WouldCreateCycle,
  CrossAttention,
  RecurrentState,
  TargetLacksFeature,
  StepBudget,
  ValueEscapes, ///< an interior value of a match has a reader outside of it
  MaskFillInexact,
  CacheNotInPlace,  ///< the target would leave a cache as it is, and every step would still copy it
  NoCache,          ///< no attention of the model appends to a cache
  NotLowRank,       ///< keys and values are no functions of fewer columns than they have
  NoWindow,         ///< attention reads every row of its cache, so that none can be given up
  ExtentFixed,      ///< what the model computes holds for one number of batch rows or tokens only
  TokensMixed,      ///< something outside of attention depends on more than one token
  CacheReordered,   ///< batch rows of a cache are picked by indices, as beam search does
  CacheStacked,     ///< one tensor holds the caches of several layers
  CacheTransformed, ///< attention reads something computed from the cache
  NotSoftmax,       ///< the values are weighed by something else than one softmax for each head
  HeadsNotGrouped,  ///< the table from query heads to key and value heads makes no equal groups
  ScoreFunction,    ///< the scores pass through a function that fused attention does not have
  ProbabilitiesChanged, ///< something acts on the probabilities after the softmax
  QuantizedAttention,   ///< scores or probabilities are held in 8-bit codes
  PositionAbsolute,     ///< positions come in otherwise than by their differences
  RotationUnknown,      ///< keys or queries depend on positions in a way that is not a rotation
  HiddenRowsCarried,    ///< something other than attention reads the rows of hidden tokens
  NameTaken,            ///< a name by which programs find caches belongs to something else
  KeysInParts,          ///< one softmax joins the scores of several sets of keys
  EvaluatedOtherwise,   ///< evaluation contradicts what rules made of the attention
};

struct ReasonInfo {
  ReasonCode code;
  const char* name;
  const char* meaning;
};

/// Every code with its name (`cache-escapes`) and one sentence.
llvm::ArrayRef<ReasonInfo> reasonTable();
llvm::StringRef reasonName(ReasonCode code);

/// Why something does not apply.
struct MatchFailure {
  ReasonCode code = ReasonCode::PatternMismatch;
  std::string node;     ///< name of the node at fault
  std::string expected; ///< what would have matched
  std::string found;    ///< what is there
  std::string hint;     ///< what the user can do; may be empty

  /// `cache-escapes at '/model/Slice_3': expected …, found …; hint: …`
  std::string str() const;
};

} // namespace kvopt::pattern
