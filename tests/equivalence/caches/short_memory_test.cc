// Memory that runs out, wherever that is, is an error: nothing crashes, nothing leaks, and a
// session goes on as if the failing call had not been made.
#include "tests/equivalence/rewritten_model.h"

namespace kvopt {
using namespace runtime;

namespace {

std::vector<std::byte> bytesOf(const StepResult& result) {
  std::vector<std::byte> all;
  for (const NamedTensor& output : result.outputs)
    all.insert(all.end(), output.tensor.view.data,
               output.tensor.view.data + output.tensor.view.byteSize());
  return all;
}

/// The n-th step of a fixed sequence. Inputs have memory of their own.
llvm::Expected<StepResult> step(Session& session, int64_t tokens) {
  DecoderStep input;
  input.pastLength = session.length();
  input.tokens.emplace_back();
  for (int64_t i = 0; i < tokens; ++i)
    input.tokens.back().push_back((input.pastLength + i) % 7 + 1);
  std::vector<NamedTensor> inputs =
      valueOrThrow(decoderInputs(session.callerInputs(), input, std::make_shared<Allocator>()));
  std::vector<NamedView> views;
  for (const NamedTensor& given : inputs)
    views.push_back({given.name, given.tensor.view});
  return session.step(views, tokens);
}

const std::vector<int64_t> shortStepTokens = {9, 1, 4, 1};

class ShortMemoryTest : public ShippedModelTest {
protected:
  static SessionOptions options(std::shared_ptr<Allocator> allocator) {
    SessionOptions options;
    options.mode = SessionOptions::Mode::Stateful;
    options.capacity = 12; // outgrown by the third step
    options.threads = 2;
    options.allocator = std::move(allocator);
    return options;
  }

  void expectErrorsOnly(const DrivenModel& driven) {
    std::vector<std::vector<std::byte>> expected;
    {
      auto session = valueOrThrow(Session::create(*driven.model, toolkit.runner->kernels(),
                                                  driven.manifest, options(nullptr)));
      for (int64_t tokens : shortStepTokens)
        expected.push_back(bytesOf(valueOrThrow(step(*session, tokens))));
    }
    uint64_t failing = 0;
    for (;; ++failing) {
      auto allocator = std::make_shared<FailingAllocator>(failing);
      unsigned failures = 0;
      {
        auto session = Session::create(*driven.model, toolkit.runner->kernels(), driven.manifest,
                                       options(allocator));
        if (!session) {
          expectNamesTheSize(session.takeError());
          ASSERT_TRUE(allocator->hasFailed());
          EXPECT_EQ(allocator->liveBytes(), 0u);
          continue;
        }
        for (size_t i = 0; i < shortStepTokens.size();) {
          auto result = step(**session, shortStepTokens[i]);
          if (!result) {
            expectNamesTheSize(result.takeError());
            ASSERT_LE(++failures, 1u);
            continue; // the same step again
          }
          ASSERT_TRUE(bytesOf(*result) == expected[i])
              << "allocation " << failing << ", step " << i;
          ++i;
        }
      }
      EXPECT_EQ(allocator->liveBytes(), 0u);
      if (!allocator->hasFailed())
        break;
    }
    EXPECT_GT(failing, 5u);
  }

  static void expectNamesTheSize(llvm::Error error) {
    Diagnostic diagnostic = takeDiagnostic(std::move(error));
    EXPECT_NE(diagnostic.str().find("cannot allocate"), std::string::npos) << diagnostic.str();
  }
};

TEST_P(ShortMemoryTest, IsAnErrorAsExported) { expectErrorsOnly(asExported(path(), toolkit)); }
TEST_P(ShortMemoryTest, IsAnErrorInPlace) { expectErrorsOnly(rewritten(path(), toolkit)); }
TEST_P(ShortMemoryTest, IsAnErrorInBlocks) {
  expectErrorsOnly(rewritten(path(), toolkit, "capacity=40", "blocks:4"));
}

INSTANTIATE_TEST_SUITE_P(, ShortMemoryTest, shippedModels(), shippedModelName);

} // namespace
} // namespace kvopt
