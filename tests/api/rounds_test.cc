// Whole rounds of opening, rewriting, decoding and closing: nothing leaks (LeakSanitizer), and
// threads do not disturb each other (ThreadSanitizer). KVOPT_ROUNDS=N sets the number of rounds.
#include "tests/api/handles.h"

#include <cstdlib>
#include <thread>

namespace kvopt::api {
namespace {

int rounds(int usual) {
  const char* given = std::getenv("KVOPT_ROUNDS");
  return given ? std::atoi(given) : usual;
}

/// Opens the model, rewrites it to a form that depends on `round`, and generates tokens with it.
std::vector<int64_t> openRewriteDecode(int round) {
  constexpr const char* engines[] = {"kvopt", "ort", "onnx", "primitive"};
  const ModelHandle model = openShipped();
  const kvopt_option options[] = {{"to", engines[round % 4]},
                                  {"verify", round % 8 < 4 ? "off" : "quick"}};
  kvopt_result* result = nullptr;
  EXPECT_EQ(textOf(kvopt_rewrite(model.get(), options, 2, nullptr, &result)), "");
  kvopt_model* made = nullptr;
  EXPECT_EQ(textOf(kvopt_result_model(result, &made)), "");
  kvopt_result_free(result);
  const ModelHandle rewritten(made, kvopt_model_free);
  if (!made)
    return {};
  const SessionHandle session =
      sessionOf(made, 1, {{"threads", round % 2 == 0 ? "1" : "2"}, {"capacity", "32"}});
  return generated(session.get(), {1, 2, 3}, shippedTokens.size());
}

TEST(ApiRounds, OneAfterTheOther) {
  for (int round = 0; round < rounds(4); ++round)
    ASSERT_EQ(openRewriteDecode(round), shippedTokens) << round;
}

TEST(ApiRounds, OnFourThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<int> correct(4);
  for (int caller = 0; caller < 4; ++caller)
    threads.emplace_back([&correct, caller] {
      for (int round = 0; round < rounds(2); ++round)
        correct[static_cast<size_t>(caller)] +=
            openRewriteDecode(caller + round) == shippedTokens ? 1 : 0;
    });
  for (std::thread& thread : threads)
    thread.join();
  EXPECT_EQ(correct, std::vector<int>(4, rounds(2)));
}

} // namespace
} // namespace kvopt::api
