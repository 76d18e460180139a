// Sessions of rewritten models continue from the caches of the original, and the other way round.
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

constexpr int64_t seededTokens = 7;

/// The caches of a session, by the names of their pasts.
struct HeldCaches {
  std::vector<NamedView> views;
  std::vector<Tensor> rows; ///< what those are of
};

HeldCaches cachesOf(const Session& session) {
  HeldCaches held;
  for (size_t i = 0; i < session.cacheCount(); ++i) {
    held.rows.push_back(valueOrThrow(session.exportedCacheRows(i)));
    held.views.push_back({session.cacheInfo(i).past, held.rows.back().view});
  }
  return held;
}

std::string errorOf(llvm::Error error) {
  return error ? takeDiagnostic(std::move(error)).str() : "";
}

/// Both sessions compute the same from where they are.
void expectSameFurther(Session& a, Session& b) {
  ASSERT_EQ(a.length(), b.length());
  for (int step = 0; step < 4; ++step) {
    const StepResult fromA = stepAlike(a, 1);
    const StepResult fromB = stepAlike(b, 1);
    for (const NamedTensor& output : fromA.outputs) {
      const Tensor* other = fromB.find(output.name);
      ASSERT_NE(other, nullptr);
      const auto compared =
          valueOrThrow(compareTensors(output.tensor.view, other->view, {1e-4, 0}));
      EXPECT_TRUE(compared.isWithin()) << output.name << " differs by " << compared.maxAbs;
      EXPECT_GT(compared.compared, 0);
    }
  }
}

class SeededCaches : public ShippedModelTest {
protected:
  std::unique_ptr<Session> opened(const DrivenModel& driven) const {
    SessionOptions options;
    options.batch = 2;
    options.capacity = 32;
    return openSession(driven, toolkit.runner->kernels(), options);
  }
};

TEST_P(SeededCaches, GoOnFromTheCachesOfTheExportedModel) {
  const DrivenModel exported = asExported(path(), toolkit);
  for (const char* target : {"kvopt", "onnx24", "ort-gqa", "blocks:4", "primitive"}) {
    SCOPED_TRACE(target);
    auto before = opened(exported);
    stepAlike(*before, seededTokens);
    const DrivenModel driven = rewritten(path(), toolkit, "capacity=32", target);
    auto after = opened(driven);
    ASSERT_EQ(errorOf(after->seed(cachesOf(*before).views, seededTokens)), "");
    expectSameFurther(*before, *after);
    // And back.
    auto returned = opened(exported);
    ASSERT_EQ(errorOf(returned->seed(cachesOf(*after).views, after->length())), "");
    expectSameFurther(*after, *returned);
  }
}

TEST_P(SeededCaches, ReplaceOneCacheOfASessionThatIsAsLong) {
  const DrivenModel exported = asExported(path(), toolkit);
  const DrivenModel inPlace = rewritten(path(), toolkit, "capacity=32");
  auto before = opened(exported);
  auto after = opened(inPlace);
  stepAlike(*before, seededTokens);
  stepAlike(*after, seededTokens, 2);
  const HeldCaches held = cachesOf(*before);
  for (const NamedView& cache : held.views)
    ASSERT_EQ(errorOf(after->seed(cache, seededTokens)), "");
  expectSameFurther(*before, *after);
}

TEST_P(SeededCaches, RefuseWhatDoesNotFit) {
  const DrivenModel inPlace = rewritten(path(), toolkit, "capacity=32");
  auto before = opened(inPlace);
  stepAlike(*before, seededTokens);
  const HeldCaches held = cachesOf(*before);
  const std::vector<NamedView>& all = held.views;
  auto refusal = [&](std::vector<NamedView> given, int64_t tokens) {
    auto session = opened(inPlace);
    stepAlike(*session, 3);
    const std::string error = errorOf(session->seed(given, tokens));
    EXPECT_EQ(session->length(), 3);
    return error;
  };
  auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(contains(refusal({all[0]}, seededTokens), "must be given too"));
  EXPECT_TRUE(contains(refusal({{"nothing", all[0].view}}, 3), "no cache 'nothing'"));
  EXPECT_TRUE(contains(refusal({all[0], all[0]}, 3), "given twice"));
  EXPECT_TRUE(contains(refusal(all, seededTokens + 1), "it was given"));
  EXPECT_TRUE(contains(refusal(all, -1), "cannot hold -1 tokens"));
  std::vector<NamedView> flat = all;
  flat[0].view = TensorView::contiguous(ElementType::Float, {4}, flat[0].view.data);
  EXPECT_TRUE(contains(refusal(flat, seededTokens), "axes"));
  std::vector<NamedView> other = all;
  other[0].view.element = ElementType::Int32;
  EXPECT_TRUE(contains(refusal(other, seededTokens), "it was given"));
}

INSTANTIATE_TEST_SUITE_P(Shipped, SeededCaches, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
