// Saved caches that were forged: no session takes one, whatever form its caches have.
#include "driver/variants.h"
#include "tests/equivalence/caches/cache_forgeries.h"
#include "tests/equivalence/rewritten_model.h"
#include "tests/runtime/session/cached_models.h"
#include "tests/support/temporary_folder.h"

#include <cstdlib>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

/// Forgeries of each form; KVOPT_FORGERIES says how many.
size_t forgeries() {
  const char* wanted = std::getenv("KVOPT_FORGERIES");
  return wanted ? std::strtoul(wanted, nullptr, 10) : 60;
}

class ForgedFormTest : public testing::TestWithParam<test::CacheForm> {};

TEST_P(ForgedFormTest, IsRefused) {
  const test::CachedModel model(GetParam());
  TemporaryFolder folder;
  for (int64_t tokens : {5, 9}) {
    auto session = model.session();
    model.feedUpTo(*session, tokens);
    EXPECT_GE(test::expectForgeriesRefused(*session, folder.path("."), forgeries() / 2),
              forgeries() / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, ForgedFormTest,
                         testing::Values(test::CacheForm::Shared, test::CacheForm::PerRow,
                                         test::CacheForm::Transposed,
                                         test::CacheForm::SequenceFirst, test::CacheForm::Growing,
                                         test::CacheForm::Static, test::CacheForm::Ring,
                                         test::CacheForm::State),
                         [](const auto& form) { return std::string(test::name(form.param)); });

/// A target with the options that it is lowered with.
struct LoweringChoice {
  const char* name;
  const char* options;
};

void PrintTo(const LoweringChoice& target, std::ostream* out) { *out << target.name; }

class ForgedTargetTest : public testing::TestWithParam<LoweringChoice> {
protected:
  Toolkit toolkit;
};

TEST_P(ForgedTargetTest, IsRefused) {
  const DrivenModel driven = rewritten(modelFolder("llama_gqa-ts14-eager") + "/model.onnx", toolkit,
                                       GetParam().options, GetParam().name);
  TemporaryFolder folder;
  SessionOptions options;
  options.batch = 2;
  options.variants = variantsInMemory(*driven.model, driven.manifest);
  if (!driven.manifest.capacityValue)
    options.capacity = 32;
  auto session = openSession(driven, toolkit.runner->kernels(), options);
  stepAlike(*session, 7);
  stepAlike(*session, 1);
  EXPECT_GE(test::expectForgeriesRefused(*session, folder.path("."), forgeries()), forgeries());
  stepAlike(*session, 1);
}

INSTANTIATE_TEST_SUITE_P(
    Targets, ForgedTargetTest,
    testing::Values(LoweringChoice{"kvopt", ""}, LoweringChoice{"int8", ""},
                    LoweringChoice{"onnx24", ""}, LoweringChoice{"ort-gqa", ""},
                    LoweringChoice{"blocks:4", "capacity=32"},
                    LoweringChoice{"int8-blocks:4", "capacity=32"},
                    LoweringChoice{"blocks-plain:4", "capacity=32"},
                    LoweringChoice{"pyramid:8", "capacity=32"}, LoweringChoice{"primitive", ""}),
    [](const auto& target) {
      std::string name = target.param.name;
      for (char& letter : name)
        letter = std::isalnum(static_cast<unsigned char>(letter)) ? letter : '_';
      return name;
    });

} // namespace
} // namespace kvopt
