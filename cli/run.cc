// kvopt run: generation with a session.
#include "cli/report/run_report.h"
#include "cli/report/step_dump.h"
#include "cli/support/command.h"
#include "cli/support/input_option.h"
#include "cli/support/progress.h"
#include "driver/first_step.h"
#include "driver/recover.h"
#include "driver/verify/claims.h"
#include "driver/verify/verification.h"
#include "ir/onnx/import.h"
#include "ir/shapes/shape_inference.h"
#include "support/format.h"
#include "support/mapped_file.h"

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
  /// The same for the model that drafts: from the start, and with what it needs for itself.
  RunOptions ofDraft() const {
    RunOptions its = *this;
    its.model = draft;
    its.capacity = 0;
    its.load.clear();
    its.save.clear();
    its.dump.clear();
    its.crop.reset();
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

/// A model with a session that has been brought to where generation starts.
struct Driven {
  std::unique_ptr<Model> model;
  Manifest manifest;
  std::unique_ptr<Session> session;
};

/// Tokens of the longest sequence in a cache file.
llvm::Expected<int64_t> savedLength(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.takeError();
  auto contents = parseCacheFile((*file)->bytes());
  if (!contents)
    return withFile(contents.takeError(), path);
  return *std::max_element(contents->lengths.begin(), contents->lengths.end());
}

/// Room for a cache that is loaded and for what comes on top.
llvm::Expected<int64_t> neededCapacity(const RunOptions& options,
                                       llvm::ArrayRef<std::vector<int64_t>> prompts) {
  int64_t past = 0;
  if (!options.load.empty()) {
    auto saved = savedLength(options.load);
    if (!saved)
      return saved.takeError();
    past = *saved;
  }
  size_t longest = 0;
  for (const std::vector<int64_t>& prompt : prompts)
    longest = std::max(longest, prompt.size());
  return past + static_cast<int64_t>(longest) + options.steps;
}

/// The session of a model that was opened.
llvm::Expected<Driven> drive(std::unique_ptr<Model> model, const RunOptions& options,
                             llvm::ArrayRef<std::vector<int64_t>> prompts, const Toolkit& toolkit) {
  Driven driven;
  driven.model = std::move(model);
  if (llvm::Error error = inferShapes(driven.model->graph()))
    return withFile(std::move(error), options.model);
  auto manifest = drivingManifest(*driven.model, toolkit);
  if (!manifest)
    return manifest.takeError();
  if (!options.contextShift.empty())
    if (llvm::Error error = proveRotations({*driven.model, *manifest}, toolkit))
      return error;

  SessionOptions settings;
  settings.mode = options.mode == "stateful" ? SessionOptions::Mode::Stateful
                                             : SessionOptions::Mode::AsManifest;
  settings.threads = options.threads;
  settings.foldedConstantsLimit = options.foldedConstantsLimit;
  settings.batch = static_cast<int64_t>(prompts.size());
  settings.capacity = options.capacity;
  if (settings.capacity == 0 && settings.mode == SessionOptions::Mode::AsManifest &&
      !manifest->capacityValue) {
    auto needed = neededCapacity(options, prompts);
    if (!needed)
      return needed.takeError();
    settings.capacity = *needed;
  }
  auto session = Session::create(*driven.model, toolkit.kernels, *manifest, settings);
  if (!session)
    return withFile(session.takeError(), options.model);
  driven.session = std::move(*session);
  driven.manifest = std::move(*manifest);
  if (!options.load.empty())
    if (llvm::Error error = driven.session->load(options.load))
      return error;
  if (options.crop)
    if (llvm::Error error = driven.session->crop(*options.crop))
      return withFile(std::move(error), options.load);
  return driven;
}

/// What generates, and what drafts for it; a draft without a model where there is none.
struct DrivenPair {
  Driven main;
  Driven draft;
};

/// Opens all models before anything is made of them: the outputs are compared with all files.
llvm::Expected<DrivenPair> openDriven(const RunOptions& options,
                                      llvm::ArrayRef<std::vector<int64_t>> prompts,
                                      const CommandContext& context) {
  auto model = openModel(options.model, context.toolkit);
  if (!model)
    return model.takeError();
  std::unique_ptr<Model> draftModel;
  if (!options.draft.empty()) {
    auto opened = openModel(options.draft, context.toolkit);
    if (!opened)
      return opened.takeError();
    draftModel = std::move(*opened);
  }
  if (llvm::Error error = context.files().checkOutputs())
    return error;
  DrivenPair pair;
  auto driven = drive(std::move(*model), options, prompts, context.toolkit);
  if (!driven)
    return driven.takeError();
  pair.main = std::move(*driven);
  if (!draftModel)
    return pair;
  auto draft = drive(std::move(draftModel), options.ofDraft(), prompts, context.toolkit);
  if (!draft)
    return draft.takeError();
  pair.draft = std::move(*draft);
  return pair;
}

/// Text of one sequence is printed as it is generated; everything else in the end.
bool isStreamed(const RunOptions& options, const CommandContext& context) {
  return !context.common.json() && options.isText() && options.texts.size() == 1;
}

/// Runs what is computed once for an encoded sequence, on the recipes for its inputs. The others
/// are left to the model, and those for what would have been computed go before that.
llvm::Error computeFirst(const RunOptions& options, const Driven& driven,
                         llvm::ArrayRef<InputRecipe> recipes, const Toolkit& toolkit,
                         FeedOptions& settings) {
  const Session& session = *driven.session;
  auto first = openFirstStep(options.model, driven.manifest, toolkit);
  if (!first)
    return first.takeError();
  for (const InputRecipe& recipe : recipes)
    if (hasInput(session.graph(), recipe.input) || !*first ||
        !hasInput((*first)->graph(), recipe.input))
      settings.recipes.push_back(recipe);
  if (!*first)
    return llvm::Error::success();
  auto computed = runFirstStep(**first, session.batch(), recipes, options.threads, toolkit);
  if (!computed)
    return computed.takeError();
  for (NamedTensor& cache : *computed)
    if (hasInput(session.graph(), cache.name) &&
        llvm::none_of(recipes, [&](const auto& recipe) { return recipe.input == cache.name; }))
      settings.computed.push_back(std::move(cache));
  return llvm::Error::success();
}

llvm::Expected<GenerationResult> generateWith(const RunOptions& options,
                                              llvm::ArrayRef<std::vector<int64_t>> prompts,
                                              DrivenPair& driven, StepDump* dump,
                                              const CommandContext& context) {
  Session& session = *driven.main.session;
  const Driven& draft = driven.draft;
  GenerationOptions settings;
  settings.steps = options.steps;
  settings.chunk = options.chunk;
  settings.sampling = options.sampling();
  auto recipes = recipesOf(options.inputs);
  if (!recipes)
    return recipes.takeError();
  if (llvm::Error error =
          computeFirst(options, driven.main, *recipes, context.toolkit, settings.feed))
    return error;
  settings.shift.isOn = !options.contextShift.empty();
  settings.shift.kept = options.keptByShift().value_or(0);
  settings.shift.capacity = options.capacity;
  settings.draft.session = draft.session.get();
  settings.draft.tokens = options.draftTokens;
  if (draft.session) {
    llvm::erase_if(*recipes, [&](const InputRecipe& recipe) {
      return !hasInput(draft.session->graph(), recipe.input);
    });
    if (llvm::Error error =
            computeFirst(options.ofDraft(), draft, *recipes, context.toolkit, settings.draft.feed))
      return error;
  }
  settings.stopTokens = options.stopTokens;
  for (const std::string& text : options.stopTexts)
    settings.stopSequences.push_back(bytesOf(text));
  if (dump)
    settings.feed.onStep = [dump](int64_t tokens, llvm::ArrayRef<NamedTensor> inputs,
                                  const StepResult& result) {
      return dump->write(tokens, inputs, result);
    };
  Progress progress(context.common);
  LineEscaper escaper;
  int64_t count = 0;
  if (isStreamed(options, context))
    settings.onToken = [&](int64_t, int64_t token) {
      printOut(escaper.add(textOfBytes(token)));
      std::fflush(stdout);
    };
  else
    settings.onToken = [&](int64_t, int64_t) {
      progress.show(fmt::format("{} of up to {} tokens", ++count,
                                options.steps * static_cast<int64_t>(prompts.size())));
    };
  auto generated = generate(session, prompts, settings);
  if (isStreamed(options, context))
    printOut(escaper.finish() + "\n");
  if (!generated)
    return withFile(generated.takeError(), options.model);
  return generated;
}

llvm::Expected<ExitCode> run(const RunOptions& options, const CommandContext& context) {
  if (llvm::Error error = check(options))
    return error;
  auto prompts = promptsOf(options);
  if (!prompts)
    return prompts.takeError();
  auto driven = openDriven(options, *prompts, context);
  if (!driven)
    return driven.takeError();
  const Session& session = *driven->main.session;
  std::optional<StepDump> dump;
  if (!options.dump.empty()) {
    auto created = StepDump::create(options.dump, context.files());
    if (!created)
      return created.takeError();
    dump.emplace(std::move(*created));
  }
  auto generated = generateWith(options, *prompts, *driven, dump ? &*dump : nullptr, context);
  if (!generated)
    return generated.takeError();
  RunReport report{options.model, *prompts, options.isText(), options.sampling(), *generated};
  if (options.isText())
    for (const GeneratedSequence& sequence : generated->sequences)
      for (int64_t token : sequence.tokens)
        if (textOfBytes(token).empty())
          return usageError("token {} is outside 0-255", token)
              .hint("--text is for byte-level models; use --tokens");
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
