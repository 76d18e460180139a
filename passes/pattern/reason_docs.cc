// The documentation of the reason codes.
#include "passes/pattern/reason_docs.h"

namespace kvopt::pattern {
namespace {

constexpr ReasonDoc docs[] = {
    {ReasonCode::PatternMismatch,
     "`kvopt explain M` shows which rule matched furthest and where it stopped; `--rule R` shows "
     "one rule. To support a new form of attention, add one rule file: docs/write-a-rule.md.",
     "p = Hardmax (scores); o = MatMul (p, v), and no rule expects Hardmax there: expected "
     "Softmax, "
     "found Hardmax.",
     "to support a new form of attention, add a rule: docs/write-a-rule.md"},
    {ReasonCode::ShapeUnknown,
     "Declare the input shapes when exporting (symbolic extents are enough), or run the exporter's "
     "shape inference.",
     "There is an operator of a custom domain between an input and the attention. It does not have "
     "a shape rule, so the rank of every value after it is unknown.",
     "declare the shapes of the inputs, symbolic ones are enough"},
    {ReasonCode::ShapeMismatch,
     "Give equal extents the same symbol when exporting. If they really differ, the subgraph does "
     "not match the rule.",
     "float[B, H, S, D] q and float[B, H, T, E] k: D and E are two symbols for one head width, "
     "because dynamic axes were named separately for each input.",
     "give equal extents one symbol when exporting"},
    {ReasonCode::NotACacheConcat,
     "Nothing, if the model stores its cache in another form: the cache does not change. Otherwise "
     "export with past and present as inputs and outputs, and check the operator after \"found\".",
     "present = Concat<axis = 2> (sink, past, k) has three parts instead of past and new rows. Or "
     "an operator changes the values of the keys after their concatenation.",
     "export with past and present tensors joined by one Concat of two parts"},
    {ReasonCode::AxisUnproven,
     "Declare the rank of the past inputs. A concatenation along batch, heads or width does not "
     "append rows to a cache.",
     "present = Concat<axis = 1> (past, k), although axis 1 is that of the heads. Or a Concat with "
     "a negative axis on tensors of unknown rank.",
     "declare the rank of the past inputs"},
    {ReasonCode::PastNotInput,
     "Export the decoder so that the past is a graph input. A computed past (cast, gathered by "
     "beam, dequantized) cannot share storage with its input.",
     "reordered = Gather<axis = 0> (past, beam_idx); present = Concat<axis = 2> (reordered, k): "
     "the graph contains the reordering of beam search.",
     "move operators on the past (beam reordering, casts) out of the graph"},
    {ReasonCode::PresentNotOutput,
     "Make the concatenation's result a graph output, so that a caller can keep it.",
     "all = Concat<axis = 2> (past, k); the output is present = Slice (all, …): the model trims "
     "its own cache.",
     "make the concatenation's result a graph output"},
    {ReasonCode::NewBeforePast,
     "Export with the past as the first part. New rows before it move every older row, which is a "
     "copy.",
     "present = Concat<axis = 2> (k, past).", "export with the past as the first part"},
    {ReasonCode::CacheEscapes,
     "Rewrite the other layers with `--layers … --require any`, or remove the reader after "
     "\"found\". Readers of the shape are allowed.",
     "A Slice also reads present.21.key, for statistics of the keys. Once rows are written in "
     "place, it would see tokens of later steps.",
     "remove that reader, or rewrite the other layers with --require any"},
    {ReasonCode::SharedReader,
     "Rewrite the other layers, or choose a target that supports caches with several readers.",
     "Layers that share keys and values (cross-layer sharing), or one latent tensor for both keys "
     "and values.",
     "choose another target, or rewrite the other layers with --require any"},
    {ReasonCode::MaskUnprovenCausal,
     "Choose a target that keeps the mask as an operand, or export with the exporter's own mask "
     "instead of a mask input. `kvopt explain` shows the known facts about the mask.",
     "A mask that is a graph input of rank 4, or is computed with an operator that kvopt's mask "
     "analysis does not support.",
     "choose a target that keeps the mask as an operand"},
    {ReasonCode::MaskNoncausal, "Choose a target that keeps the mask as an operand.",
     "Prefix attention, in which the rows of an image see each other in both directions. Or an "
     "encoder.",
     "choose a target that keeps the mask as an operand"},
    {ReasonCode::WindowNotRepresentable,
     "Choose a target with a sliding window, or rewrite only the layers with full attention.",
     "The mask of every second layer has the condition j > i - 6, and the target's operator does "
     "not support windows.",
     "choose a target with a sliding window"},
    {ReasonCode::ScaleNotConstant, "Fold the scale into a constant when exporting.",
     "s = Mul (scores, temperature), where temperature is a graph input or has one number per "
     "head.",
     "make the scale of the scores a constant scalar"},
    {ReasonCode::DtypeMix,
     "Export the attention in one element type. `--to kvopt` supports int8 caches with zero point "
     "0 that a DequantizeLinear with constant scales reads.",
     "float16 caches with float32 queries, after a conversion that skipped part of the model; "
     "k_quant_type = \"PER_TENSOR\".",
     "export the attention in one element type"},
    {ReasonCode::HeadCountUnproven,
     "Export with fixed numbers of heads. They belong to the architecture and must not be dynamic "
     "axes.",
     "float[B, heads, S, 64] q with a symbolic number of heads.",
     "export with fixed numbers of heads"},
    {ReasonCode::LayoutUnsupported,
     "Choose a target that supports the layout, or export with caches [batch, heads, rows, width].",
     "Transposed keys, [batch, heads, width, rows], for a target that requires contiguous rows.",
     "choose a target that supports the cache's layout"},
    {ReasonCode::SoftcapUnsupported, "Choose a target that supports a soft cap.",
     "cap * tanh (scores / cap) before the mask, and the target's operator does not support a soft "
     "cap.",
     "choose a target that supports a soft cap"},
    {ReasonCode::SinkUnsupported, "Choose a target that supports attention sinks.",
     "One learned logit per head is joined to the scores before the Softmax and removed after it.",
     "choose a target that supports attention sinks"},
    {ReasonCode::BiasUnsupported, "Choose a target that supports an additive bias.",
     "Relative positions (T5) or slopes by distance (ALiBi), which are added to the scores.",
     "choose a target that supports an additive bias"},
    {ReasonCode::InSubgraph,
     "Run `kvopt rewrite --one-branch`: it uses the branch with a past for all steps, and compares "
     "both branches. Or export decoder and decoder-with-past as two files, or rewrite before "
     "merging.",
     "A merged decoder whose branch for the prompt does not return its keys and values unchanged.",
     "kvopt rewrite --one-branch, or export the branches as separate models"},
    {ReasonCode::DynamicRank, "Declare the ranks of the inputs when exporting.",
     "An input without a declared shape, or a Reshape whose target is computed from data.",
     "declare the ranks of the inputs"},
    {ReasonCode::WouldCreateCycle,
     "In most cases the mask or a position reads the shape of a present tensor. `normalize` "
     "rewires the known forms; the path after \"found\" shows the remaining one. Read the past's "
     "shape instead.",
     "mask = f (Shape (present_key)): the fused node produces present_key but needs the mask "
     "first.",
     "compute masks and positions from the past's shape, not from the present's"},
    {ReasonCode::CrossAttention,
     "Nothing. Such a cache is written once and never copied, and kvopt does not change it.",
     "The product that computes the scores reads past_key_values.0.encoder.key directly.",
     "nothing to do: such a cache is never copied"},
    {ReasonCode::RecurrentState,
     "Nothing. A state that is overwritten as a whole does not have rows to append.",
     "The state of a short convolution: [batch, channels, 3], shifted and returned every step.",
     "nothing to do: there are no rows to append"},
    {ReasonCode::TargetLacksFeature,
     "Choose another target; the message names the missing feature. `kvopt explain M --to T` "
     "checks the target T.",
     "A model of opset 11 with an operator that kvopt cannot convert to opset 13, which the target "
     "needs.",
     "choose another target"},
    {ReasonCode::StepBudget,
     "The result is undecided. Raise the limit with `--step-budget N`, and report the model.",
     "A sum of dozens of addends, which a rule with several commutative operators tries in every "
     "order.",
     "raise the limit with --step-budget"},
    {ReasonCode::ValueEscapes,
     "Remove the reader after \"found\" (often a debug output), or rewrite the other layers.",
     "The attention weights are a graph output: output_attentions was left on when exporting.",
     "export without debug outputs such as attention weights"},
    {ReasonCode::MaskFillInexact,
     "Export with masks of the lowest number of the type or of -inf, or without the other mask. "
     "With this fill value, rows without a visible key depend on how the masks compare.",
     "Where (causal, scores, -10000), to which a bias or padding mask with unknown values is "
     "added.",
     "export with masks of -inf or of the lowest number"},
    {ReasonCode::AlreadyInPlace,
     "Nothing. Past and present are declared as one buffer, to which the engine's operator "
     "appends. "
     "If all layers are like that, `kvopt rewrite` returns the model unchanged and says how to "
     "bind "
     "the buffers.",
     "com.microsoft.GroupQueryAttention with past_key and present_key of float[B, 8, 4096, 64].",
     "bind one buffer as past and present"},
    {ReasonCode::CacheNotInPlace,
     "Export with a cache that grows by concatenation, or a cache with fixed extents into which "
     "the new rows are scattered directly. `--to kvopt` and `--to onnx24` support more forms than "
     "other targets. Targets that only change the operators (`onnx23`, `primitive`) rewrite the "
     "model and do not change the cache.",
     "present = the last rows of Concat<axis = 2> (past, k), or ScatterND (Mul (past, gate), "
     "positions, k).",
     "export with a cache that grows by concatenation"},
    {ReasonCode::NoCache,
     "Add caches with `kvopt add-cache`, or export the decoder with its past and present key/value "
     "tensors as inputs and outputs (for example with `use_cache`). A model that computes the "
     "whole sequence at every step does not have a cache to update in place.",
     "A plain export: input_ids and attention_mask are the only inputs, logits the only output.",
     "kvopt add-cache adds caches, or gives the reason why it cannot"},
    {ReasonCode::NotLowRank,
     "Nothing. Keys and values do not have a shorter form. `--to kvopt` keeps them unchanged in "
     "one buffer.",
     "Multi-head attention with one projection of the hidden state for keys, which are rotated by "
     "their position, and one for values. In multi-head latent attention both are products of one "
     "compressed row, and a few rotated columns are the same for every head.",
     "--to kvopt keeps keys and values unchanged in one buffer"},
    {ReasonCode::NoWindow,
     "Nothing, if the model attends to all earlier tokens: `--to kvopt` keeps them in one buffer. "
     "If it should have a sliding window, check the mask that `kvopt inspect` shows.",
     "A decoder with full attention in every layer, rewritten with `--to ring`.",
     "--to kvopt keeps all rows in one buffer"},
    {ReasonCode::ExtentFixed,
     "Export with dynamic axes. `kvopt make-dynamic` replaces fixed extents by symbols only if it "
     "can prove the model's results for other extents.",
     "A mask of five keys that the exporter stored as a constant. Or an export for one token whose "
     "position is not an input.",
     "export with dynamic axes"},
    {ReasonCode::TokensMixed,
     "Export the decoder with its caches. `kvopt add-cache` runs a model on new tokens only. The "
     "results are the same only if everything except attention treats tokens separately.",
     "A convolution along the sequence, a mean over all tokens, or a factor that is the logarithm "
     "of the sequence length.",
     "export with past and present keys and values as inputs and outputs"},
    {ReasonCode::CacheReordered,
     "Export without the reordering, and reorder the caches between steps: sessions do that in "
     "place (`Session::reorder`). If one input selects the rows of every past, `lift-reorders` "
     "removes the reordering.",
     "The present is gathered by beam_idx after new rows were joined (present = Gather<axis=0> "
     "(joined, beam_idx)). Or the keys are gathered and the values are not.",
     "export without the reordering, and reorder caches between steps"},
    {ReasonCode::CacheStacked,
     "Export with one input and one output for each layer's keys and for its values.",
     "past_key_values is float[layers, 2, batch, heads, past, 64]. The model returns the layers' "
     "parts in another order, or something reads all of them at once. If they are read and joined "
     "part by part, `split-caches` splits them.",
     "export with one input and one output for each cache"},
    {ReasonCode::CacheTransformed,
     "Apply functions to new rows before they are joined with the past. `cache-attended-rows` does "
     "that for functions of single rows: rotations by their own index, normalizations and products "
     "with constant weights. Functions that depend on later tokens, or on the number of tokens, "
     "must be computed again at every step.",
     "present = Concat<axis = 2> (past, k); keys = Div (present, number_of_rows): every step "
     "divides all keys again, each time by another number.",
     "rotate or normalize new rows before they are joined with the past"},
    {ReasonCode::NotSoftmax,
     "Nothing. kvopt does not change such attention. Rewrite the other layers with `--require "
     "any`.",
     "w = Sigmoid (scores); o = MatMul (w, v). Or w = Sub (Softmax (a), Mul (lambda, Softmax "
     "(b))), "
     "or probabilities that a matrix mixes over the heads.",
     "nothing to do: only attention with one softmax per head is recognized"},
    {ReasonCode::HeadsNotGrouped,
     "Permute the projections' weights so that the query heads of each key head are neighbors and "
     "value heads follow their key heads, or export keys and values without the repetition.",
     "Keys are repeated with repeat_interleave (head h reads h / N) and values with repeat (head h "
     "reads h mod G): no order of the query heads forms groups of both.",
     "repeat key and value heads in the same order and the same number of times"},
    {ReasonCode::ScoreFunction,
     "Export with a soft cap before the mask and without bounds on the scores, if the model was "
     "trained that way. Otherwise nothing: no fused attention computes these weights, and kvopt "
     "does not change the attention layer.",
     "Softmax (Add (Clip (scores, -1, 1), mask)), or 5 * Tanh ((scores + mask) / 5), where masked "
     "keys keep some weight.",
     "only a scale, a soft cap before the mask, and a mask can be fused"},
    {ReasonCode::ProbabilitiesChanged,
     "Mask the scores before the softmax, or divide by the sum of the remaining probabilities, if "
     "the model was trained that way. Otherwise nothing: kvopt does not change the attention "
     "layer.",
     "w = Mul (Softmax (scores), Cast (allowed)); o = MatMul (w, v): the denominator still "
     "includes the keys that the product leaves out.",
     "mask the scores before the softmax"},
    {ReasonCode::QuantizedAttention,
     "Quantize the linear layers only, and keep products of two computed matrices in floating "
     "point (most tools have an option for that). Fused attention does not round at the same "
     "places.",
     "qk = MatMulInteger (q_codes, k_codes). Or DequantizeLinear (QuantizeLinear (Softmax (x))) "
     "before the product with the values.",
     "quantize the linear layers only, not the products of attention"},
    {ReasonCode::PositionAbsolute,
     "Nothing, if the model was trained with such positions: its caches cannot drop tokens from "
     "their middle. At the named node, positions enter values that are computed from tokens.",
     "hidden = Add (tokens, Gather (position_table, position_ids)): every layer's keys depend on "
     "the token's position.",
     "cached rows of this model are only valid at their positions"},
    {ReasonCode::RotationUnknown,
     "Check the named node: its angle is not a constant times the position, or its pairs of "
     "columns are not rotated. If it computes rotary positions in a new form, extend "
     "passes/analysis/rotation.",
     "frequencies = Where (Greater (total_length, limit), long_frequencies, short_frequencies): "
     "cached keys with one set of frequencies cannot be rotated to positions with the other.",
     "only rotations by a constant times the position can be moved"},
    {ReasonCode::HiddenRowsCarried,
     "Use `--padding none` if no batch is ever padded. Otherwise choose a target that keeps the "
     "model's results for hidden tokens, such as kvopt.",
     "A hybrid model: the state of a short convolution includes the rows of padding, and "
     "GroupQueryAttention computes different rows there.",
     "--padding none, if no batch is padded, or --to kvopt"},
    {ReasonCode::NameTaken,
     "Rename the input or output that the message names. Programs pair `past_key_values.N.key` "
     "with `present.N.key` by name, so both must hold the cache. An output with the keys or values "
     "[batch, heads, tokens, width] that attention reads becomes the cache and keeps its name.",
     "present.0.key is an output [batch, tokens, heads, width]: the keys before they are "
     "transposed.",
     "rename that input or output"},
    {ReasonCode::KeysInParts,
     "Export with one Concat of the past and the new keys, and one of the values, before the "
     "products of attention. `join-score-parts` and `join-partial-products` join products of one "
     "query with equal scales.",
     "p = Softmax (Concat (MatMul (q, past_keys), MatMul (other_q, new_keys))): each set of keys "
     "has a different query.",
     "join past and new keys, and past and new values, before the products of attention"},
    {ReasonCode::EvaluatedOtherwise,
     "This is a bug in kvopt, which was detected before it did harm. Please report the model's "
     "graph. kvopt does not change the attention layer.",
     "According to a rule, head h reads key head h mod 2, but in the exported graph it reads head "
     "h / 2.",
     "report this bug: recognition contradicts the graph"},
};

constexpr ReasonDoc undocumented = {ReasonCode::PatternMismatch, "", "", "see: kvopt list reasons"};

} // namespace

llvm::ArrayRef<ReasonDoc> reasonDocs() { return docs; }

const ReasonDoc& reasonDoc(ReasonCode code) {
  for (const ReasonDoc& doc : docs)
    if (doc.code == code)
      return doc;
  return undocumented;
}

std::string hintFor(const MatchFailure& failure) {
  return failure.hint.empty() ? std::string(reasonDoc(failure.code).hint) : failure.hint;
}

std::string reasonsMarkdown() {
  std::string page =
      "# Reason codes\n\nA reason code says why a rule did not match, an attention layer was not "
      "recovered, or a target refused it.\nThe codes are stable: scripts may rely on them. `kvopt "
      "explain M` names the code, the node, the expected form\nand the found one. `kvopt list "
      "reasons --markdown` prints this page.\n\n";
  for (const ReasonInfo& reason : reasonTable())
    page += std::string("* [") + reason.name + "](#" + reason.name + ")\n";
  for (const ReasonInfo& reason : reasonTable()) {
    const ReasonDoc& doc = reasonDoc(reason.code);
    page += std::string("\n## ") + reason.name + "\n\nMeans: " + reason.meaning +
            ".\n\nWhat to do: " + doc.remedy + "\n\nExample: " + doc.example + "\n";
  }
  return page;
}

} // namespace kvopt::pattern
