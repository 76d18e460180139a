// kvopt run: generation with a session.
#include "cli/running/run_report.h"
#include "cli/running/step_dump.h"
#include "cli/support/command.h"
#include "cli/support/command_options.h"
#include "driver/generate/decoding.h"
#include "driver/verify/text_reader.h"
#include "support/format.h"
#include "support/json.h"
#include "support/progress.h"

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
  std::vector<std::string> tokens; ///< one per prompt
  std::vector<std::string> texts;
  std::vector<std::string> stopTexts;
  std::vector<int64_t> stopTokens;
  int64_t steps = 32;
  int64_t chunk = 0;
  SamplingWords sampling;
  SessionOptions::Mode mode = SessionOptions::Mode::AsManifest;
  int64_t capacity = 0;
  unsigned threads = 0;
  std::string load;
  std::string save;
  std::optional<int64_t> crop;
  std::string contextShift; ///< number of tokens that stay, as text; empty: no context shift
  std::string dump;
  std::string draft;
  int64_t draftTokens = 4;
  std::vector<std::string> inputs;
  std::vector<std::string> states;
  bool statistics = false;
  int64_t foldedConstantsLimit = -1;

  bool isText() const { return !texts.empty(); }
  /// Number of tokens that a context shift keeps; nullopt if the text is not a valid number.
  std::optional<int64_t> keptByShift() const {
    int64_t kept = 0;
    const bool isNumber = !contextShift.empty() && llvm::all_of(contextShift, llvm::isDigit);
    if (!isNumber || llvm::StringRef(contextShift).getAsInteger(10, kept))
      return std::nullopt;
    return kept;
  }
  /// Settings of the model that generates or, with `isDraft`, of the one that drafts. The draft
  /// starts with empty caches of the required capacity.
  GeneratingModel driven(bool isDraft) const {
    GeneratingModel its;
    its.path = isDraft ? draft : model;
    its.mode = mode;
    its.threads = threads;
    its.foldedConstantsLimit = foldedConstantsLimit;
    if (isDraft)
      return its;
    its.capacity = capacity;
    its.load = load;
    its.crop = crop;
    return its;
  }
};

/// Tokens of a byte-level model: the bytes of the text.
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
  return checkSampling(options.sampling.options());
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
  settings.sampling = options.sampling.options();
  settings.shift.isOn = !options.contextShift.empty();
  settings.shift.kept = options.keptByShift().value_or(0);
  settings.shift.capacity = options.capacity;
  settings.stopTokens = options.stopTokens;
  for (const std::string& text : options.stopTexts)
    settings.stopSequences.push_back(bytesOf(text));
  return request;
}

/// Whether tokens are printed as they are generated: only the text of a single sequence is; other
/// output follows at the end.
bool isStreamed(const RunOptions& options, const CommandContext& context) {
  return !context.common.json() && options.isText() && options.texts.size() == 1;
}

/// Generates, and meanwhile prints tokens or shows progress.
llvm::Expected<GenerationResult> generateWith(const RunOptions& options, Decoding& decoding,
                                              StepDump* dump, const CommandContext& context) {
  GenerationOptions& settings = decoding.request().options;
  if (dump)
    settings.feed.onStep = [dump](int64_t tokens, llvm::ArrayRef<NamedTensor> inputs,
                                  const StepResult& result) {
      return dump->write(tokens, inputs, result);
    };
  LineEscaper escaper;
  const auto most = options.steps * static_cast<int64_t>(decoding.request().prompts.size());
  const bool streams = isStreamed(options, context);
  Progress progress(streams ? nullptr : context.toolkit.progress, "generating");
  progress.expect(static_cast<double>(most));
  if (streams)
    settings.onToken = [&](int64_t, int64_t token) {
      printOut(escaper.add(textOfBytes(token)));
      flushOut();
    };
  else
    settings.onToken = [&](int64_t, int64_t) { progress.advance(1); };
  auto generated = decoding.run();
  if (streams)
    printOut(escaper.finish() + "\n");
  return generated;
}

/// Checks that tokens of a byte-level model are bytes.
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
  auto recipes = parseInputRecipes(options.inputs, options.states);
  if (!recipes)
    return recipes.takeError();
  decoding.request().recipes = std::move(*recipes);
  if (llvm::Error error = context.files().checkOutputs())
    return error;
  if (llvm::Error error = decoding.start())
    return error;
  const Session& session = decoding.session();
  if (options.isText())
    if (llvm::Error error =
            checkByteTokens(session.graph(), session.manifest().inputs, "--text", "--tokens"))
      return withFile(std::move(error), options.model);
  std::optional<StepDump> dump;
  if (!options.dump.empty()) {
    auto created = StepDump::create(options.dump, context.files());
    if (!created)
      return created.takeError();
    dump.emplace(std::move(*created));
  }
  if (const std::string untested = decoding.untested(); !untested.empty())
    context.remark(formatText("remark: {}", untested));
  auto generated = generateWith(options, decoding, dump ? &*dump : nullptr, context);
  if (!generated)
    return generated.takeError();
  RunReport report{options.model, decoding.request().prompts, options.isText(),
                   options.sampling.options(), std::move(*generated)};
  if (options.isText())
    if (llvm::Error error = checkBytes(report.result))
      return error;
  // Files come first, because a program that reads the output may rely on them.
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
  for (const SafeText& line : runRemarks(report, session))
    context.remark(line);
  if (!options.save.empty())
    context.remark(formatText("wrote {}: {} tokens; the last one generated is not among them",
                              options.save, session.length()));
  if (options.statistics && !context.common.json())
    context.remark(statisticsText(report, session));
  return ExitCode::Done;
}

void addPromptOptions(CommandOptions& add, RunOptions& options) {
  auto* tokens = add.add("--tokens", options.tokens)->allow_extra_args(false);
  add.add("--text", options.texts)->allow_extra_args(false)->excludes(tokens);
  add.add("--steps", options.steps);
  add.add("--chunk", options.chunk);
  add.add("--eos", options.stopTokens)->allow_extra_args(false);
  add.add("--stop", options.stopTexts)->allow_extra_args(false);
}

void addSamplingOptions(CommandOptions& add, RunOptions& options) {
  add.add("--temperature", options.sampling.temperature);
  add.add("--top-k", options.sampling.topK);
  add.add("--top-p", options.sampling.topP);
  add.add("--seed", options.sampling.seed);
}

void addDraftOptions(CommandOptions& add, RunOptions& options) {
  auto* draft = add.add("--draft", options.draft);
  add.add("--draft-tokens", options.draftTokens)->needs(draft);
}

void addCacheOptions(CommandOptions& add, RunOptions& options) {
  add.add(
      "--mode", options.mode,
      {{"shared", SessionOptions::Mode::AsManifest}, {"stateful", SessionOptions::Mode::Stateful}});
  add.add("--capacity", options.capacity);
  add.addInput("--load-cache", options.load, "the cache");
  add.add("--crop", options.crop);
  // The value is text, because the parser would read a flag's number 0 as false.
  add.add("--context-shift", options.contextShift);
  add.add("--save-cache", options.save);
}

} // namespace

void addRunCommand(CLI::App& app, CommandContext& context) {
  auto options = std::make_shared<RunOptions>();
  CLI::App* command = addCommand(app, Command::Run);
  CommandOptions add(*command, context, Command::Run);
  add.add("model", options->model);
  addPromptOptions(add, *options);
  addSamplingOptions(add, *options);
  addDraftOptions(add, *options);
  addCacheOptions(add, *options);
  add.add("--input", options->inputs);
  add.add("--state", options->states);
  add.add("--dump", options->dump);
  add.add("--threads", options->threads);
  add.add("--folded-constants-limit", options->foldedConstantsLimit);
  add.add("--stats", options->statistics);
  add.addCommon();
  command->callback([options, &context] {
    context.action = [options, &context] { return run(*options, context); };
  });
}

} // namespace kvopt::cli
