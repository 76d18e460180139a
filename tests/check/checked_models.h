// Models as text, for tests of checks.
#pragma once

#include "check/checker.h"
#include "tests/ir/text/text_fixture.h"

#include "llvm/ADT/STLExtras.h"

namespace kvopt::check {

inline std::unique_ptr<ir::Model> read(const std::string& text) {
  auto model = ir::readText(text, textRegistry());
  if (!model) {
    ADD_FAILURE() << takeDiagnostic(model.takeError()).str();
    return nullptr;
  }
  return std::move(*model);
}

/// The text with the first occurrence of `from` replaced, which it must have.
inline std::string edited(std::string text, const std::string& from, const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

/// The verdict and reason of the weakest output.
inline std::string weakest(const CheckReport& report) {
  for (const Obligation& obligation : report.obligations)
    if (obligation.isOutput && obligation.verdict == report.verdict())
      return std::string(verdictWord(obligation.verdict)) + ": " + obligation.reason;
  return verdictWord(report.verdict());
}

/// Whether an assumption of the report has a text in it.
inline bool assumes(const CheckReport& report, const std::string& text) {
  return llvm::any_of(report.assumptions, [&](const std::string& assumption) {
    return assumption.find(text) != std::string::npos;
  });
}

} // namespace kvopt::check
