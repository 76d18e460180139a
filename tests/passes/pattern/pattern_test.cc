// Construction of patterns: roots, paths, sharing.
#include "passes/pattern/matcher.h"

#include <gtest/gtest.h>

namespace kvopt {
using namespace ir;
using namespace pattern;

namespace {

TEST(Pattern, OwnsTheOperatorsName) {
  std::string text = "ai.kvopt::Sdpa";
  Var x{"x"};
  P pattern = op(OpName(llvm::StringRef(text)), {x});
  text.assign(text.size(), '!');
  EXPECT_EQ(pattern.node().name, OpName("ai.kvopt", "Sdpa"));
}

TEST(Pattern, RootsAreTheOperatorsAnyAlternativeCanStartWith) {
  Var x{"x"};
  CompiledPattern compiled(
      oneOf("form", {{"add", op("Add", {x, any()})},
                     {"nested", escaping(oneOf("", {{"mul", op("Mul", {op("Neg", {x}), any()})},
                                                    {"other add", op("Add", {any(), x})}}))}}),
      {});
  ASSERT_EQ(compiled.rootOps().size(), 2u) << "each once";
  EXPECT_EQ(compiled.rootOps()[0], OpName("Add"));
  EXPECT_EQ(compiled.rootOps()[1], OpName("Mul"));
}

TEST(Pattern, ASharedSubPatternCanBeARootAndAnOperand) {
  Var x{"x"};
  P inner = op("Neg", {x});
  CompiledPattern compiled(oneOf("", {{"wrapped", op("Add", {inner, any()})}, {"bare", inner}}),
                           {});
  ASSERT_EQ(compiled.rootOps().size(), 2u);
  EXPECT_EQ(compiled.rootOps()[1], OpName("Neg"));
}

TEST(Pattern, PathsLeadFromTheRoot) {
  Var x{"x"}, c{"c"};
  P factor = constant(c);
  P scaled = op("Mul", {x, factor});
  P masked = optional(op("Add", {scaled, any()}), scaled);
  P root = op("MatMul", {any(), op("Softmax", {bind(x, masked)})});
  CompiledPattern compiled(root, {});
  EXPECT_EQ(compiled.path(root.node()), "MatMul");
  EXPECT_EQ(compiled.path(scaled.node()), "MatMul/1:Softmax/0:Add/0:Mul");
  EXPECT_EQ(compiled.path(factor.node()), "MatMul/1:Softmax/0:Add/0:Mul/1:c");
  P stranger = op("Neg", {x});
  EXPECT_EQ(compiled.path(stranger.node()), "");
}

TEST(Pattern, NestedSharingIsWalkedOnce) {
  // Walked naively this has 2^64 paths.
  P place = op("Neg", {any()});
  for (int i = 0; i < 64; ++i)
    place = optional(op("Relu", {place}), place);
  CompiledPattern compiled(op("Tanh", {place}), {});
  EXPECT_EQ(compiled.rootOps().size(), 1u);
}

} // namespace
} // namespace kvopt
