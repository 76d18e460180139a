// Real decoders, as exported and rewritten: what a session does with its state leaves no trace in
// what the model computes.
#include "ir/onnx/import.h"
#include "support/diagnostic.h"
#include "tests/equivalence/corpus/corpus.h"
#include "tests/equivalence/rewritten_model.h"

#include "llvm/ADT/STLExtras.h"

#include <cstring>
#include <fstream>
#include <sys/wait.h>
#include <unistd.h>

namespace kvopt {
using namespace driver;
using namespace ir;
using namespace runtime;

namespace {

namespace fs = std::filesystem;

constexpr const char* pathVariable = "KVOPT_TEST_RESUME_MODEL";
constexpr const char* formVariable = "KVOPT_TEST_RESUME_FORM";
constexpr const char* folderVariable = "KVOPT_TEST_RESUME_FOLDER";

enum class Form { Exported, SharedBuffer, Stateful, QuantizedBuffer, QuantizedStateful, Blocks };
constexpr Form everyForm[] = {Form::Exported, Form::SharedBuffer, Form::Stateful,
                              Form::QuantizedBuffer, Form::QuantizedStateful};
/// Not every model can have its rows as codes in blocks.
constexpr Form formsOfShippedModels[] = {Form::Exported,          Form::SharedBuffer,
                                         Form::Stateful,          Form::QuantizedBuffer,
                                         Form::QuantizedStateful, Form::Blocks};

bool isStateful(Form form) { return form == Form::Stateful || form == Form::QuantizedStateful; }
bool isQuantized(Form form) {
  return form == Form::QuantizedBuffer || form == Form::QuantizedStateful;
}
constexpr int64_t wholeLength = 12;

/// A model, how it is driven, and tokens for it.
class Driven {
public:
  Driven(const std::string& path, Form drivenForm, const Toolkit& knownToolkit)
      : toolkit(knownToolkit), form(drivenForm) {
    if (form == Form::Exported)
      driven = asExported(path, toolkit);
    else if (form == Form::Blocks)
      driven = rewritten(path, toolkit, "capacity=30", "int8-blocks:4");
    else
      driven = rewritten(path, toolkit, "require=any", isQuantized(form) ? "int8" : "kvopt");
    for (const auto& input : driven.model->graph().inputs()) {
      if (input->name() != "input_ids" && input->name() != "decoder_input_ids")
        continue;
      batch = input->type().dim(0).value().value_or(2);
      oneByOne = input->type().dim(1).value() == 1;
    }
    auto known = vocabularyOf(driven.model->graph());
    vocabulary = known ? *known : 32;
    llvm::consumeError(known.takeError());
  }

  bool hasCaches() const {
    return llvm::any_of(driven.manifest.caches, [](const ManifestCache& cache) {
      return cache.update() != CacheUpdate::ReadOnly;
    });
  }
  bool has(CacheUpdate update) const {
    return llvm::any_of(driven.manifest.caches,
                        [&](const ManifestCache& cache) { return cache.update() == update; });
  }
  bool isFedByEncoder() const {
    return llvm::any_of(driven.model->graph().inputs(), [&](const auto& input) {
      return isFloatingPoint(input->type().elementType()) &&
             llvm::none_of(driven.manifest.caches, [&](const ManifestCache& cache) {
               return cache.update() != CacheUpdate::ReadOnly && cache.past == input->name();
             });
    });
  }

  std::unique_ptr<Session> open() const {
    SessionOptions options;
    options.batch = batch;
    options.threads = 1;
    options.poison = true;
    options.mode =
        isStateful(form) ? SessionOptions::Mode::Stateful : SessionOptions::Mode::AsManifest;
    options.capacity = isStateful(form) && !has(CacheUpdate::Static) ? 4 : 2 * wholeLength;
    if (driven.manifest.capacityValue)
      options.capacity = 0;
    return valueOrThrow(
        Session::create(*driven.model, toolkit.runner->kernels(), driven.manifest, options));
  }

  /// One step; all outputs as bytes. Row r gets the tokens of `rows[r]`.
  std::string step(Session& session, int64_t count, int64_t variant = 0,
                   std::vector<int64_t> rows = {}) const {
    if (rows.empty())
      for (int64_t row = 0; row < session.batch(); ++row)
        rows.push_back(row);
    DecoderStep input;
    input.pastLength = session.length();
    for (int64_t row : rows) {
      input.tokens.emplace_back();
      for (int64_t i = input.pastLength; i < input.pastLength + count; ++i)
        input.tokens.back().push_back((i * i + 7 * row + 3 * i * variant + 1) % vocabulary);
    }
    last = valueOrThrow(stepDecoder(session, input));
    std::string bytes;
    for (const NamedTensor& output : last.outputs)
      append(bytes, output.tensor.view);
    return bytes;
  }
  /// A prompt of five tokens, then one by one.
  std::string stepsTo(Session& session, int64_t length, int64_t variant = 0) const {
    std::string bytes;
    while (session.length() < length)
      bytes += step(session, session.length() == 0 && !oneByOne ? 5 : 1, variant);
    return bytes;
  }

  static void append(std::string& bytes, const TensorView& view) {
    size_t at = bytes.size();
    bytes.resize(at + static_cast<size_t>(view.byteSize()));
    copyElements(view, TensorView::contiguous(view.element, view.shape,
                                              reinterpret_cast<std::byte*>(bytes.data() + at)));
  }
  static std::string contents(const Session& session) {
    std::string bytes;
    for (size_t i = 0; i < session.cacheCount(); ++i)
      append(bytes, valueOrThrow(session.cacheRows(i)).view);
    return bytes;
  }

  const Toolkit& toolkit;
  Form form;
  DrivenModel driven;
  int64_t batch = 1;
  bool oneByOne = false;
  int64_t vocabulary = 0;
  mutable StepResult last;
};

void expectForksApart(const Driven& model) {
  auto original = model.open();
  model.stepsTo(*original, 7);
  auto a = valueOrThrow(original->fork());
  auto b = valueOrThrow(original->fork());
  std::string fromA;
  std::string fromB;
  for (int64_t to = 8; to <= 10; ++to) { // in turns
    fromA += model.stepsTo(*a, to, 1);
    fromB += model.stepsTo(*b, to, 2);
  }
  for (int64_t variant : {1, 2}) {
    auto alone = model.open();
    model.stepsTo(*alone, 7);
    EXPECT_TRUE(model.stepsTo(*alone, 10, variant) == (variant == 1 ? fromA : fromB));
    EXPECT_TRUE(Driven::contents(*alone) == Driven::contents(variant == 1 ? *a : *b));
  }
  auto straight = model.open();
  model.stepsTo(*straight, 7);
  EXPECT_TRUE(model.stepsTo(*original, wholeLength) == model.stepsTo(*straight, wholeLength));
}

void expectCropLeavesNoTrace(const Driven& model) {
  auto cut = model.open();
  model.stepsTo(*cut, 11);
  bool goesBack = !model.has(CacheUpdate::State) && !model.has(CacheUpdate::Ring);
  int64_t kept = goesBack ? 7 : 0;
  if (!goesBack) {
    std::string before = Driven::contents(*cut);
    llvm::Error refused = cut->crop(7);
    EXPECT_TRUE(static_cast<bool>(refused));
    llvm::consumeError(std::move(refused));
    EXPECT_TRUE(Driven::contents(*cut) == before);
    EXPECT_EQ(cut->length(), 11);
  }
  successOrThrow(cut->crop(kept));
  auto never = model.open();
  model.stepsTo(*never, kept);
  EXPECT_TRUE(model.stepsTo(*cut, wholeLength, 1) == model.stepsTo(*never, wholeLength, 1));
}

void expectFrozenGoesOn(const Driven& model) {
  auto session = model.open();
  auto straight = model.open();
  model.stepsTo(*session, 7);
  model.stepsTo(*straight, 7);
  successOrThrow(session->freeze());
  auto thawed = valueOrThrow(session->fork());
  session.reset();
  successOrThrow(thawed->thaw());
  EXPECT_TRUE(model.stepsTo(*thawed, wholeLength) == model.stepsTo(*straight, wholeLength));
  EXPECT_TRUE(Driven::contents(*thawed) == Driven::contents(*straight));
}

/// Beams that choose among each other, against beams that were fed the chosen tokens all along.
void expectReorderedBeams(const Driven& model) {
  if (model.batch < 2 || model.isFedByEncoder())
    return;
  const std::vector<int64_t> order = {1, 1};
  auto beams = model.open();
  model.stepsTo(*beams, 7);
  successOrThrow(beams->reorder(order));
  auto apart = model.open();
  while (apart->length() < 7)
    model.step(*apart, apart->length() == 0 && !model.oneByOne ? 5 : 1, 0, order);
  for (int i = 0; i < 3; ++i) {
    model.step(*beams, 1, 1);
    StepResult chosen = std::move(model.last);
    model.step(*apart, 1, 1);
    for (const NamedTensor& output : chosen.outputs) {
      // A row's sums may be rounded in another order in another row of a product.
      auto compared =
          valueOrThrow(compareTensors(output.tensor.view, model.last.find(output.name)->view,
                                      toleranceFor(model.driven.model->graph(), 2)));
      EXPECT_TRUE(compared.isWithin()) << output.name << " differs by " << compared.maxAbs;
    }
  }
}

class Folder {
public:
  Folder() : path(fs::temp_directory_path() / ("kvopt-operations-" + std::to_string(getpid()))) {
    fs::remove_all(path);
    fs::create_directories(path);
  }
  ~Folder() { fs::remove_all(path); }
  std::string file(const char* name) const { return (path / name).string(); }

  fs::path path;
};

std::string readAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void expectLoadedGoesOn(const Driven& model) {
  Folder folder;
  auto straight = model.open();
  model.stepsTo(*straight, 8);
  successOrThrow(straight->save(folder.file("cache")));
  auto loaded = model.open();
  model.stepsTo(*loaded, 5, 2);
  successOrThrow(loaded->load(folder.file("cache")));
  EXPECT_TRUE(model.stepsTo(*loaded, wholeLength) == model.stepsTo(*straight, wholeLength));
  EXPECT_TRUE(Driven::contents(*loaded) == Driven::contents(*straight));
}

void expectEveryOperation(const Driven& model) {
  expectForksApart(model);
  expectCropLeavesNoTrace(model);
  expectFrozenGoesOn(model);
  expectReorderedBeams(model);
  expectLoadedGoesOn(model);
}

using SessionOperations = ShippedModelTest;

TEST_P(SessionOperations, LeaveNoTrace) {
  for (Form form : formsOfShippedModels) {
    SCOPED_TRACE(static_cast<int>(form));
    Driven model(path(), form, toolkit);
    ASSERT_TRUE(model.hasCaches());
    expectEveryOperation(model);
  }
}

TEST_P(SessionOperations, ASavedCacheReplacesNoFileOfTheModel) {
  Folder folder;
  const std::string copy = folder.file("m.onnx");
  fs::copy_file(path(), copy);
  Driven model(copy, Form::SharedBuffer, toolkit);
  auto session = model.open();
  model.stepsTo(*session, 2);
  llvm::Error error = session->save(copy);
  ASSERT_TRUE(static_cast<bool>(error));
  EXPECT_EQ(takeDiagnostic(std::move(error)).kind, Diagnostic::Kind::Usage);
  EXPECT_EQ(readAll(copy), readAll(path()));
}

TEST_P(SessionOperations, AnotherProcessGoesOnBitForBit) {
  for (Form form : formsOfShippedModels) {
    SCOPED_TRACE(static_cast<int>(form));
    Folder folder;
    Driven model(path(), form, toolkit);
    auto straight = model.open();
    model.stepsTo(*straight, 9); // a prompt and four of nine steps
    successOrThrow(straight->save(folder.file("cache")));
    std::string expected = model.stepsTo(*straight, 14) + Driven::contents(*straight);
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      ::setenv(pathVariable, path().c_str(), 1);
      ::setenv(formVariable, std::to_string(static_cast<int>(form)).c_str(), 1);
      ::setenv(folderVariable, folder.path.c_str(), 1);
      ::execl("/proc/self/exe", "equivalence_tests", "--gtest_filter=SessionChild.GoesOn",
              static_cast<char*>(nullptr));
      ::_exit(127);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    EXPECT_TRUE(readAll(folder.file("went-on")) == expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, SessionOperations, shippedModels(), shippedModelName);

/// The other process of the test above.
TEST(SessionChild, GoesOn) {
  const char* path = std::getenv(pathVariable);
  const char* form = std::getenv(formVariable);
  const char* folder = std::getenv(folderVariable);
  if (!path || !form || !folder)
    GTEST_SKIP() << "runs in a process that another test starts";
  Toolkit toolkit;
  Driven model(path, static_cast<Form>(std::atoi(form)), toolkit);
  auto session = model.open();
  successOrThrow(session->load(std::string(folder) + "/cache"));
  std::string bytes = model.stepsTo(*session, 14) + Driven::contents(*session);
  std::ofstream(std::string(folder) + "/went-on", std::ios::binary)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

/// Every model in two of the forms, others for the next model.
TEST_F(CorpusTest, SessionOperationsLeaveNoTrace) {
  Toolkit toolkit;
  unsigned tested = 0;
  size_t turn = 0;
  for (const std::string& name : sampleOf(foldersWith(corpusFolder(), "model.onnx")))
    for (size_t i = 0; i < 2; ++i) {
      const Form form = everyForm[turn++ % std::size(everyForm)];
      SCOPED_TRACE(name + " " + std::to_string(static_cast<int>(form)));
      try {
        Driven model((corpusFolder() / name / "model.onnx").string(), form, toolkit);
        if (!model.hasCaches())
          continue;
        expectEveryOperation(model);
        ++tested;
      } catch (const std::runtime_error& error) {
        // Models without attention to rewrite.
        EXPECT_STREQ(error.what(), "nothing was lowered");
      }
    }
  EXPECT_GE(tested, leastInSample(100));
}

} // namespace
} // namespace kvopt
