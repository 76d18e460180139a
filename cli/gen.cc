// kvopt gen: decoders of any size with random weights.
#include "cli/report/byte_text.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "driver/synthetic/decoder.h"
#include "ir/onnx/export.h"
#include "support/format.h"
#include "support/json.h"
#include "support/progress.h"

#include <CLI/CLI.hpp>

#include <filesystem>

namespace kvopt::cli {
using namespace driver;
using namespace ir;

namespace {

/// Weights with more bytes than this are written to a file next to the model.
constexpr int64_t mostInlineBytes = int64_t{256} << 20;
/// The limit of protobuf, minus room for the graph.
constexpr int64_t mostFileBytes = int64_t{2000} << 20;

struct GenOptions {
  std::string kind;
  std::string output;
  std::string type = "float32";
  std::string cache = "growing";
  std::string spelling; ///< empty: the spelling of the kind's exporters
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
  std::string where = externalFile.empty() ? "" : formatted(" and {}", externalFile);
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
    return usageError("--sparse needs a file next to the model")
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
  {
    Progress progress(context.toolkit.progress, "writing " + options.output);
    if (isExternal)
      progress.expect(static_cast<double>(weightBytes(*model)));
    exported.onWritten = [&](size_t bytes) { progress.advance(static_cast<double>(bytes)); };
    if (llvm::Error error = exportModel(*model, options.output, exported, context.files()))
      return error;
  }
  report(options, *spec, exported.externalFile, *model, context);
  return ExitCode::Done;
}

} // namespace

void addGenCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<GenOptions>();
  DecoderSpec& spec = options->spec;
  spec.vocabulary = 32000;
  CLI::App* command = addCommand(app, Command::Gen);
  CommandOptions add(*command, context, Command::Gen);
  add.add("kind", options->kind);
  add.add("--output", options->output)->required();
  add.add("--layers", spec.layers);
  add.add("--hidden", spec.hidden);
  add.add("--heads", spec.heads);
  add.add("--kv-heads", spec.kvHeads);
  add.add("--head-dim", spec.headWidth);
  add.add("--intermediate", spec.intermediate);
  add.add("--vocab", spec.vocabulary);
  add.add("--max-positions", spec.maxPositions);
  add.add("--window", spec.window);
  add.add("--rope-dim", spec.ropeWidth);
  add.add("--value-dim", spec.valueWidth);
  add.add("--latent-dim", spec.latentWidth);
  add.add("--dtype", options->type);
  add.add("--spelling", options->spelling);
  add.add("--transposed-weights", spec.transposedWeights);
  add.add("--merged", spec.merged);
  add.add("--cache", options->cache);
  add.add("--cache-codes", options->codes);
  add.add("--column-scales", spec.columnScales);
  add.add("--opset", spec.opset);
  add.add("--seed", spec.seed);
  add.add("--external-data", options->external);
  add.add("--sparse", options->isHole);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return gen(*options, context); };
  });
}

} // namespace kvopt::cli
