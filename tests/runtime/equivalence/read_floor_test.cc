// Which bytes count as read by every step.
#include "runtime/equivalence/read_floor.h"

#include "runtime/session/decoder_inputs.h"
#include "tests/runtime/session/counting_model.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace runtime;

namespace {

int64_t weightBytesOf(const std::string& text) {
  OpRegistry ops;
  registerAll(ops);
  auto model = llvm::cantFail(readText(text, ops));
  llvm::cantFail(inferShapes(model->graph()));
  return llvm::cantFail(weightSpans(model->graph())).spans.bytes();
}

TEST(ReadFloor, LookedUpTablesAreNotReadInFull) {
  const char* header = "<ir_version: 8, opset_import: [\"\" : 17]>\n"
                       "g (int64[B, S] ids) => (float[B, S, 3] out)\n"
                       "<float[4, 3] table = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},"
                       " float[3] bias = {1, 2, 3}, float[3, 4] other = "
                       "{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}>\n";
  std::string text = header;
  EXPECT_EQ(weightBytesOf(text + "{ rows = Gather(table, ids) out = Add(rows, bias) }"), 12);
  // Read along another axis, or by someone else as well, the table counts; `other` is not read.
  EXPECT_EQ(weightBytesOf(text + "{ rows = Gather(table, ids) sum = Add(rows, bias) "
                                 "all = ReduceSum <keepdims = 0> (table) out = Add(sum, all) }"),
            12 + 48);
  EXPECT_EQ(weightBytesOf(text + "{ rows = Gather <axis = 1> (other, ids) "
                                 "sum = ReduceSum <keepdims = 0> (rows) wide = Gather(table, ids) "
                                 "out = Add(wide, sum) }"),
            48);
}

TEST(ReadFloor, OfBranchesTheOneThatReadsLeast) {
  EXPECT_EQ(weightBytesOf(R"(
<ir_version: 8, opset_import: ["" : 17]>
g (bool c, float[3] x) => (float[3] out) <float[3] shared = {1, 2, 3}, float[3] more = {4, 5, 6}>
{
  out = If (c) <
    then_branch = a () => (float[3] y) { y = Add(x, shared) },
    else_branch = b () => (float[3] z) { t = Add(x, shared) z = Add(t, more) }
  >
})"),
            12);
}

TEST(ReadFloor, ValidRowsOfCaches) {
  const test::CountingModel counting;
  auto session = counting.session(2);
  EXPECT_EQ(llvm::cantFail(cacheSpans(*session)).bytes(), 0);
  llvm::cantFail(stepDecoder(*session, {{{1, 2, 3}, {4, 5, 6}}, {}, 0}));
  MemorySpans spans = llvm::cantFail(cacheSpans(*session));
  EXPECT_EQ(spans.bytes(), 2 * 3 * 4);
  EXPECT_EQ(spans.pieces.size(), 1u);
  llvm::cantFail(session->crop(2));
  spans = llvm::cantFail(cacheSpans(*session));
  ASSERT_EQ(spans.pieces.size(), 2u);
  for (size_t row = 0; row < 2; ++row) {
    EXPECT_EQ(spans.pieces[row].size(), 8u);
    const auto* tokens = reinterpret_cast<const float*>(spans.pieces[row].data());
    EXPECT_EQ(tokens[0], row == 0 ? 1.0f : 4.0f);
    EXPECT_EQ(tokens[1], row == 0 ? 2.0f : 5.0f);
  }
}

TEST(ReadFloor, PiecesOfAnySizeOnAnyNumberOfThreads) {
  std::vector<std::byte> memory(1 << 20);
  MemorySpans none;
  MemorySpans some{{std::span(memory).subspan(3, 1), {}, std::span(memory)}};
  EXPECT_EQ(some.bytes(), (1 << 20) + 1);
  for (unsigned threads : {1u, 3u}) {
    ThreadPool pool(threads);
    EXPECT_GE(readSeconds({&none, &some}, pool), 0.0);
    EXPECT_GE(readSeconds({&none}, pool), 0.0);
  }
}

} // namespace
} // namespace kvopt
