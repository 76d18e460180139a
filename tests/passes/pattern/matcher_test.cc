// The matcher: structure, backtracking, attributes, escaping values, near misses, the budget.
#include "tests/passes/graph_fixture.h"

namespace kvopt {
using namespace ir;
using namespace pattern;

namespace {

using ::testing::HasSubstr;

class MatcherTest : public GraphTest {
protected:
  Var x{"x"}, y{"y"}, z{"z"}, c{"c"};
};

TEST_F(MatcherTest, BindsAndListsNodes) {
  Value& a = input("a");
  Value& factor = scalar("factor");
  Value& scaled = node("Mul", {&a, &factor}, "scaled");
  Value& out = node("Relu", {&scaled}, "out");
  graph().addOutput(out);
  auto match = tryMatch(op("Relu", {bind(y, op("Mul", {x, constant(c)}))}), out);
  ASSERT_TRUE(match);
  EXPECT_EQ(&match->root(), out.producer());
  EXPECT_EQ(&(*match)[x], &a);
  EXPECT_EQ(&(*match)[y], &scaled);
  EXPECT_EQ(&(*match)[c], &factor);
  EXPECT_EQ(match->find(z), nullptr);
  ASSERT_EQ(match->nodes().size(), 2u);
  EXPECT_EQ(match->nodes()[0], out.producer());
  EXPECT_EQ(match->nodes()[1], scaled.producer());
}

TEST_F(MatcherTest, AVarUsedTwiceIsOneValue) {
  Value& a = input("a");
  Value& b = input("b");
  Value& same = node("Add", {&a, &a}, "same");
  Value& different = node("Add", {&a, &b}, "different");
  P pattern = op("Add", {x, x});
  EXPECT_TRUE(tryMatch(pattern, same));
  EXPECT_FALSE(tryMatch(pattern, different));
  EXPECT_EQ(miss.failure.expected, "x to be 'a' again");
  EXPECT_EQ(miss.failure.found, "b");
  EXPECT_EQ(miss.path, "Add/1:x") << miss.path;
}

TEST_F(MatcherTest, ALaterFailureReopensAnEarlierAlternative) {
  // The first alternative binds x to the Relu's operand, which the second operand contradicts.
  Value& a = input("a");
  Value& relu = node("Relu", {&a}, "relu");
  Value& root = node("Add", {&relu, &relu}, "root");
  P pattern = op("Add", {oneOf("first", {{"inside", op("Relu", {x})}, {"whole", x}}), x});
  auto match = tryMatch(pattern, root);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->choice("first"), "whole");
  EXPECT_EQ(&(*match)[x], &relu);
  EXPECT_EQ(match->nodes().size(), 1u) << "what the first alternative matched is forgotten";
}

TEST_F(MatcherTest, ReopensAcrossTwoLevels) {
  // Only (optional: without) with (oneOf: second) agrees with the last operand, z = tanh.
  Value& a = input("a");
  Value& neg = node("Neg", {&a}, "neg");
  Value& relu = node("Relu", {&neg}, "relu");
  Value& tanh = node("Tanh", {&relu}, "tanh");
  Value& inner = node("Add", {&tanh, &a}, "inner");
  Value& root = node("Mul", {&inner, &tanh}, "root");
  P deep = oneOf("depth", {{"three", op("Tanh", {op("Relu", {op("Neg", {z})})})},
                           {"two", op("Tanh", {op("Relu", {z})})},
                           {"one", op("Tanh", {z})},
                           {"zero", z}});
  P layered = optional(op("Add", {deep, y}), y);
  auto match = tryMatch(op("Mul", {layered, z}), root);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->choice("depth"), "zero");
  EXPECT_EQ(&(*match)[z], &tanh);
  EXPECT_EQ(&(*match)[y], &a);

  // Nothing inside the Add can be z = a twice over, so the outer choice falls back, too.
  Value& other = node("Mul", {&inner, &relu}, "other");
  Value& user = node("Add", {&other, &inner}, "user");
  P either = op("Add", {op("Mul", {optional(op("Add", {bind(x, deep), any()}), x), any()}), x});
  match = tryMatch(either, user);
  ASSERT_TRUE(match);
  EXPECT_EQ(&(*match)[x], &inner);
  EXPECT_EQ(match->choice("depth"), "") << "that place was not reached in the end";
}

TEST_F(MatcherTest, CommutativeTriesBothOrders) {
  Value& a = input("a");
  Value& factor = scalar("factor");
  P pattern = commutative("Mul", {x, constant(c)});
  for (Value* root : {&node("Mul", {&a, &factor}, "right"), &node("Mul", {&factor, &a}, "left")}) {
    auto match = tryMatch(pattern, *root);
    ASSERT_TRUE(match) << root->name().str();
    EXPECT_EQ(&(*match)[x], &a);
    EXPECT_EQ(&(*match)[c], &factor);
  }
  EXPECT_FALSE(tryMatch(op("Mul", {x, constant(c)}), *graph().findValue("left")))
      << "op() keeps the order";
}

TEST_F(MatcherTest, AConstraintReopensACommutativeChoiceTwoLevelsDown) {
  Value& a = input("a", floats({"1"}));
  Value& b = input("b", floats({"2"}));
  Value& d = input("d", floats({"3"}));
  Value& inner = node("Add", {&a, &b}, "inner");
  Value& root = node("Mul", {&d, &inner}, "root");
  Constraints constraints;
  constraints.require("y has extent 1 and z extent 3", [&](const Match& match) {
    return match[y].type().dim(0).value() == 1 && match[z].type().dim(0).value() == 3;
  });
  auto match = tryMatch(commutative("Mul", {commutative("Add", {x, y}), z}), root, constraints);
  ASSERT_TRUE(match);
  EXPECT_EQ(&(*match)[x], &b);
  EXPECT_EQ(&(*match)[y], &a);
  EXPECT_EQ(&(*match)[z], &d);
}

TEST_F(MatcherTest, ExtentsOfAFailedAttemptAreForgotten) {
  Value& a = input("a", floats({"5"}));
  Value& b = input("b", floats({"7"}));
  Value& root = node("Add", {&a, &b}, "root");
  Constraints constraints;
  constraints.shape(x, {"N"});
  constraints.shape(y, {"5"});
  auto match = tryMatch(commutative("Add", {x, y}), root, constraints);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->dim("N").value(), 7);
}

TEST_F(MatcherTest, AlternativesAreTriedInOrder) {
  Value& a = input("a");
  Value& root = node("Relu", {&node("Neg", {&a}, "neg")}, "root");
  P pattern =
      op("Relu", {oneOf("arm", {{"div", op("Div", {x, y})}, {"any", x}, {"neg", op("Neg", {x})}})});
  auto match = tryMatch(pattern, root);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->choice("arm"), "any");
  EXPECT_EQ(match->choice("no such tag"), "");
}

TEST_F(MatcherTest, AttributesDefaultFromTheDefinition) {
  Value& a = input("a");
  Value& implied = node("Softmax", {&a}, "implied");
  Value& written = node("Softmax", {&a}, "written", {});
  written.producer()->setAttribute("axis", Attribute::ofInt(1));
  P pattern = op("Softmax", {x}, attrs({{"axis", -1}}));
  EXPECT_TRUE(tryMatch(pattern, implied));
  EXPECT_FALSE(tryMatch(pattern, written));
  EXPECT_EQ(miss.failure.expected, "axis = -1");
  EXPECT_EQ(miss.failure.found, "1");
  EXPECT_EQ(miss.failure.node, "/written");
  // Without a default, an attribute that is not written has no value.
  Value& transposed = node("Transpose", {&a}, "transposed");
  EXPECT_FALSE(tryMatch(op("Transpose", {x}, attrs({{"perm", {0, 1, 3, 2}}})), transposed));
  EXPECT_EQ(miss.failure.found, "that it is not written");
}

TEST_F(MatcherTest, FloatsAndStringsCompareExactly) {
  Value& clip = node("Clip", {&input("a")}, "clip");
  EXPECT_TRUE(tryMatch(op("Clip", {x}, attrs({{"slope", 0.5f}, {"mode", "hard"}})), clip));
  EXPECT_FALSE(tryMatch(op("Clip", {x}, attrs({{"slope", 0.25f}})), clip));
  EXPECT_FALSE(tryMatch(op("Clip", {x}, attrs({{"mode", "soft"}})), clip));
  EXPECT_FALSE(tryMatch(op("Clip", {x}, attrs({{"slope", 1}})), clip)) << "a float is no int";
}

TEST_F(MatcherTest, AxesCompareAfterNormalisation) {
  Value& a = input("a");
  P lastAxis = op("Softmax", {x}, attrs({{"axis", -1}}));
  Value& positive = node("Softmax", {&a}, "positive", {});
  positive.producer()->setAttribute("axis", Attribute::ofInt(3));
  EXPECT_TRUE(tryMatch(lastAxis, positive));
  Value& outOfRange = node("Softmax", {&a}, "out_of_range", {});
  outOfRange.producer()->setAttribute("axis", Attribute::ofInt(4));
  EXPECT_FALSE(tryMatch(lastAxis, outOfRange));

  Value& permuted = node("Transpose", {&a}, "permuted");
  permuted.producer()->setAttribute("perm", Attribute::ofInts({0, 1, -1, -2}));
  EXPECT_TRUE(tryMatch(op("Transpose", {x}, attrs({{"perm", {0, 1, 3, 2}}})), permuted));
  EXPECT_FALSE(tryMatch(op("Transpose", {x}, attrs({{"perm", {0, 1, 3}}})), permuted));
}

TEST_F(MatcherTest, AxesOfUnsqueezeCountInTheResult) {
  Value& a = input("a"); // rank 4, so the last axis of the result is 4
  Value& last = node("Unsqueeze", {&a}, "last");
  last.producer()->setAttribute("axes", Attribute::ofInts({-1}));
  EXPECT_TRUE(tryMatch(op("Unsqueeze", {x}, attrs({{"axes", {4}}})), last));
  EXPECT_FALSE(tryMatch(op("Unsqueeze", {x}, attrs({{"axes", {3}}})), last));
}

TEST_F(MatcherTest, AnAxisOfUnknownRankSaysSo) {
  Value& a = input("a", TensorType(ElementType::Float));
  Value& softmax = node("Softmax", {&a}, "softmax");
  softmax.producer()->setAttribute("axis", Attribute::ofInt(3));
  EXPECT_FALSE(tryMatch(op("Softmax", {x}, attrs({{"axis", -1}})), softmax));
  EXPECT_EQ(miss.failure.code, ReasonCode::DynamicRank);
  EXPECT_TRUE(tryMatch(op("Softmax", {x}, attrs({{"axis", 3}})), softmax)) << "written alike";
}

TEST_F(MatcherTest, AnInteriorValueMustNotEscape) {
  Value& a = input("a");
  Value& neg = node("Neg", {&a}, "neg");
  Value& root = node("Relu", {&neg}, "root");
  P pattern = op("Relu", {op("Neg", {x})});
  EXPECT_TRUE(tryMatch(pattern, root));
  node("Tanh", {&neg}, "outside");
  EXPECT_FALSE(tryMatch(pattern, root));
  EXPECT_EQ(miss.failure.code, ReasonCode::ValueEscapes);
  EXPECT_EQ(miss.failure.node, "/neg");
  EXPECT_THAT(miss.failure.found, HasSubstr("'/outside' (Tanh)")) << "the reason names the reader";
  auto match = tryMatch(op("Relu", {escaping(op("Neg", {x}))}), root);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->nodes().size(), 2u);
}

TEST_F(MatcherTest, AReaderInsideTheMatchIsNoEscape) {
  Value& a = input("a");
  Value& neg = node("Neg", {&a}, "neg");
  Value& root = node("Add", {&neg, &node("Relu", {&neg}, "relu")}, "root");
  P shared = op("Neg", {x});
  auto match = tryMatch(op("Add", {shared, op("Relu", {shared})}), root);
  ASSERT_TRUE(match);
  EXPECT_EQ(match->nodes().size(), 3u) << "each node once";
}

TEST_F(MatcherTest, AGraphOutputIsAReader) {
  Value& neg = node("Neg", {&input("a")}, "neg");
  Value& root = node("Relu", {&neg}, "root");
  graph().addOutput(neg);
  graph().addOutput(root);
  EXPECT_FALSE(tryMatch(op("Relu", {op("Neg", {x})}), root));
  EXPECT_EQ(miss.failure.code, ReasonCode::ValueEscapes);
  EXPECT_EQ(miss.failure.found, "the graph's output");
  EXPECT_TRUE(tryMatch(op("Relu", {escaping(op("Neg", {x}))}), root)) << "the root may be one";
}

TEST_F(MatcherTest, ASubgraphCaptureIsAReader) {
  Value& neg = node("Neg", {&input("a")}, "neg");
  Value& root = node("Relu", {&neg}, "root");
  holder(neg, "branch").producer()->setOperands({}); // only the body reads it
  EXPECT_FALSE(tryMatch(op("Relu", {op("Neg", {x})}), root));
  EXPECT_EQ(miss.failure.code, ReasonCode::ValueEscapes);
  EXPECT_THAT(miss.failure.found, HasSubstr("/inner"));
}

TEST_F(MatcherTest, EscapingOneChoiceDoesNotEndTheSearch) {
  // With the Neg inside the match it escapes; as a leaf it does not matter.
  Value& neg = node("Neg", {&input("a")}, "neg");
  node("Tanh", {&neg}, "outside");
  Value& root = node("Relu", {&neg}, "root");
  auto match = tryMatch(op("Relu", {optional(op("Neg", {x}), x)}), root);
  ASSERT_TRUE(match);
  EXPECT_EQ(&(*match)[x], &neg);
}

TEST_F(MatcherTest, OptionalOperands) {
  Value& a = input("a");
  Value& low = input("low");
  Value& high = input("high");
  P pattern = op("Clip", {x, maybe(y), maybe(z)});
  auto match = tryMatch(pattern, node("Clip", {&a}, "none"));
  ASSERT_TRUE(match);
  EXPECT_EQ(match->find(y), nullptr);
  EXPECT_EQ(match->find(z), nullptr);
  match = tryMatch(pattern, node("Clip", {&a, &low, &high}, "both"));
  ASSERT_TRUE(match);
  EXPECT_EQ(match->find(y), &low);
  EXPECT_EQ(match->find(z), &high);
  match = tryMatch(pattern, node("Clip", {&a, nullptr, &high}, "second"));
  ASSERT_TRUE(match);
  EXPECT_EQ(match->find(y), nullptr);
  EXPECT_EQ(match->find(z), &high);
  EXPECT_FALSE(tryMatch(op("Clip", {x, y}), node("Clip", {&a}, "lacking")));
  EXPECT_EQ(miss.failure.expected, "an operand");
  EXPECT_EQ(miss.path, "Clip/1:y");
}

TEST_F(MatcherTest, FurtherOperandsAreRefusedUnlessAbsent) {
  Value& a = input("a");
  Value& low = input("low");
  P pattern = op("Clip", {x});
  EXPECT_TRUE(tryMatch(pattern, node("Clip", {&a, nullptr, nullptr}, "absent")));
  EXPECT_FALSE(tryMatch(pattern, node("Clip", {&a, &low}, "extra")));
  EXPECT_EQ(miss.failure.expected, "at most 1 operands");
  EXPECT_EQ(miss.failure.found, "2");
  EXPECT_EQ(miss.failure.node, "/extra");
}

TEST_F(MatcherTest, AConstantIsFixedContents) {
  Value& a = input("a");
  Value& overridable = input("overridable", floats({}));
  graph().setInputDefault(overridable, floatScalar(ElementType::Float, 1.0));
  P pattern = op("Mul", {x, constant(c)});
  EXPECT_TRUE(tryMatch(pattern, node("Mul", {&a, &scalar("fixed")}, "by_fixed")));
  EXPECT_FALSE(tryMatch(pattern, node("Mul", {&a, &overridable}, "by_default")));
  EXPECT_EQ(miss.failure.expected, "c to be a constant");
  EXPECT_EQ(miss.failure.found, "a graph input");
}

TEST_F(MatcherTest, AResultOfSeveral) {
  Node& split = graph().create("Split", {&input("a")}, {"left", "right"});
  Value& root = node("Relu", {&split.result(1)}, "root");
  EXPECT_TRUE(tryMatch(op("Relu", {op("Split", {x}, {}, 1)}), root));
  EXPECT_FALSE(tryMatch(op("Relu", {op("Split", {x})}), root)) << "another result of the node";
  EXPECT_TRUE(tryMatch(op("Split", {x}, {}, 1), split.result(0))) << "any result of the root";
}

TEST_F(MatcherTest, TheFurthestFailureIsKept) {
  Value& a = input("a");
  Value& b = input("b");
  Value& deep = node("Tanh", {&node("Neg", {&node("Sigmoid", {&a}, "sigmoid")}, "neg")}, "tanh");
  Value& root = node("Add", {&deep, &b}, "root");
  P pattern = op("Add", {oneOf("", {{"wrong at once", op("Mul", {x, y})},
                                    {"wrong late", op("Tanh", {op("Neg", {op("Relu", {x})})})},
                                    {"wrong sooner", op("Tanh", {op("Div", {x, y})})}}),
                         z});
  EXPECT_FALSE(tryMatch(pattern, root));
  EXPECT_EQ(miss.matched, 3u) << "Add, Tanh, Neg";
  EXPECT_EQ(miss.path, "Add/0:Tanh/0:Neg/0:Relu");
  EXPECT_EQ(miss.failure.code, ReasonCode::PatternMismatch);
  EXPECT_EQ(miss.failure.node, "/sigmoid");
  EXPECT_EQ(miss.failure.expected, "Relu");
  EXPECT_EQ(miss.failure.found, "Sigmoid");
  EXPECT_EQ(miss.root, "/root");
}

TEST_F(MatcherTest, TheBudgetIsReported) {
  // Twelve commutative levels, all of which fail only at the last operand: 2^12 orders.
  Value* value = &input("a");
  P pattern = op("Neg", {any()});
  for (int level = 0; level < 12; ++level) {
    value = &node("Add", {value, value}, ("level" + std::to_string(level)).c_str());
    pattern = commutative("Add", {pattern, any()});
  }
  Value& root = node("Mul", {value, value}, "root");
  EXPECT_FALSE(tryMatch(op("Mul", {pattern, any()}), root, {}, {1000}));
  EXPECT_TRUE(gaveUp);
  EXPECT_EQ(miss.failure.code, ReasonCode::StepBudget) << "above the failures found by then";
  EXPECT_EQ(miss.matched, 13u);
  EXPECT_THAT(miss.failure.str(), HasSubstr("1000 steps"));
  EXPECT_FALSE(tryMatch(op("Mul", {pattern, any()}), root));
  EXPECT_FALSE(gaveUp) << "enough for the whole search";
  EXPECT_EQ(miss.failure.code, ReasonCode::PatternMismatch);
}

TEST_F(MatcherTest, ACompiledPatternServesManyGraphs) {
  CompiledPattern compiled(op("Relu", {op("Neg", {x})}), {});
  Value& root = node("Relu", {&node("Neg", {&input("a")}, "neg")}, "root");
  Model second(ops);
  second.opsets[""] = 17;
  Value& other = second.graph().addInput("other", floats({"N"}));
  Node& neg = second.graph().create("Neg", {&other}, {"neg"});
  Node& relu = second.graph().create("Relu", {&neg.result()}, {"root"});
  auto first = matchAt(compiled, *root.producer());
  auto again = matchAt(compiled, relu);
  ASSERT_TRUE(first && again);
  EXPECT_EQ(&(*first)[x], graph().findValue("a"));
  EXPECT_EQ(&(*again)[x], &other);
}

} // namespace
} // namespace kvopt
