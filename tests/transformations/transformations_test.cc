// Every transformation of every model: the same attention sites, and the same results.
#include "ir/onnx/import.h"
#include "support/diagnostic.h"
#include "tests/transformations/expected_differences.h"
#include "tests/transformations/subject.h"

#include <gtest/gtest.h>

#include <cstdlib>

namespace kvopt {
using namespace driver;
using namespace pattern;

void PrintTo(const Transformation& transformation, std::ostream* out) {
  *out << transformation.summary;
}

namespace {

class Transformations : public testing::TestWithParam<Transformation> {
protected:
  /// Transforms one subject. False where there is nothing to transform.
  llvm::Expected<bool> check(const Subject& subject, bool runs, ExpectedDifferences& expected) {
    auto transformed = transform(subject, GetParam(), toolkit);
    if (!transformed)
      return transformed.takeError();
    if (!transformed->model)
      return false;
    auto sites = siteDifference(subject, *transformed, toolkit);
    if (!sites)
      return sites.takeError();
    if (!sites->empty() && !expected.takes(GetParam().name, subject.name))
      ADD_FAILURE() << "other sites, of which - were found before and + are found after:\n"
                    << *sites;
    if (!runs)
      return true;
    auto results = resultDifference(subject, *transformed, GetParam().rounding, toolkit);
    if (!results)
      return results.takeError();
    EXPECT_EQ(*results, "") << "before and after it is transformed";
    auto rewritten = rewriteDifference(*transformed->model, toolkit);
    if (!rewritten)
      return rewritten.takeError();
    EXPECT_EQ(*rewritten, "") << "before and after the transformed model is rewritten";
    return true;
  }

  /// Checks all subjects, and runs every `oneOf`th, others for each transformation.
  void checkAll(const std::vector<Subject>& subjects, size_t oneOf, size_t least) {
    ExpectedDifferences expected("expected_differences.txt");
    size_t applied = 0;
    for (size_t i = 0; i < subjects.size(); ++i) {
      SCOPED_TRACE(subjects[i].name);
      auto isApplied = check(subjects[i], (i + place()) % oneOf == 0, expected);
      if (isApplied)
        applied += *isApplied;
      else
        ADD_FAILURE() << takeDiagnostic(isApplied.takeError()).str();
    }
    EXPECT_GE(applied, least) << "of " << subjects.size() << " models are transformed";
    for (const std::string& stale : expected.unused(GetParam().name, subjects))
      ADD_FAILURE() << "not different any more: " << stale;
  }

  /// The transformation's place in the table.
  static size_t place() {
    size_t index = 0;
    while (std::string(transformations()[index].name) != GetParam().name)
      ++index;
    return index;
  }

  Toolkit toolkit;
};

TEST_P(Transformations, OfShippedModelsKeepSitesAndResults) { checkAll(shippedSubjects(), 1, 1); }

TEST_P(Transformations, OfTheCorpusKeepSitesAndResults) {
  const size_t oneOf = std::getenv("KVOPT_WHOLE_CORPUS") ? 1 : KVOPT_TRANSFORMS_ONE_OF;
  std::vector<Subject> subjects;
  size_t number = place();
  for (Subject& subject : corpusSubjects())
    if (number++ % oneOf == 0)
      subjects.push_back(std::move(subject));
  if (subjects.empty())
    GTEST_SKIP() << "no models; set KVOPT_CORPUS";
  checkAll(subjects, 5, oneOf == 1 ? subjects.size() / 4 : 1);
}

std::string testName(const testing::TestParamInfo<Transformation>& parameter) {
  std::string name = parameter.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, Transformations, testing::ValuesIn(transformations().vec()),
                         testName);

} // namespace
} // namespace kvopt
