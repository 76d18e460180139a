// The table of reason codes.
#include "passes/pattern/reason.h"

#include <cassert>

namespace kvopt::pattern {
namespace {

constexpr ReasonInfo table[] = {
    {ReasonCode::PatternMismatch, "pattern-mismatch",
     "an operator, operand or attribute is not the one the rule looks for"},
    {ReasonCode::ShapeUnknown, "shape-unknown",
     "a rank or an extent that the rule relies on could not be inferred"},
    {ReasonCode::ShapeMismatch, "shape-mismatch",
     "two extents that must be equal could not be proved equal"},
    {ReasonCode::NotACacheConcat, "not-a-cache-concat",
     "keys or values do not come from a concatenation of a past and new rows"},
    {ReasonCode::AxisUnproven, "axis-unproven",
     "the concatenation's axis is not provably the sequence axis"},
    {ReasonCode::PastNotInput, "past-not-input",
     "the first part of the concatenation is no graph input"},
    {ReasonCode::PresentNotOutput, "present-not-output",
     "the concatenation's result is no graph output"},
    {ReasonCode::NewBeforePast, "new-before-past",
     "the new rows stand before the past ones, so they cannot be appended in place"},
    {ReasonCode::CacheEscapes, "cache-escapes",
     "the cache is read as data outside of its attention; in place that reader would see later "
     "tokens"},
    {ReasonCode::SharedReader, "shared-reader", "several attentions read one cache"},
    {ReasonCode::MaskUnprovenCausal, "mask-unproven-causal",
     "the target needs a causal mask and the model's mask is not proved to be one"},
    {ReasonCode::MaskNoncausal, "mask-noncausal", "the mask is provably not causal"},
    {ReasonCode::WindowNotRepresentable, "window-not-representable",
     "the target has no sliding window"},
    {ReasonCode::ScaleNotConstant, "scale-not-constant",
     "the factor on the scores is not a constant scalar"},
    {ReasonCode::DtypeMix, "dtype-mix", "query, keys and values have different element types"},
    {ReasonCode::HeadCountUnproven, "head-count-unproven",
     "the numbers of query and key/value heads are not provably multiples"},
    {ReasonCode::LayoutUnsupported, "layout-unsupported",
     "the cache's layout has no form in the target"},
    {ReasonCode::SoftcapUnsupported, "softcap-unsupported", "the target has no soft cap on scores"},
    {ReasonCode::SinkUnsupported, "sink-unsupported", "the target has no attention sinks"},
    {ReasonCode::BiasUnsupported, "bias-unsupported",
     "the mask adds more to the scores than the target, or added caches, can take"},
    {ReasonCode::InSubgraph, "in-subgraph",
     "the attention is in a loop, or in a branch whose siblings do not update the same caches"},
    {ReasonCode::DynamicRank, "dynamic-rank", "a tensor's rank is not known"},
    {ReasonCode::WouldCreateCycle, "would-create-cycle",
     "an operand of the fused node depends on one of its own results"},
    {ReasonCode::CrossAttention, "cross-attention",
     "the keys are read from an input and never appended to"},
    {ReasonCode::RecurrentState, "recurrent-state",
     "the state is not a cache of rows but is overwritten as a whole"},
    {ReasonCode::TargetLacksFeature, "target-lacks-feature",
     "the target cannot express something the site uses"},
    {ReasonCode::StepBudget, "step-budget", "the matcher gave up after its budget of steps"},
    {ReasonCode::ValueEscapes, "value-escapes",
     "a value inside the matched sub-graph has a reader outside of it"},
    {ReasonCode::MaskFillInexact, "mask-fill-inexact",
     "masked scores are overwritten by a number that no mask operand provably reproduces"},
    {ReasonCode::CacheNotInPlace, "cache-not-in-place",
     "the target cannot update this form of cache in place: every step would still copy it"},
    {ReasonCode::NoCache, "no-cache",
     "no attention of the model appends to a cache, and the target is about caches"},
    {ReasonCode::NotLowRank, "not-low-rank",
     "keys and values are not expanded from rows of fewer columns"},
    {ReasonCode::NoWindow, "no-window",
     "attention reads every row of its cache, so that no row can give its place to another"},
    {ReasonCode::ExtentFixed, "extent-fixed",
     "what the model computes is known for the batch, sequence and past extents of its export "
     "only"},
    {ReasonCode::TokensMixed, "tokens-mixed",
     "outside of attention something depends on more than one token, or on how many there are"},
    {ReasonCode::CacheReordered, "cache-reordered",
     "the model reorders the batch rows of its caches, so that every step copies them"},
    {ReasonCode::CacheStacked, "cache-stacked",
     "one tensor holds several caches, and their rows cannot be told apart"},
    {ReasonCode::CacheTransformed, "cache-transformed",
     "attention does not read the cache but what the model computes from it"},
    {ReasonCode::NotSoftmax, "not-softmax",
     "the values are weighed by something other than one softmax for each head"},
    {ReasonCode::HeadsNotGrouped, "heads-not-grouped",
     "query heads do not read key and value heads in groups of one size"},
    {ReasonCode::ScoreFunction, "score-function",
     "between their product and the softmax the scores pass through a function that fused "
     "attention does not have"},
    {ReasonCode::ProbabilitiesChanged, "probabilities-changed",
     "after the softmax the probabilities are changed in a way that fused attention does not have"},
    {ReasonCode::QuantizedAttention, "quantized-attention",
     "queries, scores or probabilities are rounded to 8-bit codes between the matrix products"},
    {ReasonCode::PositionAbsolute, "position-absolute",
     "positions have a part in what the model computes other than by their differences"},
    {ReasonCode::RotationUnknown, "rotation-unknown",
     "keys or queries depend on positions in a way that is not a rotation by multiples of them"},
    {ReasonCode::HiddenRowsCarried, "hidden-rows-carried",
     "the target leaves the rows of hidden tokens undefined, and something other than attention "
     "carries them to other tokens"},
    {ReasonCode::NameTaken, "name-taken",
     "an input or output of the model has a name by which programs would look for a cache"},
    {ReasonCode::KeysInParts, "keys-in-parts",
     "one softmax joins the scores of several sets of keys, and each set has values of its own"},
    {ReasonCode::EvaluatedOtherwise, "evaluated-otherwise",
     "what the exported graph computes, evaluated at small sizes, contradicts what it was "
     "recognized as"},
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
