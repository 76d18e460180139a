// Facts of recognized decoders, and rewritten decoders.
#include "tests/generated/recognition.h"

#include "ir/onnx/model_copy.h"
#include "support/diagnostic.h"
#include "support/format.h"
#include "tests/generated/model_run.h"

namespace kvopt::generated {
using namespace analysis;
using namespace ir;

namespace {

class FactCheck {
public:
  FactCheck(const DecoderSizes& known, Recognition& found) : sizes(known), recognition(found) {}

  void check(const AttentionSite& site, size_t siteCount) {
    // A layer that was not seen at all leaves its number to the next one.
    const bool isNumbered = siteCount == sizes.windows.size();
    window = isNumbered ? sizes.windows[site.layer] : -1;
    expect(site, "query heads", site.queryHeads, sizes.heads);
    // Heads that are repeated by arithmetic are cached as often as attention reads them.
    recognition.cachesRepeats |=
        site.keyHeads.value() == sizes.heads && sizes.groups != sizes.heads;
    if (!recognition.cachesRepeats)
      expect(site, "key heads", site.keyHeads, sizes.groups);
    expect(site, "key width", site.keyWidth, sizes.width);
    expect(site, "value width", site.valueWidth, sizes.width);
    if (site.update != (sizes.isStatic ? CacheUpdate::Static : CacheUpdate::Grows))
      wrong(site, formatted("the kind of its caches is {}", static_cast<int>(site.update)));
    if (site.isCross || site.isLatent() || site.owner)
      wrong(site, "it is cross-attention, latent, or shares its caches");
    checkMask(site);
  }

private:
  void checkMask(const AttentionSite& site) {
    if (window < 0)
      return;
    if (!site.mask)
      return wrong(site, "nothing is said of its mask");
    if (site.mask->causal == Proof::Refuted && !site.mask->causalIf)
      return wrong(site, "its causal mask is refuted: " + site.mask->text);
    if (site.window() != 0 && (window == 0 || site.window() < window))
      wrong(site, formatted("its window is {}, not {}", site.window(), window));
    const bool isCausal = site.mask->causal == Proof::Proved || site.mask->causalIf;
    if (isCausal && site.window() != window)
      wrong(site, formatted("its window is {}, not {}", site.window(), window));
    recognition.provesMasks &= isCausal;
  }

  void expect(const AttentionSite& site, const char* what, const Dim& found, int64_t known) {
    if (found.value() != known)
      wrong(site, formatted("{} are {}, not {}", what, found.str(), known));
  }

  void wrong(const AttentionSite& site, std::string sentence) {
    recognition.wrongFacts.push_back(site.id() + ": " + std::move(sentence));
  }

  const DecoderSizes& sizes;
  Recognition& recognition;
  int64_t window = 0; ///< of the site's layer; -1: not known
};

/// What `lower` made of a copy of the decoder; no manifest where it took nothing.
struct RewrittenDecoder {
  std::unique_ptr<Model> model;
  std::optional<Manifest> manifest;
  size_t lowered = 0; ///< attention layers
};

llvm::Expected<RewrittenDecoder> rewritten(const Model& model, llvm::StringRef target,
                                           const driver::Toolkit& toolkit) {
  auto copy = copySharingConstants(model);
  if (!copy)
    return copy.takeError();
  RewrittenDecoder result;
  result.model = std::move(*copy);
  passes::PassContext context(toolkit.rules, toolkit.targets);
  passes::PassManager manager(toolkit.passes, {});
  const std::string lower = formatted(",lower{{to={} require=any}},eliminate-dead-nodes", target);
  if (llvm::Error error = manager.addPipeline(std::string(driver::recoveryPipeline) + lower))
    return error;
  if (llvm::Error error = manager.run(*result.model, context)) {
    if (!error.isA<passes::RefusedError>())
      return error;
    llvm::consumeError(std::move(error));
    return result;
  }
  result.manifest = std::move(context.manifest);
  result.lowered = context.lowered.size();
  return result;
}

} // namespace

Recognition recognitionOf(const GeneratedDecoder& decoder, const driver::Toolkit& toolkit) {
  Recognition recognition;
  auto recovered = driver::recoverCopy(*decoder.model, toolkit);
  if (!recovered) {
    recognition.wrongFacts.push_back(takeDiagnostic(recovered.takeError()).str());
    return recognition;
  }
  FactCheck facts(decoder.sizes, recognition);
  for (const AttentionSite& site : recovered->context->sites) {
    ++recognition.sites;
    if (site.isMatched() && site.hasCache()) {
      ++recognition.matched;
      if (!decoder.nearMiss)
        facts.check(site, recovered->context->sites.size());
    } else {
      recognition.reasons.insert(site.isMatched() ? "no-cache"
                                                  : pattern::reasonName(site.failure->code).str());
    }
  }
  if (!decoder.nearMiss && recognition.sites != decoder.sizes.windows.size())
    recognition.reasons.insert("other-sites");
  recognition.sites = std::max(recognition.sites, decoder.sizes.windows.size());
  recognition.provesMasks &= recognition.isWhole();
  return recognition;
}

std::string rewriteDifference(const GeneratedDecoder& decoder, llvm::StringRef target,
                              const driver::Toolkit& toolkit) {
  auto found = rewritten(*decoder.model, target, toolkit);
  if (!found)
    return takeDiagnostic(found.takeError()).str();
  if (!found->manifest)
    return "";
  // As it is read from a file.
  auto read = copySharingConstants(*decoder.model);
  if (!read)
    return takeDiagnostic(read.takeError()).str();
  const RecordedRun expected = runAsBuilt(**read, toolkit);
  if (!expected.failure.empty())
    return "the decoder cannot be run: " + expected.failure;
  const bool hasSameInputs =
      llvm::all_of(found->model->graph().inputs(), [&](const std::unique_ptr<Value>& input) {
        return decoder.model->graph().findValue(input->name()) != nullptr;
      });
  if (hasSameInputs && target == "primitive")
    return differenceOf(expected, runAsBuilt(*found->model, toolkit));
  // A session cannot drive caches that were not found.
  if (found->lowered != decoder.sizes.windows.size())
    return "";
  return differenceOf(expected, runByManifest(*found->model, *found->manifest, toolkit));
}

} // namespace kvopt::generated
