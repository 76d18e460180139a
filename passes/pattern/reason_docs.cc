// The documentation of the reason codes.
#include "passes/pattern/reason_docs.h"

namespace kvopt::pattern {
namespace {

constexpr ReasonDoc docs[] = {
    {ReasonCode::PatternMismatch,
     "See which rule came furthest, and where it stopped: `kvopt explain M`, and `--rule R` for "
     "one "
     "rule. A spelling that no rule knows is one rule file: docs/write-a-rule.md.",
     "p = Hardmax (scores); o = MatMul (p, v), and no rule expects Hardmax there: expected "
     "Softmax, "
     "found Hardmax.",
     "a spelling that no rule knows is one rule file, see docs/write-a-rule.md"},
    {ReasonCode::ShapeUnknown,
     "Export with declared input shapes (symbolic extents are enough), or run the exporter's shape "
     "inference, so that ranks and extents reach the attention.",
     "An operator of a custom domain, without a shape rule, stands between an input and the "
     "attention: the rank of everything after it is unknown.",
     "declare the shapes of the inputs, symbolic ones are enough"},
    {ReasonCode::ShapeMismatch,
     "Give extents that are equal the same symbol when exporting. If they differ in truth, the "
     "sub-graph is not what the rule looks for.",
     "float[B, H, S, D] q and float[B, H, T, E] k, where D and E are two symbols for one head "
     "width because dynamic axes were named input by input.",
     "give equal extents one symbol when exporting"},
    {ReasonCode::NotACacheConcat,
     "Nothing, if the model keeps its cache in another way: it stays as it is. Otherwise export "
     "with past and present as inputs and outputs, and look at the operator named as found.",
     "present = Concat<axis = 2> (sink, past, k): three parts instead of past and new rows. Or "
     "keys "
     "that pass through an operator that changes values after their concatenation.",
     "export with past and present tensors joined by one Concat of two parts"},
    {ReasonCode::AxisUnproven,
     "Declare the rank of the past inputs. A concatenation along batch, heads or width is not the "
     "growth of a cache.",
     "present = Concat<axis = 1> (past, k) where axis 1 carries the heads, or a Concat with a "
     "negative axis on tensors of unknown rank.",
     "declare the rank of the past inputs"},
    {ReasonCode::PastNotInput,
     "Export the decoder so that the past comes straight from a graph input. A past that is "
     "computed (cast, gathered by beam, dequantized) cannot share storage with its input.",
     "reordered = Gather<axis = 0> (past, beam_idx); present = Concat<axis = 2> (reordered, k): "
     "beam search moved into the graph.",
     "move what is done to the past (beams, casts) out of the graph"},
    {ReasonCode::PresentNotOutput,
     "Make the concatenation's result a graph output, so that a caller can keep it.",
     "all = Concat<axis = 2> (past, k); present = Slice (all, …) is the output: the model trims "
     "its "
     "own cache.",
     "make the concatenation's result a graph output"},
    {ReasonCode::NewBeforePast,
     "Nothing: new rows in front move every older row, which is a copy by its nature. Export with "
     "the past as the first part.",
     "present = Concat<axis = 2> (k, past).", "export with the past as the first part"},
    {ReasonCode::CacheEscapes,
     "Rewrite the other layers with `--layers … --require any`, or remove the reader named as "
     "found. Readers of the shape are no obstacle.",
     "present.21.key is also read by a Slice that computes statistics of the keys; once rows are "
     "written in place it would see tokens of later steps.",
     "remove that reader, or rewrite the other layers with --require any"},
    {ReasonCode::SharedReader,
     "Rewrite the other layers, or choose a target that takes caches with several readers.",
     "Layers that share keys and values (cross-layer sharing), or one latent tensor that serves as "
     "keys and as values.",
     "choose another target, or rewrite the other layers with --require any"},
    {ReasonCode::MaskUnprovenCausal,
     "Choose a target that keeps the mask as an operand, or export with the mask that the exporter "
     "builds itself instead of feeding one. `kvopt explain` shows what is known of the mask.",
     "A mask that is a graph input of rank 4, or one computed with an operator that the analysis "
     "of masks does not follow.",
     "choose a target that keeps the mask as an operand"},
    {ReasonCode::MaskNoncausal, "Choose a target that keeps the mask as an operand.",
     "Prefix attention: the rows of an image see each other in both directions. Or an encoder.",
     "choose a target that keeps the mask as an operand"},
    {ReasonCode::WindowNotRepresentable,
     "Choose a target with a sliding window, or rewrite only the layers with full attention.",
     "j > i - 6 in the mask of every second layer, lowered to an operator without a window.",
     "choose a target with a sliding window"},
    {ReasonCode::ScaleNotConstant, "Fold the scale to a constant when exporting.",
     "s = Mul (scores, temperature) where temperature is a graph input, or has one number for each "
     "head.",
     "make the factor on the scores a constant scalar"},
    {ReasonCode::DtypeMix,
     "Export the attention in one element type. `--to kvopt` takes caches of int8 codes around "
     "zero "
     "that a DequantizeLinear with constant scales reads.",
     "float16 caches under float32 queries, after a conversion that skipped part of the model; "
     "k_quant_type = \"PER_TENSOR\".",
     "export the attention in one element type"},
    {ReasonCode::HeadCountUnproven,
     "Export with fixed numbers of heads: they belong to the architecture and are no dynamic axes.",
     "float[B, heads, S, 64] q with a symbolic number of heads.",
     "export with fixed numbers of heads"},
    {ReasonCode::LayoutUnsupported,
     "Choose a target that takes the layout, or export with caches [batch, heads, rows, width].",
     "Keys kept transposed, [batch, heads, width, rows], for a target that wants rows together.",
     "choose a target that takes the cache's layout"},
    {ReasonCode::SoftcapUnsupported, "Choose a target with a soft cap.",
     "cap * tanh (scores / cap) before the mask, lowered to an operator without a soft cap.",
     "choose a target with a soft cap"},
    {ReasonCode::SinkUnsupported, "Choose a target with attention sinks.",
     "One learned logit for each head is joined to the scores before the Softmax and cut off "
     "behind it.",
     "choose a target with attention sinks"},
    {ReasonCode::BiasUnsupported, "Choose a target that takes an additive bias.",
     "Relative positions (T5) or slopes by distance (ALiBi) added to the scores.",
     "choose a target that takes an additive bias"},
    {ReasonCode::InSubgraph,
     "Take the branch with a past for all steps, with `kvopt rewrite --one-branch`, which compares "
     "both. Or export decoder and decoder-with-past as two files, or rewrite before merging.",
     "A merged decoder in which the branch for the prompt does not hand out its keys and values as "
     "they are.",
     "kvopt rewrite --one-branch, or export the branches as models of their own"},
    {ReasonCode::DynamicRank, "Declare the ranks of the inputs when exporting.",
     "An input without a declared shape, or a Reshape whose target is computed from data.",
     "declare the ranks of the inputs"},
    {ReasonCode::WouldCreateCycle,
     "Mostly the mask or a position reads the shape of a present tensor. `normalize` rewires the "
     "known ways; the path named as found shows the rest. Read the past's shape instead.",
     "mask = f (Shape (present_key)): the fused node produces present_key and would need the mask "
     "first.",
     "compute masks and positions from the past's shape, not from the present's"},
    {ReasonCode::CrossAttention,
     "Nothing: such a cache is written once and never copied. It is left as it is.",
     "past_key_values.0.encoder.key goes straight into the scores' product.",
     "nothing to do: such a cache is never copied"},
    {ReasonCode::RecurrentState,
     "Nothing: a state that is overwritten as a whole has no rows to append.",
     "The state of a short convolution: [batch, channels, 3], shifted and returned every step.",
     "nothing to do: there are no rows to append"},
    {ReasonCode::TargetLacksFeature,
     "Choose another target; the line says which feature is missing. `kvopt explain M --to T` asks "
     "another one.",
     "A model of opset 11 with an operator that kvopt cannot bring to opset 13, which the target "
     "needs.",
     "choose another target"},
    {ReasonCode::StepBudget,
     "Nothing was refuted: allow more with `--step-budget N`, and report the model.",
     "A sum of dozens of addends, which a rule with several commutative places tries in every "
     "order.",
     "allow more with --step-budget"},
    {ReasonCode::ValueEscapes,
     "Remove the reader named as found (often a debug output), or rewrite the other layers.",
     "The attention weights are a graph output: output_attentions was left on when exporting.",
     "export without debug outputs such as attention weights"},
    {ReasonCode::MaskFillInexact,
     "Export with a mask of the lowest number of the type or of -inf, or leave the other mask out: "
     "with such a fill the rows without any allowed key depend on how the masks compare.",
     "Where (causal, scores, -10000) and a bias or padding mask of unknown values added to it.",
     "export with masks of -inf or of the lowest number"},
    {ReasonCode::CacheNotInPlace,
     "Export with a cache that grows by concatenation, or one of fixed extents into which the new "
     "rows are scattered as it came in. `--to kvopt` and `--to onnx24` take more forms than other "
     "targets. Targets that only change the operators (`onnx23`, `primitive`) take the model and "
     "leave the cache as it is.",
     "present = the last rows of Concat<axis = 2> (past, k), or ScatterND (Mul (past, gate), "
     "positions, k).",
     "export with a cache that grows by concatenation"},
    {ReasonCode::NoCache,
     "Give the model caches with `kvopt add-cache`, or export the decoder with its past and "
     "present "
     "key/value tensors as inputs and outputs (for example with `use_cache`). A model that "
     "computes "
     "the whole sequence at every step has no cache to update in place.",
     "A plain export: input_ids and attention_mask are the only inputs, logits the only output.",
     "kvopt add-cache gives the model caches, or says why not"},
    {ReasonCode::NotLowRank,
     "Nothing: keys and values have no shorter form. `--to kvopt` keeps them in one buffer as they "
     "are.",
     "Multi-head attention with a projection of the hidden state for keys, rotated by their "
     "position, and one for values. In multi-head latent attention both are products of one "
     "compressed row, and a few rotated columns are the same for every head.",
     "--to kvopt keeps keys and values in one buffer as they are"},
    {ReasonCode::NoWindow,
     "Nothing to do where the model attends to all earlier tokens: `--to kvopt` keeps them in one "
     "buffer. Where it should have a sliding window, look at the mask that `kvopt inspect` shows.",
     "A decoder with full attention in every layer and `--to ring`.",
     "--to kvopt keeps all rows in one buffer"},
    {ReasonCode::ExtentFixed,
     "Export with dynamic axes. `kvopt make-dynamic` gives symbols to fixed extents only where it "
     "can prove what the model computes for others.",
     "A mask of five keys that the exporter stored as a constant, or an export for one token whose "
     "position is not an input.",
     "export with dynamic axes"},
    {ReasonCode::TokensMixed,
     "Export the decoder with its caches. `kvopt add-cache` runs a model on new tokens only, which "
     "gives the same results where everything but attention treats tokens apart.",
     "A convolution along the sequence, a mean over all tokens, or a factor that is the logarithm "
     "of the sequence's length.",
     "export with past and present keys and values as inputs and outputs"},
    {ReasonCode::CacheReordered,
     "Export without the reordering, and reorder the caches between steps instead: sessions do "
     "that in place (`Session::reorder`). Where one input picks the rows of every past, "
     "`lift-reorders` does it.",
     "The present is gathered by beam_idx after new rows were joined (present = Gather<axis=0> "
     "(joined, beam_idx)), or the keys are gathered and the values are not.",
     "export without the reordering and reorder caches between steps"},
    {ReasonCode::CacheStacked,
     "Export with one input and one output for each layer's keys and for its values.",
     "past_key_values is float[layers, 2, batch, heads, past, 64]; the layers' parts come out in "
     "another order than they went in, or something reads all of them at once. What is read and "
     "joined part by part is split by `split-caches`.",
     "export with one input and one output for each cache"},
    {ReasonCode::CacheTransformed,
     "Apply to new rows, before they are joined with the past, what depends on earlier rows only. "
     "Functions of single rows, such as rotations by their own index, normalizations and products "
     "with constant weights, are moved there by `cache-attended-rows`. What depends on later "
     "tokens, or on how many there are, has to be "
     "computed anew at every step.",
     "present = Concat<axis = 2> (past, k); keys = Div (present, number_of_rows): all keys are "
     "divided again at every step, each time by another number.",
     "cache what attention reads: rotate or normalize new rows before they are joined"},
    {ReasonCode::NotSoftmax,
     "Nothing: such an attention is computed as exported. Rewrite the other layers with `--require "
     "any`.",
     "w = Sigmoid (scores); o = MatMul (w, v). Or w = Sub (Softmax (a), Mul (lambda, Softmax "
     "(b))), "
     "or probabilities that a matrix mixes over the heads.",
     "nothing to do: only attention with one softmax for each head is raised"},
    {ReasonCode::HeadsNotGrouped,
     "Permute the projections' weights so that the query heads of each key head are neighbors and "
     "value heads follow their key heads, or export keys and values without the repetition.",
     "Keys repeated by repeat_interleave (head h reads h / N) and values by repeat (head h reads "
     "h mod G): no order of the query heads makes groups of both.",
     "repeat key and value heads alike, each the same number of times"},
    {ReasonCode::ScoreFunction,
     "Export with a soft cap before the mask and without bounds on the scores, if the model was "
     "trained that way. Otherwise nothing: no fused attention computes these weights, and the site "
     "stays as it is.",
     "Softmax (Add (Clip (scores, -1, 1), mask)), or 5 * Tanh ((scores + mask) / 5), in which "
     "masked "
     "keys keep some weight.",
     "only a scale, a soft cap before the mask, and a mask can be fused"},
    {ReasonCode::ProbabilitiesChanged,
     "Mask the scores before the softmax, or divide by the sum of what is left, if the model was "
     "trained that way. Otherwise nothing: the site stays as it is.",
     "w = Mul (Softmax (scores), Cast (allowed)); o = MatMul (w, v): the denominator still counts "
     "the "
     "keys that the product leaves out.",
     "mask the scores before the softmax"},
    {ReasonCode::QuantizedAttention,
     "Quantize the linear layers only: leave products of two computed matrices in floating point "
     "(most tools have an option for that). Fused attention does not round where this one does.",
     "qk = MatMulInteger (q_codes, k_codes), or DequantizeLinear (QuantizeLinear (Softmax (x))) "
     "before "
     "the product with the values.",
     "quantize the linear layers only, not the products of attention"},
    {ReasonCode::PositionAbsolute,
     "Nothing, if the model was trained with such positions: its caches cannot drop tokens from "
     "their middle. The node named is where positions come into what is computed of tokens.",
     "hidden = Add (tokens, Gather (position_table, position_ids)): every layer's keys depend on "
     "the position that a token had.",
     "cached rows of this model belong to their positions"},
    {ReasonCode::RotationUnknown,
     "Look at the node named: what it computes is not a constant times the position, or its pairs "
     "of columns are not rotated. If it is a spelling of rotary positions, it belongs into "
     "passes/analysis/rotation.",
     "frequencies = Where (Greater (total_length, limit), long_frequencies, short_frequencies): "
     "cached keys cannot be rotated to where the others would apply.",
     "only rotations by a constant times the position can be moved"},
    {ReasonCode::HiddenRowsCarried,
     "If no batch is ever padded, `--padding none` says so. Otherwise choose a target that keeps "
     "what the model computes for hidden tokens, such as kvopt.",
     "A hybrid model: the state of a short convolution takes in the rows of padding, and "
     "GroupQueryAttention computes other rows there.",
     "--padding none, where no batch is padded, or --to kvopt"},
    {ReasonCode::NameTaken,
     "Rename the input or output that the line names. Programs pair `past_key_values.N.key` with "
     "`present.N.key` by name, so neither may hold anything but the cache. An output that hands "
     "out "
     "the keys or values [batch, heads, tokens, width] that attention reads becomes the cache and "
     "needs no other name.",
     "present.0.key is an output [batch, tokens, heads, width]: the keys before they are "
     "transposed.",
     "rename that input or output"},
    {ReasonCode::KeysInParts,
     "Export with one Concat of the past and the new keys, and one of the values, before the "
     "products of attention. Products of one query that are scaled alike are joined by "
     "`join-score-parts` and `join-partial-products`.",
     "p = Softmax (Concat (MatMul (q, past_keys), MatMul (other_q, new_keys))): each set of keys "
     "has "
     "a query of its own.",
     "join past and new keys, and past and new values, before the products of attention"},
    {ReasonCode::EvaluatedOtherwise,
     "This is a bug of kvopt, which was found before it did harm: please report the model's graph. "
     "The attention stays as it is.",
     "A rule takes head h to read key head h mod 2, and in the exported graph it reads head h / 2.",
     "report this: recognition contradicts the graph"},
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
  std::string page = "# Reason codes\n\n"
                     "Why a rule did not match, a site was missed, or a target refused. The codes "
                     "are stable: scripts may\nrely on them. `kvopt explain M` names the code, the "
                     "node, what was expected and what was found.\nThis page is printed by `kvopt "
                     "list reasons --markdown`.\n\n";
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
