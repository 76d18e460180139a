// Reports of a run as text and JSON.
#include "cli/running/run_report.h"

#include "support/format.h"
#include "support/json.h"
#include "llvm/ADT/STLExtras.h"

namespace kvopt::cli {
using namespace driver;
using namespace ir;
using namespace runtime;

std::string textOfBytes(llvm::ArrayRef<int64_t> tokens) {
  std::string text;
  for (int64_t token : tokens) {
    if (token < 0 || token > 255)
      return "";
    text += static_cast<char>(token);
  }
  return text;
}

namespace {

const char* nameOf(StopReason reason) {
  switch (reason) {
  case StopReason::Steps:
    return "steps";
  case StopReason::Token:
    return "token";
  case StopReason::Sequence:
    return "sequence";
  case StopReason::Capacity:
    return "capacity";
  }
  return "";
}

double rate(int64_t tokens, double seconds) {
  return seconds > 0 ? static_cast<double>(tokens) / seconds : 0.0;
}

OrderedJson sequenceJson(const RunReport& report, size_t row) {
  const GeneratedSequence& sequence = report.result.sequences[row];
  return {
      {"prompt_tokens", report.prompts[row]},
      {"tokens", sequence.tokens},
      {"text", report.isText ? OrderedJson(textOfBytes(sequence.tokens)) : OrderedJson(nullptr)},
      {"stopped", nameOf(sequence.stopped)}};
}

OrderedJson statisticsJson(const RunReport& report, const Session& session) {
  const GenerationResult& result = report.result;
  const RunStatistics& last = session.statistics().lastRun;
  OrderedJson json = {{"prefill_tokens", result.promptTokens},
                      {"prefill_tps", rate(result.promptTokens, result.prefillSeconds)},
                      {"decode_tokens", result.decodedTokens},
                      {"decode_tps", rate(result.decodedTokens, result.decodeSeconds)},
                      {"draft_tokens", result.draftedTokens},
                      {"draft_tokens_accepted", result.acceptedTokens},
                      {"context_shifts", result.contextShifts},
                      {"dropped_tokens", result.droppedTokens}};
  json.update(memoryJson(session));
  json.update({{"temporary_last_bytes", last.temporaryPeak()},
               {"folded_nodes", last.foldedNodes},
               {"folded_bytes", last.foldedBytes},
               {"streamed_nodes", last.streamedNodes}});
  for (const auto& entry : last.definedNodes)
    json["defined_nodes"][entry.getKey().str()] = entry.getValue();
  return json;
}

} // namespace

OrderedJson runJson(const RunReport& report, const Session* session) {
  OrderedJson json;
  json["schema"] = "kvopt/run/1";
  json["model"] = report.model;
  // A single sequence is the common case: its values are also at the top level.
  json.update(sequenceJson(report, 0));
  json["sampling"] = {{"temperature", report.sampling.temperature},
                      {"top_k", report.sampling.topK},
                      {"top_p", report.sampling.topP},
                      {"seed", report.sampling.seed}};
  json["made_up"] = report.result.madeUp;
  json["sequences"] = OrderedJson::array();
  for (size_t row = 0; row < report.prompts.size(); ++row)
    json["sequences"].push_back(sequenceJson(report, row));
  if (session)
    json["stats"] = statisticsJson(report, *session);
  return json;
}

SafeText runText(const RunReport& report) {
  SafeText text;
  for (const GeneratedSequence& sequence : report.result.sequences)
    text += report.isText ? textOfBytes(sequence.tokens) + "\n"
                          : formatted("{}\n", joinedText(sequence.tokens, ","));
  return text;
}

namespace {

/// Some names of a list, and the number of others.
SafeText namesText(llvm::ArrayRef<std::string> names) {
  constexpr size_t mostNamed = 4;
  SafeText text;
  for (const std::string& name : names.take_front(mostNamed))
    text += formatText("{}'{}'", text.empty() ? "" : ", ", name);
  if (names.size() > mostNamed)
    text += formatText(" and {} more", names.size() - mostNamed);
  return text;
}

} // namespace

std::vector<SafeText> runRemarks(const RunReport& report, const Session& session) {
  std::vector<SafeText> remarks;
  if (const auto& names = report.result.madeUp; !names.empty())
    remarks.push_back(
        formatText("kvopt made up the contents of {}, and the tokens follow from them; "
                   "--input NAME=VALUE gives other contents",
                   namesText(names)));
  bool isFull = llvm::any_of(report.result.sequences, [](const GeneratedSequence& sequence) {
    return sequence.stopped == StopReason::Capacity;
  });
  if (isFull)
    remarks.push_back(
        formatText("stopped after {} tokens: the cache's capacity of {} is used up; --mode "
                   "stateful grows, --capacity gives more, --context-shift drops old tokens",
                   report.result.sequences.front().tokens.size(), session.capacity()));
  return remarks;
}

namespace {

/// Text such as ` · 12 of 16 guesses right`; empty without a draft.
std::string draftText(const GenerationResult& result) {
  return result.draftedTokens == 0
             ? ""
             : formatted(" · {} of {} guesses right", result.acceptedTokens, result.draftedTokens);
}

/// Text such as ` · 96 tokens dropped in 3 context shifts`; empty if there were none.
std::string shiftText(const GenerationResult& result) {
  return result.contextShifts == 0 ? ""
                                   : formatted(" · {} tokens dropped in {} context shifts",
                                               result.droppedTokens, result.contextShifts);
}

} // namespace

namespace {

/// "by definition, slowly: 2 Resize, 1 GridSample"; empty if all nodes have kernels.
SafeText definedNodesText(const RunStatistics& statistics) {
  std::vector<std::string> parts;
  for (const auto& entry : statistics.definedNodes)
    parts.push_back(formatted("{} {}", entry.getValue(), entry.getKey().str()));
  std::sort(parts.begin(), parts.end());
  return parts.empty() ? SafeText()
                       : formatText("\nby definition, slowly: {}", joinedText(parts, ", "));
}

} // namespace

SafeText statisticsText(const RunReport& report, const Session& session) {
  const GenerationResult& result = report.result;
  const SessionStatistics& counters = session.statistics();
  const SafeText text = formatText(
      "prefill {} tokens, {:.1f} tokens/s · decode {} tokens, {:.1f} tokens/s{}{}\n"
      "cache {} bytes for {} tokens · written {} · copied in place of overwriting {} · moved by "
      "growth {} · reallocations {}\n"
      "temporary memory: peak {} bytes, last step {} bytes\n"
      "constants: {} nodes computed once, {} bytes · {} in every step",
      result.promptTokens, rate(result.promptTokens, result.prefillSeconds), result.decodedTokens,
      rate(result.decodedTokens, result.decodeSeconds), draftText(result), shiftText(result),
      session.cacheBytes(), session.length(), counters.cacheBytesWritten,
      counters.inPlaceBytesCopied, counters.cacheBytesMoved, counters.cacheReallocations,
      counters.temporaryPeak, counters.lastRun.temporaryPeak(), counters.lastRun.foldedNodes,
      counters.lastRun.foldedBytes, counters.lastRun.streamedNodes);
  return text + definedNodesText(counters.lastRun);
}

} // namespace kvopt::cli
