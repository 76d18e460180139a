// Sequences of tensors, read as their tensors.
#include "ir/onnx/sequences.h"

#include "tests/ir/text/text_fixture.h"

#include <gmock/gmock.h>

namespace kvopt {
using namespace ir;
using testing::HasSubstr;
using testing::Not;

namespace {

std::string joinedText(const std::string& text) {
  auto model = readOrFail(text);
  if (!model)
    return "";
  joinSequences(model->graph());
  return printText(*model);
}

TEST(Sequences, AreJoinedByAConcat) {
  const std::string text = joinedText(R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 2] x, float[M, 2] z) => (float[K, 2] y)
{
  both = SequenceConstruct (x, z)
  y = ConcatFromSequence <axis = 0> (both)
})");
  EXPECT_THAT(text, HasSubstr("y = Concat <axis = 0> (x, z)"));
  EXPECT_THAT(text, Not(HasSubstr("Sequence")));
}

TEST(Sequences, AreStackedAlongANewAxis) {
  for (const char* opset : {"12", "17"}) {
    const std::string text =
        joinedText(R"(<ir_version: 8, opset_import: ["" : )" + std::string(opset) + R"(]>
g (float[N, 2] x, float[N, 2] z) => (float[N, 2, 2] y)
{
  both = SequenceConstruct (x, z)
  y = ConcatFromSequence <axis = 1, new_axis = 1> (both)
})");
    EXPECT_THAT(text, HasSubstr("Unsqueeze"));
    EXPECT_THAT(text, HasSubstr("y = Concat <axis = 1>"));
    EXPECT_THAT(text, Not(HasSubstr("Sequence")));
  }
}

TEST(Sequences, GiveTheTensorAtAConstantPlace) {
  const std::string text = joinedText(R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 2] x, float[N, 2] z) => (float[N, 2] y)
<int64 last = {-1}>
{
  both = SequenceConstruct (x, z)
  one = SequenceAt (both, last)
  y = Neg (one)
})");
  EXPECT_THAT(text, HasSubstr("y = Neg (z)"));
  EXPECT_THAT(text, Not(HasSubstr("Sequence")));
}

TEST(Sequences, StayWhereTheyAreNotKnown) {
  const std::string text = joinedText(R"(<ir_version: 8, opset_import: ["" : 17]>
g (float[N, 2] x, int64 place) => (float[N, 2] y, float[N, 2] v)
<int64 third = {2}>
{
  both = SequenceConstruct (x, x)
  one = SequenceAt (both, place)
  y = Neg (one)
  other = SequenceAt (both, third)
  v = Neg (other)
})");
  EXPECT_THAT(text, HasSubstr("SequenceAt (both, place)"));
  EXPECT_THAT(text, HasSubstr("SequenceAt (both, third)"));
}

} // namespace
} // namespace kvopt
