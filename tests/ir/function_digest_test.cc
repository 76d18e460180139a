// What the digest of a function tells apart, and what it does not.
#include "ir/function_digest.h"
#include "tests/ir/text/text_fixture.h"

namespace kvopt {
using namespace ir;

namespace {

std::optional<FunctionDigest> digestOf(const std::string& nodes,
                                       const std::string& signature = "F <a> (x, y) => (z)",
                                       const std::string& opsets = R"("" : 17)") {
  Model model(textRegistry());
  auto function = readFunctionText(
      "<domain: \"d\", opset_import: [" + opsets + "]>\n" + signature + " {" + nodes + "}", model);
  if (!function) {
    ADD_FAILURE() << takeDiagnostic(function.takeError()).str() << "\nin\n" << nodes;
    return std::nullopt;
  }
  return functionDigest(**function);
}

constexpr const char* base = R"(
    one = Constant <value_float = 1.0> ()
    scale = Constant <value_float = @a> ()
    left = Mul (x, scale)
    right = Transpose <perm = [1, 0]> (y)
    sum = Add (left, right)
    z = Sub (sum, one)
)";

TEST(FunctionDigestTest, IgnoresHowAFunctionIsWrittenDown) {
  const auto expected = digestOf(base);
  ASSERT_TRUE(expected);
  for (const char* same : {
           // other names, another order
           R"( s = Constant <value_float = @a> () r = Transpose <perm = [1, 0]> (y) l = Mul (x, s)
               p = Add (l, r) o = Constant <value_float = 1.0> () z = Sub (p, o) )",
           // another spelling of a constant, nodes that nothing reads, nodes that compute nothing
           R"( one = Constant <value = float {1.0}> () scale = Constant <value_float = @a> ()
               unread = Exp (x) same = Identity (x) again = Transpose <perm = [0, 1]> (same)
               left = Mul (again, scale) right = Transpose <perm = [1, 0]> (y)
               sum = Add (left, right) z = Sub (sum, one) )",
       })
    EXPECT_EQ(digestOf(same), expected) << same;
  EXPECT_EQ(digestOf(base, "Other <a> (x, y) => (z)"), expected);
}

TEST(FunctionDigestTest, TellsApartWhatComputesSomethingElse) {
  std::vector<std::optional<FunctionDigest>> digests{digestOf(base)};
  const auto replaced = [](std::string from, const std::string& to) {
    std::string text = base;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  for (const auto& [from, to] : std::vector<std::pair<std::string, std::string>>{
           {"value_float = 1.0", "value_float = 2.0"},
           {"value_float = 1.0", "value_floats = [1.0]"},
           {"value_float = 1.0", "value_int = 1"},
           {"value_float = @a", "value_float = 1.5"},
           {"Mul (x, scale)", "Div (x, scale)"},
           {"Mul (x, scale)", "Mul (scale, x)"},
           {"Mul (x, scale)", "Mul (y, scale)"},
           {"Add (left, right)", "Add (left, left)"},
           {"perm = [1, 0]", "perm = [1, 0], more = 0"},
           {"Sub (sum, one)", "Sub (sum)"},
           {"Sub (sum, one)", "d.Sub (sum, one)"}})
    digests.push_back(digestOf(replaced(from, to)));
  digests.push_back(digestOf(base, "F <a, b> (x, y) => (z)"));
  digests.push_back(digestOf(base, "F <a: float = 1.0> (x, y) => (z)"));
  digests.push_back(digestOf(base, "F <a> (x, y, w) => (z)"));
  digests.push_back(digestOf(base, "F <a> (y, x) => (z)"));
  digests.push_back(digestOf(base, "F <a> (x, y) => (z, sum)"));
  for (size_t i = 0; i < digests.size(); ++i) {
    ASSERT_TRUE(digests[i]) << i;
    for (size_t j = 0; j < i; ++j)
      EXPECT_NE(digests[i], digests[j]) << i << " and " << j;
  }
}

TEST(FunctionDigestTest, HasNoneForBodiesThatItDoesNotRead) {
  EXPECT_EQ(digestOf(R"( z = If <then_branch = t () => (p) { p = Identity (x) },
                                 else_branch = e () => (q) { q = Identity (y) }> (x) )"),
            std::nullopt);
}

} // namespace
} // namespace kvopt
