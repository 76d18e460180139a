// kvopt gen: decoders of any size with random weights.
#include "cli/report/byte_text.h"
#include "cli/support/command.h"
#include "driver/synthetic/decoder.h"
#include "ir/onnx/export.h"
#include "support/format.h"

#include <CLI/CLI.hpp>

#include <filesystem>

namespace kvopt::cli {
using namespace driver;
using namespace ir;

namespace {

/// Weights above this many bytes go to a file beside the model.
constexpr int64_t mostInlineBytes = int64_t{256} << 20;
/// Of protobuf, with room for the graph.
constexpr int64_t mostFileBytes = int64_t{2000} << 20;

struct GenOptions {
  std::string kind;
  std::string output;
  std::string type = "float32";
  std::string cache = "growing";
  std::string spelling; ///< empty: what the kind's exporters write
  std::string codes;
  std::string external = "auto";
  bool isHole = false;
  DecoderSpec spec;
};

struct KindName {
  const char* name;
  DecoderKind kind;
};
constexpr KindName kinds[] = {{"llama", DecoderKind::Llama},
                              {"mha", DecoderKind::Llama},
                              {"mqa", DecoderKind::Llama},
                              {"window", DecoderKind::Window},
                              {"mla", DecoderKind::Mla},
                              {"mla-latent", DecoderKind::MlaLatent},
                              {"encoder-decoder", DecoderKind::EncoderDecoder},
                              {"hybrid", DecoderKind::Hybrid},
                              {"packed-qkv", DecoderKind::PackedQkv}};

struct SpellingName {
  const char* name;
  DecoderSpelling spelling;
};
constexpr SpellingName spellings[] = {{"torchscript", DecoderSpelling::TorchScript},
                                      {"dynamo", DecoderSpelling::Dynamo},
                                      {"attention", DecoderSpelling::Attention},
                                      {"gqa", DecoderSpelling::GroupQueryAttention}};

struct CacheName {
  const char* name;
  DecoderCache cache;
};
constexpr CacheName cacheNames[] = {{"growing", DecoderCache::Growing},
                                    {"static", DecoderCache::Static},
                                    {"last-rows", DecoderCache::LastRows},
                                    {"none", DecoderCache::None}};

template <class Table> std::vector<std::string> namesOf(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table)
    names.emplace_back(entry.name);
  return names;
}

llvm::Expected<DecoderSpec> specOf(const GenOptions& options) {
  DecoderSpec spec = options.spec;
  for (const KindName& entry : kinds)
    if (options.kind == entry.name)
      spec.kind = entry.kind;
  if (spec.kind == DecoderKind::Hybrid)
    spec.spelling = DecoderSpelling::GroupQueryAttention;
  for (const SpellingName& entry : spellings)
    if (options.spelling == entry.name)
      spec.spelling = entry.spelling;
  for (const CacheName& entry : cacheNames)
    if (options.cache == entry.name)
      spec.cache = entry.cache;
  spec.codeBits = options.codes == "int8" ? 8 : options.codes == "int4" ? 4 : 0;
  const int64_t shared = options.kind == "mha" ? spec.heads : options.kind == "mqa" ? 1 : 0;
  if (shared != 0) {
    if (spec.kvHeads != 0 && spec.kvHeads != shared)
      return usageError("a decoder of kind {} has {} key/value heads, not {}", options.kind, shared,
                        spec.kvHeads);
    spec.kvHeads = shared;
  }
  spec.fourBit = options.type == "int4";
  if (!spec.fourBit)
    spec.real = *elementTypeFromDtypeName(options.type);
  return resolved(spec);
}

const char* nameOf(DecoderSpelling spelling) {
  for (const SpellingName& entry : spellings)
    if (entry.spelling == spelling)
      return entry.name;
  return "";
}

void report(const GenOptions& options, const DecoderSpec& spec, const std::string& externalFile,
            Model& model, const CommandContext& context) {
  const int64_t bytes = weightBytes(model);
  if (context.common.json()) {
    OrderedJson json;
    json["schema"] = "kvopt/gen/1";
    json["output"] = options.output;
    json["external_data"] = externalFile.empty() ? OrderedJson(nullptr) : OrderedJson(externalFile);
    json["kind"] = options.kind;
    json["spelling"] = nameOf(spec.spelling);
    json["dtype"] = options.type;
    json["opset"] = spec.opset;
    json["layers"] = spec.layers;
    json["hidden"] = spec.hidden;
    json["heads"] = spec.heads;
    json["kv_heads"] = spec.kvHeads;
    json["head_dim"] = spec.headWidth;
    json["intermediate"] = spec.intermediate;
    json["vocab"] = spec.vocabulary;
    json["seed"] = spec.seed;
    json["nodes"] = nodeCount(model);
    json["weight_bytes"] = bytes;
    printJson(json);
    return;
  }
  std::string where = externalFile.empty() ? "" : fmt::format(" and {}", externalFile);
  printOut(formatText("wrote {}{}: {}, {} layers of width {}, {}/{} heads of {}, {}, {} of "
                      "weights\n",
                      options.output, where, options.kind, spec.layers, spec.hidden, spec.heads,
                      spec.kvHeads, spec.headWidth, options.type, byteText(bytes)));
}

llvm::Expected<ExitCode> gen(const GenOptions& options, const CommandContext& context) {
  llvm::Expected<DecoderSpec> spec = specOf(options);
  if (!spec)
    return spec.takeError();
  std::unique_ptr<Model> model = generateDecoder(context.toolkit.ops, *spec);
  if (options.external == "never" && weightBytes(*model) > mostFileBytes)
    return usageError("{} of weights do not fit in one ONNX file", byteText(weightBytes(*model)))
        .hint("leave out --external-data never");
  if (options.external == "never" && options.isHole)
    return usageError("--sparse needs a file beside the model")
        .hint("leave out --external-data never");
  ExportOptions exported;
  const bool isExternal =
      options.external == "always" ||
      (options.external == "auto" && (options.isHole || weightBytes(*model) > mostInlineBytes));
  if (isExternal)
    exported.externalFile = std::filesystem::path(options.output).filename().string() + ".data";
  exported.externalHole = options.isHole;
  if (isExternal)
    if (llvm::Error error = context.files().writes(
            pathBeside(options.output, exported.externalFile), "its external data"))
      return error;
  if (llvm::Error error = context.files().checkOutputs())
    return error;
  if (llvm::Error error = exportModel(*model, options.output, exported, context.files()))
    return error;
  report(options, *spec, exported.externalFile, *model, context);
  return ExitCode::Done;
}

} // namespace

void addGenCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<GenOptions>();
  DecoderSpec& spec = options->spec;
  spec.vocabulary = 32000;
  CLI::App* command = app.add_subcommand("gen", "Write a decoder of any size with random weights");
  command->add_option("kind", options->kind, "What kind of decoder")
      ->required()
      ->check(CLI::IsMember(namesOf(kinds)));
  addOutputPath(*command, context, "-o,--output", options->output, "ONNX file to write")
      ->required();
  command->add_option("--layers", spec.layers, "Layers")->capture_default_str();
  command->add_option("--hidden", spec.hidden, "Width of the residual stream")
      ->capture_default_str();
  command->add_option("--heads", spec.heads, "Query heads")->capture_default_str();
  command->add_option("--kv-heads", spec.kvHeads,
                      "Key/value heads; a quarter of the heads if not given");
  command->add_option("--head-dim", spec.headWidth, "Width of a head; hidden / heads if not given");
  command->add_option("--intermediate", spec.intermediate,
                      "Width of the feed-forward part; 4 * hidden if not given");
  command->add_option("--vocab", spec.vocabulary, "Tokens")->capture_default_str();
  command->add_option("--max-positions", spec.maxPositions, "Rows of tables of positions")
      ->capture_default_str();
  command->add_option("--window", spec.window, "Keys that a query of kind window sees; 1024");
  command->add_option("--rope-dim", spec.ropeWidth, "Rotated columns of a key of kind mla");
  command->add_option("--value-dim", spec.valueWidth, "Columns of a value of kind mla");
  command->add_option("--latent-dim", spec.latentWidth, "Columns of a latent row of kind mla");
  command->add_option("--dtype", options->type, "Of weights and caches; int4 has float32 caches")
      ->check(CLI::IsMember({"float32", "float16", "bfloat16", "int4"}));
  command
      ->add_option("--spelling", options->spelling,
                   "torchscript, dynamo: primitive operators; attention: ONNX's operator; gqa: "
                   "com.microsoft's GroupQueryAttention, which hybrids have")
      ->check(CLI::IsMember(namesOf(spellings)));
  command->add_flag("--transposed-weights", spec.transposedWeights,
                    "Linear layers hold [out,in] and a Transpose node");
  command->add_flag("--merged", spec.merged, "Two branches, one of which ignores the past");
  command
      ->add_option(
          "--cache", options->cache,
          "growing; static: of --max-positions rows; last-rows: as many as the window needs; "
          "none: every step gets the whole sequence")
      ->check(CLI::IsMember(namesOf(cacheNames)));
  command
      ->add_option("--cache-codes", options->codes,
                   "Caches hold codes with constant scales: as GroupQueryAttention has them or, "
                   "int8 with primitive operators, between QuantizeLinear and DequantizeLinear")
      ->check(CLI::IsMember({"int8", "int4"}));
  command->add_flag("--column-scales", spec.columnScales,
                    "Codes have a scale for each column of a head instead of one for all");
  command->add_option("--opset", spec.opset, "ONNX opset; what the spelling's exporter writes");
  command->add_option("--seed", spec.seed, "Of the weights")->capture_default_str();
  command
      ->add_option("--external-data", options->external,
                   "Weights in a file beside the model; auto: above 256 MiB")
      ->check(CLI::IsMember({"auto", "always", "never"}));
  command->add_flag("--sparse", options->isHole,
                    "Weights are zeros in a file that takes no room on the disk");
  addCommonOptions(*command, context);
  command->callback([options, &context] {
    context.action = [options, &context] { return gen(*options, context); };
  });
}

} // namespace kvopt::cli
