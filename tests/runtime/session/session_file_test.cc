// Saved sessions: another process goes on where one stopped; files that do not fit change nothing.
#include "tests/runtime/session/cached_models.h"

#include "support/diagnostic.h"

#include <gmock/gmock.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sys/wait.h>
#include <unistd.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

namespace fs = std::filesystem;
using test::CachedModel;
using test::CacheForm;
using testing::HasSubstr;

constexpr const char* folderVariable = "KVOPT_TEST_RESUME_FOLDER";
constexpr const char* formVariable = "KVOPT_TEST_RESUME_FORM";

std::string messageOf(llvm::Error error) {
  return error ? takeDiagnostic(std::move(error)).str() : "";
}

std::string readAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}
void writeAll(const fs::path& path, llvm::StringRef text) {
  std::ofstream(path, std::ios::binary)
      .write(text.data(), static_cast<std::streamsize>(text.size()));
}

std::string contents(const Session& session) {
  std::string all;
  for (size_t i = 0; i < session.cacheCount(); ++i) {
    const Tensor validRows = llvm::cantFail(session.cacheRows(i));
    TensorView valid = validRows.view;
    std::string packed(static_cast<size_t>(valid.byteSize()), '\0');
    copyElements(valid, TensorView::contiguous(valid.element, valid.shape,
                                               reinterpret_cast<std::byte*>(packed.data())));
    all += packed;
  }
  return all;
}

std::string bytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

/// Scores of steps 5 to 10 of ten, in the bytes that they are.
std::string goOn(const CachedModel& model, Session& session) {
  std::string all;
  while (session.length() < 12)
    all += bytesOf(model.feedUpTo(session, session.length() + 1));
  return all + contents(session);
}

class SessionFile : public testing::TestWithParam<CacheForm> {
protected:
  SessionFile()
      : model(GetParam()),
        folder(fs::temp_directory_path() / ("kvopt-session-file-" + std::to_string(getpid()))) {
    fs::remove_all(folder);
    fs::create_directories(folder);
  }
  ~SessionFile() override { fs::remove_all(folder); }

  std::string path() const { return (folder / "session.kvc").string(); }
  std::string savedAt(int64_t tokens, int64_t batch = 2) const {
    auto session = model.session(batch);
    std::vector<int64_t> rows = batch == 2 ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0};
    model.feedUpTo(*session, tokens, rows);
    llvm::cantFail(session->save(path()));
    return path();
  }

  CachedModel model;
  fs::path folder;
};

TEST_P(SessionFile, AnotherProcessGoesOnBitForBit) {
  auto straight = model.session();
  model.feedUpTo(*straight, 7); // 5 and 2 tokens, then one by one
  llvm::cantFail(straight->save(path()));
  std::string expected = goOn(model, *straight);
  pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    // A new program, not a copy of this one's memory.
    ::setenv(folderVariable, folder.c_str(), 1);
    ::setenv(formVariable, std::to_string(static_cast<int>(GetParam())).c_str(), 1);
    // It runs one test, which is in no share of this program's.
    for (const char* variable : {"GTEST_TOTAL_SHARDS", "GTEST_SHARD_INDEX"})
      ::unsetenv(variable);
    ::execl("/proc/self/exe", "runtime_tests", "--gtest_filter=SessionFileChild.GoesOn",
            static_cast<char*>(nullptr));
    ::_exit(127);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(readAll(folder / "went-on") == expected);
}

/// The other process of the test above.
TEST(SessionFileChild, GoesOn) {
  const char* folder = std::getenv(folderVariable);
  const char* form = std::getenv(formVariable);
  if (!folder || !form)
    GTEST_SKIP() << "runs in a process that another test starts";
  CachedModel model(static_cast<CacheForm>(std::atoi(form)));
  auto session = model.session();
  llvm::cantFail(session->load(std::string(folder) + "/session.kvc"));
  EXPECT_EQ(session->length(), 7);
  writeAll(std::string(folder) + "/went-on", goOn(model, *session));
}

TEST_P(SessionFile, ReplacesWhatTheSessionHeld) {
  auto straight = model.session();
  model.feedUpTo(*straight, 7);
  llvm::cantFail(straight->save(path()));
  for (int64_t before : {1, 7, 15}) {
    auto session = model.session();
    for (int64_t i = 0; i < before; ++i)
      model.feed(*session, CachedModel::tokens(i, i + 1, {0, 1}, 3));
    llvm::cantFail(session->load(path()));
    EXPECT_EQ(session->length(), 7);
    auto copy = llvm::cantFail(straight->fork());
    EXPECT_EQ(goOn(model, *session), goOn(model, *copy));
  }
}

TEST_P(SessionFile, HoldsValidRowsOnlyAndIsTheSameEachTime) {
  std::string first = readAll(savedAt(6));
  // A session that held more, and one in a larger buffer of other contents.
  auto other = model.session();
  if (GetParam() != CacheForm::State && GetParam() != CacheForm::Ring &&
      GetParam() != CacheForm::Static) {
    SessionOptions options = model.options();
    options.capacity = model.isShared() ? 20 : 0;
    options.poison = false;
    other = model.session(options);
    model.feedUpTo(*other, 9);
    llvm::cantFail(other->crop(6));
  } else {
    model.feedUpTo(*other, 6);
  }
  llvm::cantFail(other->save(path()));
  EXPECT_TRUE(readAll(path()) == first);
  llvm::cantFail(other->freeze());
  llvm::cantFail(other->save(path()));
  EXPECT_TRUE(readAll(path()) == first);
  // Two caches, two batch rows, two heads, width 4.
  size_t twelve = readAll(savedAt(12)).size();
  bool constant = GetParam() == CacheForm::State || GetParam() == CacheForm::Ring;
  EXPECT_EQ(twelve - first.size(), constant ? 0u : 6u * 2 * 2 * 2 * 4 * 4);
}

TEST_P(SessionFile, EmptySessionsAreSavedToo) {
  auto session = model.session();
  model.feedUpTo(*session, 8);
  llvm::cantFail(session->load(savedAt(0)));
  EXPECT_EQ(session->length(), 0);
  auto fresh = model.session();
  EXPECT_EQ(goOn(model, *session), goOn(model, *fresh));
}

TEST_P(SessionFile, DamagedAndForeignFilesChangeNothing) {
  auto session = model.session();
  auto same = model.session();
  model.feedUpTo(*session, 9);
  model.feedUpTo(*same, 9);
  auto expectRefusal = [&](const std::string& what) {
    std::string message = messageOf(session->load(path()));
    EXPECT_THAT(message, testing::StartsWith(path() + ": "));
    EXPECT_THAT(message, HasSubstr(what));
    EXPECT_THAT(message, HasSubstr("hint: "));
    EXPECT_EQ(session->length(), 9);
    EXPECT_TRUE(contents(*session) == contents(*same));
  };
  const std::string good = readAll(savedAt(6));
  for (size_t size = 0; size < good.size(); size += 29) {
    writeAll(path(), llvm::StringRef(good).take_front(size));
    expectRefusal(size < 8 ? "this is not a cache file" : "cache file: it ");
  }
  for (size_t at = 0; at < good.size(); at += 41) {
    std::string flipped = good;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x10);
    writeAll(path(), flipped);
    expectRefusal("");
  }
  CachedModel foreign(GetParam(), "0.5");
  if (GetParam() <= CacheForm::Growing) { // the others attend to nothing
    auto other = foreign.session();
    foreign.feedUpTo(*other, 6);
    llvm::cantFail(other->save(path()));
    expectRefusal("the cache was saved from another model");
  }
  savedAt(6, 1);
  expectRefusal("the file holds 1 batch rows, but the session has 2");
  EXPECT_THAT(messageOf(session->load((folder / "none").string())), HasSubstr("cannot open"));
  EXPECT_THAT(messageOf(session->load(folder.string())), HasSubstr("is a directory"));
  writeAll(path(), good);
  EXPECT_EQ(messageOf(session->load(path())), "");
}

TEST_P(SessionFile, AnotherFormOfTheSameModelIsAnotherModel) {
  const std::string file = savedAt(6);
  for (CacheForm form : {CacheForm::SequenceFirst, CacheForm::Growing, CacheForm::Transposed}) {
    if (form == GetParam())
      continue;
    CachedModel other(form);
    auto session = other.session();
    EXPECT_THAT(messageOf(session->load(file)), HasSubstr("saved from another model"));
    EXPECT_EQ(session->length(), 0);
  }
}

TEST_P(SessionFile, EveryFailingAllocationIsAnErrorAfterWhichTheSessionGoesOn) {
  savedAt(7);
  // All that a session does, in the order in which allocations are counted.
  using Step = std::function<llvm::Error(std::unique_ptr<Session>&)>;
  uint64_t allocations = 0; // up to where the session only goes on
  auto feed = [&](int64_t from, int64_t to) {
    return [this, from, to](std::unique_ptr<Session>& session) {
      return model.step(*session, CachedModel::tokens(from, to)).takeError();
    };
  };
  auto run = [&](const std::shared_ptr<FailingAllocator>& allocator) {
    SessionOptions options = model.options();
    options.allocator = allocator;
    options.mode = SessionOptions::Mode::Stateful;
    options.capacity = model.isShared() ? 4 : 0;
    std::vector<std::pair<int64_t, Step>> steps = {
        {5, feed(0, 5)},
        {6, feed(5, 6)},
        {7, feed(6, 7)},
        {7,
         [&](std::unique_ptr<Session>& session) {
           auto copy = session->fork();
           if (copy)
             session = std::move(*copy);
           return copy.takeError();
         }},
        {7,
         [](std::unique_ptr<Session>& session) {
           return session->reorder({1, 0});
         }},
        {7,
         [](std::unique_ptr<Session>& session) {
           return session->reorder({1, 0});
         }},
        {7, [](std::unique_ptr<Session>& session) { return session->freeze(); }},
        {7, [](std::unique_ptr<Session>& session) { return session->thaw(); }},
        {0, [](std::unique_ptr<Session>& session) { return session->reset(); }},
        {7, [this](std::unique_ptr<Session>& session) { return session->load(path()); }},
        {7, [this](std::unique_ptr<Session>& session) { return session->save(path()); }},
    };
    std::unique_ptr<Session> session;
    auto created = Session::create(*model.model, model.kernels, model.manifest, options);
    if (!created) {
      EXPECT_THAT(messageOf(created.takeError()), HasSubstr("cannot allocate"));
      created = Session::create(*model.model, model.kernels, model.manifest, options);
    }
    session = llvm::cantFail(std::move(created));
    for (auto& [length, step] : steps) {
      int64_t before = session->length();
      if (llvm::Error error = step(session)) {
        EXPECT_THAT(messageOf(std::move(error)), HasSubstr("cannot allocate"));
        EXPECT_EQ(session->length(), before);
        // The allocator refuses once.
        EXPECT_EQ(messageOf(step(session)), "");
      }
      EXPECT_EQ(session->length(), length);
    }
    allocations = allocator->allocations();
    return goOn(model, *session);
  };
  auto never = std::make_shared<FailingAllocator>(UINT64_MAX);
  const std::string expected = run(never);
  const uint64_t count = allocations;
  auto straight = model.session();
  model.feedUpTo(*straight, 7);
  EXPECT_TRUE(goOn(model, *straight) == expected);
  EXPECT_GT(count, 10u);
  for (uint64_t k = 0; k < count; ++k) {
    SCOPED_TRACE(k);
    auto allocator = std::make_shared<FailingAllocator>(k);
    EXPECT_TRUE(run(allocator) == expected);
    EXPECT_TRUE(allocator->hasFailed());
  }
}

INSTANTIATE_TEST_SUITE_P(EveryForm, SessionFile, test::everyCacheForm(), [](const auto& parameter) {
  return std::string(test::name(parameter.param));
});

/// Batch rows of different lengths.
class SessionFileRows : public SessionFile {};

TEST_P(SessionFileRows, OfDifferentLengthsAreSavedApart) {
  auto session = model.session();
  model.feed(*session, CachedModel::tokens(0, 9));
  llvm::cantFail(session->cropRows({3, 8}));
  llvm::cantFail(session->save(path()));
  std::string file = readAll(path());
  // 11 rows of two caches, two heads and width 4, and not a byte of what was cut off.
  EXPECT_LE(file.size(), 11u * 2 * 2 * 4 * 4 + 448);
  EXPECT_EQ(file.find(std::string(8, '\xff')), std::string::npos);
  auto loaded = model.session();
  model.feedUpTo(*loaded, 12);
  llvm::cantFail(loaded->load(path()));
  EXPECT_EQ(loaded->rowLengths(), llvm::ArrayRef<int64_t>({3, 8}));
  llvm::cantFail(loaded->save(path()));
  EXPECT_TRUE(readAll(path()) == file);
  for (int64_t i = 0; i < 4; ++i)
    EXPECT_EQ(model.feed(*loaded, CachedModel::tokens(i, i + 1)),
              model.feed(*session, CachedModel::tokens(i, i + 1)));
}

TEST_P(SessionFileRows, NeedRoom) {
  savedAt(12);
  SessionOptions options = model.options();
  options.capacity = 10;
  auto small = model.session(options);
  EXPECT_THAT(messageOf(small->load(path())),
              HasSubstr("12 tokens do not fit into the cache's capacity of 10"));
  options.mode = SessionOptions::Mode::Stateful;
  auto growing = model.session(options);
  llvm::cantFail(growing->load(path()));
  EXPECT_EQ(growing->capacity(), 20);
  auto straight = model.session();
  model.feedUpTo(*straight, 12);
  EXPECT_EQ(contents(*growing), contents(*straight));
}

INSTANTIATE_TEST_SUITE_P(Forms, SessionFileRows, testing::Values(CacheForm::PerRow));

} // namespace
} // namespace kvopt
