// Reading, transforming and raising subjects, and the lines that describe their sites.
#include "tests/transformations/subject.h"

#include "driver/inspect/site_facts.h"
#include "ir/onnx/import.h"
#include "ir/shapes/shape_inference.h"
#include "passes/analysis/cache/site_words.h"
#include "passes/pattern/reason.h"
#include "passes/targets/target.h"
#include "runtime/equivalence/reference_steps.h"
#include "support/json.h"
#include "tests/equivalence/corpus/corpus.h"

#include "llvm/ADT/StringExtras.h"

#include <algorithm>
#include <set>

namespace kvopt {
using namespace analysis;
using namespace driver;
using namespace ir;
using namespace passes;
using namespace pattern;
using namespace runtime;
using namespace targets;

namespace {

namespace fs = std::filesystem;

void addSubjects(const fs::path& folder, std::vector<Subject>& subjects) {
  for (const std::string& name : foldersWith(folder, "model.onnx")) {
    Subject subject;
    subject.name = name;
    subject.file = (folder / name / "model.onnx").string();
    if (auto cases = referenceCases((folder / name).string()); !cases.empty())
      subject.steps = cases.front().path;
    subjects.push_back(std::move(subject));
  }
}

/// FNV-1a: the same everywhere.
uint64_t seedOf(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325u;
  for (char letter : text)
    hash = (hash ^ static_cast<unsigned char>(letter)) * 0x100000001B3u;
  return hash;
}

void forgetSource(Model& model) {
  forEachGraph(model.graph(), [](Graph& graph) {
    graph.setSource(nullptr);
    for (const std::unique_ptr<Value>& input : graph.inputs())
      input->setSource(nullptr);
  });
  model.markEdited();
}

/// What sites are told in, independent of names.
class Words {
public:
  Words(const Graph& describedGraph, const TransformedModel& transformed) : graph(describedGraph) {
    for (const auto& [before, after] : transformed.renamed)
      oldNames[after] = before;
    for (const std::unique_ptr<Value>& input : graph.inputs())
      if (input->type().hasRank())
        for (const Dim& extent : input->type().shape())
          for (const std::string& symbol : extent.symbols())
            extents.insert(symbol);
  }

  /// A name after the transformation, as it was before.
  std::string oldName(llvm::StringRef name) const {
    auto found = oldNames.find(name.str());
    return found == oldNames.end() ? name.str() : found->second;
  }
  std::string oldName(const Value* value) const { return value ? oldName(value->name()) : "-"; }

  /// The words and signs of a formula, sorted: terms of a sum come in the order of their names.
  std::string ofFormula(llvm::StringRef text) const {
    auto isPart = [](char letter) {
      return llvm::isAlnum(letter) || letter == '_' || letter == '.' || letter == '/';
    };
    std::vector<std::string> words;
    while (!text.empty()) {
      llvm::StringRef word = text.take_while(isPart);
      if (!word.empty()) {
        const Value* value = graph.findValue(word);
        if (extents.count(word.str())) {
          words.push_back("(extent)");
          text = text.drop_front(word.size());
          continue;
        }
        words.push_back(value && !value->isGraphInput() ? "(value)" : oldName(word));
        text = text.drop_front(word.size());
        continue;
      }
      if (text.front() != ' ' && text.front() != '+')
        words.emplace_back(1, text.front());
      text = text.drop_front();
    }
    std::sort(words.begin(), words.end());
    return llvm::join(words, " ");
  }

private:
  const Graph& graph;
  std::map<std::string, std::string> oldNames;
  std::set<std::string> extents;
};

/// Lines of the first list that the second does not have.
std::string missingLines(llvm::ArrayRef<std::string> lines, llvm::ArrayRef<std::string> from,
                         const char* mark) {
  std::vector<std::string> missing;
  std::set_difference(lines.begin(), lines.end(), from.begin(), from.end(),
                      std::back_inserter(missing));
  std::string text;
  for (const std::string& line : missing)
    text += formatted("  {} {}\n", mark, line);
  return text;
}

} // namespace

std::vector<Subject> shippedSubjects() {
  std::vector<Subject> subjects;
  addSubjects(fs::path(KVOPT_SOURCE_DIR) / "models", subjects);
  return subjects;
}

std::vector<Subject> corpusSubjects() {
  std::vector<Subject> subjects;
  addSubjects(corpusFolder(), subjects);
  addSubjects(corpusFolder() / ".." / "corpus2", subjects);
  return subjects;
}

llvm::Expected<TransformedModel>
transform(const Subject& subject, const Transformation& transformation, const Toolkit& toolkit) {
  TransformedModel transformed;
  transformed.random.seed(seedOf(subject.name));
  auto model = importModel(subject.file, toolkit.ops);
  if (!model)
    return model.takeError();
  transformed.model = std::move(*model);
  forgetSource(*transformed.model);
  auto applied = transformation.apply(transformed);
  if (!applied)
    return applied.takeError();
  if (!*applied) {
    transformed.model = nullptr;
    return transformed;
  }
  auto written = cloneModel(*transformed.model, toolkit);
  if (!written)
    return written.takeError();
  transformed.model = std::move(*written);
  return transformed;
}

llvm::Expected<RaisedModel> raise(const Model& model, const Toolkit& toolkit) {
  auto copy = cloneModel(model, toolkit);
  if (!copy)
    return copy.takeError();
  RaisedModel raised;
  raised.model = std::move(*copy);
  raised.context = std::make_unique<PassContext>(toolkit.rules, toolkit.targets);
  NearMissList misses = listenToRaising(toolkit);
  raised.context->nearMisses = &misses;
  PassManager manager(toolkit.passes, {});
  if (llvm::Error error = manager.addPipeline(recoveryPipeline))
    return error;
  if (llvm::Error error = manager.run(*raised.model, *raised.context))
    return error;
  raised.context->nearMisses = nullptr;
  return raised;
}

/// Past and present by their names before the transformation.
std::string cacheWords(const SiteCache& cache, const CacheParts& parts, const Words& words) {
  if (auto found = parts.find(cache.past->name().str()); found != parts.end()) {
    const ManifestPart& part = found->second.part;
    return formatted(" {}->{}", part.text(words.oldName(part.past)),
                     part.text(words.oldName(part.present)));
  }
  return formatted(" {}->{}", words.oldName(cache.past),
                   words.oldName(cache.output ? cache.output : cache.present));
}

std::vector<std::string> siteLines(RaisedModel& raised, const TransformedModel& transformed,
                                   const Toolkit& toolkit) {
  const Words words(raised.model->graph(), transformed);
  const SiteList& sites = raised.context->sites;
  auto refused = refusals(*toolkit.targets.find("kvopt"), sites, *raised.model);
  std::vector<std::string> lines;
  for (size_t i = 0; i < sites.size(); ++i) {
    const AttentionSite& site = sites[i];
    std::string line = siteKindName(site).str();
    line += site.failure ? " missed: " + reasonName(site.failure->code).str() : " matched";
    for (const auto& update : {site.key, site.value})
      if (update)
        line += cacheWords(*update, raised.context->history.parts, words);
    const OrderedJson facts = factsJson(site);
    for (const auto& [key, value] : facts.items())
      // Other types have other neighbors of a number.
      line += formatted(" {}={}", key,
                        value.is_number_float() ? formatted("{:.3g}", value.get<double>())
                        : key == "mask_text" || key == "causal_if" ? words.ofFormula(value.dump())
                                                                   : value.dump());
    line += formatted(" kvopt={}", refused[i] ? reasonName(refused[i]->code).str() : "yes");
    lines.push_back(std::move(line));
  }
  std::sort(lines.begin(), lines.end());
  return lines;
}

/// The lines of a subject before any transformation. They are read once for all transformations.
static llvm::Expected<llvm::ArrayRef<std::string>> ownLines(const Subject& subject,
                                                            const Toolkit& toolkit) {
  static std::map<std::string, std::vector<std::string>> known;
  if (auto found = known.find(subject.file); found != known.end())
    return found->second;
  auto original = importModel(subject.file, toolkit.ops);
  if (!original)
    return original.takeError();
  auto raised = raise(**original, toolkit);
  if (!raised)
    return raised.takeError();
  return known[subject.file] = siteLines(*raised, TransformedModel(), toolkit);
}

llvm::Expected<std::string> siteDifference(const Subject& subject,
                                           const TransformedModel& transformed,
                                           const Toolkit& toolkit) {
  auto expected = ownLines(subject, toolkit);
  if (!expected)
    return expected.takeError();
  auto after = raise(*transformed.model, toolkit);
  if (!after)
    return after.takeError();
  const auto found = siteLines(*after, transformed, toolkit);
  std::string text = missingLines(*expected, found, "-") + missingLines(found, *expected, "+");
  if (!text.empty())
    for (const std::string& assumption : after->context->assumptions)
      text += formatted("  assumed: {}\n", assumption);
  return text;
}

} // namespace kvopt
