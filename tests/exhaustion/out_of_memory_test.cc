// The C interface where memory runs out: each allocation of a call fails once, and the call returns
// an error that says so.
#include "tests/api/handles.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <functional>

namespace {

/// Allocations of this thread until one fails; negative: none does.
thread_local int64_t untilFailure = -1;
/// Allocations of this thread so far.
thread_local int64_t allocations = 0;

bool fails() {
  ++allocations;
  return untilFailure >= 0 && untilFailure-- == 0;
}

void* refused() {
  errno = ENOMEM;
  return nullptr;
}

} // namespace

// The C library's functions under their own names. These replace them in the whole process.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);

void* malloc(size_t bytes) { return fails() ? refused() : __libc_malloc(bytes); }
void* calloc(size_t count, size_t bytes) {
  return fails() ? refused() : __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  return fails() ? refused() : __libc_realloc(memory, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  return fails() ? refused() : __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  if (fails())
    return ENOMEM;
  *memory = __libc_memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}
}

namespace kvopt::api {
namespace {

/// Runs `call` once for each allocation that it makes, or for an evenly spread sample of them, and
/// lets that one fail. `check` is called after each.
void exhaust(const std::function<kvopt_error*()>& call, const std::function<void()>& check) {
  constexpr int64_t most = 400;
  allocations = 0;
  ASSERT_EQ(textOf(call()), "");
  const int64_t total = allocations;
  ASSERT_GT(total, 0);
  check();
  int64_t failed = 0;
  const int64_t step = std::max<int64_t>(1, total / most);
  for (int64_t n = 0; n < total; n += step) {
    untilFailure = n;
    kvopt_error* error = call();
    untilFailure = -1;
    const std::string code = codeOf(error);
    EXPECT_TRUE(code.empty() || code == "out_of_memory") << "allocation " << n << ": " << code;
    failed += code.empty() ? 0 : 1;
    check();
    if (testing::Test::HasFailure())
      return;
  }
  EXPECT_GT(failed, 0);
}

TEST(OutOfMemory, OpeningAModelSaysSo) {
  const std::string path = shippedModel();
  kvopt_model* model = nullptr;
  exhaust([&] { return kvopt_model_open(path.c_str(), nullptr, 0, &model); },
          [&] {
            kvopt_model_free(model);
            model = nullptr;
          });
}

TEST(OutOfMemory, AStepSaysSoAndIsTakenAgain) {
  const ModelHandle model = openShipped();
  const int64_t prompt[] = {1, 2, 3};
  SessionHandle session(nullptr, kvopt_session_free);
  exhaust(
      [&] {
        kvopt_session* made = nullptr;
        kvopt_error* error = kvopt_session_create(model.get(), 1, nullptr, 0, &made);
        session.reset(made);
        return error ? error : kvopt_session_feed(made, prompt, 3);
      },
      [&] {
        if (!session || kvopt_session_length(session.get()) == 3)
          return;
        EXPECT_EQ(kvopt_session_length(session.get()), 0);
        EXPECT_EQ(generated(session.get(), {1, 2, 3}, 4)[3], shippedTokens[3]);
      });
}

} // namespace
} // namespace kvopt::api
