// Files, manifests, certificates, and the summary of a check.
#include "driver/check/check_files.h"

#include "driver/check/check_json.h"
#include "driver/check/confirmation.h"
#include "driver/claims/claims.h"
#include "driver/recover.h"
#include "ir/onnx/import.h"
#include "ir/onnx/model_copy.h"
#include "ir/shapes/shape_inference.h"
#include "support/diagnostic.h"
#include "support/json.h"
#include "support/mapped_file.h"

#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Process.h"

namespace kvopt::driver {
using check::Obligation;
using check::Verdict;

namespace {

/// Largest manifest or certificate that is read, in bytes.
constexpr size_t mostTextBytes = size_t(64) << 20;

llvm::Expected<std::string> readText(const std::string& path) {
  auto file = MappedFile::open(path);
  if (!file)
    return file.takeError();
  const auto bytes = (*file)->bytes();
  if (bytes.size() > mostTextBytes)
    return invalid("the file is too large").file(path);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

llvm::Expected<ir::Manifest> manifestFor(const CheckRequest& request, const ir::Model& model,
                                         const Toolkit& toolkit) {
  if (request.manifest.empty())
    return drivingManifest(model, toolkit, Rotations::LeftOut);
  auto text = readText(request.manifest);
  if (!text)
    return text.takeError();
  auto manifest = ir::parseManifest(*text);
  if (!manifest)
    return withFile(manifest.takeError(), request.manifest);
  return manifest;
}

/// Infers the types that follow from what a file declares. Contradictory declarations are not an
/// error: values then have fewer types.
void inferTypes(ir::Model& model) { llvm::consumeError(ir::inferShapes(model.graph())); }

/// A copy without types that recognition inferred.
llvm::Expected<std::unique_ptr<ir::Model>> asWritten(const ir::Model& model) {
  auto copy = ir::copySharingConstants(model);
  if (copy)
    inferTypes(**copy);
  return copy;
}

} // namespace

std::string certificateDigest(const check::CheckReport& report, const std::string& before) {
  OrderedJson stated = {{"before_sha256", before}};
  stated.update(shownJson(report));
  return hexDigest(
      llvm::StringRef(stated.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)));
}

std::optional<bool> FileCheck::confirmsClaim() const {
  if (!claimed || claimed->certificate.empty() || claimed->before != before.digest)
    return std::nullopt;
  return claimed->certificate == digest;
}

bool FileCheck::areEqual(bool allowsTested) const {
  return isEqual(report.verdict(), allowsTested) && confirmsClaim() != false;
}

namespace {

uint32_t drawnSeed() { return llvm::sys::Process::GetRandomNumber(); }

} // namespace

llvm::Expected<check::CheckReport> checkAsWritten(const check::DrivenModel& before,
                                                  const check::DrivenModel& after,
                                                  const Toolkit& toolkit) {
  auto first = asWritten(before.model);
  if (!first)
    return first.takeError();
  auto second = asWritten(after.model);
  if (!second)
    return second.takeError();
  const check::DrivenModel one{**first, before.manifest}, other{**second, after.manifest};
  check::CheckReport report = check::checkModels(one, other, drawnSeed());
  confirmDifference(report, one, other, toolkit);
  return report;
}

llvm::Expected<FileCheck> checkFiles(const CheckRequest& request, const Toolkit& toolkit) {
  FileCheck result;
  auto before = openModel(request.before, toolkit);
  if (!before)
    return before.takeError();
  result.before.path = request.before.path;
  result.before.digest = digestOf(**before);
  auto manifestBefore = drivingManifest(**before, toolkit, Rotations::LeftOut);
  if (!manifestBefore)
    return withFile(manifestBefore.takeError(), request.before.path);
  auto after = openModel(request.after, toolkit);
  if (!after)
    return after.takeError();
  result.after.path = request.after.path;
  result.after.digest = digestOf(**after);
  auto manifestAfter = manifestFor(request, **after, toolkit);
  if (!manifestAfter)
    return withFile(manifestAfter.takeError(), request.after.path);
  result.before.manifestDigest = hexDigest(llvm::StringRef(manifestBefore->json()));
  result.after.manifestDigest = hexDigest(llvm::StringRef(manifestAfter->json()));
  // Recognition has worked on copies: these models have no types but those of their files.
  inferTypes(**before);
  inferTypes(**after);
  // Another manifest than that of the model is only driven.
  if (request.manifest.empty()) {
    auto claims = checkClaims({**after, *manifestAfter}, {**before, *manifestBefore}, toolkit);
    if (!claims)
      return withFile(claims.takeError(), request.after.path);
    result.unproved = std::move(claims->unproved);
  }
  // A check reads biases and tables of a file, but not what is between them.
  ir::expectFewReads(**before);
  ir::expectFewReads(**after);
  result.report = check::checkModels({**before, *manifestBefore}, {**after, *manifestAfter},
                                     request.seed ? *request.seed : drawnSeed());
  confirmDifference(result.report, {**before, *manifestBefore}, {**after, *manifestAfter}, toolkit);
  result.digest = certificateDigest(result.report, result.before.digest);
  result.claimed = std::move(manifestAfter->comparison);
  return result;
}

std::string certificateText(const FileCheck& result) {
  return certificateJson(result).dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

llvm::Expected<FileCheck> checkCertificate(const std::string& certificate,
                                           const CheckRequest& request, const Toolkit& toolkit) {
  auto text = readText(certificate);
  if (!text)
    return withFile(text.takeError(), certificate);
  const OrderedJson claimed = OrderedJson::parse(*text, nullptr, false);
  auto textAt = [&](const char* part, const char* key) -> std::string {
    if (!claimed.is_object() || !claimed.contains(part) || !claimed[part].is_object())
      return "";
    const OrderedJson& object = claimed[part];
    return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : "";
  };
  if (!claimed.is_object() || claimed.value("schema", OrderedJson()) != "kvopt/certificate/1")
    return invalid("it is not a certificate of the schema kvopt/certificate/1").file(certificate);
  CheckRequest again = request;
  if (claimed.contains("fields") && claimed["fields"].is_object() &&
      claimed["fields"].contains("seed") && claimed["fields"]["seed"].is_number_unsigned())
    again.seed = claimed["fields"]["seed"].get<uint32_t>();
  auto result = checkFiles(again, toolkit);
  if (!result)
    return result;
  for (auto [part, file] : {std::pair<const char*, const CheckedFile*>{"before", &result->before},
                            {"after", &result->after}}) {
    if (textAt(part, "sha256") != file->digest)
      return invalid("the certificate is about another file than '{}'", file->path)
          .file(certificate);
    if (textAt(part, "manifest_sha256") != file->manifestDigest)
      return invalid("the certificate is about another manifest of '{}'", file->path)
          .file(certificate);
  }
  // All that the certificate claims follows from the files alone: it must be what the check finds.
  OrderedJson found = certificateJson(*result);
  OrderedJson stated = claimed;
  for (OrderedJson* document : {&found, &stated})
    for (const char* part : {"before", "after"})
      (*document)[part].erase("file");
  if (found != stated)
    return invalid("the certificate claims something else than the check of its files shows: {} "
                   "instead of {}",
                   claimed.contains("verdict") && claimed["verdict"].is_string()
                       ? claimed["verdict"].get<std::string>()
                       : "no verdict",
                   check::verdictWord(result->report.verdict()))
        .file(certificate);
  auto other = checkFiles(request, toolkit);
  if (!other)
    return other;
  if (other->digest != result->digest)
    return invalid("the certificate holds only for the fields that it names: other fields show {}",
                   check::verdictWord(other->report.verdict()))
        .file(certificate);
  return result;
}

bool isEqual(Verdict verdict, bool allowsTested) {
  switch (verdict) {
  case Verdict::Proved:
  case Verdict::ProvedReduced:
    return true;
  case Verdict::Tested:
    return allowsTested;
  case Verdict::Different:
  case Verdict::Skipped:
    break;
  }
  return false;
}

namespace {

/// Where a value differs: the node, if one computes it, and the step.
std::string placeOf(const Obligation& part) {
  const std::string step = part.counterexample.text();
  return part.node.empty() ? formatted(" ({})", step) : formatted(" at {} ({})", part.node, step);
}

} // namespace

std::vector<std::string> checkSentences(const check::CheckReport& report) {
  const Verdict verdict = report.verdict();
  const Obligation* weakest = nullptr;
  size_t outputs = 0, equal = 0;
  for (const Obligation& part : report.obligations) {
    if (!part.isOutput)
      continue;
    ++outputs;
    equal += isEqual(part.verdict, true);
    if (part.verdict == verdict && !weakest)
      weakest = &part;
  }
  const std::string reason = weakest ? weakest->reason : "the models have no output";
  const std::string all = outputs == 1 ? "the output is" : formatted("all {} outputs are", outputs);
  std::vector<std::string> sentences;
  switch (verdict) {
  case Verdict::Proved:
  case Verdict::ProvedReduced:
    sentences.push_back(formatted("proved: {} equal at all sizes, over the real numbers: "
                                  "rounding is not looked at",
                                  all));
    break;
  case Verdict::Tested:
    sentences.push_back(formatted("not proved, but {} equal in {} steps, over the real numbers: {}",
                                  all, report.scope.size(), reason));
    break;
  case Verdict::Different:
    sentences.push_back(
        formatted("the output '{}' differs{}: {}", weakest->after, placeOf(*weakest), reason));
    break;
  case Verdict::Skipped:
    sentences.push_back(
        formatted("not decided: '{}' {}{}{}", weakest ? weakest->after : "",
                  weakest && weakest->hasElements() ? "" : "is not compared: ", reason,
                  equal == 0 ? "" : formatted("; {} of {} outputs are equal", equal, outputs)));
    break;
  }
  if (!report.assumptions.empty())
    sentences.push_back(
        formatted("assumes that {}", joinedText(report.assumptions, ", and that ")));
  if (!report.notChecked.empty())
    sentences.push_back(formatted("not looked at: {}", joinedText(report.notChecked, "; ")));
  return sentences;
}

namespace {

/// A remark on the claim of the second model.
std::string claimRemark(const FileCheck& result) {
  const std::optional<bool> isConfirmed = result.confirmsClaim();
  if (isConfirmed)
    return *isConfirmed ? "; this check finds the same certificate"
                        : "; THIS CHECK FINDS ANOTHER CERTIFICATE (exit code 1)";
  return claimedRemark(*result.claimed, result.before.digest);
}

} // namespace

SafeText checkSummary(const FileCheck& result, bool isDetailed) {
  const check::CheckReport& report = result.report;
  const Verdict verdict = report.verdict();
  SafeText text =
      formatText("{}: {}\n", check::verdictWord(verdict),
                 verdict == Verdict::Proved ? "both models compute the same, by construction"
                 : verdict == Verdict::ProvedReduced ? "both models compute the same"
                 : verdict == Verdict::Tested
                     ? "equal in the whole scope, which is not a proof (exit code 1, or 0 with "
                       "--allow-tested)"
                 : verdict == Verdict::Different ? "the models differ"
                                                 : "not every output is decided (exit code 1)");
  text += formatText(
      "  nodes    {} of {} nodes are the same in both models; {} regions compared "
      "in {} steps, {} distinct ones evaluated\n",
      report.nodesAligned, report.nodesAfter,
      llvm::count_if(report.obligations, [](const Obligation& part) { return !part.isOutput; }),
      report.scope.size(), report.regionsEvaluated);
  text +=
      formatText("  verdicts proved {}, proved-reduced {}, tested {}, different {}, skipped {}\n",
                 report.count(Verdict::Proved), report.count(Verdict::ProvedReduced),
                 report.count(Verdict::Tested), report.count(Verdict::Different),
                 report.count(Verdict::Skipped));
  for (const Obligation& part : report.obligations) {
    const bool isProved = part.verdict == Verdict::Proved || part.verdict == Verdict::ProvedReduced;
    if (isProved && !isDetailed)
      continue;
    text += formatText("  {:<8} '{}': {}", part.isOutput ? "output" : "region", part.after,
                       check::verdictWord(part.verdict));
    if (part.verdict == Verdict::Different)
      text += formatText("{}", placeOf(part));
    if (!part.place.empty())
      text += formatText(", element {}: {} instead of {}", part.place, part.afterElement,
                         part.beforeElement);
    if (!part.reason.empty())
      text += formatText("; {}", part.reason);
    text += formatText("\n");
  }
  for (const std::string& assumption : report.assumptions)
    text += formatText("  assumes  {}\n", assumption);
  for (const std::string& gap : report.notChecked)
    text += formatText("  not checked: {}\n", gap);
  for (const std::string& claim : result.unproved)
    text += formatText("  not proved: {}\n", claim);
  text += formatText("  Equality is over the real numbers: rounding is not looked at.\n");
  if (result.claimed)
    text += formatText("  claimed  {}{}\n", claimSentence(*result.claimed), claimRemark(result));
  return text;
}

} // namespace kvopt::driver
