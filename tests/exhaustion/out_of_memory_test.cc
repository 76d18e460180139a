// The C interface where memory runs out: each allocation of a call fails once, and the call returns
// an error that says so.
#include "tests/api/handles.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

/// Runs `call` once for each allocation that it makes, or for an evenly spread sample of `most` of
/// them, and lets that one fail. `check` is called after each. KVOPT_EXHAUSTION=N sets the size of
/// every sample.
void exhaust(const std::function<kvopt_error*()>& call, const std::function<void()>& check,
             int64_t most = 400) {
  if (const char* given = std::getenv("KVOPT_EXHAUSTION"))
    most = std::atoll(given);
  allocations = 0;
  ASSERT_EQ(textOf(call()), "");
  const int64_t total = allocations;
  ASSERT_GT(total, 0);
  check();
  int64_t failed = 0;
  const int64_t step = std::max<int64_t>(1, (total + most - 1) / most);
  for (int64_t n = 0; n < total; n += step) {
    untilFailure = n;
    kvopt_error* error = call();
    untilFailure = -1;
    failed += error ? 1 : 0;
    if (error) {
      EXPECT_STREQ(kvopt_error_code(error), "out_of_memory")
          << "allocation " << n << ": " << kvopt_error_text(error);
    }
    kvopt_error_free(error);
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

TEST(OutOfMemory, EachAllocationOfAFirstStepMayFail) {
  const ModelHandle model = openShipped();
  const int64_t prompt[] = {1, 2, 3};
  const auto create = [&] {
    kvopt_session* made = nullptr;
    EXPECT_EQ(textOf(kvopt_session_create(model.get(), 1, nullptr, 0, &made)), "");
    return SessionHandle(made, kvopt_session_free);
  };
  SessionHandle session = create();
  exhaust([&] { return kvopt_session_feed(session.get(), prompt, 3); },
          [&] {
            // The session takes the step after a failure, too.
            if (kvopt_session_length(session.get()) == 0) {
              EXPECT_EQ(textOf(kvopt_session_feed(session.get(), prompt, 3)), "");
            }
            EXPECT_EQ(kvopt_session_length(session.get()), 3);
            session = create();
          },
          1000000);
}

/// Frees what `exhaust` made.
template <class Object, class Free> std::function<void()> freeing(Object*& object, Free free) {
  return [&object, free] {
    free(object);
    object = nullptr;
  };
}

TEST(OutOfMemory, InspectingSaysSo) {
  const ModelHandle model = openShipped();
  kvopt_bytes* json = nullptr;
  exhaust([&] { return kvopt_inspect(model.get(), nullptr, 0, nullptr, &json); },
          freeing(json, kvopt_bytes_free), 150);
}

TEST(OutOfMemory, ExplainingSaysSo) {
  const ModelHandle model = openShipped();
  kvopt_bytes* json = nullptr;
  exhaust([&] { return kvopt_explain(model.get(), nullptr, 0, nullptr, &json); },
          freeing(json, kvopt_bytes_free), 100);
}

TEST(OutOfMemory, RewritingSaysSo) {
  const ModelHandle model = openShipped();
  kvopt_result* result = nullptr;
  for (const char* target : {"ort", "kvopt", "onnx"}) {
    const kvopt_option options[] = {{"to", target}, {"verify", "off"}};
    exhaust([&] { return kvopt_rewrite(model.get(), options, 2, nullptr, &result); },
            freeing(result, kvopt_result_free), 130);
  }
}

TEST(OutOfMemory, VerifyingSaysSo) {
  const ModelHandle model = openShipped();
  const std::string path = shippedModel();
  const kvopt_option options[] = {{"prompt", "3"}, {"steps", "1"}, {"threads", "1"}};
  int equal = 0;
  kvopt_bytes* json = nullptr;
  exhaust(
      [&] {
        kvopt_model* other = nullptr;
        kvopt_error* error = kvopt_model_open(path.c_str(), nullptr, 0, &other);
        if (!error)
          error = kvopt_verify(model.get(), other, options, 3, nullptr, &equal, &json);
        kvopt_model_free(other);
        return error;
      },
      freeing(json, kvopt_bytes_free), 200);
}

TEST(OutOfMemory, ComparingGraphsSaysSo) {
  const ModelHandle model = openShipped();
  kvopt_bytes* json = nullptr;
  exhaust([&] { return kvopt_diff(model.get(), model.get(), nullptr, 0, nullptr, &json); },
          freeing(json, kvopt_bytes_free), 100);
}

/// Address space of this process in bytes.
rlim_t addressSpace() {
  std::ifstream statistics("/proc/self/statm");
  rlim_t pages = 0;
  statistics >> pages;
  return pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE));
}

/// The code of the error of a rewrite in a process that can allocate `bytes` more bytes: 0 for
/// success, 1 for memory that is exhausted, 2 for another error.
int rewriteWithin(const kvopt_model* model, rlim_t bytes) {
  const rlimit limit{addressSpace() + bytes, RLIM_INFINITY};
  if (setrlimit(RLIMIT_AS, &limit) != 0)
    return 3;
  const kvopt_option options[] = {{"to", "kvopt"}, {"verify", "quick"}};
  kvopt_result* result = nullptr;
  kvopt_error* error = kvopt_rewrite(model, options, 2, nullptr, &result);
  if (!error)
    return 0;
  if (kvopt_error_get_kind(error) == KVOPT_ERROR_OUT_OF_MEMORY)
    return 1;
  fputs(kvopt_error_text(error), stderr);
  return 2;
}

// All allocations fail once the address space is used up, not only one.
TEST(OutOfMemory, AProcessWithALimitSaysSo) {
  const ModelHandle model = openShipped();
  int refusedRuns = 0;
  int completedRuns = 0;
  // The matrix library's work area takes 128 MiB.
  for (rlim_t megabytes = 0; megabytes <= 256; megabytes += megabytes < 96 ? 2 : 16) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0)
      _exit(rewriteWithin(model.get(), megabytes << 20));
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status) << " at " << megabytes;
    ASSERT_LE(WEXITSTATUS(status), 1) << megabytes;
    ++(WEXITSTATUS(status) == 0 ? completedRuns : refusedRuns);
  }
  EXPECT_GT(refusedRuns, 0);
  EXPECT_GT(completedRuns, 0);
}

} // namespace
} // namespace kvopt::api
