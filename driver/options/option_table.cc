// The rows of the table.
#include "driver/options/option_table.h"

#include "driver/options/row_kind.h"

namespace kvopt::driver {

namespace {

constexpr CommandSet inspect = setOf(Command::Inspect);
constexpr CommandSet explain = setOf(Command::Explain);
constexpr CommandSet rewrite = setOf(Command::Rewrite);
constexpr CommandSet addCache = setOf(Command::AddCache);
constexpr CommandSet makeDynamic = setOf(Command::MakeDynamic);
constexpr CommandSet verify = setOf(Command::Verify);
constexpr CommandSet check = setOf(Command::Check);
constexpr CommandSet run = setOf(Command::Run);
constexpr CommandSet bench = setOf(Command::Bench);
constexpr CommandSet diff = setOf(Command::Diff);
constexpr CommandSet reduce = setOf(Command::Reduce);
constexpr CommandSet gen = setOf(Command::Gen);
constexpr CommandSet opt = setOf(Command::Opt);
constexpr CommandSet list = setOf(Command::List);
constexpr CommandSet completion = setOf(Command::Completion);
constexpr CommandSet help = setOf(Command::Help);
/// Commands that write a rewritten model.
constexpr CommandSet rewriting = rewrite | addCache | makeDynamic;
/// Commands that answer about models or about kvopt; the others only print a text.
constexpr CommandSet common =
    static_cast<CommandSet>(((1U << commandCount) - 1) & ~static_cast<unsigned>(completion | help));

/// The words of --to. A test compares them with the presets (driver/forms/form_table.h).
constexpr const char* enginesAndPresets =
    "ort|onnx|kvopt|primitive|ort-gqa|paged|onnx24|onnx24-ring|onnx23|latent|ring|int8|int4|"
    "int8-ring|int4-ring|blocks|int8-blocks|blocks-plain|pyramid|tiles";

/// The words of `kvopt help`. A test compares them with the commands.
constexpr const char* commandWords =
    "inspect|explain|rewrite|add-cache|make-dynamic|verify|check|run|"
    "bench|diff|reduce|gen|opt|list|completion|help";

constexpr uint64_t lengths = uint64_t{1} << 32;
constexpr uint64_t counts = uint64_t{1} << 20;
constexpr uint64_t capacities = uint64_t{1} << 40;

using enum OptionType;

constexpr OptionInfo argumentsOptions[] = {
    OptionInfo{inspect, "models", Models, "FILE", "", "ONNX files."},
    OptionInfo{explain | rewriting | run | reduce, "model", Model, "FILE", "", "ONNX file."},
    OptionInfo{opt, "model", Model, "FILE", "", "ONNX file (.onnx) or its textual form."},
    OptionInfo{verify, "models", Models, "FILE", "",
               "One ONNX file, two, or more with --references."},
    OptionInfo{bench, "models", Models, "FILE", "", "ONNX files. Ratios are to the first."},
    OptionInfo{diff | check, "before", Model, "FILE", "", "ONNX file."},
    OptionInfo{diff | check, "after", Model, "FILE", "", "ONNX file."},
    OptionInfo{gen, "kind", Word,
               "llama|mha|mqa|window|mla|mla-latent|encoder-decoder|hybrid|packed-qkv", "",
               "Kind of decoder."},
    OptionInfo{list, "what", Word,
               "passes|rules|targets|engines|ops|kernels|reasons|commands|options|manifest", "",
               "What to list."},
    OptionInfo{completion, "shell", Word, "bash|zsh|fish", "", "Shell."},
    OptionInfo{help, "command", Word, commandWords, "",
               "Command to explain. Without it: the list of all commands."},
};

constexpr OptionInfo filesOptions[] = {
    OptionInfo{rewriting, "-o,--output", Output, "FILE", "", "File to write."},
    OptionInfo{rewriting, "--manifest", Output, "FILE", "",
               "Where the manifest goes. Without it: next to the model."},
    OptionInfo{check, "--manifest", Input, "FILE", "",
               "Manifest of the second model. Without it: the one in its metadata, or else one "
               "that is derived from its graph."},
    OptionInfo{check, "--certificate", Output, "FILE", "", "File to write the certificate to."},
    OptionInfo{check, "--counterexample", OutputFolder, "FOLDER", "",
               "New or empty folder for the inputs of the step in which the models differ, as a "
               "recording for verify --reference. Without a difference, nothing is written."},
    OptionInfo{check, "--against", Input, "FILE", "",
               "Certificate to verify: the check must find all that it claims."},
    OptionInfo{rewriting, "--genai-config", Output, "FILE", "",
               "For --to ort and kvopt: where ONNX Runtime GenAI's configuration goes."},
    OptionInfo{rewriting | opt, "--external-data", Word, "keep|link|copy|inline", "keep",
               "Weights in files next to the model: keep them there, and copy the files next to an "
               "output in another folder; the same with hard links; copy what is used to one file "
               "next to the output; or inline it."},
    OptionInfo{
        reduce, "--external-data", Word, "copy|link", "copy",
        "Weights in files next to the model: copy the files for the candidates, or give them "
        "hard links."},
    OptionInfo{rewriting, "--dry-run", Flag, "", "", "Write nothing."},
    OptionInfo{run, "--dump", OutputFolder, "FOLDER", "",
               "Folder to write inputs and outputs of every step to."},
    OptionInfo{bench, "--plot", Output, "FILE", "",
               "SVG file to draw latency against context into, with the bandwidth bound."},
    OptionInfo{reduce | gen, "-o,--output", Output, "FILE", "", "ONNX file to write."},
    OptionInfo{gen, "--external-data", Word, "auto|always|never", "auto",
               "Weights in a file next to the model; auto: above 256 MiB."},
    OptionInfo{gen, "--sparse", Flag, "", "",
               "Weights are zeros in a file that takes no room on the disk."},
    OptionInfo{opt, "-o,--output", Output, "FILE", "", "Write a model instead of text."},
};

constexpr OptionInfo formOptions[] = {
    OptionInfo{rewrite, "--to", SizedWord, enginesAndPresets, "",
               "Engine that runs the model: ONNX Runtime (ort), ONNX's own operators (onnx), "
               "kvopt's operators, or standard operators (primitive); or a preset. Without it: "
               "ort, or onnx where ort cannot."},
    OptionInfo{explain, "--to", SizedWord, enginesAndPresets, "",
               "Engine or preset that is asked whether it takes each attention layer. Without it, "
               "where another option of the form is given: the first engine that has it."},
    OptionInfo{
        addCache | makeDynamic, "--to", SizedWord, enginesAndPresets, "primitive",
        "Engine that runs the model: ONNX Runtime (ort), ONNX's own operators (onnx), kvopt's "
        "operators, or standard operators (primitive); or a preset."},
    OptionInfo{verify, "--to", SizedWord, enginesAndPresets, "kvopt",
               "With --references: the engine or preset of rewritten forms."},
    OptionInfo{rewriting | explain, "--cache", SizedWord, "grow|buffer|ring|blocks|paged", "",
               "How caches are kept: they grow; in one buffer for past and present; in rings as "
               "long as the window (ring:N: steps of N tokens); in blocks of N rows (blocks:N), "
               "each an input; in pools of blocks. Without it: buffer, or grow where the engine "
               "has no buffers."},
    OptionInfo{rewriting | explain, "--rows", Word, joinedRowWords.data(), "same",
               "What rows of caches hold: numbers as exported, numbers of 16 bits, or quantized "
               "codes."},
    OptionInfo{rewriting | explain, "--cache-dtype", Word, "float16|bfloat16|int8|int4", "",
               "An older name of --rows."},
    OptionInfo{rewriting | explain, "--latent", Flag, "", "",
               "Cache compressed rows in the place of the keys and values that are expanded from "
               "them."},
    OptionInfo{rewriting | explain, "--split", SizedWord, "pyramid|tiles", "",
               "Write a model with caches in blocks as several files: a variant for each number of "
               "blocks (pyramid:N), or parts and tiles that a host loops over (tiles:N)."},
    OptionInfo{
        rewriting | explain, "--opset", Whole, "23|24", "",
        "With --to onnx: opset of its Attention. Without it: 24, or 23 for caches that grow.", 23,
        24},
    OptionInfo{rewriting, "--capacity", Text, "N|dynamic", "dynamic", "Rows of a shared buffer."},
    OptionInfo{rewrite, "--tile-state", Word, "float32|float16", "float32",
               "For --split tiles: the element type of what one tile hands to the next."},
};

constexpr OptionInfo scopeOptions[] = {
    OptionInfo{rewrite, "--require", Word, "all|any", "all",
               "Rewrite all attention layers or none, or any that can be."},
    OptionInfo{rewrite, "--layers", Text, "0-3,7", "", "Layers to rewrite. Without it: all."},
    OptionInfo{rewrite, "--hidden-rows", Word, "exact|undefined", "exact",
               "Whether padding that sees no token may compute anything (undefined), so that more "
               "masks become attributes."},
    OptionInfo{rewrite, "--padding", Word, "any|none", "any",
               "Whether batch rows may be padded. With none, masks hide later keys only, and "
               "lengths that are counted by a mask (GroupQueryAttention) are all the past's."},
    OptionInfo{rewrite, "--one-branch", Flag, "", "",
               "For a decoder with a branch for its first step: take the other branch for all "
               "steps. --verify compares both."},
};

constexpr OptionInfo calibrationOptions[] = {
    OptionInfo{rewrite, "--calibration-text", Input, "FILE", "",
               "Text to calibrate the scales of int8 and int4 codes with, for --to ort. Its bytes "
               "are the tokens (byte-level models)."},
    OptionInfo{rewrite, "--calibration-tokens", Input, "FILE", "",
               "Like --calibration-text, but token ids separated by white space or commas."},
    OptionInfo{rewrite, "--calibration-context", Whole, "N", "512",
               "Calibrate in windows of this many tokens, each from empty caches.", 1, lengths},
};

constexpr OptionInfo viewOptions[] = {
    OptionInfo{inspect, "--context", Whole, "N", "4096", "Context length for cache sizes.", 1,
               capacities},
    OptionInfo{explain, "--layer", Whole, "N", "", "Only this attention layer.", 0, UINT32_MAX},
    OptionInfo{explain, "--rule", Rule, "RULE", "",
               "Where this rule was applied, and how near it came."},
    OptionInfo{diff, "--layer", Whole, "N", "", "Only this attention block.", 0, UINT32_MAX},
    OptionInfo{list, "--markdown", Flag, "", "",
               "Print reasons, targets, engines, options, manifest or ops as the pages of docs "
               "have them."},
    OptionInfo{list, "--schema", Flag, "", "", "Print the JSON Schema of manifests."},
    OptionInfo{help, "--man", Flag, "", "", "Print the manual page of kvopt (troff)."},
};

constexpr OptionInfo comparisonOptions[] = {
    OptionInfo{rewriting, "--verify", Word, "auto|off|check|quick|full", "auto",
               "How the written model is compared with the exported one: check proves equality "
               "without running them, quick and full run both. auto is check, and quick where a "
               "check does not suffice."},
    OptionInfo{rewriting | verify | run, "--input", Texts, "NAME=VALUE[@EXTENTS]", "",
               "What to feed an input, as in bias=additive_mask or kind=zeros@batch,new. May be "
               "given again."},
    OptionInfo{rewriting | verify | run, "--state", Texts, "NAME=VALUE", "",
               "Contents of a state before the first step, as in last=-1. May be given again."},
    OptionInfo{verify, "--reference", Input, "PATH", "",
               "Recorded steps, a file or a folder, or a folder of data sets in ONNX's own form "
               "(test_data_set_<k>)."},
    OptionInfo{verify, "--references", Flag, "", "",
               "Every case recorded next to every model, in a table."},
    OptionInfo{verify, "--forms", Words, "exported|shared|stateful", "exported,shared,stateful",
               "With --references: exported, and rewritten with caches that are shared buffers "
               "(where the target has them) or stateful."},
    OptionInfo{verify, "--depth", Whole, "N", "",
               "Add a run of this many tokens, in chunks and with decode steps at its end.", 0,
               lengths},
    OptionInfo{verify, "--text-file", Input, "FILE", "",
               "A text to measure both models' perplexity on. Its bytes are the tokens of a "
               "byte-level model."},
    OptionInfo{verify, "--token-file", Input, "FILE", "",
               "Like --text-file, but token ids separated by white space or commas."},
    OptionInfo{verify, "--context", Whole, "N", "512",
               "Tokens of such a text that are read at a time, from empty caches.", 2, lengths},
    OptionInfo{verify, "--atol", Real, "X", "",
               "Absolute tolerance. Without it: 1e-4, or 2e-2 (float16) and 1e-1 (bfloat16; data "
               "sets: 2e-2)."},
    OptionInfo{verify, "--rtol", Real, "X", "",
               "Relative tolerance. Without it, for data sets: 1e-3, or 2e-2 for 16-bit floats."},
    OptionInfo{verify, "--seed", Whole, "N", "1", "Seed of the random tokens.", 0, UINT64_MAX},
    OptionInfo{check, "--seed", Whole, "N", "",
               "Selects the fields of the arithmetic. Without it, each check draws others.", 0,
               UINT32_MAX},
    OptionInfo{check, "--allow-tested", Flag, "", "",
               "Exit code 0 for the verdict tested, too, which is not a proof."},
};

constexpr OptionInfo ownRunOptions[] = {
    OptionInfo{verify, "--prompt", Whole, "N", "", "Tokens of the prefill (33).", 1, lengths},
    OptionInfo{verify, "--chunks", Wholes, "N,N", "", "Tokens of later chunks (16,1,7).", 1,
               lengths},
    OptionInfo{verify, "--steps", Whole, "N", "", "Decode steps (12).", 0, lengths},
    OptionInfo{verify, "--batch", Whole, "N", "", "Batch size (3).", 1, counts},
    OptionInfo{verify, "--pad", Word, "left|right|none", "", "Where prompts are padded (none)."},
};

constexpr OptionInfo promptOptions[] = {
    OptionInfo{run, "--tokens", Texts, "1,2,3", "",
               "Prompt as token numbers. May be given again, for a batch."},
    OptionInfo{run, "--text", Texts, "TEXT", "",
               "Prompt of a byte-level model. May be given again, for a batch."},
    OptionInfo{run, "--steps", Whole, "N", "32", "Most tokens to generate.", 1, lengths},
    OptionInfo{run, "--chunk", Whole, "N", "",
               "Prefill chunk size in tokens. Without it: the whole prompt.", 1, lengths},
    OptionInfo{run, "--eos", Wholes, "N,N", "", "Token numbers to stop after."},
    OptionInfo{run, "--stop", Texts, "TEXT", "", "Text to stop after. May be given again."},
};

constexpr OptionInfo samplingOptions[] = {
    OptionInfo{run, "--temperature", Real, "X", "",
               "Scores are divided by it; 0 takes the most likely token. Without it: 0, or 1 where "
               "one of the next three is given."},
    OptionInfo{run, "--top-k", Whole, "K", "", "Draw from the K most likely tokens only."},
    OptionInfo{run, "--top-p", Real, "P", "",
               "Draw from the most likely tokens that together have probability P only."},
    OptionInfo{run, "--seed", Whole, "N", "",
               "Seed of the draws: with equal scores the same text on every machine.", 0,
               UINT64_MAX},
};

constexpr OptionInfo draftOptions[] = {
    OptionInfo{run, "--draft", Model, "FILE", "",
               "Model of the same vocabulary that guesses tokens, which the model checks several "
               "at a time."},
    OptionInfo{run, "--draft-tokens", Whole, "N", "4", "Most guesses before each step.", 1, counts},
};

constexpr OptionInfo cachesOptions[] = {
    OptionInfo{run, "--mode,--cache", Word, "shared|stateful", "shared",
               "Whether caches are buffers of fixed capacity (shared) or grow (stateful)."},
    OptionInfo{run, "--capacity", Whole, "N", "",
               "Capacity of the caches, in tokens. Without it: the tokens of the run.", 1,
               capacities},
    OptionInfo{run, "--load-cache", Input, "FILE", "",
               "Continue from a cache that --save-cache wrote."},
    OptionInfo{run, "--crop", Whole, "N", "", "Keep only the first N tokens of the loaded cache.",
               0, capacities},
    OptionInfo{run, "--context-shift", CountedFlag, "KEEP", "4",
               "When the caches are full, keep the first KEEP tokens, drop the older half of the "
               "others, and continue."},
    OptionInfo{run, "--save-cache", Output, "FILE", "", "File to write the caches to in the end."},
};

constexpr OptionInfo reductionOptions[] = {
    OptionInfo{reduce, "--while", Text, "COMMAND", "",
               "Command line for /bin/sh. It runs for every candidate, with the path of the "
               "candidate for {}. A candidate is kept if the exit code is that for the whole "
               "model."},
    OptionInfo{reduce, "--timeout", Whole, "SECONDS", "60",
               "Time that the command may take. Candidates that exceed it are rejected.", 1,
               counts},
    OptionInfo{reduce, "--anonymize", Flag, "", "",
               "Remove names, doc strings, metadata and the values of weights, too, where the exit "
               "code stays."},
};

constexpr OptionInfo measurementOptions[] = {
    OptionInfo{run | verify, "-t,--threads", Whole, "N", "",
               "Threads. Without it: one per physical core.", 1, 1024},
    OptionInfo{run, "--folded-constants-limit", Whole, "BYTES", "",
               "Bytes for constants computed once, when the session starts; what exceeds them is "
               "computed in every step. Without it: a quarter of the machine's memory.",
               0, uint64_t{1} << 60},
    OptionInfo{run, "--stats", Flag, "", "", "Speed and memory, on stderr or in the JSON."},
    OptionInfo{bench, "-p,--prompt", Whole, "N", "512", "Tokens of the measured prefill; 0: none.",
               0, lengths},
    OptionInfo{bench, "-n,--decode", Whole, "N", "128",
               "Decode steps of a repetition, from each depth on; 0: none.", 0, lengths},
    OptionInfo{bench, "-d,--depth", Wholes, "N,N", "0,1024,4096",
               "Tokens in the cache before the first step.", 0, lengths},
    OptionInfo{bench, "-r,--repetitions", Whole, "N", "5", "Repetitions.", 1, counts},
    OptionInfo{bench, "-t,--threads", Wholes, "N,N", "",
               "Numbers of threads. Without it: 1, and one per physical core.", 1, 1024},
    OptionInfo{bench, "-b,--batch", Whole, "N", "1", "Batch size.", 1, counts},
    OptionInfo{bench, "-o,--output", Word, "md|csv|json", "",
               "Form of the table on stdout. Without it: md, or json with --format json."},
};

constexpr OptionInfo sizeOptions[] = {
    OptionInfo{gen, "--layers", Whole, "N", "2", "Layers."},
    OptionInfo{gen, "--hidden", Whole, "N", "64", "Width of the residual stream."},
    OptionInfo{gen, "--heads", Whole, "N", "4", "Query heads."},
    OptionInfo{gen, "--kv-heads", Whole, "N", "",
               "Key/value heads. Without it: a quarter of the heads."},
    OptionInfo{gen, "--head-dim", Whole, "N", "", "Width of a head. Without it: hidden / heads."},
    OptionInfo{gen, "--intermediate", Whole, "N", "",
               "Width of the feed-forward part. Without it: 4 * hidden."},
    OptionInfo{gen, "--vocab", Whole, "N", "32000", "Tokens of the vocabulary."},
    OptionInfo{gen, "--max-positions", Whole, "N", "2048", "Rows of tables of positions."},
    OptionInfo{
        gen, "--window", Whole, "N", "",
        "Keys that a query of kind window, mla or mla-latent sees. Without it: 1024 with kind "
        "window, all with the others."},
    OptionInfo{gen, "--rope-dim", Whole, "N", "", "Rotated columns of a key of kind mla."},
    OptionInfo{gen, "--value-dim", Whole, "N", "", "Columns of a value of kind mla."},
    OptionInfo{gen, "--latent-dim", Whole, "N", "", "Columns of a latent row of kind mla."},
};

constexpr OptionInfo spellingOptions[] = {
    OptionInfo{gen, "--dtype", Word, "float32|float16|bfloat16|int4", "float32",
               "Element type of weights and caches; int4 has float32 caches."},
    OptionInfo{gen, "--spelling", Word, "torchscript|dynamo|attention|gqa", "",
               "torchscript, dynamo: primitive operators; attention: ONNX's operator; gqa: "
               "com.microsoft's GroupQueryAttention. Without it: what the kind's exporters write."},
    OptionInfo{gen, "--transposed-weights", Flag, "", "",
               "Linear layers hold [out,in] and a Transpose node."},
    OptionInfo{gen, "--merged", Flag, "", "", "Write two branches: one ignores the past."},
    OptionInfo{gen, "--cache", Word, "growing|static|last-rows|none", "growing",
               "growing; static: of --max-positions rows; last-rows: only the rows of the window; "
               "none: every step gets the whole sequence."},
    OptionInfo{gen, "--cache-codes", Word, "int8|int4", "",
               "Caches hold codes with constant scales: as GroupQueryAttention has them or, int8 "
               "with primitive operators, between QuantizeLinear and DequantizeLinear."},
    OptionInfo{gen, "--column-scales", Flag, "", "",
               "Codes have a scale for each column of a head instead of one for all."},
    OptionInfo{gen, "--opset", Whole, "N", "",
               "ONNX opset. Without it: what the spelling's exporter writes."},
    OptionInfo{gen, "--seed", Whole, "N", "0", "Seed of the weights.", 0, UINT64_MAX},
};

constexpr OptionInfo passesOptions[] = {
    OptionInfo{opt, "--pipeline", Pipeline, "PASSES", "",
               "Passes to run, in order, with their options: pass,pass{key=value}. May be empty."},
    OptionInfo{opt, "--print-ir-before", Passes, "PASS", "",
               "Print the model before this pass, or before all."},
    OptionInfo{opt, "--reproducer", Output, "FILE", "", "Where a failing pass leaves its input."},
    OptionInfo{opt, "--explain", Flag, "", "", "Print near misses after the model."},
    OptionInfo{opt, "--timing", Flag, "", "", "Print the time of each pass."},
    OptionInfo{opt, "--statistics", Flag, "", "", "Print counters of each pass."},
    OptionInfo{opt, "--no-verify", Flag, "", "", "Do not verify the model after every pass."},
    OptionInfo{opt, "--types", Flag, "", "", "Print inferred types."},
    OptionInfo{opt, "--elements", Text, "N|all", "256",
               "Print tensors of more elements without them; such a text cannot be read."},
};

constexpr OptionInfo developmentOptions[] = {
    OptionInfo{rewriting | opt, "--print-ir-after", Passes, "PASS", "",
               "Print the model after this pass, or after all."},
    OptionInfo{explain | rewriting | opt, "--disable", Parts, "NAME", "",
               "A rule or pass to leave out. May be given again."},
    OptionInfo{explain | rewriting | opt, "--step-budget", Whole, "N", "100000",
               "Places that the matcher tries at one root before it gives up.", 0, UINT32_MAX},
};

constexpr OptionInfo commonOptions[] = {
    OptionInfo{static_cast<CommandSet>(common & ~static_cast<unsigned>(diff)), "--format", Word,
               "text|json", "text", "Form of the answer."},
    OptionInfo{diff, "--format", Word, "text|json|svg", "text", "Form of the answer."},
    OptionInfo{common, "--color", Word, "auto|always|never", "auto",
               "Whether verdicts are colored; auto: on a terminal, unless NO_COLOR is set."},
    OptionInfo{common, "--max-nodes", Whole, "N", "200000",
               "Most nodes of a model whose functions are expanded.", 1, 16777216},
    OptionInfo{common, "-v,--verbose", Flag, "", "",
               "Say on stderr what is done and how long it takes."},
    OptionInfo{common, "-q,--quiet", Flag, "", "", "Say nothing on stderr but errors."},
};

constexpr OptionSection sections[] = {
    {"Arguments", argumentsOptions},
    {"Files", filesOptions},
    {"Form of the model", formOptions},
    {"What is rewritten", scopeOptions},
    {"Calibration", calibrationOptions},
    {"What is shown", viewOptions},
    {"Comparison", comparisonOptions},
    {"One run of your own in place of the defaults", ownRunOptions},
    {"Prompt and generated text", promptOptions},
    {"Sampling", samplingOptions},
    {"Speculative decoding", draftOptions},
    {"Caches", cachesOptions},
    {"Reduction", reductionOptions},
    {"Measurement", measurementOptions},
    {"Size of the decoder", sizeOptions},
    {"Spelling of the decoder", spellingOptions},
    {"Passes", passesOptions},
    {"For developing kvopt", developmentOptions},
    {"Every command", commonOptions},
};

constexpr OptionInfo helpRow{static_cast<CommandSet>((1U << commandCount) - 1),
                             "-h,--help",
                             Flag,
                             "",
                             "",
                             "Print this text."};

} // namespace

const OptionInfo& helpOption() { return helpRow; }

std::span<const OptionSection> optionSections() { return sections; }

} // namespace kvopt::driver
