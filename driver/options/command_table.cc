// The rows of the table.
#include "driver/options/command_table.h"

#include <iterator>

namespace kvopt::driver {

namespace {

constexpr const char* modelsUsage[] = {"MODEL... [OPTIONS]"};
constexpr const char* modelUsage[] = {"MODEL [OPTIONS]"};
constexpr const char* rewriteUsage[] = {"MODEL -o FILE [OPTIONS]", "MODEL --dry-run [OPTIONS]"};
constexpr const char* checkUsage[] = {"BEFORE AFTER [OPTIONS]"};
constexpr const char* verifyUsage[] = {"MODEL MODEL [OPTIONS]", "MODEL --reference PATH [OPTIONS]",
                                       "MODEL... --references [OPTIONS]"};
constexpr const char* diffUsage[] = {"BEFORE AFTER [OPTIONS]"};
constexpr const char* reduceUsage[] = {"MODEL --while 'COMMAND {}' -o FILE [OPTIONS]"};
constexpr const char* genUsage[] = {"KIND -o FILE [OPTIONS]"};
constexpr const char* listUsage[] = {"WHAT [OPTIONS]"};
constexpr const char* completionUsage[] = {"SHELL"};
constexpr const char* helpUsage[] = {"[COMMAND]", "--man"};

constexpr CommandExample introduction[] = {
    {"kvopt inspect decoder.onnx", "Attention layers, caches and engines"},
    {"kvopt rewrite decoder.onnx -o fused.onnx", "Caches in place, for ONNX Runtime"},
    {"kvopt verify decoder.onnx fused.onnx", "Compare both, step by step"},
    {"kvopt help rewrite", "A command's options, with examples"},
};
constexpr CommandExample inspectExamples[] = {
    {"kvopt inspect decoder.onnx", "Every attention layer, and what each engine can do"},
    {"kvopt inspect decoder.onnx fused.onnx full.onnx", "A table with one row per model"},
    {"kvopt inspect decoder.onnx --context 32768 --format json", "For scripts"},
};
constexpr CommandExample explainExamples[] = {
    {"kvopt explain decoder.onnx", "How each attention layer was recognized"},
    {"kvopt explain decoder.onnx --to ort --rows int8", "Whether an engine takes this form"},
    {"kvopt explain decoder.onnx --layer 0 --rule raise-spelled-attention",
     "How near one rule came"},
};
constexpr CommandExample rewriteExamples[] = {
    {"kvopt rewrite decoder.onnx -o fused.onnx", "For ONNX Runtime, caches in one buffer each"},
    {"kvopt rewrite decoder.onnx -o plain.onnx --to onnx --opset 23", "ONNX's own operators only"},
    {"kvopt rewrite decoder.onnx -o int8.onnx --to kvopt --rows int8", "A quantized cache"},
    {"kvopt rewrite decoder.onnx -o blocks.onnx --to blocks:64 --capacity 4096",
     "Caches in blocks of 64 rows"},
};
constexpr CommandExample addCacheExamples[] = {
    {"kvopt add-cache full.onnx -o cached.onnx", "Past and present for every layer"},
    {"kvopt add-cache full.onnx -o cached-ort.onnx --to ort", "The same, for ONNX Runtime"},
};
constexpr CommandExample makeDynamicExamples[] = {
    {"kvopt make-dynamic fixed.onnx -o dynamic.onnx", "Any batch, step and past"},
    {"kvopt make-dynamic fixed.onnx --dry-run", "Whether that is possible"},
};
constexpr CommandExample verifyExamples[] = {
    {"kvopt verify decoder.onnx fused.onnx", "Prompts, padding, chunks and decode steps"},
    {"kvopt verify decoder.onnx fused.onnx --prompt 100 --batch 2 --pad left",
     "One run of your own"},
    {"kvopt verify fused.onnx --reference steps", "Replay what 'kvopt run --dump' recorded"},
};
constexpr CommandExample checkExamples[] = {
    {"kvopt check decoder.onnx fused.onnx", "All outputs and caches"},
    {"kvopt check decoder.onnx fused.onnx --certificate fused.cert.json",
     "The same, with a certificate"},
};
constexpr CommandExample runExamples[] = {
    {"kvopt run models/kjv/model.onnx --text \"In the beginning \" --stats",
     "Text of a byte-level model"},
    {"kvopt run decoder.onnx --tokens 1,2,3 --steps 5 --save-cache chat.kv",
     "Token numbers; keep the caches"},
    {"kvopt run decoder.onnx --load-cache chat.kv --crop 4 --tokens 9,8",
     "Continue from the first four tokens"},
    {"kvopt run decoder.onnx --tokens 1,2,3 --steps 5 --dump steps", "Record every step"},
};
constexpr CommandExample benchExamples[] = {
    {"kvopt bench decoder.onnx fused.onnx", "Prefill, and decode at three depths"},
    {"kvopt bench decoder.onnx fused.onnx -p 0 -d 0,512 -t 1 --plot latency.svg",
     "Decode only, with a plot"},
    {"kvopt bench fused.onnx -d 0 -o csv > fused.csv", "For a spreadsheet"},
};
constexpr CommandExample diffExamples[] = {
    {"kvopt diff decoder.onnx fused.onnx", "Operators, inputs, outputs, attention blocks"},
    {"kvopt diff decoder.onnx fused.onnx --layer 1 --format svg > block.svg",
     "A picture of one block"},
};
constexpr CommandExample reduceExamples[] = {
    {"kvopt reduce decoder.onnx -o s.onnx --while 'kvopt inspect {} | grep -q MQA'",
     "The part of a model that gives the same answer"},
    {"kvopt reduce decoder.onnx -o b.onnx --anonymize --while 'grep -q Softmax {}'",
     "Without names, for a report"},
};
constexpr CommandExample genExamples[] = {
    {"kvopt gen llama -o decoder.onnx", "A small decoder as exporters write it"},
    {"kvopt gen llama -o full.onnx --cache none", "The same without caches"},
    {"kvopt gen window -o window.onnx --layers 4 --window 64 --dtype float16",
     "Sliding windows, 16-bit floats"},
};
constexpr CommandExample optExamples[] = {
    {"kvopt opt decoder.onnx --pipeline normalize", "The textual form after one pass"},
    {"kvopt opt decoder.onnx --pipeline normalize,detect-sites --timing", "Time of each pass"},
};
constexpr CommandExample listExamples[] = {
    {"kvopt list targets", "Engines, caches and rows that can be written"},
    {"kvopt list reasons", "Every reason to refuse, and what to do"},
    {"kvopt list options --format json", "For scripts"},
};
constexpr CommandExample completionExamples[] = {
    {"source <(kvopt completion bash)", "For this session of bash"},
    {"kvopt completion zsh > _kvopt", "For a folder of zsh's $fpath"},
    {"kvopt completion fish > kvopt.fish", "For ~/.config/fish/completions"},
};
constexpr CommandExample helpExamples[] = {
    {"kvopt help rewrite", "The same text as kvopt rewrite --help"},
    {"kvopt help --man > kvopt.1", "A file for man -l"},
};

constexpr CommandInfo commandRows[] = {
    {"inspect", modelsUsage, "Show caches, attention layers, and the engines that take them",
     "Lists every attention layer of a decoder with its heads, mask and caches, the bytes of the "
     "caches at a context length, and how many layers each target can take. Several models give a "
     "table with one row per model; its column causal is yes, no, ? (not proved) or if (proved "
     "where positions count on from the past).",
     inspectExamples},
    {"explain", modelUsage, "Explain how each attention layer was matched or missed",
     "For every attention layer, names the rule that matched, or the reason, the node, what was "
     "expected there, what was found, and what to do. With an option of the form, it says whether "
     "the form takes the layer.",
     explainExamples},
    {"rewrite", rewriteUsage, "Write a model whose caches are updated in place",
     "Finds the attention layers and their caches and writes the model in the form that the "
     "options choose. A manifest next to it (FILE.kv.json) says how to drive its caches. The "
     "exported and the written model are compared before anything is written. 'kvopt list "
     "targets' prints the table of all forms.",
     rewriteExamples},
    {"add-cache", rewriteUsage, "Give caches to a decoder that was exported without them",
     "Adds inputs and outputs for past and present keys and values to a decoder that computes the "
     "whole sequence in every step, so that a step computes its new tokens only. The result is "
     "compared with the export.",
     addCacheExamples},
    {"make-dynamic", rewriteUsage, "Make the batch, step and past of a fixed export dynamic",
     "Replaces the fixed extents of an export by symbols, where it is proved that the model "
     "computes the same at the extents of the export.",
     makeDynamicExamples},
    {"verify", verifyUsage, "Compare two models, or one with recorded outputs, by running",
     "Runs both models step by step with random tokens and compares outputs and caches: prefill, "
     "chunks, decode steps, padded batches. With --reference, it replays recorded steps. The exit "
     "code is 0 where the models are equal within the tolerance, and 1 where they differ.",
     verifyExamples},
    {"check", checkUsage, "Prove that two models compute the same, without running them",
     "Values that both models compute in the same way are equal. Where the models differ, the "
     "smallest parts that differ are evaluated in exact arithmetic over a small scope of batches, "
     "lengths and padding. Weights that both models share are not read. The exit code is 0 where "
     "all outputs are equal, and 1 where one differs or is not decided.",
     checkExamples},
    {"run", modelUsage, "Generate tokens and print them",
     "Generates greedily, or by seeded sampling. The last token that is printed is not in the "
     "caches yet: to continue from saved caches, start the next prompt with it.",
     runExamples},
    {"bench", modelsUsage, "Measure models side by side: prefill, decode, bandwidth bound",
     "Models take turns a few steps at a time, so that other work on the machine affects all "
     "alike: compare ratios, not times. The read floor is the time to read the weights and the "
     "valid cache rows of a step once, measured in the same rounds.",
     benchExamples},
    {"diff", diffUsage, "Show what changed between two models",
     "Compares operators, inputs, outputs and every attention block of two models. With --format "
     "svg, it draws the first block that changed, or that of --layer.",
     diffExamples},
    {"reduce", reduceUsage, "Remove parts of a model while a command gives the same exit code",
     "Removes outputs, weights, nodes, attributes, functions and extents as long as the exit code "
     "of a command stays what it is for the whole model. The command runs in /bin/sh once for each "
     "candidate, without input, and its output is not shown. The output is the smallest model so "
     "far, also after Ctrl-C.",
     reduceExamples},
    {"gen", genUsage, "Write a decoder of any size with random weights",
     "Writes a synthetic decoder in the spelling of an exporter, for tests and measurements. Equal "
     "options and seeds give equal files.",
     genExamples},
    {"opt", modelUsage, "Run a pipeline of passes and print the model as text",
     "For developers: reads a model or its textual form, runs the passes of --pipeline, and prints "
     "the textual form, or writes a model with -o.",
     optExamples},
    {"list", listUsage, "List what this build of kvopt contains",
     "Prints the passes, rules, targets, operators, kernels, reasons, commands or options of this "
     "build, one per line.",
     listExamples},
    {"completion", completionUsage, "Print a script that completes kvopt in a shell",
     "The script completes commands, options and the words that options take, and files by their "
     "extension.",
     completionExamples},
    {"help", helpUsage, "Explain a command",
     "Prints the usage, the options and the examples of a command, or the list of commands.",
     helpExamples},
};
static_assert(std::size(commandRows) == commandCount);

} // namespace

const CommandInfo& commandInfo(Command command) {
  return commandRows[static_cast<size_t>(command)];
}

std::span<const CommandExample> firstExamples() { return introduction; }

} // namespace kvopt::driver
