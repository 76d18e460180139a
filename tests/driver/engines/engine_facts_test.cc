// The table of what engines run: each use has a row, and the page has the table.
#include "driver/engines/engine_facts.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

namespace kvopt {
namespace {

using namespace driver;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(EngineFacts, HaveARowForEachUse) {
  EXPECT_EQ(engineFacts().size(), static_cast<size_t>(EngineUse::Standard) + 1);
  for (size_t i = 0; i < engineFacts().size(); ++i) {
    EXPECT_EQ(static_cast<size_t>(engineFacts()[i].use), i);
    // A model that no version loads is not written without a word.
    EXPECT_TRUE(engineFacts()[i].ortVersion || *engineFacts()[i].note);
  }
}

TEST(EngineFacts, SayWhatAFormNeeds) {
  EXPECT_THAT(engineNotes({Engine::Ort, CacheKind::Buffer}, true), IsEmpty());
  EXPECT_THAT(engineNotes({Engine::Onnx, CacheKind::Grow}, true), IsEmpty());
  EXPECT_THAT(engineNotes({Engine::Primitive, CacheKind::Grow}, true), IsEmpty());
  EXPECT_THAT(engineNotes({Engine::Onnx, CacheKind::Buffer}, true),
              ElementsAre(HasSubstr("ONNX Runtime 1.24")));
  EXPECT_THAT(engineNotes({Engine::Kvopt, CacheKind::Ring}, true),
              ElementsAre(HasSubstr("slower than the export")));
  EXPECT_THAT(engineNotes({Engine::Ort, CacheKind::Buffer, RowKind::Int8}, true),
              ElementsAre(HasSubstr("1.23 does not load")));
  EXPECT_THAT(engineNotes({Engine::Ort, CacheKind::Paged}, true),
              ElementsAre(HasSubstr("Only kvopt's runtime")));
  EXPECT_THAT(engineNotes({Engine::Ort, CacheKind::Paged}, false), ElementsAre(HasSubstr("CUDA")));
}

TEST(EngineFacts, AreThoseOfThePage) {
  std::ifstream stream(std::string(KVOPT_SOURCE_DIR) + "/docs/targets.md", std::ios::binary);
  std::ostringstream page;
  page << stream.rdbuf();
  EXPECT_THAT(page.str(), HasSubstr("\n\n" + enginesMarkdown() + "\n"))
      << "paste into docs/targets.md: kvopt list engines --markdown";
}

} // namespace
} // namespace kvopt
