// Summary of kvopt run: tokens, text, stop reason, speed and memory.
#pragma once

#include "cli/support/command.h"
#include "driver/generate/generation.h"

namespace kvopt::cli {

struct RunReport {
  std::string model;
  std::vector<std::vector<int64_t>> prompts;
  bool isText = false; ///< whether tokens are bytes
  runtime::SamplingOptions sampling;
  driver::GenerationResult result;
};

/// Bytes of the tokens of a byte-level model; empty for numbers that are not bytes.
std::string textOfBytes(llvm::ArrayRef<int64_t> tokens);

/// `kvopt/run/1`, with the statistics of `session` unless it is null.
OrderedJson runJson(const RunReport& report, const runtime::Session* session);
/// Token numbers or text, one line for each sequence.
SafeText runText(const RunReport& report);
/// Remarks about inputs that were made up, and about sequences that ended because caches were full.
std::vector<SafeText> runRemarks(const RunReport& report, const runtime::Session& session);
SafeText statisticsText(const RunReport& report, const runtime::Session& session);

} // namespace kvopt::cli
