// The table of what engines run: each use has a row, and the page has the table.
#include "driver/engines/engine_facts.h"

#include "ir/op.h"
#include "ir/text/reader.h"
#include "support/format.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>

namespace kvopt {
namespace {

using namespace driver;
using namespace ir;
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

TEST(EngineFacts, AdviseNoFormThatWasJustWritten) {
  OpRegistry ops;
  registerAll(ops);
  auto model = llvm::cantFail(readText(R"(<ir_version: 8, opset_import: ["" : 17, "ai.kvopt" : 1]>
g (float[B, 2, S, 8] q, float[B, 2, T, 8] k) => (float[B, 2, S, 8] o)
{ o = ai.kvopt.Sdpa (q, k, k) })",
                                       ops));
  const Form others[] = {{Engine::Kvopt, CacheKind::Ring}, {Engine::Ort, CacheKind::Buffer}};
  EXPECT_THAT(engineNotes(model->graph(), others), ElementsAre(HasSubstr("--to ort")));
  EXPECT_THAT(engineNotes(model->graph()), ElementsAre(testing::Not(HasSubstr("--to ort"))));
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

TEST(EngineFacts, SayThatTheCpuLacksNorms) {
  OpRegistry ops;
  registerAll(ops);
  for (const char* norms : {"", ", , , , , , , , weights, weights"}) {
    auto model = llvm::cantFail(readText(
        formatted("<ir_version: 8, opset_import: [\"\" : 17, \"com.microsoft\" : 1]>\n"
                  "attention (float[B, S, 64] q, float[B, S, 32] k, float[B, S, 32] v,\n"
                  "           float[B, 2, P, 16] past_key, float[B, 2, P, 16] past_value,\n"
                  "           int32[B] seqlens_k, int32 total, float[16] weights)\n"
                  "  => (float[B, S, 64] o, float[B, 2, T, 16] key, float[B, 2, T, 16] value)\n"
                  "{{\n"
                  "  o, key, value = com.microsoft.GroupQueryAttention <num_heads = 4,\n"
                  "      kv_num_heads = 2> (q, k, v, past_key, past_value, seqlens_k, total{})\n"
                  "}}",
                  norms),
        ops));
    if (*norms == '\0')
      EXPECT_THAT(engineNotes(model->graph()), IsEmpty());
    else
      EXPECT_THAT(engineNotes(model->graph()), ElementsAre(HasSubstr("on the CPU, it refuses")));
  }
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
