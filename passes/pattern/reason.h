// Reason codes and match failures: why a rule, a site or a target was refused.
#pragma once

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace kvopt::pattern {

/// Stable, documented reason codes, in the order of `reasonTable`.
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
  ValueEscapes, ///< an interior value of a match has a reader outside the match
  MaskFillInexact,
  AlreadyInPlace,       ///< the target's own operator updates the cache in place already
  CacheNotInPlace,      ///< the target would not update a cache in place; every step would copy it
  NoCache,              ///< no attention of the model appends to a cache
  NotLowRank,           ///< keys and values do not depend on fewer columns than they have
  NoWindow,             ///< attention reads every row of its cache, so no row can be dropped
  ExtentFixed,          ///< the results hold for one number of batch rows or tokens only
  TokensMixed,          ///< something outside attention depends on more than one token
  CacheReordered,       ///< indices select batch rows of a cache, as in beam search
  CacheStacked,         ///< one tensor holds the caches of several layers
  CacheTransformed,     ///< attention reads something computed from the cache
  NotSoftmax,           ///< the values are weighted by something other than one softmax per head
  HeadsNotGrouped,      ///< query heads do not share key and value heads in equal groups
  ScoreFunction,        ///< a function that fused attention lacks is applied to the scores
  ProbabilitiesChanged, ///< the probabilities change after the softmax
  QuantizedAttention,   ///< scores or probabilities are 8-bit codes
  PositionAbsolute,     ///< attention depends on more than differences of positions
  RotationUnknown,      ///< keys or queries depend on positions in a way that is not a rotation
  HiddenRowsCarried,    ///< something other than attention reads the rows of hidden tokens
  NameTaken,            ///< a name that callers use to find caches belongs to something else
  KeysInParts,          ///< one softmax spans the scores of several sets of keys
  EvaluatedOtherwise,   ///< evaluation contradicts the attention that the rules derived
};

struct ReasonInfo {
  ReasonCode code;
  const char* name;
  const char* meaning;
};

/// Every code with its name (`cache-escapes`) and one sentence.
llvm::ArrayRef<ReasonInfo> reasonTable();
llvm::StringRef reasonName(ReasonCode code);

/// Reason why something does not apply.
struct MatchFailure {
  ReasonCode code = ReasonCode::PatternMismatch;
  std::string node;     ///< name of the node that caused the failure
  std::string expected; ///< form that would have matched
  std::string found;    ///< form that was found
  std::string hint;     ///< action for the user; may be empty

  /// `cache-escapes at '/model/Slice_3': expected …, found …; hint: …`
  std::string str() const;
};

} // namespace kvopt::pattern
