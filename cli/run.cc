// kvopt run: greedy decoding with a session.
#include "cli/recover.h"
#include "ir/onnx_import.h"
#include "ir/shape_inference.h"
#include "runtime/decoder_inputs.h"
#include "runtime/generation.h"
#include "runtime/session.h"

#include <CLI/CLI.hpp>

#include <chrono>
#include <fmt/format.h>

namespace kvopt {
namespace {

struct RunOptions {
  std::string model;
  std::vector<int64_t> tokens;
  std::string text;
  int64_t steps = 32;
  std::string cache = "shared";
  int64_t capacity = 0;
  unsigned threads = 1;
  bool statistics = false;
};

/// Tokens of a byte-level model are its text's bytes.
std::vector<int64_t> tokensOf(const std::string& text) {
  std::vector<int64_t> tokens;
  for (char character : text)
    tokens.push_back(static_cast<unsigned char>(character));
  return tokens;
}

llvm::Expected<std::string> textOf(llvm::ArrayRef<int64_t> tokens) {
  std::string text;
  for (int64_t token : tokens) {
    if (token < 0 || token > 255)
      return usageError("token {} is no byte", token)
          .hint("--text is for byte-level models; use --tokens");
    text += static_cast<char>(token);
  }
  return text;
}

void printStatistics(const CommandContext& context, const Session& session,
                     const GenerationResult& result) {
  const SessionStatistics& counters = session.statistics();
  double prefillSeconds = result.prefillSeconds;
  double decodeSeconds = result.decodeSeconds;
  auto rate = [](double tokens, double seconds) { return seconds > 0 ? tokens / seconds : 0.0; };
  context.remark(fmt::format(
      "prefill {} tokens, {:.1f} tokens/s · decode {} tokens, {:.1f} tokens/s", result.promptTokens,
      rate(static_cast<double>(result.promptTokens), prefillSeconds), result.decodeSteps,
      rate(static_cast<double>(result.decodeSteps), decodeSeconds)));
  context.remark(fmt::format(
      "cache bytes written {} · copied in place of overwriting {} · moved by growth {} · "
      "reallocations {}",
      counters.cacheBytesWritten, counters.inPlaceBytesCopied, counters.cacheBytesMoved,
      counters.cacheReallocations));
  context.remark(
      fmt::format("temporary memory of the last step {} bytes", counters.lastRun.arenaBytes));
}

llvm::Expected<ExitCode> run(const RunOptions& options, const CommandContext& context) {
  std::vector<int64_t> prompt = options.text.empty() ? options.tokens : tokensOf(options.text);
  if (prompt.empty())
    return usageError("there is no prompt").hint("give --tokens 1,2,3 or --text \"...\"");
  auto model = importModel(options.model, context.registries.ops);
  if (!model)
    return model.takeError();
  if (llvm::Error error = inferShapes((*model)->graph()))
    return withFile(std::move(error), options.model);
  auto manifest = drivingManifest(**model, options.model, context.registries);
  if (!manifest)
    return manifest.takeError();

  SessionOptions settings;
  settings.mode = options.cache == "stateful" ? SessionOptions::Mode::Stateful
                                              : SessionOptions::Mode::AsManifest;
  settings.threads = options.threads;
  settings.capacity = options.capacity;
  if (settings.capacity == 0 && settings.mode == SessionOptions::Mode::AsManifest &&
      !manifest->capacityValue)
    settings.capacity = static_cast<int64_t>(prompt.size()) + options.steps;
  auto session = Session::create(**model, context.registries.kernels, *manifest, settings);
  if (!session)
    return withFile(session.takeError(), options.model);
  auto generated = generateGreedily(**session, prompt, options.steps);
  if (!generated)
    return withFile(generated.takeError(), options.model);

  std::string text;
  if (!options.text.empty()) {
    auto decoded = textOf(generated->tokens);
    if (!decoded)
      return decoded.takeError();
    text = std::move(*decoded);
  }
  if (context.common.json()) {
    OrderedJson json;
    json["schema"] = "kvopt/run/1";
    json["model"] = options.model;
    json["prompt_tokens"] = prompt;
    json["tokens"] = generated->tokens;
    json["text"] = options.text.empty() ? OrderedJson(nullptr) : OrderedJson(text);
    printJson(json);
  } else if (!options.text.empty()) {
    printOut(text + "\n");
  } else {
    printOut(fmt::format("{}\n", fmt::join(generated->tokens, ",")));
  }
  if (options.statistics)
    printStatistics(context, **session, *generated);
  return ExitCode::Done;
}

} // namespace

void addRunCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Decode greedily and print what was generated");
  command->add_option("model", options->model, "ONNX file")->required();
  auto* tokens =
      command->add_option("--tokens", options->tokens, "Prompt as token numbers")->delimiter(',');
  command->add_option("--text", options->text, "Prompt of a byte-level model")->excludes(tokens);
  command->add_option("--steps", options->steps, "Tokens to generate")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
  command->add_option("--cache", options->cache, "shared: a fixed buffer; stateful: it grows")
      ->check(CLI::IsMember({"shared", "stateful"}));
  command->add_option("--capacity", options->capacity, "Rows of the shared buffer")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  command->add_option("-t,--threads", options->threads, "Threads")->check(CLI::Range(1u, 1024u));
  command->add_flag("--stats", options->statistics, "Speed and bytes moved, on stderr");
  addCommonOptions(*command, context);
  command->callback([options, &context] {
    context.action = [options, &context] { return run(*options, context); };
  });
}

} // namespace kvopt
