// What kvopt run says in the end: tokens, text, why it stopped, speed and memory.
#pragma once

#include "cli/support/command.h"
#include "driver/generate/generation.h"

namespace kvopt::cli {

struct RunReport {
  std::string model;
  std::vector<std::vector<int64_t>> prompts;
  bool isText = false; ///< tokens are bytes
  runtime::SamplingOptions sampling;
  driver::GenerationResult result;
};

/// The byte that a token of a byte-level model is; empty for a number that is none.
std::string textOfBytes(llvm::ArrayRef<int64_t> tokens);

/// `kvopt/run/1`; with the statistics of `session` unless it is null.
OrderedJson runJson(const RunReport& report, const runtime::Session* session);
/// Token numbers, or text, a line for each sequence.
SafeText runText(const RunReport& report);
/// Says where sequences ended because caches were full.
std::vector<SafeText> stopRemarks(const RunReport& report, const runtime::Session& session);
SafeText statisticsText(const RunReport& report, const runtime::Session& session);

} // namespace kvopt::cli
