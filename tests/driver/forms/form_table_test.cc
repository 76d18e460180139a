// The table of forms is whole: each cell is written by a target or refused with a sentence, and the
// page shows it.
#include "driver/forms/form_table.h"

#include "driver/toolkit.h"
#include "support/string_ends.h"

#include "llvm/ADT/StringSet.h"

#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

namespace kvopt {
using namespace driver;

namespace {

TEST(FormTable, EveryCellIsWrittenOrRefusedWithASentence) {
  const driver::Toolkit toolkit;
  llvm::StringSet<> writers;
  for (const FormRow& row : formTable())
    for (const auto* cells : {&row.cells, &row.latent})
      for (const FormCell& cell : *cells) {
        ASSERT_NE(cell.target == nullptr, cell.refusal == nullptr);
        if (cell.target) {
          EXPECT_TRUE(toolkit.targets.find(cell.target)) << cell.target;
          writers.insert(cell.target);
        } else {
          EXPECT_TRUE(endsWith(cell.refusal, ".")) << cell.refusal;
        }
      }
  for (const std::unique_ptr<targets::Target>& target : toolkit.targets.all())
    EXPECT_TRUE(writers.contains(target->name())) << target->name().str() << " writes no cell";
}

TEST(FormTable, HasARowForEveryEngineAndCache) {
  for (Engine engine : {Engine::Ort, Engine::Onnx, Engine::Kvopt, Engine::Primitive})
    for (CacheKind cache :
         {CacheKind::Grow, CacheKind::Buffer, CacheKind::Ring, CacheKind::Blocks, CacheKind::Paged})
      for (SplitKind split : {SplitKind::None, SplitKind::Pyramid, SplitKind::Tiles}) {
        size_t rows = 0;
        for (const FormRow& row : formTable())
          rows += row.engine == engine && row.cache == cache && row.split == split ? 1 : 0;
        EXPECT_LE(rows, 1U);
        if (split == SplitKind::None) {
          EXPECT_EQ(rows, 1U) << wordOf(engine) << " " << wordOf(cache);
        }
        const FormCell cell = cellOf({engine, cache, RowKind::Same, false, split, std::nullopt});
        EXPECT_NE(cell.target == nullptr, cell.refusal == nullptr);
      }
}

TEST(FormTable, IsThatOfThePage) {
  std::ifstream stream(std::string(KVOPT_SOURCE_DIR) + "/docs/targets.md", std::ios::binary);
  std::ostringstream page;
  page << stream.rdbuf();
  const driver::Toolkit toolkit;
  EXPECT_NE(page.str().find("\n\n" + formsMarkdown(toolkit.targets) + "\n"), std::string::npos)
      << "paste into docs/targets.md: kvopt list targets --markdown";
}

} // namespace
} // namespace kvopt
