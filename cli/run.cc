// kvopt run: generation with a session.
#include "cli/report/run_report.h"
#include "cli/report/step_dump.h"
#include "cli/support/command.h"
#include "cli/support/input_option.h"
#include "cli/support/progress.h"
#include "driver/generate/decoding.h"
#include "support/format.h"

#include <CLI/CLI.hpp>

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <optional>

namespace kvopt::cli {
using namespace driver;
using namespace ir;
using namespace pattern;
using namespace runtime;
using namespace targets;

namespace {

struct RunOptions {
  std::string model;
  std::vector<std::string> tokens; ///< a prompt each
  std::vector<std::string> texts;
  std::vector<std::string> stopTexts;
  std::vector<int64_t> stopTokens;
  int64_t steps = 32;
  int64_t chunk = 0;
  std::optional<double> temperature;
  std::optional<int64_t> topK;
  std::optional<double> topP;
  std::optional<uint64_t> seed;
  std::string mode = "shared";
  int64_t capacity = 0;
  unsigned threads = 0;
  std::string load;
  std::string save;
  std::optional<int64_t> crop;
  std::string contextShift; ///< tokens that stay, as text; empty: none are dropped
  std::string dump;
  std::string draft;
  int64_t draftTokens = 4;
  std::vector<std::string> inputs;
  bool statistics = false;
  int64_t foldedConstantsLimit = -1;

  bool isText() const { return !texts.empty(); }
  /// nullopt where the text is not a number of tokens.
  std::optional<int64_t> keptByShift() const {
    int64_t kept = 0;
    const bool isNumber = !contextShift.empty() && llvm::all_of(contextShift, llvm::isDigit);
    if (!isNumber || llvm::StringRef(contextShift).getAsInteger(10, kept))
      return std::nullopt;
    return kept;
  }
  /// The model that generates, or with `isDraft` the one that drafts: from the start, and with what
  /// it needs for itself.
  GeneratingModel driven(bool isDraft) const {
    GeneratingModel its;
    its.path = isDraft ? draft : model;
    its.mode =
        mode == "stateful" ? SessionOptions::Mode::Stateful : SessionOptions::Mode::AsManifest;
    its.threads = threads;
    its.foldedConstantsLimit = foldedConstantsLimit;
    if (isDraft)
      return its;
    its.capacity = capacity;
    its.load = load;
    its.crop = crop;
    return its;
  }
  /// Whoever asks for anything random gets the model's own distribution.
  SamplingOptions sampling() const {
    bool isRandom = topK || topP || seed;
    return {temperature.value_or(isRandom ? 1 : 0), topK.value_or(0), topP.value_or(1),
            seed.value_or(0)};
  }
};

/// Tokens of a byte-level model are its text's bytes.
std::vector<int64_t> bytesOf(const std::string& text) {
  std::vector<int64_t> tokens;
  for (char character : text)
    tokens.push_back(static_cast<unsigned char>(character));
  return tokens;
}

llvm::Expected<std::vector<int64_t>> numbersOf(const std::string& text) {
  llvm::SmallVector<llvm::StringRef, 16> words;
  llvm::StringRef(text).split(words, ',');
  std::vector<int64_t> tokens;
  for (llvm::StringRef word : words) {
    int64_t token = 0;
    if (word.trim().getAsInteger(10, token) || token < 0)
      return usageError("--tokens: '{}' is not a token number", word.trim());
    tokens.push_back(token);
  }
  return tokens;
}

llvm::Expected<std::vector<std::vector<int64_t>>> promptsOf(const RunOptions& options) {
  std::vector<std::vector<int64_t>> prompts;
  for (const std::string& text : options.texts)
    prompts.push_back(bytesOf(text));
  for (const std::string& list : options.tokens) {
    auto numbers = numbersOf(list);
    if (!numbers)
      return numbers.takeError();
    prompts.push_back(std::move(*numbers));
  }
  for (const std::vector<int64_t>& prompt : prompts)
    if (prompt.empty())
      return usageError("the prompt is empty");
  if (prompts.empty())
    return usageError("there is no prompt").hint("give --tokens 1,2,3 or --text \"...\"");
  return prompts;
}

llvm::Error check(const RunOptions& options) {
  if (!options.stopTexts.empty() && !options.isText())
    return usageError("--stop is for --text; use --eos");
  if (options.crop && options.load.empty())
    return usageError("--crop is for a cache that was loaded: give --load-cache");
  if (!options.draft.empty() &&
      (!options.load.empty() || options.texts.size() + options.tokens.size() > 1))
    return usageError("--draft is for one prompt, from the start of its sequence");
  const bool drops = !options.contextShift.empty();
  if (drops && !options.keptByShift())
    return usageError("--context-shift: '{}' is not a number of tokens", options.contextShift);
  if (drops && !options.draft.empty())
    return usageError("--context-shift and --draft exclude each other");
  return checkSampling(options.sampling());
}

llvm::Expected<GenerateRequest> requestOf(const RunOptions& options) {
  GenerateRequest request;
  request.model = options.driven(/*isDraft=*/false);
  request.draft = options.driven(/*isDraft=*/true);
  request.draftTokens = options.draftTokens;
  auto prompts = promptsOf(options);
  if (!prompts)
    return prompts.takeError();
  request.prompts = std::move(*prompts);
  GenerationOptions& settings = request.options;
  settings.steps = options.steps;
  settings.chunk = options.chunk;
  settings.sampling = options.sampling();
  settings.shift.isOn = !options.contextShift.empty();
  settings.shift.kept = options.keptByShift().value_or(0);
  settings.shift.capacity = options.capacity;
  settings.stopTokens = options.stopTokens;
  for (const std::string& text : options.stopTexts)
    settings.stopSequences.push_back(bytesOf(text));
  return request;
}

/// Text of one sequence is printed as it is generated; everything else in the end.
bool isStreamed(const RunOptions& options, const CommandContext& context) {
  return !context.common.json() && options.isText() && options.texts.size() == 1;
}

/// Generates, and shows tokens or progress meanwhile.
llvm::Expected<GenerationResult> generateWith(const RunOptions& options, Decoding& decoding,
                                              StepDump* dump, const CommandContext& context) {
  GenerationOptions& settings = decoding.request().options;
  if (dump)
    settings.feed.onStep = [dump](int64_t tokens, llvm::ArrayRef<NamedTensor> inputs,
                                  const StepResult& result) {
      return dump->write(tokens, inputs, result);
    };
  Progress progress(context.common);
  LineEscaper escaper;
  int64_t count = 0;
  const auto most = options.steps * static_cast<int64_t>(decoding.request().prompts.size());
  const bool streams = isStreamed(options, context);
  if (streams)
    settings.onToken = [&](int64_t, int64_t token) {
      printOut(escaper.add(textOfBytes(token)));
      std::fflush(stdout);
    };
  else
    settings.onToken = [&](int64_t, int64_t) {
      progress.show(fmt::format("{} of up to {} tokens", ++count, most));
    };
  auto generated = decoding.run();
  if (streams)
    printOut(escaper.finish() + "\n");
  return generated;
}

/// Tokens of a byte-level model are bytes.
llvm::Error checkBytes(const GenerationResult& generated) {
  for (const GeneratedSequence& sequence : generated.sequences)
    for (int64_t token : sequence.tokens)
      if (textOfBytes(token).empty())
        return usageError("token {} is outside 0-255", token)
            .hint("--text is for byte-level models; use --tokens");
  return llvm::Error::success();
}

llvm::Expected<ExitCode> run(const RunOptions& options, const CommandContext& context) {
  if (llvm::Error error = check(options))
    return error;
  auto request = requestOf(options);
  if (!request)
    return request.takeError();
  auto opened = Decoding::open(std::move(*request), context.toolkit);
  if (!opened)
    return opened.takeError();
  Decoding& decoding = *opened;
  if (llvm::Error error = context.files().checkOutputs())
    return error;
  if (llvm::Error error = decoding.start())
    return error;
  const Session& session = decoding.session();
  std::optional<StepDump> dump;
  if (!options.dump.empty()) {
    auto created = StepDump::create(options.dump, context.files());
    if (!created)
      return created.takeError();
    dump.emplace(std::move(*created));
  }
  auto recipes = recipesOf(options.inputs);
  if (!recipes)
    return recipes.takeError();
  decoding.request().recipes = std::move(*recipes);
  auto generated = generateWith(options, decoding, dump ? &*dump : nullptr, context);
  if (!generated)
    return generated.takeError();
  RunReport report{options.model, decoding.request().prompts, options.isText(), options.sampling(),
                   std::move(*generated)};
  if (options.isText())
    if (llvm::Error error = checkBytes(report.result))
      return error;
  // First: a program that reads the output may rely on the files.
  if (!options.save.empty())
    if (llvm::Error error = session.save(options.save, context.files()))
      return error;
  if (dump)
    if (llvm::Error error = dump->commit())
      return error;
  if (context.common.json())
    printJson(runJson(report, options.statistics ? &session : nullptr));
  else if (!isStreamed(options, context))
    printOut(runText(report));
  for (const SafeText& line : stopRemarks(report, session))
    context.remark(line);
  if (!options.save.empty())
    context.remark(formatText("wrote {}: {} tokens; the last one generated is not among them",
                              options.save, session.length()));
  if (options.statistics && !context.common.json())
    context.remark(statisticsText(report, session));
  return ExitCode::Done;
}

void addPromptOptions(CLI::App& command, RunOptions& options) {
  auto positive = CLI::Range(int64_t{1}, int64_t{1} << 32);
  auto* tokens = command.add_option("--tokens", options.tokens,
                                    "Prompt as token numbers: 1,2,3; again for a batch");
  tokens->allow_extra_args(false);
  command.add_option("--text", options.texts, "Prompt of a byte-level model; again for a batch")
      ->allow_extra_args(false)
      ->excludes(tokens);
  command.add_option("--steps", options.steps, "Most tokens to generate")
      ->check(positive)
      ->capture_default_str();
  command.add_option("--chunk", options.chunk, "Prefill chunk size in tokens")->check(positive);
  command.add_option("--eos", options.stopTokens, "Token numbers to stop after")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--stop", options.stopTexts, "Text to stop after; may be given again")
      ->allow_extra_args(false);
}

void addDraftOptions(CLI::App& command, RunOptions& options, CommandContext& context) {
  auto* draft = addModelPath(
      command, context, "--draft", options.draft,
      "Model of the same vocabulary that guesses tokens, which the model checks several at a time");
  command.add_option("--draft-tokens", options.draftTokens, "Most guesses before each step")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->needs(draft)
      ->capture_default_str();
}

void addSamplingOptions(CLI::App& command, RunOptions& options) {
  command.add_option("--temperature", options.temperature,
                     "0: the most likely token, the default; else scores are divided by it. 1 "
                     "where one of the next three is given");
  command.add_option("--top-k", options.topK, "Draw from the K most likely tokens only");
  command.add_option("--top-p", options.topP,
                     "Draw from the most likely tokens that together have probability P only");
  command.add_option("--seed", options.seed,
                     "Seed of the draws: with equal scores the same text on every machine");
}

void addCacheOptions(CLI::App& command, RunOptions& options, CommandContext& context) {
  command
      .add_option("--mode,--cache", options.mode,
                  "shared: a buffer of fixed capacity; stateful: it grows")
      ->check(CLI::IsMember({"shared", "stateful"}))
      ->capture_default_str();
  command
      .add_option("--capacity", options.capacity,
                  "Tokens the caches have room for; unless given, as many as are needed")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  addInputPath(command, context, "--load-cache", options.load, "the cache",
               "Go on from a cache that --save-cache wrote");
  command.add_option("--crop", options.crop, "Keep so many tokens of the loaded cache only")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  // As text: a flag's number 0 would be read as false.
  command.add_flag(
      "--context-shift{4}", options.contextShift,
      "When the caches are full, keep the first KEEP tokens (4 unless --context-shift=KEEP), drop "
      "the older half of the others, and continue");
  addOutputPath(command, context, "--save-cache", options.save,
                "File to write the caches to in the end");
}

} // namespace

void addRunCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = app.add_subcommand("run", "Generate, and print what was generated");
  command->footer(
      "The last token is printed, but in no cache yet: to go on, start the next prompt with it.\n\n"
      "Examples:\n"
      "  kvopt run kjv.onnx --text \"In the beginning \" --steps 64 --stats\n"
      "  kvopt run kjv.onnx --text \"And \" --temperature 0.8 --top-p 0.95 --seed 7 --stop .\n"
      "  kvopt run decoder.onnx --tokens 1,15043,29892 --steps 5 --eos 2 --save-cache chat.kv\n"
      "  kvopt run decoder.onnx --load-cache chat.kv --crop 4 --tokens 920,526\n"
      "  kvopt run decoder.onnx --draft small.onnx --tokens 1,15043,29892 --stats\n"
      "  kvopt run decoder.onnx --tokens 1,2,3 --dump steps && kvopt verify fused.onnx --reference "
      "steps");
  addModelPath(*command, context, "model", options->model, "ONNX file")->required();
  addPromptOptions(*command, *options);
  addSamplingOptions(*command, *options);
  addDraftOptions(*command, *options, context);
  addCacheOptions(*command, *options, context);
  addInputOption(*command, options->inputs);
  addOutputFolder(*command, context, "--dump", options->dump,
                  "Folder to write inputs and outputs of every step to");
  command->add_option("-t,--threads", options->threads, "Threads; unless given, one a core")
      ->check(CLI::Range(1u, 1024u));
  command
      ->add_option(
          "--folded-constants-limit", options->foldedConstantsLimit,
          "Bytes for constants computed once, when the session starts; what exceeds them is "
          "computed in every step; default: a quarter of the machine's memory")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 60));
  command->add_flag("--stats", options->statistics, "Speed and memory, on stderr or in the JSON");
  addCommonOptions(*command, context);
  command->callback([options, &context] {
    context.action = [options, &context] { return run(*options, context); };
  });
}

} // namespace kvopt::cli
