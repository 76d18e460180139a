// Names that a file gives to extents that are not equal.
#include "passes/extents/unequal_extents.h"

#include "ir/op.h"
#include "ir/text/reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvopt {
using namespace extents;
using namespace ir;

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

struct Separated {
  std::vector<std::string> types; ///< of the inputs
  std::vector<std::string> sentences;
  bool isEdited = false;
};

Separated separated(const std::string& inputs, const std::string& outputs,
                    const std::string& body) {
  OpRegistry ops;
  registerAll(ops);
  auto model = llvm::cantFail(
      readText("<ir_version: 8, opset_import: [\"\" : 17]>\ng (" + inputs + ") => (" + outputs +
                   ")\n<int64[4] heads = {0, 0, 2, 16}, int64[2] axes = {1, 2}, int64[3] rows = "
                   "{-1, 3, 16}>\n{\n" +
                   body + "}",
               ops));
  model->resetEdited();
  Separated result;
  result.sentences = separateUnequalExtents(*model);
  for (const std::unique_ptr<Value>& input : model->graph().inputs())
    result.types.push_back(input->type().str());
  result.isEdited = model->isEdited();
  return result;
}

/// Attention of two heads over a cache of keys and one of values.
Separated attention(const std::string& inputs, const std::string& masked) {
  return separated(inputs, "float[b, 2, n, 16] k_all, float[b, 2, n, 16] v_all, float[] out", R"(
  split = Reshape (x, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (split)
  k_all = Concat <axis = 2> (past_k, q)
  v_all = Concat <axis = 2> (past_v, q)
  columns = Transpose <perm = [0, 1, 3, 2]> (k_all)
  scores = MatMul (q, columns)
)" + masked + R"(
  weights = Softmax (masked)
  out = MatMul (weights, v_all)
)");
}

const std::string tableMask = R"(
  numbers = Cast <to = 1> (mask)
  four = Unsqueeze (numbers, axes)
  masked = Add (scores, four)
)";

TEST(UnequalExtents, OneNameForTokensPastAndMask) {
  const Separated found =
      attention("float[b, n, 32] x, int64[b, n] mask, float[b, 2, n, 16] past_k, "
                "float[b, 2, n, 16] past_v",
                tableMask);
  EXPECT_THAT(found.types,
              ElementsAre("float[b, n, 32]", "int64[b, mask_dim_1]",
                          "float[b, 2, past_k_dim_2, 16]", "float[b, 2, past_k_dim_2, 16]"));
  EXPECT_THAT(found.sentences,
              ElementsAre("extents named 'n' are not all equal: axis 1 of 'x' is n, axis 1 of "
                          "'mask' is mask_dim_1, axis 2 of 'past_k' is past_k_dim_2"));
  EXPECT_TRUE(found.isEdited);
}

TEST(UnequalExtents, TheOrderOfInputsDoesNotMatter) {
  const Separated found =
      attention("float[b, 2, n, 16] past_v, float[b, 2, n, 16] past_k, int64[b, n] mask, "
                "float[b, n, 32] x",
                tableMask);
  EXPECT_THAT(found.types, ElementsAre("float[b, 2, n, 16]", "float[b, 2, n, 16]",
                                       "int64[b, mask_dim_1]", "float[b, x_dim_1, 32]"));
}

TEST(UnequalExtents, OneNameForTokensAndMask) {
  const Separated found =
      attention("float[b, n, 32] x, int64[b, n] mask, float[b, 2, p, 16] past_k, "
                "float[b, 2, p, 16] past_v",
                tableMask);
  EXPECT_THAT(found.types, ElementsAre("float[b, n, 32]", "int64[b, mask_dim_1]",
                                       "float[b, 2, p, 16]", "float[b, 2, p, 16]"));
}

TEST(UnequalExtents, OneNameForBothAxesOfAMask) {
  const Separated found =
      attention("float[b, n, 32] x, float[b, 1, n, n] mask, float[b, 2, p, 16] past_k, "
                "float[b, 2, p, 16] past_v",
                "masked = Add (scores, mask)");
  EXPECT_THAT(found.types, ElementsAre("float[b, n, 32]", "float[b, 1, n, mask_dim_3]",
                                       "float[b, 2, p, 16]", "float[b, 2, p, 16]"));
}

TEST(UnequalExtents, OneNameForTokensAndPastWithoutAMask) {
  const Separated found =
      attention("float[b, n, 32] x, float[b, 2, n, 16] past_k, float[b, 2, n, 16] past_v",
                "masked = Identity (scores)");
  EXPECT_THAT(found.types, ElementsAre("float[b, n, 32]", "float[b, 2, past_k_dim_2, 16]",
                                       "float[b, 2, past_k_dim_2, 16]"));
}

TEST(UnequalExtents, OneNameForSequencesAndTheirHeads) {
  const Separated found = separated("float[b, 3, 32] x, float[b, p, 16] past_k",
                                    "float[b, t, 16] k_all, float[] scores", R"(
  split = Reshape (x, heads)
  q = Transpose <perm = [0, 2, 1, 3]> (split)
  flat = Reshape (q, rows)
  k_all = Concat <axis = 1> (past_k, flat)
  columns = Transpose <perm = [0, 2, 1]> (k_all)
  scores = MatMul (flat, columns)
  weights = Softmax (scores)
)");
  EXPECT_THAT(found.types, ElementsAre("float[b, 3, 32]", "float[past_k_dim_0, p, 16]"));
}

TEST(UnequalExtents, NamesThatNothingContradictsStay) {
  for (const char* mask : {"int64[b, t] mask", "int64[b, p] mask"}) {
    const Separated found = attention(std::string("float[b, n, 32] x, ") + mask +
                                          ", float[b, 2, q, 16] past_k, float[b, 2, q, 16] past_v",
                                      tableMask);
    EXPECT_THAT(found.sentences, IsEmpty());
    EXPECT_FALSE(found.isEdited);
    EXPECT_EQ(found.types[0], "float[b, n, 32]");
  }
  // Two sequences that a graph joins may be equally long.
  const Separated joined = separated("float[b, n, 32] x, float[b, n, 32] y", "float[] z",
                                     "  sum = Add (x, y)\n  z = Softmax (sum)\n");
  EXPECT_THAT(joined.sentences, IsEmpty());
}

} // namespace
} // namespace kvopt
