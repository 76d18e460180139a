// What makes two values equal by construction.
#include "check/alignment/classes.h"

#include "tests/check/checked_models.h"

namespace kvopt::check {
namespace {

constexpr const char* header = "<ir_version: 8, opset_import: [\"\" : 17, \"own\" : 1]>\n";

/// The class of the first output.
ValueClass classIn(const ir::Model& model) {
  ConstantDigests digests;
  return Classes(model, digests).of(*model.graph().outputs().front());
}

bool areEqual(const std::string& first, const std::string& second) {
  auto a = read(header + first), b = read(header + second);
  return a && b && classIn(*a) == classIn(*b);
}

TEST(Classes, PartsOfASplitDependOnTheirNumber) {
  const std::string two = "g (float[B, 8] x) => (float[B, N] a) { a, b = Split <axis = 1> (x) }";
  const std::string four =
      "g (float[B, 8] x) => (float[B, N] a) { a, b, c, d = Split <axis = 1> (x) }";
  EXPECT_TRUE(areEqual(two, two));
  EXPECT_FALSE(areEqual(two, four));
}

TEST(Classes, ConstantsOfEqualBytesHaveShapes) {
  const std::string one = "g () => (int64[N] y) <int64[1] c = {0}> { y = Identity (c) }";
  const std::string none = "g () => (int64[N, M] y) <int64[1, 0] c = {}> { y = Identity (c) }";
  EXPECT_TRUE(areEqual(one, one));
  EXPECT_FALSE(areEqual(one, none));
  auto model =
      read(std::string(header) + R"(g () => (int64[1] a, int64[1, 1] b, double[1] c, int64[1] d)
<int64[1] p = {0}, int64[1, 1] q = {0}, double[1] r = {0}, int64[1] s = {0}>
{ a = Identity (p) b = Identity (q) c = Identity (r) d = Identity (s) }
)");
  ASSERT_TRUE(model);
  ConstantDigests digests;
  Classes classes(*model, digests);
  auto of = [&](size_t output) { return classes.of(*model->graph().outputs()[output]); };
  EXPECT_TRUE(of(0) == of(3));
  EXPECT_FALSE(of(0) == of(1) || of(0) == of(2) || of(1) == of(2));
}

TEST(Classes, FunctionsDependOnTheirDefaults) {
  const std::string graph = R"(g (float[N] x) => (float[N] y) { y = own.Leak (x) }
<domain: "own", opset_import: ["" : 17]>
Leak <alpha: float = 0.5> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }
)";
  EXPECT_TRUE(areEqual(graph, graph));
  EXPECT_FALSE(areEqual(graph, edited(graph, "0.5", "0.25")));
}

TEST(Classes, CastsToTheTypeThatAValueHasAreNone) {
  auto chain = [](const std::string& first, const std::string& cast, const std::string& declared) {
    return "g (float[N] x, int64[N] n, bool[N] b) => (y) <" + declared + "> { s = " + first +
           (cast.empty() ? " y = Neg (s) }" : " u = " + cast + " (s) y = Neg (u) }");
  };
  auto isNone = [&](const std::string& first, int to, const std::string& declared = "") {
    return areEqual(chain(first, "Cast <to = " + std::to_string(to) + ">", declared),
                    chain(first, "", declared));
  };
  for (const char* number : {"Tanh (x)", "Where (b, x, x)", "Mul (x, x)", "Cast <to = 1> (n)"}) {
    EXPECT_TRUE(isNone(number, 1)) << number;
    EXPECT_FALSE(isNone(number, 7)) << number;
    EXPECT_FALSE(isNone(number, 10)) << number;
  }
  for (const char* integer : {"Shape (x)", "Gather (n, n)", "Neg (n)"}) {
    EXPECT_TRUE(isNone(integer, 7)) << integer;
    EXPECT_FALSE(isNone(integer, 1)) << integer;
  }
  EXPECT_TRUE(areEqual("g (float[N] x) => (float[N] y) { s = Tanh (x) y = CastLike (s, x) }",
                       "g (float[N] x) => (float[N] y) { y = Tanh (x) }"));
  // What a model declares may be wrong.
  EXPECT_FALSE(isNone("Shape (x)", 1, "float[M] s"));
  EXPECT_FALSE(isNone("own.Unknown (x)", 1, "float[M] s"));
  EXPECT_FALSE(isNone("Less (x, x)", 1));
}

} // namespace
} // namespace kvopt::check
