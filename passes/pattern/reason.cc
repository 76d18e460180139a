// The table of reason codes.
#include "passes/pattern/reason.h"

#include <cassert>

namespace kvopt::pattern {
namespace {

constexpr ReasonInfo table[] = {
    {ReasonCode::PatternMismatch, "pattern-mismatch",
     "an operator, operand or attribute differs from the one that the rule expects"},
    {ReasonCode::ShapeUnknown, "shape-unknown",
     "a rank or an extent that the rule needs could not be inferred"},
    {ReasonCode::ShapeMismatch, "shape-mismatch",
     "two extents that must be equal could not be proved equal"},
    {ReasonCode::NotACacheConcat, "not-a-cache-concat",
     "keys or values do not come from a concatenation of a past and new rows"},
    {ReasonCode::AxisUnproven, "axis-unproven",
     "the concatenation's axis is not provably the sequence axis"},
    {ReasonCode::PastNotInput, "past-not-input",
     "the first part of the concatenation is not a graph input"},
    {ReasonCode::PresentNotOutput, "present-not-output",
     "the concatenation's result is not a graph output"},
    {ReasonCode::NewBeforePast, "new-before-past",
     "the new rows come before the past ones, so they cannot be appended in place"},
    {ReasonCode::CacheEscapes, "cache-escapes",
     "something other than attention reads the cache as data; in place, that reader would see "
     "later tokens"},
    {ReasonCode::SharedReader, "shared-reader", "several attention layers read one cache"},
    {ReasonCode::MaskUnprovenCausal, "mask-unproven-causal",
     "the target needs a causal mask, and the model's mask is not proved to be causal"},
    {ReasonCode::MaskNoncausal, "mask-noncausal", "the mask is provably not causal"},
    {ReasonCode::WindowNotRepresentable, "window-not-representable",
     "the target does not support sliding windows"},
    {ReasonCode::ScaleNotConstant, "scale-not-constant",
     "the scale of the scores is not a constant scalar"},
    {ReasonCode::DtypeMix, "dtype-mix", "query, keys and values have different element types"},
    {ReasonCode::HeadCountUnproven, "head-count-unproven",
     "the number of query heads is not provably a multiple of the number of key and value heads"},
    {ReasonCode::LayoutUnsupported, "layout-unsupported",
     "the target does not support the cache's layout"},
    {ReasonCode::SoftcapUnsupported, "softcap-unsupported",
     "the target does not support a soft cap on scores"},
    {ReasonCode::SinkUnsupported, "sink-unsupported",
     "the target does not support attention sinks"},
    {ReasonCode::BiasUnsupported, "bias-unsupported",
     "the mask adds values to the scores that the target, or an added cache, does not support"},
    {ReasonCode::InSubgraph, "in-subgraph",
     "the attention is in a loop, or in a branch, and the other branches do not update the same "
     "caches"},
    {ReasonCode::DynamicRank, "dynamic-rank", "a tensor's rank is not known"},
    {ReasonCode::WouldCreateCycle, "would-create-cycle",
     "an operand of the fused node depends on one of its own results"},
    {ReasonCode::CrossAttention, "cross-attention",
     "the keys are read from an input and never appended to"},
    {ReasonCode::RecurrentState, "recurrent-state",
     "the state is overwritten as a whole; it is not a cache of rows"},
    {ReasonCode::TargetLacksFeature, "target-lacks-feature",
     "the target does not support something that the attention layer uses"},
    {ReasonCode::StepBudget, "step-budget", "the matcher reached its step budget"},
    {ReasonCode::ValueEscapes, "value-escapes",
     "a value inside the matched subgraph has a reader outside it"},
    {ReasonCode::MaskFillInexact, "mask-fill-inexact",
     "masked scores are replaced by a number whose effect no mask operand provably reproduces"},
    {ReasonCode::AlreadyInPlace, "already-in-place",
     "the model has the target's operator, which updates the cache in place"},
    {ReasonCode::CacheNotInPlace, "cache-not-in-place",
     "the target cannot update this form of cache in place: every step would still copy it"},
    {ReasonCode::NoCache, "no-cache",
     "no attention of the model appends to a cache, and the target only changes caches"},
    {ReasonCode::NotLowRank, "not-low-rank",
     "keys and values are not expanded from rows with fewer columns"},
    {ReasonCode::NoWindow, "no-window",
     "attention reads every row of its cache, so no row can be overwritten"},
    {ReasonCode::ExtentFixed, "extent-fixed",
     "the model's results are only known for the batch, sequence and past extents of its export"},
    {ReasonCode::TokensMixed, "tokens-mixed",
     "something outside attention depends on more than one token, or on the number of tokens"},
    {ReasonCode::CacheReordered, "cache-reordered",
     "the model reorders the batch rows of its caches, so every step copies them"},
    {ReasonCode::CacheStacked, "cache-stacked",
     "one tensor holds several caches, and their rows cannot be separated"},
    {ReasonCode::CacheTransformed, "cache-transformed",
     "attention reads values that the model computes from the cache, not the cache itself"},
    {ReasonCode::NotSoftmax, "not-softmax",
     "the values are weighted by something other than one softmax per head"},
    {ReasonCode::HeadsNotGrouped, "heads-not-grouped",
     "query heads do not read key and value heads in groups of equal size"},
    {ReasonCode::ScoreFunction, "score-function",
     "the model applies a function to the scores before the softmax that fused attention does not "
     "support"},
    {ReasonCode::ProbabilitiesChanged, "probabilities-changed",
     "the model changes the probabilities after the softmax in a way that fused attention does not "
     "support"},
    {ReasonCode::QuantizedAttention, "quantized-attention",
     "queries, scores or probabilities are quantized to 8 bits between the matrix products"},
    {ReasonCode::PositionAbsolute, "position-absolute",
     "the results of the model depend on positions, and not only on their differences"},
    {ReasonCode::RotationUnknown, "rotation-unknown",
     "keys or queries depend on positions in a way that is not a rotation by multiples of the "
     "position"},
    {ReasonCode::HiddenRowsCarried, "hidden-rows-carried",
     "the target leaves the rows of hidden tokens undefined, and something other than attention "
     "carries them to other tokens"},
    {ReasonCode::NameTaken, "name-taken",
     "an input or output of the model has the name of a cache that would be added"},
    {ReasonCode::KeysInParts, "keys-in-parts",
     "one softmax spans the scores of several sets of keys, each with its own values"},
    {ReasonCode::EvaluatedOtherwise, "evaluated-otherwise",
     "evaluation of the exported graph at small sizes contradicts the attention that was "
     "recognized"},
};

} // namespace

llvm::ArrayRef<ReasonInfo> reasonTable() { return table; }

llvm::StringRef reasonName(ReasonCode code) {
  const ReasonInfo& info = table[static_cast<size_t>(code)];
  assert(info.code == code);
  return info.name;
}

std::string MatchFailure::str() const {
  std::string text = reasonName(code).str();
  if (!node.empty())
    text += " at '" + node + "'";
  if (!expected.empty())
    text += ": expected " + expected;
  if (!found.empty())
    text += ", found " + found;
  if (!hint.empty())
    text += "; hint: " + hint;
  return text;
}

} // namespace kvopt::pattern
