// What an equality depends on is printed: roles of inputs, narrow types, divisors, and constants
// that are taken for one number.
#include "tests/check/checked_models.h"

namespace kvopt::check {
namespace {

CheckReport checkUnder(const std::string& before, const std::string& after) {
  auto modelOf = [](const std::string& nodes) {
    return read(R"(<ir_version: 8, opset_import: ["" : 24, "own" : 1]>
g (float[B, S, 4] inputs_embeds, int64[B, S] position_ids) => (result)
<int64 i0 = {0}, int64 i1 = {1}, int64[1] last = {-1}, float a = {0.0101}, float b = {0.0101009},
 float c = {0.5}, float d = {0.50000003}, float many = {1e6},
 float[3, 4] table = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}>
{
  x = Identity (inputs_embeds)
  p = Cast <to = 1> (position_ids)
  e = Shape (x)
  count = Gather (e, i1)
  places = Range (i0, count, i1)
  counted = Cast <to = 1> (places)
)" + nodes + R"(}
<domain: "own", opset_import: ["" : 24]> f (x) => (y) { y = Neg (x) }
<domain: "own", overload: "other", opset_import: ["" : 24]> f (x) => (y) { y = Identity (x) }
<domain: "own", opset_import: ["" : 24, "own" : 1]> g (x) => (y) { y = own.f (x) }
<domain: "own", overload: "other", opset_import: ["" : 24, "own" : 1]>
g (x) => (y) { y = own.f:other (x) }
)");
  };
  const auto first = modelOf(before), second = modelOf(after);
  const ir::Manifest none;
  if (!first || !second)
    return {};
  return checkModels({*first, none}, {*second, none});
}

TEST(CheckConditions, PositionsThatAreIgnored) {
  const std::string rest = " u = Unsqueeze (q, last) result = Add (x, u)";
  const CheckReport report = checkUnder("q = Identity (p)" + rest, "q = Identity (counted)" + rest);
  EXPECT_LE(report.verdict(), Verdict::Tested);
  EXPECT_TRUE(assumes(report, "'position_ids' counts the tokens"));
}

TEST(CheckConditions, PositionsInNarrowTypes) {
  for (const char* type : {"10", "16"}) {
    const std::string cast = std::string("<to = ") + type + "> ";
    for (const std::string& narrow :
         {"h = Cast " + cast + "(position_ids)", "h = Cast " + cast + "(p)"})
      EXPECT_EQ(checkUnder("u = Unsqueeze (p, last) result = Add (x, u)",
                           narrow + " w = Cast <to = 1> (h) u = Unsqueeze (w, last) "
                                    "result = Add (x, u)")
                    .verdict(),
                Verdict::Tested)
          << narrow;
  }
}

TEST(CheckConditions, ADivisorIsNotZero) {
  const CheckReport report = checkUnder("result = Tanh (x)", "q = Div (x, x) r = Mul (q, x) "
                                                             "result = Tanh (r)");
  EXPECT_EQ(weakest(report), "proved-reduced: ");
  EXPECT_TRUE(assumes(report, "no divisor that is computed from inputs is zero"));
}

TEST(CheckConditions, ConstantsThatAreOneNumber) {
  const auto difference = [](const std::string& other) {
    return "u = Mul (x, " + other + ") v = Mul (x, a) w = Sub (u, v) m = Mul (w, many) " +
           "result = Add (m, x)";
  };
  const CheckReport report = checkUnder(difference("a"), difference("b"));
  EXPECT_GE(report.verdict(), Verdict::Tested);
  const CheckReport scaled = checkUnder("result = Mul (x, a)", "result = Mul (x, b)");
  EXPECT_GE(scaled.verdict(), Verdict::Tested);
  EXPECT_TRUE(assumes(scaled, "constants that differ by at most 1e-6"));
  // Within rounding.
  const CheckReport rounded = checkUnder("result = Mul (x, c)", "result = Mul (x, d)");
  EXPECT_LE(rounded.verdict(), Verdict::ProvedReduced);
}

TEST(CheckConditions, FunctionsHaveOverloads) {
  EXPECT_LE(checkUnder("result = own.f (x)", "result = Neg (x)").verdict(), Verdict::ProvedReduced);
  for (const char* name : {"f", "g"}) {
    const std::string plain = std::string("result = own.") + name + " (x)";
    const std::string other = std::string("result = own.") + name + ":other (x)";
    EXPECT_GE(checkUnder(plain, other).verdict(), Verdict::Different) << name;
    EXPECT_LE(checkUnder(other, "result = Identity (x)").verdict(), Verdict::ProvedReduced) << name;
    EXPECT_LE(checkUnder(plain, "result = Neg (x)").verdict(), Verdict::ProvedReduced) << name;
  }
}

} // namespace
} // namespace kvopt::check
